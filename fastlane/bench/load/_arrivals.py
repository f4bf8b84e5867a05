"""When requests arrive under an open load: fixed by a seed before the first is sent."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random


def arrivals(rate: float, *, seed: str) -> Iterator[float]:
    """Yield for ever when blocks arrive, in seconds from 0: `rate` a second, with exponential gaps (Poisson)."""
    random, at = Random(seed), 0.0
    while True:
        at += random.expovariate(rate)
        yield at


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
