from __future__ import annotations

import statistics
from itertools import islice, pairwise

import pytest
from hypothesis import given, strategies as st

from fastlane.bench.load import arrivals, spread

rates = st.floats(0.01, 1_000)


@given(rates, st.text(max_size=3))
def test_poisson_arrivals_come_in_order_and_are_fixed_by_the_seed(rate: float, seed: str) -> None:
    moments = list(islice(arrivals(rate, seed=seed), 100))

    assert moments == sorted(moments)
    assert moments == list(islice(arrivals(rate, seed=seed), 100))


def test_poisson_gaps_have_the_mean_and_the_deviation_of_an_exponential_distribution() -> None:
    moments = list(islice(arrivals(5.0, seed="7"), 20_001))
    gaps = [later - earlier for earlier, later in pairwise(moments)]

    # Both are 1 / rate; their standard errors at this n are 0.0014 and 0.002.
    assert statistics.mean(gaps) == pytest.approx(0.2, abs=0.007)
    assert statistics.stdev(gaps) == pytest.approx(0.2, abs=0.010)


@given(st.integers(1, 9), rates)
def test_requests_of_one_block_are_spread_evenly_over_less_than_the_time_to_the_next(arms: int, rate: float) -> None:
    offsets = spread(arms, rate)

    assert offsets[0] == 0
    assert all(0 <= offset < min(1 / rate, 1.0) for offset in offsets)
    assert all(later - earlier == pytest.approx(min(1 / rate, 1.0) / arms) for earlier, later in pairwise(offsets))
