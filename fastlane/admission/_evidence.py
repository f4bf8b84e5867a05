"""How much later calls sent among many got their first token than calls sent among few."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import product
from statistics import fmean, median
from typing import NamedTuple

# Of each side and kind so many of the latest: 4,096 differences at most, once in some hundred calls.
_MOST = 64
# With fewer of a kind their spread says nothing.
_FEWEST = 3
# A normal distribution's interquartile range in standard deviations.
_QUARTILES_APART = 1.349
# No clock of ours and no network is steadier.
_LEAST_SPREAD = 0.02


class Sample(NamedTuple):
    """One call that was answered."""

    kind: Hashable
    """Calls of one kind may be compared: streamed or not, interactive or not."""
    size: int
    """Calls of about the same size, in steps of four times, are compared with each other where there are enough."""
    first_token_s: float
    """From sending to the first token; to the end where it did not stream."""
    duration_s: float
    """How long it had its place."""
    in_flight: int
    """How many had one when it was sent, itself included."""


class Shift(NamedTuple):
    """How much later one side's first tokens are than the other's."""

    later_s: float
    error_s: float
    """Standard error of that."""
    samples: int
    """How many of the smaller side it rests on."""


def shift(high: Sequence[Sample], low: Sequence[Sample], *, most: int = _MOST) -> Shift | None:
    """Compare calls of one kind with each other, kind by kind; None where too few are alike.

    Of each kind the `most` latest count.

    The shift of each kind is the Hodges-Lehmann estimate, the median of all differences of pairs (Hodges and Lehmann,
    "Estimates of Location Based on Rank Tests", 1963): first tokens that are five times as late for some prompts move
    it little. Kinds are weighed by the precision of theirs, n*m / (n + m), as van Elteren's stratified rank test does.
    """
    found = _compared(high, low, most, by_size=True)
    if found is None or 2 * found.samples < min(len(high), len(low), most):
        # Sizes differ so much that most calls have none like them on the other side.
        found = _compared(high, low, most, by_size=False)
    return found


def _compared(high: Sequence[Sample], low: Sequence[Sample], most: int, *, by_size: bool) -> Shift | None:
    sides = _by_kind(high, by_size), _by_kind(low, by_size)
    weighed = variance = weights = 0.0
    samples = 0
    for kind, highs in sides[0].items():
        lows = sides[1].get(kind, [])
        if min(len(highs), len(lows)) < _FEWEST:
            continue
        highs, lows = highs[-most:], lows[-most:]
        weight = len(highs) * len(lows) / (len(highs) + len(lows))
        weighed += weight * median(one - other for one, other in product(highs, lows))
        variance += weight * max(_spread(highs), _spread(lows)) ** 2
        weights += weight
        samples += min(len(highs), len(lows))
    if not weights:
        return None
    return Shift(weighed / weights, math.sqrt(variance) / weights, samples)


def mean_duration_s(samples: Iterable[Sample]) -> float:
    """How long they had their places, on average."""
    return fmean(sample.duration_s for sample in samples)


def mean_in_flight(samples: Iterable[Sample]) -> float:
    """How many had a place when each was sent, on average."""
    return fmean(sample.in_flight for sample in samples)


def _by_kind(samples: Iterable[Sample], by_size: bool) -> dict[Hashable, list[float]]:
    found: dict[Hashable, list[float]] = defaultdict(list)
    for sample in samples:
        found[(sample.kind, sample.size) if by_size else sample.kind].append(sample.first_token_s)
    return found


def _spread(values: list[float]) -> float:
    """A standard deviation from the quartiles, which a few late ones do not widen."""
    ordered = sorted(values)
    quarter = (len(ordered) - 1) / 4
    low, high = ordered[math.floor(quarter)], ordered[math.ceil(3 * quarter)]
    return max((high - low) / _QUARTILES_APART, _LEAST_SPREAD * ordered[len(ordered) // 2])
