"""The body of what was seen lately: where most values lie, and how widely, whatever the slow ones among them do."""

from __future__ import annotations

from collections import deque
from statistics import NormalDist

_REMEMBERED = 48
_LEAST = 8
_LOW, _HIGH = 0.1, 0.4
_LEAST_SPREAD = 0.05
_z = NormalDist().inv_cdf
_LOW_Z, _HIGH_Z = _z(_LOW), _z(_HIGH)


class Body:
    """Middle and spread of the last 48 logarithms, from their lower half alone.

    Of a normal distribution the quantiles 0.1 and 0.4 say both. Where a share of the values is far too high, as many as
    three of ten, these quantiles are the body's 0.14 and 0.57: the middle then stands half a spread too high, and the
    spread a fifth, while a mean or a high quantile would stand wherever the slow ones are.
    """

    __slots__ = ("_values", "middle", "spread")

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_REMEMBERED)
        self.middle: float | None = None
        """None where too little was seen."""
        self.spread = _LEAST_SPREAD

    def note(self, value: float) -> None:
        """Add a value."""
        self._values.append(value)
        if len(self._values) < _LEAST:
            return
        ordered = sorted(self._values)
        low, high = _at(ordered, _LOW), _at(ordered, _HIGH)
        self.spread = max(_LEAST_SPREAD, (high - low) / (_HIGH_Z - _LOW_Z))
        self.middle = high - _HIGH_Z * self.spread


def _at(ordered: list[float], quantile: float) -> float:
    place = quantile * (len(ordered) - 1)
    below = int(place)
    return ordered[below] + (place - below) * (ordered[min(below + 1, len(ordered) - 1)] - ordered[below])
