"""Confidence sequences: intervals that hold however often they are looked at, and whenever one stops."""

from __future__ import annotations

import math
from statistics import median
from typing import Final

from ..errors import ConfigurationError

# Values by which the band is set that later ones are winsorised to; the first interval is given with them.
_FIRST: Final = 20
# Half of the band in robust standard deviations: of normal values 6 in 100,000 lie outside.
_DEVIATIONS: Final = 4.0
# A normal distribution's standard deviation over its median absolute deviation, 1 / Phi^-1(3/4).
_PER_MEDIAN_DEVIATION: Final = 1.482602218505602


def half_width(count: float, variance: float, *, alpha: float = 0.05, optimised_for: int = 100) -> float:
    """Return half of the width that a confidence sequence for a mean has at `count` values of this variance.

    The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas ("Time-uniform central limit
    theory and asymptotic confidence sequences", Annals of Statistics 52, 2024; arXiv:2103.06476, theorem 2.2): with
    t values it is mean +- sd * sqrt(2 (t r^2 + 1) / (t^2 r^2) * log(sqrt(t r^2 + 1) / alpha)), Robbins' normal
    mixture (1970). r is chosen so that it is narrowest at t = `optimised_for`, where it is 1.5 times as wide
    as the fixed-n interval for alpha = 5 %.

    Raises ConfigurationError for a count that is not above 0, a variance below 0, or an alpha outside 0 to 1.
    """
    if not count > 0 or not variance >= 0:
        raise ConfigurationError(f"expected a count above 0 and a variance of at least 0, got {count} and {variance}")
    scaled = count * _tightness(alpha, optimised_for)
    return math.sqrt(variance * 2 * (scaled + 1) / (count * scaled) * math.log(math.sqrt(scaled + 1) / alpha))


def _tightness(alpha: float, optimised_for: int) -> float:
    """Return r^2: where the derivative of the width by x = t r^2 is 0, that is x = log(1 + x) - log(alpha^2)."""
    if not 0 < alpha < 1 or optimised_for < 1:
        raise ConfigurationError(
            f"expected alpha between 0 and 1 and optimised_for of at least 1, got {alpha} and {optimised_for}"
        )
    # The Lambert-W solution by iteration: the right side's slope is 1 / (1 + x), so every step gains a digit or more.
    scaled = -2 * math.log(alpha) + 1
    for _ in range(60):
        scaled = math.log1p(scaled) - 2 * math.log(alpha)
    return scaled / optimised_for


class MeanSequence:
    """Confidence sequence for the mean of winsorised values, such as paired log-ratios: valid at every count.

    The chance that any of its intervals, at any count, misses the mean is at most `alpha`, asymptotically; a look
    costs nothing, nor does stopping because of one. Values must be such that 0 means no difference.

    Winsorised: one value in hundreds that is many times the others would decide the mean. The first 20 values set a
    band that is never changed afterwards, so that no value is judged by later ones: as far to both sides of 0 as their
    median and 4 robust standard deviations (of the median absolute deviation) reach. It lies evenly around 0, so
    that values which lie evenly around 0 have a winsorised mean of exactly 0, whatever the band.
    `bounds` gives the band instead, where it is known beforehand or must be the same for several sequences.
    """

    __slots__ = ("_alpha", "_bounds", "_count", "_first", "_mean", "_optimised_for", "_squares")

    def __init__(
        self, optimised_for: int = 100, alpha: float = 0.05, *, bounds: tuple[float, float] | None = None
    ) -> None:
        _tightness(alpha, optimised_for)  # says at once what is wrong with them
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ConfigurationError(f"expected bounds of which the second is the higher, got {bounds}")
        self._optimised_for, self._alpha, self._bounds = optimised_for, alpha, bounds
        self._first: list[float] = []
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
        if self._count < _FIRST:
            self._first.append(value)
            self._count += 1
            if self._count == _FIRST:
                self._begin()
            return
        self._count += 1
        self._include(value, self._count)

    def interval(self) -> tuple[float, float] | None:
        """Return the mean's interval so far; None below 20 values. Values that are all the same give it no width."""
        variance = self.variance
        if variance is None:
            return None
        half = half_width(self._count, variance, alpha=self._alpha, optimised_for=self._optimised_for)
        return self._mean - half, self._mean + half

    def _begin(self) -> None:
        if self._bounds is None:
            middle = median(self._first)
            spread = _PER_MEDIAN_DEVIATION * median(abs(value - middle) for value in self._first)
            # More than half of them are the same: nothing says what is far away.
            reach = abs(middle) + _DEVIATIONS * spread if spread else math.inf
            self._bounds = (-reach, reach)
        for count, value in enumerate(self._first, start=1):
            self._include(value, count)
        self._first.clear()

    def _include(self, value: float, count: int) -> None:
        if self._bounds is not None:
            value = min(max(value, self._bounds[0]), self._bounds[1])
        # Welford's update: sums of squares would lose small variances beside large means.
        before = value - self._mean
        self._mean += before / count
        self._squares += before * (value - self._mean)
