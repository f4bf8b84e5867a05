"""When requests arrive under an open load: fixed by a seed before the first is sent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

from fastlane.errors import ConfigurationError

from ..workloads import Turn, Workload


def arrivals(rate: float, *, poisson: bool, seed: str) -> Iterator[float]:
    """Yield for ever when blocks arrive, in seconds from 0: `rate` a second, evenly spaced or with exponential gaps."""
    if not poisson:
        # Multiplied, not added up: a sum would drift.
        yield from (number / rate for number in count())
    random, at = Random(seed), 0.0
    while True:
        at += random.expovariate(rate)
        yield at


def recorded_arrivals(
    workload: Workload, *, speed: float, passes: Iterator[int]
) -> Iterator[tuple[float, int, int, Turn]]:
    """Yield when each turn arrived in the recorded traffic, `speed` times as fast.

    With it come the number of the pass over the workload and the place of the turn's conversation in it. A further pass
    begins one mean gap after the last one's end. Raises ConfigurationError where a turn does not say when it arrived.
    """
    recorded = _by_arrival(workload)
    first, length = recorded[0][0], len(recorded) / _rate(recorded)
    for number in passes:
        for at, place, turn in recorded:
            yield (at - first + number * length) / speed, number, place, turn


def recorded_rate(workload: Workload) -> float:
    """Return the recorded traffic's mean rate, in requests per second; 1 where all arrived at once.

    Raises ConfigurationError where a turn does not say when it arrived.
    """
    return _rate(_by_arrival(workload))


def _rate(recorded: list[tuple[float, int, Turn]]) -> float:
    span = recorded[-1][0] - recorded[0][0]
    return (len(recorded) - 1) / span if span > 0 else 1.0


def _by_arrival(workload: Workload) -> list[tuple[float, int, Turn]]:
    found = []
    for place, conversation in enumerate(workload.conversations):
        for turn in conversation.turns:
            if turn.arrival_s is None:
                raise ConfigurationError(
                    f"workload {workload.name!r} does not say when turn {turn.number} of {turn.conversation!r} "
                    'arrived: replay it with arrivals="poisson" or "constant", or use a trace with times'
                )
            found.append((turn.arrival_s, place, turn))
    return sorted(found, key=lambda each: each[0])


def spread(order: int, rate: float) -> tuple[float, ...]:
    """Return by how many seconds the first, second … of `order` requests of a block are sent after its arrival.

    All are intended times, fixed in advance: no request waits for another one's answer, which would make a slow arm
    hold back the next one's requests (coordinated omission). Nor are all sent at once, because requests in lock-step
    queue behind each other, in the machine and at the provider, and the queue would be taken for latency. They are
    spread evenly over the time to the next block's arrival, so that the provider meets an even load; over a second at
    most, so that the members of a pair meet the provider in the same mood. Which arm gets which place is drawn at
    random for every block, so that each place's luck falls on every arm equally often. An arm's own arrivals are those
    of the blocks, each displaced by an independent draw: Poisson arrivals stay Poisson by that (the displacement
    theorem; Kingman, Poisson Processes, 1993, section 5.5).
    """
    step = min(1 / rate, _LONGEST_SPREAD_S) / order
    return tuple(position * step for position in range(order))


_LONGEST_SPREAD_S = 1.0
