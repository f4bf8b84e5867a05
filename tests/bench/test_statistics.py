"""Estimates, intervals and tests against scipy, by brute force, and by how often they hold the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import ArrayLike
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from fastlane.bench.statistics import (
    Interval,
    _ranks,
    _walsh,
    hodges_lehmann,
    log_ratios,
    mean_changes,
    pairs_for_effect,
    pairs_for_equivalence,
    pairs_for_interval,
    quantile,
    quantile_ratio,
    signed_rank_p,
    smallest_effect,
    wanted,
)

VALUES = st.floats(0, 1e3)


@pytest.mark.parametrize(
    ("share", "count"), [(0.25, 13), (0.5, 6), (0.75, 13), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3_688)]
)
def test_quantile_needs_a_minimum_count(share: float, count: int) -> None:
    assert wanted(share) == count
    outer = max(share, 1 - share)
    assert outer**count <= 0.025 < outer ** (count - 1)


@given(st.lists(VALUES, max_size=400), st.sampled_from([0.05, 0.25, 0.5, 0.9, 0.95, 0.99]))
def test_quantile_matches_numpy_or_is_not_available(values: list[float], share: float) -> None:
    found = quantile(values, share)
    if len(values) < wanted(share):
        assert (found.value, found.low, found.high) == (None, None, None)
    else:
        assert found.value == pytest.approx(np.quantile(values, share))
        assert found.low is not None
        assert found.high is not None
        assert found.low - 1e-9 <= np.quantile(values, share) <= found.high + 1e-9
        assert {found.low, found.high} <= set(values)


@pytest.mark.parametrize(
    ("share", "count"),
    [(share, count) for share in (0.25, 0.5, 0.95, 0.99) for count in (13, 72, 368, 5_000) if count >= wanted(share)],
)
def test_quantile_interval_bounds_match_binomial_quantiles(share: float, count: int) -> None:
    low, high = _ranks(count, share)
    binomial = stats.binom(count, share)
    assert binomial.cdf(low - 1) <= 0.025 + 1e-9
    assert binomial.cdf(low) > 0.025  # the next would miss more
    assert binomial.sf(high - 1) <= 0.025 + 1e-9
    assert binomial.sf(high - 2) > 0.025


def test_quantile_covers_the_truth_in_nineteen_cases_of_twenty() -> None:
    random = np.random.default_rng(3)
    truth = stats.lognorm(0.5).ppf(0.95)
    held = 0
    for _ in range(500):
        found = quantile(random.lognormal(0, 0.5, 90), 0.95)
        held += (found.low or 0) <= truth <= (found.high or math.inf)
    assert held >= 475 - 3 * math.sqrt(500 * 0.05 * 0.95)


def test_failed_requests_are_slower_than_every_other() -> None:
    values = [float(value) for value in range(100)]
    sound, broken = quantile(values, 0.5), quantile(values, 0.5, failed=20)
    assert sound.value == 49.5
    assert broken.value == 59.5
    assert broken.n == 120
    assert broken == quantile([*values, *[1e6] * 20], 0.5)


def test_quantile_that_is_a_failed_request_has_no_value() -> None:
    found = quantile([float(value) for value in range(100)], 0.95, failed=20)
    assert found.value is None
    assert found.n >= found.wanted


def test_bound_that_is_a_failed_request_is_none() -> None:
    found = quantile([float(value) for value in range(100)], 0.95, failed=3)
    assert found.value is not None
    assert found.low is not None
    assert found.high is None


def test_failed_requests_rank_lowest_if_higher_is_better() -> None:
    values = [float(value) for value in range(100)]
    assert quantile(values, 0.5, failed=20, lower_is_better=False).value == 39.5
    assert quantile(values, 0.05, failed=20, lower_is_better=False).value is None


def test_values_that_are_all_the_same_are_known_exactly() -> None:
    found = quantile([7.0] * 80, 0.95)
    assert (found.low, found.value, found.high) == (7.0, 7.0, 7.0)


def test_quantile_without_values_has_none() -> None:
    assert quantile([], 0.5).value is None
    assert quantile([], 0.5, failed=50).value is None


SIGNED = st.floats(-10, 10).map(lambda value: round(value, 3))


def test_test_is_that_of_scipy_with_zeros_after_pratt() -> None:
    differences = np.random.default_rng(1).integers(-20, 23, 400).astype(float)
    expected = stats.wilcoxon(differences, zero_method="pratt", method="asymptotic", correction=True).pvalue
    assert signed_rank_p(differences) == pytest.approx(expected)


def test_signed_rank_test_of_zeros_has_p_value_one() -> None:
    assert signed_rank_p([]) == signed_rank_p([0.0] * 50) == 1
    assert signed_rank_p([0.0] * 300) == 1


def test_signed_rank_p_value_is_positive_in_the_far_tail() -> None:
    assert 0 < signed_rank_p(np.arange(1.0, 1_001.0)) < 1e-100


@given(st.lists(SIGNED, min_size=1, max_size=25))
def test_averages_of_pairs_are_found_by_rank(values: list[float]) -> None:
    ordered = np.sort(np.asarray(values))
    averages = sorted((a + b) / 2 for at, a in enumerate(ordered) for b in ordered[at:])
    found = [_walsh(ordered, rank) for rank in range(1, len(averages) + 1)]
    np.testing.assert_allclose(found, averages, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [6, 12, 40, 100, 101, 160])
def test_hodges_lehmann_interval_is_the_inverted_test(count: int) -> None:
    values = np.random.default_rng(count).normal(0.2, 1, count)
    interval = hodges_lehmann(values)
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    for bound, outwards in ((interval.low, -1), (interval.high, 1)):
        assert signed_rank_p(values - (bound + outwards * 1e-6)) <= 0.05
        assert signed_rank_p(values - (bound - outwards * 1e-6)) > 0.05


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (10, 9), (20, 53), (25, 90)])
def test_hodges_lehmann_ranks_match_published_tables(count: int, rank: int) -> None:
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


def test_hodges_lehmann_of_equal_values_has_zero_width() -> None:
    same = hodges_lehmann([-0.25] * 8)
    assert same is not None
    assert (same.low, same.value, same.high) == (-0.25, -0.25, -0.25)


@pytest.mark.slow
def test_hodges_lehmann_interval_covers_in_95_percent() -> None:
    random = np.random.default_rng(11)
    for count in (8, 60, 150):
        held = 0
        for _ in range(400):
            interval = hodges_lehmann(random.standard_t(3, count))
            assert interval is not None
            held += (interval.low or 0) <= 0 <= (interval.high or 0)
        assert held >= 380 - 3 * math.sqrt(400 * 0.05 * 0.95)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=6, max_size=60), st.floats(0.01, 100))
def test_hodges_lehmann_is_symmetric_and_scale_invariant(pairs: list[tuple[float, float]], unit: float) -> None:
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
    def test_log_ratio_with_zero_is_extreme_but_finite(self) -> None:
        logs = log_ratios([0, 0, 5, 1e-8], [0, 3, 0, 1])
        assert logs[0] == 0
        assert logs[1] == -logs[2] == pytest.approx(-math.log(1e9))
        assert logs[1] < logs[3]


def drawn(seed: int, pairs: int, change: float) -> tuple[Any, Any]:
    """A baseline that drifts and has a tail, and an arm that is `change` times as slow, each with noise of its own."""
    random = np.random.default_rng(seed)
    mood = np.exp(0.2 * np.sin(np.arange(pairs) / 15) + random.exponential(0.1, pairs))
    return mood * change * np.exp(random.normal(0, 0.1, pairs)), mood * np.exp(random.normal(0, 0.1, pairs))


@pytest.mark.parametrize(("pairs", "share"), [(40, 0.5), (300, 0.25), (3_000, 0.5), (3_000, 0.95), (3_000, 0.99)])
def test_quantile_ratio_interval_matches_a_plain_bootstrap(pairs: int, share: float) -> None:
    ours, theirs = drawn(1, pairs, 0.8)
    random = np.random.default_rng(2)
    every = [random.integers(0, pairs, pairs) for _ in range(1_500)]
    own, other = (np.array([np.quantile(arm[rows], share) for rows in every]) for arm in (ours, theirs))
    found = quantile_ratio(ours, theirs, share, seed=3)
    assert found is not None
    by_hand = own / other
    spread = by_hand.std()
    # Ends of such intervals are themselves drawn: with 2,000 resamples each lies within 0.2 standard deviations.
    assert found.low == pytest.approx(np.quantile(by_hand, 0.025), abs=0.25 * spread)
    assert found.high == pytest.approx(np.quantile(by_hand, 0.975), abs=0.25 * spread)


def test_quantile_ratio_of_paired_arms_is_narrower() -> None:
    random = np.random.default_rng(4)
    mood = random.lognormal(0, 1, 500)
    ours, theirs = mood * 0.9 * random.lognormal(0, 0.01, 500), mood * random.lognormal(0, 0.01, 500)
    together = quantile_ratio(ours, theirs, 0.5)
    apart = quantile_ratio(random.permutation(ours), theirs, 0.5)
    assert together is not None
    assert apart is not None
    width, wide = ((each.high or 0) - (each.low or 0) for each in (together, apart))
    assert width < wide / 3


@given(st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=60), st.floats(0.1, 10), st.sampled_from([0.5, 0.9]))
def test_constant_change_is_found_exactly(baseline: list[float], change: float, share: float) -> None:
    found = quantile_ratio([time * change for time in baseline], baseline, share)
    assert found is not None
    assert (found.low, found.value, found.high) == pytest.approx((change, change, change))


def test_swapping_the_arms_inverts_the_ratio() -> None:
    ours, theirs = drawn(5, 200, 0.8)
    plain, swapped = quantile_ratio(ours, theirs, 0.5), quantile_ratio(theirs, ours, 0.5)
    assert plain is not None
    assert swapped is not None
    assert swapped.value == pytest.approx(1 / plain.value)
    assert swapped.low == pytest.approx(1 / (plain.high or 0), rel=0.02)


def test_quantile_ratio_is_seeded_and_scale_invariant() -> None:
    ours, theirs = drawn(6, 200, 0.8)
    first = quantile_ratio(ours, theirs, 0.9, seed=1)
    assert first == quantile_ratio(ours, theirs, 0.9, seed=1)
    assert first != quantile_ratio(ours, theirs, 0.9, seed=2)
    scaled = quantile_ratio(ours * 1_000, theirs * 1_000, 0.9, seed=1)
    assert first is not None
    assert scaled is not None
    assert scaled.low == pytest.approx(first.low)


@pytest.mark.slow
def test_quantile_ratio_interval_covers_in_95_percent() -> None:
    for share, pairs in ((0.5, 100), (0.95, 300)):
        held = 0
        for seed in range(200):
            found = quantile_ratio(*drawn(seed, pairs, 0.8), share, seed=seed)
            assert found is not None
            held += (found.low or 0) <= 0.8 <= (found.high or 0)
        assert held >= 190 - 3 * math.sqrt(200 * 0.05 * 0.95)


def test_failed_requests_raise_quantile_and_may_unbound_it() -> None:
    ours, theirs = drawn(7, 200, 1.0)
    sound = quantile_ratio(ours, theirs, 0.5)
    ours[:20] = math.inf
    broken = quantile_ratio(ours, theirs, 0.5)
    assert sound is not None
    assert broken is not None
    assert broken.value > sound.value
    edge = quantile_ratio(ours, theirs, 0.89)
    assert edge is not None
    assert edge.low is not None
    assert edge.high is None
    assert quantile_ratio(ours, theirs, 0.95) is None


def test_quantile_with_failures_in_other_arm_has_no_ratio() -> None:
    ours, theirs = drawn(8, 100, 1.0)
    theirs[:60] = 0.0
    assert quantile_ratio(ours, theirs, 0.5) is None


def test_few_pairs_have_no_interval_and_none_no_value() -> None:
    assert quantile_ratio([], [], 0.5) is None
    few = quantile_ratio([1.0, 2.0], [2.0, 4.0], 0.5)
    assert few is not None
    assert (few.value, few.low, few.high) == (0.5, None, None)
    same = quantile_ratio([3.0] * 30, [2.0] * 30, 0.5)
    assert same is not None
    assert (same.low, same.high) == (1.5, 1.5)


def test_sums_of_means_are_drawn_by_block() -> None:
    random = np.random.default_rng(9)
    mood = random.normal(0, 10, 400)
    blocks = np.stack((mood, mood + 3 + random.normal(0, 1, 400)), axis=1)
    value, resamples = mean_changes(blocks, np.array([[-1.0, 1.0], [1.0, 0.0]]))
    assert value[0] == pytest.approx(blocks[:, 1].mean() - blocks[:, 0].mean())
    assert resamples[:, 0].std() == pytest.approx((blocks[:, 1] - blocks[:, 0]).std() / 20, rel=0.1)
    assert resamples[:, 1].std() == pytest.approx(0.5, rel=0.15)


def is_equivalent(logs: ArrayLike, margin: float = 0.03) -> bool:
    """Whether the 95 % interval lies within the margin."""
    interval = hodges_lehmann(logs)
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    return -math.log1p(margin) <= interval.low and interval.high <= math.log1p(margin)


class TestPower:
    def test_smallest_effect_is_found_in_nine_cases_of_ten(self) -> None:
        random = np.random.default_rng(6)
        typical = hodges_lehmann(random.normal(0, 0.28, 4_000))
        assert typical is not None
        smallest = smallest_effect(typical)
        assert smallest is not None
        # What 4,000 pairs could have shown, 250 could have shown of a change four times as large.
        effect = 4 * math.log1p(smallest)
        found = sum(signed_rank_p(random.normal(effect, 0.28, 250)) <= 0.05 for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.05)

    def test_pairs_for_effect_give_90_percent_power(self) -> None:
        random = np.random.default_rng(7)
        wanted = pairs_for_effect(Interval(value=0.05, low=0.05 - 0.0549, high=0.05 + 0.0549), 100)
        assert wanted is not None  # 0.0549 is 1.96 standard errors of 100 pairs that scatter by 0.28
        found = sum(signed_rank_p(random.normal(0.05, 0.28, wanted)) <= 0.05 for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.05)

    @pytest.mark.parametrize("middle", [0.0, 0.01])
    def test_pairs_for_equivalence_give_90_percent_power(self, middle: float) -> None:
        random = np.random.default_rng(8)
        wanted = pairs_for_equivalence(Interval(value=middle, low=middle - 0.0196, high=middle + 0.0196), 100, 0.03)
        assert wanted is not None
        found = sum(is_equivalent(random.normal(middle, 0.1, wanted)) for _ in range(400))
        assert found / 400 == pytest.approx(0.9, abs=0.06)

    def test_more_comparisons_want_a_larger_effect_and_more_pairs(self) -> None:
        typical = Interval(value=0.05, low=0.0, high=0.1)
        assert (smallest_effect(typical, 0.01) or 0) > (smallest_effect(typical) or 0)
        assert (pairs_for_effect(typical, 50, 0.01) or 0) > (pairs_for_effect(typical, 50) or 0)

    def test_unreachable_power_gives_no_effect_or_pairs(self) -> None:
        unknown, nothing = Interval(value=0.1), Interval(value=0.0, low=-0.1, high=0.1)
        assert smallest_effect(unknown) is None
        assert pairs_for_effect(unknown, 3) is None
        assert pairs_for_effect(nothing, 50) is None
        assert pairs_for_effect(Interval(value=1e-9, low=-0.1, high=0.1), 50) is None
        assert pairs_for_equivalence(Interval(value=0.05, low=0.0, high=0.1), 50, 0.03) is None
        assert pairs_for_equivalence(unknown, 3, 0.03) is None

    def test_equal_pairs_have_smallest_effect_zero(self) -> None:
        same = Interval(value=0.0, low=0.0, high=0.0)
        assert smallest_effect(same) == 0
        assert pairs_for_equivalence(same, 10, 0.03) == 1


@pytest.mark.parametrize("pairs", [8, 30, 100])
def test_smallest_effect_is_detected_in_90_percent(pairs: int) -> None:
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


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 3, 0.05 / 12])
def test_interval_exists_from_the_fewest_pairs_on(alpha: float) -> None:
    fewest = pairs_for_interval(alpha)
    enough, too_few = (hodges_lehmann([*range(count)], 1 - alpha) for count in (fewest, fewest - 1))
    assert enough is not None
    assert enough.low is not None
    assert too_few is not None
    assert too_few.low is None
