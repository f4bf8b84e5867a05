from __future__ import annotations

import statistics
from itertools import count, islice, pairwise

import pytest
from hypothesis import given, strategies as st

from fastlane import ConfigurationError
from fastlane.bench.load import arrivals, recorded_arrivals, spread
from fastlane.bench.load._arrivals import recorded_rate
from fastlane.bench.workloads import Conversation, Turn, Workload

rates = st.floats(0.01, 1_000)


class Recorded(Conversation):
    """A conversation of one request that says when it arrived."""

    def __init__(self, name: str, arrival_s: float | None) -> None:
        super().__init__(name=name, messages=({"role": "user", "content": "Hi"},))
        object.__setattr__(self, "_arrival_s", arrival_s)

    _arrival_s: float | None
    __slots__ = ("_arrival_s",)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return (
            Turn(
                conversation=self.name,
                number=1,
                messages=self.messages,
                tools=(),
                answer_tokens=2,
                arrival_s=self._arrival_s,
            ),
        )


def trace(*moments: float | None) -> Workload:
    return Workload(name="trace", conversations=tuple(Recorded(f"{at}", moment) for at, moment in enumerate(moments)))


@given(rates)
def test_constant_arrivals_are_evenly_spaced(rate: float) -> None:
    moments = list(islice(arrivals(rate, poisson=False, seed="0"), 100))

    assert moments[0] == 0
    assert all(later - earlier == pytest.approx(1 / rate) for earlier, later in pairwise(moments))


@given(rates, st.text(max_size=3))
def test_poisson_arrivals_come_in_order_and_are_fixed_by_the_seed(rate: float, seed: str) -> None:
    moments = list(islice(arrivals(rate, poisson=True, seed=seed), 100))

    assert moments == sorted(moments)
    assert moments == list(islice(arrivals(rate, poisson=True, seed=seed), 100))


def test_poisson_gaps_have_the_mean_and_the_deviation_of_an_exponential_distribution() -> None:
    moments = list(islice(arrivals(5.0, poisson=True, seed="7"), 20_001))
    gaps = [later - earlier for earlier, later in pairwise(moments)]

    # Both are 1 / rate; their standard errors at this n are 0.0014 and 0.002.
    assert statistics.mean(gaps) == pytest.approx(0.2, abs=0.007)
    assert statistics.stdev(gaps) == pytest.approx(0.2, abs=0.010)


@given(st.lists(st.floats(0, 1_000), min_size=2, max_size=20), st.floats(0.1, 10))
def test_recorded_arrivals_keep_their_distances(moments: list[float], speed: float) -> None:
    replayed = [at for at, _, _, _ in recorded_arrivals(trace(*moments), speed=speed, passes=iter(range(1)))]

    first = min(moments)
    assert replayed == pytest.approx([(moment - first) / speed for moment in sorted(moments)])


def test_a_further_pass_over_a_trace_begins_a_mean_gap_after_the_last_one() -> None:
    replayed = recorded_arrivals(trace(5.0, 6.0, 9.0), speed=1.0, passes=count())

    assert [at for at, _, _, _ in islice(replayed, 6)] == pytest.approx([0.0, 1.0, 4.0, 6.0, 7.0, 10.0])
    assert recorded_rate(trace(5.0, 6.0, 9.0)) == 0.5


def test_a_workload_without_times_has_no_recorded_arrivals() -> None:
    with pytest.raises(ConfigurationError, match="does not say when turn 1 of '1' arrived"):
        recorded_rate(trace(1.0, None))


@given(st.integers(1, 9), rates)
def test_requests_of_one_block_are_spread_evenly_over_less_than_the_time_to_the_next(arms: int, rate: float) -> None:
    offsets = spread(arms, rate)

    assert offsets[0] == 0
    assert all(0 <= offset < min(1 / rate, 1.0) for offset in offsets)
    assert all(later - earlier == pytest.approx(min(1 / rate, 1.0) / arms) for earlier, later in pairwise(offsets))
