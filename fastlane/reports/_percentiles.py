"""Percentiles of a few hundred numbers, in plain Python, and how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Below these, every value may lie on one side of the percentile: it is not shown.
LEAST_FOR_P95 = 20
LEAST_FOR_P99 = 100
# Below these, no 95 % confidence interval of the percentile exists, whatever its method: it is marked.
ENOUGH_FOR_P95 = 72
ENOUGH_FOR_P99 = 368


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """What lies in the middle of some numbers, and at their end.

    By linear interpolation between neighbours (the default of numpy, and what the A/B harness prints).
    """

    n: int
    """How many numbers these are; at least 1."""
    p50: float
    p95: float | None
    """None below 20 numbers; with fewer than 72 nothing bounds it."""
    p99: float | None
    """None below 100 numbers; with fewer than 368 nothing bounds it."""
    highest: float

    @property
    def p95_is_bounded(self) -> bool:
        """Whether there are enough numbers to say how far off the p95 may be."""
        return self.n >= ENOUGH_FOR_P95

    @property
    def p99_is_bounded(self) -> bool:
        """Whether there are enough numbers to say how far off the p99 may be."""
        return self.n >= ENOUGH_FOR_P99

    def to_dict(self) -> dict[str, Any]:
        """The percentiles as plain JSON data."""
        return {
            "n": self.n,
            "p50": self.p50,
            "p95": self.p95,
            "p99": self.p99,
            "highest": self.highest,
            "p95_is_bounded": self.p95_is_bounded,
            "p99_is_bounded": self.p99_is_bounded,
        }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered numbers lie, interpolated between the two neighbours."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    # Between the two even after rounding.
    return min(high, low + (high - low) * (place - below))


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """The percentiles of some numbers; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    count = len(ordered)
    return Percentiles(
        n=count,
        p50=quantile(ordered, 0.5),
        p95=quantile(ordered, 0.95) if count >= LEAST_FOR_P95 else None,
        p99=quantile(ordered, 0.99) if count >= LEAST_FOR_P99 else None,
        highest=ordered[-1],
    )
