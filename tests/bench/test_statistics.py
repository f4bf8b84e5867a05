from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fastlane.bench._statistics import (
    ENOUGH_FOR_P95,
    ENOUGH_FOR_P99,
    Ratio,
    _walsh,
    percentile,
    percentile_ratio,
    typical_ratio,
)

TIMES = st.floats(1e-3, 1e3)


def drawn(seed: int, pairs: int, change: float) -> tuple[Any, Any]:
    """A baseline that drifts and has a tail, and an arm that is `change` times as slow, each with noise of its own."""
    random = np.random.default_rng(seed)
    mood = np.exp(0.2 * np.sin(np.arange(pairs) / 15) + random.exponential(0.1, pairs))
    return mood * change * np.exp(random.normal(0, 0.1, pairs)), mood * np.exp(random.normal(0, 0.1, pairs))


@given(st.lists(TIMES, min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_lies_between_the_extremes_and_is_marked_below_enough_samples(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)

    assert found is not None
    assert min(values) * (1 - 1e-12) <= found.value <= max(values) * (1 + 1e-12)
    enough = {0.5: 1, 0.95: ENOUGH_FOR_P95, 0.99: ENOUGH_FOR_P99}[share]
    assert found.few_samples == (len(values) < enough)


def test_percentiles_of_known_values() -> None:
    values = np.arange(1.0, 1_002.0)

    found = [percentile(values, share) for share in (0.5, 0.95, 0.99)]

    assert [each.value for each in found if each] == [501.0, 951.0, 991.0]
    assert percentile([], 0.5) is None


def test_an_interval_for_the_named_counts_exists_and_for_one_fewer_does_not() -> None:
    # An order statistic above the percentile bounds it unless all values lie below: probability share ** n.
    for share, enough in ((0.95, ENOUGH_FOR_P95), (0.99, ENOUGH_FOR_P99)):
        assert share**enough <= 0.025 < share ** (enough - 1)


@given(st.lists(TIMES, min_size=1, max_size=25))
def test_averages_of_pairs_are_found_by_rank(values: list[float]) -> None:
    ordered = np.sort(np.asarray(values))
    averages = sorted((a + b) / 2 for at, a in enumerate(ordered) for b in ordered[at:])

    found = [_walsh(ordered, rank) for rank in range(1, len(averages) + 1)]

    np.testing.assert_allclose(found, averages, rtol=1e-9)


@given(st.lists(TIMES, min_size=6, max_size=60), st.floats(0.1, 10))
def test_a_constant_change_is_found_exactly(baseline: list[float], change: float) -> None:
    values = [time * change for time in baseline]

    typical = typical_ratio(values, baseline)
    median = percentile_ratio(values, baseline, 0.5, seed=0)

    for ratio in (typical, median):
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        np.testing.assert_allclose([ratio.value, ratio.low, ratio.high], change, rtol=1e-6)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=6, max_size=60))
def test_arms_that_change_places_have_the_inverse_ratio(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = zip(*pairs, strict=True)

    ratio, inverse = typical_ratio(ours, theirs), typical_ratio(theirs, ours)

    assert ratio is not None
    assert inverse is not None
    assert math.isclose(ratio.value * inverse.value, 1, rel_tol=1e-6)
    assert ratio.low is not None
    assert inverse.high is not None
    assert math.isclose(ratio.low * inverse.high, 1, rel_tol=1e-6)


@pytest.mark.parametrize("pairs", [20, 80])
def test_the_intervals_hold_the_truth_about_95_times_of_100(pairs: int) -> None:
    runs, change = 200, 0.9
    typical = median = 0
    for seed in range(runs):
        ours, theirs = drawn(seed, pairs, change)
        found = typical_ratio(ours, theirs)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        typical += found.low <= change <= found.high
        bootstrapped = percentile_ratio(ours, theirs, 0.5, seed=seed)
        assert bootstrapped is not None
        assert bootstrapped.low is not None
        assert bootstrapped.high is not None
        median += bootstrapped.low <= change <= bootstrapped.high

    # 95 % of 200 is 190, with a standard deviation of 3.
    assert 180 <= typical <= 199
    assert median >= 180


def test_equal_arms_are_called_different_about_5_times_of_100() -> None:
    verdicts = []
    for seed in range(200):
        found = typical_ratio(*drawn(seed, 60, 1.0))
        assert found is not None
        verdicts.append(found.verdict)

    assert verdicts.count("no difference shown") >= 180


def test_a_change_of_5_percent_is_shown_by_100_pairs() -> None:
    faster, slower = typical_ratio(*drawn(1, 100, 0.95)), typical_ratio(*drawn(1, 100, 1.06))

    assert faster is not None
    assert slower is not None
    assert (faster.verdict, slower.verdict) == ("faster", "slower")


def test_below_six_pairs_there_is_no_interval_and_no_verdict() -> None:
    for ratio in (typical_ratio([1.0] * 5, [2.0] * 5), percentile_ratio([1.0] * 5, [2.0] * 5, 0.5, seed=0)):
        assert ratio == Ratio(value=0.5, low=None, high=None)
        assert ratio.verdict == "too few pairs"
    assert typical_ratio([], []) is None
    assert percentile_ratio([], [], 0.5, seed=0) is None


def test_an_interval_that_touches_1_shows_no_difference() -> None:
    assert Ratio(value=0.9, low=0.8, high=1.0).verdict == "no difference shown"
    assert Ratio(value=0.9, low=0.8, high=0.99).verdict == "faster"
    assert Ratio(value=1.1, low=1.01, high=1.2).verdict == "slower"


def test_the_same_seed_gives_the_same_interval() -> None:
    ours, theirs = drawn(0, 40, 0.9)

    assert percentile_ratio(ours, theirs, 0.95, seed=3) == percentile_ratio(ours, theirs, 0.95, seed=3)


def test_values_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError, match="must pair up, got 2 and 1"):
        typical_ratio([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="above 0"):
        typical_ratio([0.0], [1.0])
