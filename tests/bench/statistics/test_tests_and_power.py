"""Several tests at once, equivalence, and what a number of pairs can show."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from fastlane._exceptions import ConfigurationError
from fastlane.bench.statistics import (
    Interval,
    equivalence_p,
    hodges_lehmann,
    holm,
    pairs_for_effect,
    pairs_for_equivalence,
    signed_rank_p,
    smallest_effect,
)
from fastlane.bench.statistics._power import student

from_here = 0
P_VALUES = st.lists(st.floats(0, 1), max_size=12)


class TestHolm:
    def test_an_example_by_hand(self) -> None:
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert holm([]) == []
        assert holm([0.7]) == [0.7]

    @given(P_VALUES)
    def test_it_keeps_the_order_raises_every_p_value_and_no_more_than_bonferroni_would(
        self, values: list[float]
    ) -> None:
        adjusted = holm(values)
        for at, value in enumerate(values):
            assert value <= adjusted[at] <= min(1, value * len(values)) + 1e-12
            assert all(adjusted[at] <= adjusted[other] for other in range(len(values)) if value <= values[other])

    @given(P_VALUES, st.randoms())
    def test_the_order_in_which_they_come_does_not_matter(self, values: list[float], random: object) -> None:
        turned = values[::-1]
        assert holm(turned) == holm(values)[::-1]

    @pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
    def test_what_is_no_probability_is_refused(self, bad: float) -> None:
        with pytest.raises(ConfigurationError, match="from 0 to 1"):
            holm([0.5, bad])


class TestEquivalence:
    @pytest.mark.parametrize(("middle", "spread", "count"), [(0.0, 0.02, 30), (0.01, 0.1, 300), (0.03, 0.1, 80)])
    def test_it_is_two_one_sided_tests_of_scipy(self, middle: float, spread: float, count: int) -> None:
        logs = np.random.default_rng(count).normal(middle, spread, count)
        bound = math.log(1.03)
        method = "exact" if count <= 100 else "asymptotic"
        below = stats.wilcoxon(logs - bound, alternative="less", method=method, correction=True).pvalue
        above = stats.wilcoxon(logs + bound, alternative="greater", method=method, correction=True).pvalue
        assert equivalence_p(logs) == pytest.approx(max(below, above), rel=0.02)

    @given(st.integers(0, 10_000), st.integers(8, 150), st.floats(-0.05, 0.05))
    def test_it_agrees_with_the_interval_at_90_percent(self, seed: int, count: int, middle: float) -> None:
        logs = np.random.default_rng(seed).normal(middle, 0.05, count)
        interval = hodges_lehmann(logs, confidence=0.9)
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        bound = math.log(1.03)
        inside = min(interval.low + bound, bound - interval.high)
        if abs(inside) > 1e-9:
            assert (equivalence_p(logs) <= 0.05) == (inside > 0)

    @given(st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=40))
    def test_swapping_the_arms_changes_nothing_and_a_wider_margin_only_helps(self, logs: list[float]) -> None:
        assert equivalence_p(np.negative(logs)) == pytest.approx(equivalence_p(logs))
        # Another margin makes other ties: beside them it can only help.
        jittered = np.asarray(logs) + np.linspace(0, 1e-3, len(logs)) * math.pi
        assert equivalence_p(jittered, 0.1) <= equivalence_p(jittered, 0.03) + 0.02

    def test_arms_that_are_the_same_are_equivalent_once_there_are_enough_pairs(self) -> None:
        assert equivalence_p([0.0] * 4) > 0.05
        assert equivalence_p([0.0] * 5) <= 0.05
        assert equivalence_p([]) == 1

    def test_arms_at_the_margin_are_called_equivalent_in_one_case_of_twenty_at_most(self) -> None:
        random = np.random.default_rng(5)
        called = sum(equivalence_p(random.normal(math.log(1.03), 0.05, 60)) <= 0.05 for _ in range(600))
        assert called <= 30 + 3 * math.sqrt(600 * 0.05 * 0.95)

    @pytest.mark.parametrize("margin", [0, -0.03, math.nan])
    def test_a_margin_that_is_none_is_refused(self, margin: float) -> None:
        with pytest.raises(ConfigurationError, match="margin"):
            equivalence_p([0.1], margin)


class TestPower:
    def test_the_smallest_effect_is_found_in_nine_cases_of_ten(self) -> None:
        random = np.random.default_rng(6)
        typical = hodges_lehmann(random.normal(0, 0.28, 4_000))
        assert typical is not None
        smallest = smallest_effect(typical)
        assert smallest is not None
        # What 4,000 pairs could have shown, 250 could have shown of a change four times as large.
        effect = 4 * math.log1p(smallest)
        found = sum(signed_rank_p(random.normal(effect, 0.28, 250)) <= 0.05 for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.05)

    def test_as_many_pairs_as_it_says_show_the_effect_in_nine_cases_of_ten(self) -> None:
        random = np.random.default_rng(7)
        wanted = pairs_for_effect(Interval(value=0.05, low=0.05 - 0.0549, high=0.05 + 0.0549), 100)
        assert wanted is not None  # 0.0549 is 1.96 standard errors of 100 pairs that scatter by 0.28
        found = sum(signed_rank_p(random.normal(0.05, 0.28, wanted)) <= 0.05 for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.05)

    @pytest.mark.parametrize("middle", [0.0, 0.01])
    def test_as_many_pairs_as_it_says_show_equivalence_in_nine_cases_of_ten(self, middle: float) -> None:
        random = np.random.default_rng(8)
        wanted = pairs_for_equivalence(Interval(value=middle, low=middle - 0.0196, high=middle + 0.0196), 100, 0.03)
        assert wanted is not None
        found = sum(equivalence_p(random.normal(middle, 0.1, wanted)) <= 0.05 for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.06)

    def test_more_comparisons_want_a_larger_effect_and_more_pairs(self) -> None:
        typical = Interval(value=0.05, low=0.0, high=0.1)
        assert (smallest_effect(typical, 0.01) or 0) > (smallest_effect(typical) or 0)
        assert (pairs_for_effect(typical, 50, 0.01) or 0) > (pairs_for_effect(typical, 50) or 0)

    def test_where_nothing_would_do_there_is_no_number(self) -> None:
        unknown, nothing = Interval(value=0.1), Interval(value=0.0, low=-0.1, high=0.1)
        assert smallest_effect(unknown) is None
        assert pairs_for_effect(unknown, 3) is None
        assert pairs_for_effect(nothing, 50) is None
        assert pairs_for_effect(Interval(value=1e-9, low=-0.1, high=0.1), 50) is None
        assert pairs_for_equivalence(Interval(value=0.05, low=0.0, high=0.1), 50, 0.03) is None
        assert pairs_for_equivalence(unknown, 3, 0.03) is None

    def test_pairs_that_are_all_the_same_would_show_anything(self) -> None:
        same = Interval(value=0.0, low=0.0, high=0.0)
        assert smallest_effect(same) == 0
        assert pairs_for_equivalence(same, 10, 0.03) == 1


@pytest.mark.parametrize("degrees", [5, 7, 20, 200])
@pytest.mark.parametrize("share", [0.9, 0.975, 0.995])
def test_student_s_quantiles_are_those_of_scipy(degrees: int, share: float) -> None:
    expected = stats.t.ppf(share, degrees)
    assert student(NormalDist().inv_cdf(share), degrees) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("pairs", [8, 30, 100])
def test_the_smallest_effect_of_one_run_is_found_by_the_next_in_about_nine_cases_of_ten(pairs: int) -> None:
    random, alpha, runs = np.random.default_rng(pairs), 0.05 / 3, 600
    found = 0
    for _ in range(runs):
        typical = hodges_lehmann(random.normal(0, 0.28, pairs))
        assert typical is not None
        effect = smallest_effect(typical, alpha, pairs=pairs)
        assert effect is not None
        found += signed_rank_p(random.normal(0, 0.28, pairs) - math.log1p(effect)) <= alpha
    # 600 runs at 0.9 have a standard error of 0.012.
    assert 0.85 < found / runs < 0.95


def test_equivalence_is_wrong_in_one_case_of_twenty_at_the_margin_s_edge() -> None:
    random, runs = np.random.default_rng(4), 2_000
    wrong = sum(equivalence_p(random.normal(math.log1p(0.03), 0.08, 80), 0.03) <= 0.05 for _ in range(runs))
    # At exactly 0.05 the standard error of 2,000 is 0.005.
    assert 0.03 < wrong / runs < 0.066
