"""How far a run is, and how well each arm's ratio to the reference is known so far, however often one looks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from ..errors import ConfigurationError
from ..experiments.comparison import half_width
from .recorded import Sample, metric_named

# Values that set the band to which later ones are winsorised. The first interval is given with them.
_FIRST: Final = 20
# Half of the band in robust standard deviations: of normal values 6 in 100,000 lie outside.
_DEVIATIONS: Final = 4.0
# A normal distribution's standard deviation over its median absolute deviation, 1 / Phi^-1(3/4).
_PER_MEDIAN_DEVIATION: Final = 1.482602218505602


class MeanSequence:
    """Confidence sequence for the mean of winsorised values, such as paired log-ratios: valid at every count.

    The chance that any of its intervals misses the mean is at most `alpha`, asymptotically. 0 must mean no difference.
    Values are winsorised, because one in hundreds that is many times the others would decide the mean. The first 20
    set a band that never changes: as far to both sides of 0 as their median and 4 robust standard deviations reach.
    Values that lie evenly around 0 keep a mean of 0, whatever the band.
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


# Where the sequences are tightest; a look at any other number of pairs is as valid, and the interval a little wider.
_OPTIMISED_FOR = 100
_ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRatio:
    """One arm's metric over the reference's in the running cell, by the pairs so far.

    The bounds are a confidence sequence's: at every look those of a whole cell hold together with 95 %.
    """

    arm: str
    metric: str
    pairs: int
    ratio: float
    low: float
    high: float


class Watch:
    """Follows one cell's pairs: a confidence sequence for each metric of each arm beside its reference (by name).

    Each of n sequences is given 5 % / n of the chance to err (the union bound).
    """

    def __init__(self, references: Mapping[str, str], metrics: Sequence[str]) -> None:
        self._references = references
        followed = [(arm, metric) for arm, reference in references.items() if arm != reference for metric in metrics]
        self._sequences = {
            key: MeanSequence(optimised_for=_OPTIMISED_FOR, alpha=_ALPHA / len(followed)) for key in followed
        }

    def pair(self, block: Mapping[str, Sample]) -> None:
        """Take one block's samples, by their arms' names."""
        for (arm, metric), sequence in self._sequences.items():
            here, there = block.get(arm), block.get(self._references[arm])
            if here is None or there is None or here.error is not None or there.error is not None:
                continue
            value, base = map(metric_named(metric).value, (here, there))
            if value and base and value > 0 and base > 0:
                sequence.add(math.log(value / base))

    def ratios(self) -> tuple[RunningRatio, ...]:
        """Return what is known so far: nothing of those of which too little is."""
        found = []
        for (arm, metric), sequence in self._sequences.items():
            low, high = sequence.interval() or (math.inf, math.inf)
            if math.isfinite(low) and math.isfinite(high):
                bounds = {"ratio": math.exp((low + high) / 2), "low": math.exp(low), "high": math.exp(high)}
                found.append(RunningRatio(arm=arm, metric=metric, pairs=sequence.count, **bounds))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is after a block, or at a cell's beginning.

    Its ratios come with confidence sequences: a run may be stopped because of what they show at any look.
    """

    cell: str
    cells_done: int
    cells: int
    blocks: int
    requests: int
    failed: int
    share: float
    """How much of the run is over, from 0.0 to 1.0, by whatever will end it first."""
    elapsed_s: float
    ratios: tuple[RunningRatio, ...] = ()
    """Of the running cell: one for each arm beside the reference, and each metric."""
