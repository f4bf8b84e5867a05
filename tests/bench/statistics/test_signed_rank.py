"""Wilcoxon's test and the Hodges-Lehmann estimate, against scipy, by brute force and by their laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from fastlane.bench.statistics import _walsh, hodges_lehmann, log_ratios, signed_rank_p
from fastlane.errors import ConfigurationError

VALUES = st.floats(-10, 10).map(lambda value: round(value, 3))


def test_the_test_is_that_of_scipy_with_zeros_after_pratt() -> None:
    differences = np.random.default_rng(1).integers(-20, 23, 400).astype(float)
    expected = stats.wilcoxon(differences, zero_method="pratt", method="asymptotic", correction=True).pvalue
    assert signed_rank_p(differences) == pytest.approx(expected)


def test_nothing_but_zeros_is_no_evidence() -> None:
    assert signed_rank_p([]) == signed_rank_p([0.0] * 50) == 1
    assert signed_rank_p([0.0] * 300) == 1


def test_the_far_tail_keeps_its_digits() -> None:
    assert 0 < signed_rank_p(np.arange(1.0, 1_001.0)) < 1e-100


@given(st.lists(VALUES, min_size=1, max_size=25))
def test_averages_of_pairs_are_found_by_rank(values: list[float]) -> None:
    ordered = np.sort(np.asarray(values))
    averages = sorted((a + b) / 2 for at, a in enumerate(ordered) for b in ordered[at:])
    found = [_walsh(ordered, rank) for rank in range(1, len(averages) + 1)]
    np.testing.assert_allclose(found, averages, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [6, 12, 40, 100, 101, 160])
def test_the_interval_holds_exactly_what_the_test_does_not_reject(count: int) -> None:
    values = np.random.default_rng(count).normal(0.2, 1, count)
    interval = hodges_lehmann(values)
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    for bound, outwards in ((interval.low, -1), (interval.high, 1)):
        assert signed_rank_p(values - (bound + outwards * 1e-6)) <= 0.05
        assert signed_rank_p(values - (bound - outwards * 1e-6)) > 0.05


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (10, 9), (20, 53), (25, 90)])
def test_its_ranks_are_those_of_the_printed_tables(count: int, rank: int) -> None:
    # Critical values of the signed-rank sum at 5 %, two-sided, + 1: Conover, Practical Nonparametric Statistics, A12.
    values = np.sort(np.random.default_rng(0).normal(size=count))
    interval = hodges_lehmann(values)
    assert interval is not None
    assert interval.low == pytest.approx(_walsh(values, rank), abs=1e-9)


def test_below_six_values_there_is_an_estimate_and_no_interval() -> None:
    assert hodges_lehmann([]) is None
    few = hodges_lehmann([1, 2, 3, 4, 10])
    assert few is not None
    assert few.value == pytest.approx(3)
    assert (few.low, few.high) == (None, None)


def test_values_that_are_all_the_same_are_an_interval_without_width() -> None:
    same = hodges_lehmann([-0.25] * 8)
    assert same is not None
    assert (same.low, same.value, same.high) == (-0.25, -0.25, -0.25)


@pytest.mark.slow
def test_it_covers_the_truth_in_nineteen_cases_of_twenty() -> None:
    random = np.random.default_rng(11)
    for count in (8, 60, 150):
        held = 0
        for _ in range(400):
            interval = hodges_lehmann(random.standard_t(3, count))
            assert interval is not None
            held += (interval.low or 0) <= 0 <= (interval.high or 0)
        assert held >= 380 - 3 * math.sqrt(400 * 0.05 * 0.95)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=6, max_size=60), st.floats(0.01, 100))
def test_swapping_the_arms_inverts_the_ratio_and_another_unit_leaves_it(
    pairs: list[tuple[float, float]], unit: float
) -> None:
    ours, theirs = np.array(pairs).T
    plain = hodges_lehmann(log_ratios(ours, theirs))
    swapped = hodges_lehmann(log_ratios(theirs, ours))
    scaled = hodges_lehmann(log_ratios(ours * unit, theirs * unit))
    assert plain is not None
    assert swapped is not None
    assert scaled is not None
    assert plain.low is not None
    assert plain.high is not None
    assert (swapped.low, swapped.value, swapped.high) == pytest.approx(
        (-plain.high, -plain.value, -plain.low), abs=1e-9
    )
    assert (scaled.low, scaled.value, scaled.high) == pytest.approx((plain.low, plain.value, plain.high), abs=1e-9)


class TestLogRatios:
    def test_a_ratio_with_zero_is_further_out_than_any_other_and_still_a_number(self) -> None:
        logs = log_ratios([0, 0, 5, 1e-8], [0, 3, 0, 1])
        assert logs[0] == 0
        assert logs[1] == -logs[2] == pytest.approx(-math.log(1e9))
        assert logs[1] < logs[3]

    @pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf])
    def test_what_has_no_ratio_is_refused(self, bad: float) -> None:
        with pytest.raises(ConfigurationError, match="leave out"):
            log_ratios([1.0, bad], [1.0, 1.0])

    def test_values_that_do_not_pair_up_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="as many"):
            log_ratios([1.0], [1.0, 2.0])

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_tests_and_estimates_refuse_what_is_no_number(self, bad: float) -> None:
        for ask in (signed_rank_p, hodges_lehmann):
            with pytest.raises(ConfigurationError, match="finite"):
                ask([1.0, bad])
