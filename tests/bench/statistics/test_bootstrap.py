"""Whole pairs are drawn again, quickly and with the same result as by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fastlane.bench.statistics import mean_changes, quantile_ratio
from fastlane.errors import ConfigurationError


def drawn(seed: int, pairs: int, change: float) -> tuple[Any, Any]:
    """A baseline that drifts and has a tail, and an arm that is `change` times as slow, each with noise of its own."""
    random = np.random.default_rng(seed)
    mood = np.exp(0.2 * np.sin(np.arange(pairs) / 15) + random.exponential(0.1, pairs))
    return mood * change * np.exp(random.normal(0, 0.1, pairs)), mood * np.exp(random.normal(0, 0.1, pairs))


@pytest.mark.parametrize(("pairs", "share"), [(40, 0.5), (300, 0.25), (3_000, 0.5), (3_000, 0.95), (3_000, 0.99)])
def test_its_interval_is_that_of_resamples_drawn_by_hand(pairs: int, share: float) -> None:
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


def test_what_the_arms_of_a_pair_have_in_common_stays_in_common() -> None:
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
def test_a_constant_change_is_found_exactly(baseline: list[float], change: float, share: float) -> None:
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


def test_the_same_seed_gives_the_same_interval_and_another_unit_the_same_ratio() -> None:
    ours, theirs = drawn(6, 200, 0.8)
    first = quantile_ratio(ours, theirs, 0.9, seed=1)
    assert first == quantile_ratio(ours, theirs, 0.9, seed=1)
    assert first != quantile_ratio(ours, theirs, 0.9, seed=2)
    scaled = quantile_ratio(ours * 1_000, theirs * 1_000, 0.9, seed=1)
    assert first is not None
    assert scaled is not None
    assert scaled.low == pytest.approx(first.low)


@pytest.mark.slow
def test_it_covers_the_truth_in_nineteen_cases_of_twenty() -> None:
    for share, pairs in ((0.5, 100), (0.95, 300)):
        held = 0
        for seed in range(200):
            found = quantile_ratio(*drawn(seed, pairs, 0.8), share, seed=seed)
            assert found is not None
            held += (found.low or 0) <= 0.8 <= (found.high or 0)
        assert held >= 190 - 3 * math.sqrt(200 * 0.05 * 0.95)


def test_failed_requests_make_a_quantile_slower_and_may_leave_it_without_a_bound_or_a_value() -> None:
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


def test_a_quantile_that_failed_in_the_other_arm_has_no_ratio_either() -> None:
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


@pytest.mark.parametrize("bad", [math.nan, -1.0])
def test_nonsense_is_refused(bad: float) -> None:
    with pytest.raises(ConfigurationError, match="leave out"):
        quantile_ratio([1.0, bad], [1.0, 1.0], 0.5)
    with pytest.raises(ConfigurationError, match="share"):
        quantile_ratio([1.0], [1.0], 95)
    with pytest.raises(ConfigurationError, match="finite"):
        mean_changes(np.array([[bad if math.isnan(bad) else math.inf, 1.0]]), np.array([[1.0, -1.0]]))


def test_sums_of_means_are_drawn_by_block() -> None:
    random = np.random.default_rng(9)
    mood = random.normal(0, 10, 400)
    blocks = np.stack((mood, mood + 3 + random.normal(0, 1, 400)), axis=1)
    value, resamples = mean_changes(blocks, np.array([[-1.0, 1.0], [1.0, 0.0]]))
    assert value[0] == pytest.approx(blocks[:, 1].mean() - blocks[:, 0].mean())
    assert resamples[:, 0].std() == pytest.approx((blocks[:, 1] - blocks[:, 0]).std() / 20, rel=0.1)
    assert resamples[:, 1].std() == pytest.approx(0.5, rel=0.15)
