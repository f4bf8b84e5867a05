"""A random quantity given by its quantiles, as latency reports publish it."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

from ..errors import ConfigurationError

# A normal curve's P5 lies 1.44 times as far from its P25 as the median does, and its P0.3 about 3 times as far.
_P95_REACH = 1.44
_END_REACH = 3.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution as points (share, value) joined by straight lines, from share 0 to share 1.

    Raises ConfigurationError if the points do not rise from share 0 to share 1 or a value is negative.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        points = tuple((float(share), float(value)) for share, value in self.points)
        object.__setattr__(self, "points", points)
        if len(points) < 2 or points[0][0] != 0.0 or points[-1][0] != 1.0:
            raise ConfigurationError(f"quantile points must go from share 0 to share 1, got {points}: add the ends")
        if not all(math.isfinite(value) and value >= 0 for _, value in points):
            raise ConfigurationError(f"quantile values must be finite and at least 0, got {points}")
        for (share, value), (next_share, next_value) in pairwise(points):
            if next_share <= share or next_value < value:
                raise ConfigurationError(
                    f"quantile points must rise, got ({share}, {value}) before ({next_share}, {next_value}): sort them"
                )

    @classmethod
    def constant(cls, value: float) -> Quantiles:
        """Return the distribution that always gives `value`."""
        return cls(((0.0, value), (1.0, value)))

    @classmethod
    def from_quartiles(cls, p25: float, p50: float, p75: float) -> Quantiles:
        """Return a distribution with these quartiles and each side's tail as long as a normal curve's.

        The lower tail never falls below half of `p25`.
        """
        floor = p25 / 2
        below, above = p50 - p25, p75 - p50
        return cls(
            (
                (0.0, max(floor, p25 - _END_REACH * below)),
                (0.05, max(floor, p25 - _P95_REACH * below)),
                (0.25, p25),
                (0.5, p50),
                (0.75, p75),
                (0.95, p75 + _P95_REACH * above),
                (1.0, p75 + _END_REACH * above),
            )
        )

    def at(self, share: float) -> float:
        """Return the value that a share (0 to 1) of all draws does not exceed."""
        index = bisect_left(self.points, (share,))
        if index == 0:
            return self.points[0][1]
        if index == len(self.points):
            return self.points[-1][1]
        (low_share, low), (high_share, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (share - low_share) / (high_share - low_share)
