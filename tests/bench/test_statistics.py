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
    hodges_lehmann,
    log_ratios,
    mean_changes,
    pairs_for_effect,
    pairs_for_equivalence,
    quantile,
    quantile_ratios,
    signed_rank_p,
    smallest_effect,
)

WANTED = {0.25: 13, 0.5: 6, 0.75: 13, 0.9: 36, 0.95: 72, 0.99: 368, 0.999: 3_688}
"""The fewest values with which a quantile has an interval: max(share, 1 - share) ** n <= 0.025."""


@given(st.lists(st.floats(0, 1e3), max_size=400), st.sampled_from(sorted(WANTED)))
def test_quantile_matches_numpy_or_is_not_available(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found.wanted == WANTED[share]
    if len(values) < WANTED[share]:
        assert (found.value, found.low, found.high) == (None, None, None)
    else:
        assert found.value == pytest.approx(np.quantile(values, share))
        assert found.low is not None
        assert found.high is not None
        assert found.low - 1e-9 <= np.quantile(values, share) <= found.high + 1e-9
        assert {found.low, found.high} <= set(values)


@pytest.mark.parametrize(
    ("share", "count"),
    [(share, count) for share in (0.25, 0.5, 0.95, 0.99) for count in (13, 72, 368, 5_000) if count >= WANTED[share]],
)
def test_quantile_interval_bounds_match_binomial_quantiles(share: float, count: int) -> None:
    found = quantile([*range(1, count + 1)], share)
    assert found.low is not None
    assert found.high is not None
    binomial = stats.binom(count, share)
    assert binomial.cdf(found.low - 1) <= 0.025 + 1e-9
    assert binomial.cdf(found.low) > 0.025  # the next would miss more
    assert binomial.sf(found.high - 1) <= 0.025 + 1e-9
    assert binomial.sf(found.high - 2) > 0.025


def test_failed_requests_rank_as_the_worst_values() -> None:
    values = [float(value) for value in range(100)]
    assert quantile(values, 0.5).value == 49.5
    assert quantile(values, 0.5, failed=20) == quantile([*values, *[1e6] * 20], 0.5)
    assert quantile(values, 0.95, failed=20).value is None
    assert quantile(values, 0.5, failed=20, lower_is_better=False).value == 39.5
    assert quantile(values, 0.05, failed=20, lower_is_better=False).value is None
    assert quantile([], 0.5, failed=50).value is None
    edge = quantile(values, 0.95, failed=3)
    assert edge.value is not None
    assert edge.low is not None
    assert edge.high is None


def test_signed_rank_test_is_that_of_scipy_with_zeros_after_pratt() -> None:
    differences = np.random.default_rng(1).integers(-20, 23, 400).astype(float)
    expected = stats.wilcoxon(differences, zero_method="pratt", method="asymptotic", correction=True).pvalue
    assert signed_rank_p(differences) == pytest.approx(expected)
    assert signed_rank_p([]) == signed_rank_p([0.0] * 50) == signed_rank_p([0.0] * 300) == 1
    assert 0 < signed_rank_p(np.arange(1.0, 1_001.0)) < 1e-100


@pytest.mark.parametrize("count", [6, 12, 40, 100, 101, 160])
def test_hodges_lehmann_interval_is_the_inverted_test(count: int) -> None:
    values = np.random.default_rng(count).normal(0.2, 1, count)
    interval = hodges_lehmann(values)
    assert interval is not None
    assert interval.value == pytest.approx(np.median([(a + b) / 2 for at, a in enumerate(values) for b in values[at:]]))
    assert interval.low is not None
    assert interval.high is not None
    for bound, outwards in ((interval.low, -1), (interval.high, 1)):
        assert signed_rank_p(values - (bound + outwards * 1e-6)) <= 0.05
        assert signed_rank_p(values - (bound - outwards * 1e-6)) > 0.05


def test_hodges_lehmann_of_few_or_equal_values() -> None:
    assert hodges_lehmann([]) is None
    few, same = hodges_lehmann([1, 2, 3, 4, 10]), hodges_lehmann([-0.25] * 8)
    assert few is not None
    assert few.value == pytest.approx(3)
    assert (few.low, few.high) == (None, None)
    assert same is not None
    assert (same.low, same.value, same.high) == (-0.25, -0.25, -0.25)


def test_log_ratio_with_zero_is_extreme_but_finite() -> None:
    logs = log_ratios([0, 0, 5, 1e-8], [0, 3, 0, 1])
    assert logs[0] == 0
    assert logs[1] == -logs[2] == pytest.approx(-math.log(1e9))
    assert logs[1] < logs[3]


def drawn(seed: int, pairs: int, change: float) -> tuple[Any, Any]:
    """A baseline that drifts and has a tail, and an arm that is `change` times as slow, each with noise of its own."""
    random = np.random.default_rng(seed)
    mood = np.exp(0.2 * np.sin(np.arange(pairs) / 15) + random.exponential(0.1, pairs))
    return mood * change * np.exp(random.normal(0, 0.1, pairs)), mood * np.exp(random.normal(0, 0.1, pairs))


def quantile_ratio(ours: Any, theirs: Any, share: float, seed: int = 0) -> Interval | None:
    return quantile_ratios(ours, theirs, [share], seed=seed).get(share)


@pytest.mark.parametrize(("pairs", "share"), [(40, 0.5), (300, 0.25), (3_000, 0.5), (3_000, 0.95), (3_000, 0.99)])
def test_quantile_ratio_interval_matches_a_plain_bootstrap(pairs: int, share: float) -> None:
    ours, theirs = drawn(1, pairs, 0.8)
    random = np.random.default_rng(2)
    every = [random.integers(0, pairs, pairs) for _ in range(1_500)]
    own, other = (np.array([np.quantile(arm[rows], share) for rows in every]) for arm in (ours, theirs))
    found = quantile_ratio(ours, theirs, share, seed=3)
    assert found is not None
    assert found == quantile_ratio(ours, theirs, share, seed=3) != quantile_ratio(ours, theirs, share, seed=4)
    assert found == quantile_ratios(ours, theirs, [0.5, share, 0.75], seed=3)[share]
    by_hand = own / other
    spread = by_hand.std()
    # Ends of such intervals are themselves drawn: with 2,000 resamples each lies within 0.2 standard deviations.
    assert found.low == pytest.approx(np.quantile(by_hand, 0.025), abs=0.25 * spread)
    assert found.high == pytest.approx(np.quantile(by_hand, 0.975), abs=0.25 * spread)


@given(st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=60), st.floats(0.1, 10), st.sampled_from([0.5, 0.9]))
def test_constant_change_is_found_exactly(baseline: list[float], change: float, share: float) -> None:
    found = quantile_ratio([time * change for time in baseline], baseline, share)
    assert found is not None
    assert (found.low, found.value, found.high) == pytest.approx((change, change, change))


