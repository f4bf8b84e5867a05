"""Quantiles have an interval or no value, and failed requests are slower than every other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from fastlane.bench.statistics import _ranks, quantile, wanted
from fastlane.errors import ConfigurationError

VALUES = st.floats(0, 1e3)


@pytest.mark.parametrize(
    ("share", "count"), [(0.25, 13), (0.5, 6), (0.75, 13), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3_688)]
)
def test_how_many_values_a_quantile_wants(share: float, count: int) -> None:
    assert wanted(share) == count
    outer = max(share, 1 - share)
    assert outer**count <= 0.025 < outer ** (count - 1)


@given(st.lists(VALUES, max_size=400), st.sampled_from([0.05, 0.25, 0.5, 0.9, 0.95, 0.99]))
def test_it_is_numpy_s_quantile_inside_its_interval_or_not_available(values: list[float], share: float) -> None:
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
def test_each_side_of_the_interval_misses_at_most_the_2_5_percent_of_the_binomial_distribution(
    share: float, count: int
) -> None:
    low, high = _ranks(count, share)
    binomial = stats.binom(count, share)
    assert binomial.cdf(low - 1) <= 0.025 + 1e-9
    assert binomial.cdf(low) > 0.025  # the next would miss more
    assert binomial.sf(high - 1) <= 0.025 + 1e-9
    assert binomial.sf(high - 2) > 0.025


def test_it_covers_the_truth_in_nineteen_cases_of_twenty() -> None:
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


def test_a_quantile_that_is_a_failed_request_has_no_value() -> None:
    found = quantile([float(value) for value in range(100)], 0.95, failed=20)
    assert found.value is None
    assert found.n >= found.wanted


def test_a_bound_that_is_a_failed_request_is_none() -> None:
    found = quantile([float(value) for value in range(100)], 0.95, failed=3)
    assert found.value is not None
    assert found.low is not None
    assert found.high is None


def test_where_more_is_better_failed_requests_are_the_lowest() -> None:
    values = [float(value) for value in range(100)]
    assert quantile(values, 0.5, failed=20, lower_is_better=False).value == 39.5
    assert quantile(values, 0.05, failed=20, lower_is_better=False).value is None


def test_values_that_are_all_the_same_are_known_exactly() -> None:
    found = quantile([7.0] * 80, 0.95)
    assert (found.low, found.value, found.high) == (7.0, 7.0, 7.0)


def test_nothing_and_nonsense() -> None:
    assert quantile([], 0.5).value is None
    assert quantile([], 0.5, failed=50).value is None
    with pytest.raises(ConfigurationError, match="finite"):
        quantile([1.0, math.nan], 0.5)
    for share in (0, 1, 95):
        with pytest.raises(ConfigurationError, match="share"):
            quantile([1.0], share)
