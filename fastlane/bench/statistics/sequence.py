"""Confidence sequences of paired differences: intervals that hold however often they are looked at."""

from __future__ import annotations

import math
from statistics import median
from typing import Final

from ...errors import ConfigurationError
from ...experiments.comparison import half_width

# Values that set the band to which later ones are winsorised. The first interval is given with them.
_FIRST: Final = 20
# Half of the band in robust standard deviations: of normal values 6 in 100,000 lie outside.
_DEVIATIONS: Final = 4.0
# A normal distribution's standard deviation over its median absolute deviation, 1 / Phi^-1(3/4).
_PER_MEDIAN_DEVIATION: Final = 1.482602218505602


class MeanSequence:
    """Confidence sequence for the mean of winsorised values, such as paired log-ratios: valid at every count.

    The chance that any of its intervals, at any count, misses the mean is at most `alpha`, asymptotically. 0 must mean
    no difference.

    Values are winsorised, because one in hundreds that is many times the others would decide the mean. The first 20
    values set a band that never changes: as far to both sides of 0 as their median and 4 robust standard deviations
    (of the median absolute deviation) reach. Values that lie evenly around 0 keep a mean of 0, whatever the band.
    """

    __slots__ = ("_alpha", "_count", "_first", "_mean", "_optimised_for", "_reach", "_squares")

    def __init__(self, optimised_for: int = 100, alpha: float = 0.05) -> None:
        half_width(1, 1, alpha=alpha, optimised_for=optimised_for)  # raises now what it would raise later
        self._optimised_for, self._alpha = optimised_for, alpha
        self._first: list[float] = []
        self._reach = math.inf
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    @property
    def count(self) -> int:
        """How many values there have been."""
        return self._count

    @property
    def mean(self) -> float | None:
        """Mean of the winsorised values; None as long as there is no interval."""
        return self._mean if self._count >= _FIRST else None

    @property
    def variance(self) -> float | None:
        """Variance of the winsorised values; None as long as there is no interval."""
        return self._squares / (self._count - 1) if self._count >= _FIRST else None

    def add(self, value: float) -> None:
        """Take the next value. Raises ConfigurationError for one that is not finite."""
        if not math.isfinite(value):
            raise ConfigurationError(f"expected a finite number, got {value}: leave out pairs that have no difference")
        self._count += 1
        if self._count > _FIRST:
            self._include(value, self._count)
            return
        self._first.append(value)
        if self._count == _FIRST:
            middle = median(self._first)
            spread = _PER_MEDIAN_DEVIATION * median(abs(one - middle) for one in self._first)
            # Without a spread more than half of them are equal, and nothing says what is far away.
            self._reach = abs(middle) + _DEVIATIONS * spread if spread else math.inf
            for count, one in enumerate(self._first, start=1):
                self._include(one, count)

    def interval(self) -> tuple[float, float] | None:
        """Return the mean's interval so far; None below 20 values. It has no width where all values are equal."""
        variance = self.variance
        if variance is None:
            return None
        half = half_width(self._count, variance, alpha=self._alpha, optimised_for=self._optimised_for)
        return self._mean - half, self._mean + half

    def _include(self, value: float, count: int) -> None:
        value = min(max(value, -self._reach), self._reach)
        # Welford's update: sums of squares would lose small variances beside large means.
        before = value - self._mean
        self._mean += before / count
        self._squares += before * (value - self._mean)