@pytest.mark.slow
def test_quantile_ratio_interval_covers_in_95_percent() -> None:
    for share, pairs in ((0.5, 100), (0.95, 300)):
        held = 0
        for seed in range(200):
            found = quantile_ratio(*drawn(seed, pairs, 0.8), share, seed=seed)
            assert found is not None
            held += (found.low or 0) <= 0.8 <= (found.high or 0)
        assert held >= 190 - 3 * math.sqrt(200 * 0.05 * 0.95)


def test_failed_requests_raise_quantile_ratio_and_may_unbound_it() -> None:
    ours, theirs = drawn(7, 200, 1.0)
    sound = quantile_ratio(ours, theirs, 0.5)
    ours[:20] = math.inf
    broken, edge = quantile_ratio(ours, theirs, 0.5), quantile_ratio(ours, theirs, 0.89)
    assert sound is not None
    assert broken is not None
    assert broken.value > sound.value
    assert edge is not None
    assert edge.low is not None
    assert edge.high is None
    assert quantile_ratio(ours, theirs, 0.95) is None
    theirs[:120] = 0.0
    assert quantile_ratio(ours, theirs, 0.5) is None


def test_quantile_ratio_of_few_pairs_has_no_interval() -> None:
    assert quantile_ratio([], [], 0.5) is None
    few = quantile_ratio([1.0, 2.0], [2.0, 4.0], 0.5)
    assert few is not None
    assert (few.value, few.low, few.high) == (0.5, None, None)


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


def test_pairs_for_effect_give_90_percent_power() -> None:
    random = np.random.default_rng(7)
    wanted = pairs_for_effect(Interval(value=0.05, low=0.05 - 0.0549, high=0.05 + 0.0549), 100)
    assert wanted is not None  # 0.0549 is 1.96 standard errors of 100 pairs that scatter by 0.28
    found = sum(signed_rank_p(random.normal(0.05, 0.28, wanted)) <= 0.05 for _ in range(400))
    assert found / 400 == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("middle", [0.0, 0.01])
def test_pairs_for_equivalence_give_90_percent_power(middle: float) -> None:
    random = np.random.default_rng(8)
    wanted = pairs_for_equivalence(Interval(value=middle, low=middle - 0.0196, high=middle + 0.0196), 100, 0.03)
    assert wanted is not None
    found = sum(is_equivalent(random.normal(middle, 0.1, wanted)) for _ in range(400))
    assert found / 400 == pytest.approx(0.9, abs=0.06)


@pytest.mark.slow
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


def test_more_comparisons_want_a_larger_effect_and_more_pairs() -> None:
    typical = Interval(value=0.05, low=0.0, high=0.1)
    assert (smallest_effect(typical, 0.01) or 0) > (smallest_effect(typical) or 0)
    assert (pairs_for_effect(typical, 50, 0.01) or 0) > (pairs_for_effect(typical, 50) or 0)


def test_unreachable_power_gives_no_effect_or_pairs() -> None:
    unknown, nothing = Interval(value=0.1), Interval(value=0.0, low=-0.1, high=0.1)
    assert smallest_effect(unknown) is None
    assert pairs_for_effect(unknown, 3) is None
    assert pairs_for_effect(nothing, 50) is None
    assert pairs_for_effect(Interval(value=1e-9, low=-0.1, high=0.1), 50) is None
    assert pairs_for_equivalence(Interval(value=0.05, low=0.0, high=0.1), 50, 0.03) is None
    assert pairs_for_equivalence(unknown, 3, 0.03) is None
    same = Interval(value=0.0, low=0.0, high=0.0)
    assert (smallest_effect(same), pairs_for_equivalence(same, 10, 0.03)) == (0, 1)
