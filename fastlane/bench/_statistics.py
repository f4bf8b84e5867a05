"""Percentiles, and how much faster one arm was than another: pure functions on numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Verdict = Literal["faster", "slower", "no difference shown", "too few pairs"]

# The smallest n for which an order statistic above the percentile exists with 97.5 % probability: below it no
# 95 % confidence interval of the percentile exists, whatever its method.
ENOUGH_FOR_P95 = 72
ENOUGH_FOR_P99 = 368
# With fewer pairs even the widest possible interval (lowest to highest) holds the truth less than 95 % of the time.
ENOUGH_PAIRS = 6

_RESAMPLES = 2_000
_NORMAL_97_5 = 1.959964


@dataclass(frozen=True, slots=True)
class Percentile:
    """One percentile of one arm; `few_samples` where too few requests stand behind it to bound it."""

    value: float
    few_samples: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio of two arms with its 95 % confidence interval; below 1 is faster. No interval with too few pairs."""

    value: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> Verdict:
        """What may be said of the ratio: a difference only where the interval excludes 1."""
        if self.low is None or self.high is None:
            return "too few pairs"
        if self.high < 1:
            return "faster"
        return "slower" if self.low > 1 else "no difference shown"


def percentile(values: ArrayLike, share: float) -> Percentile | None:
    """Return the percentile at `share` (0.95 is p95), interpolated between neighbours; None without values."""
    data = np.asarray(values, dtype=np.float64)
    if not data.size:
        return None
    return Percentile(float(np.quantile(data, share)), data.size < _enough(share))


def _enough(share: float) -> int:
    if share >= 0.99:
        return ENOUGH_FOR_P99
    return ENOUGH_FOR_P95 if share >= 0.95 else 1


def typical_ratio(values: ArrayLike, baseline: ArrayLike) -> Ratio | None:
    """Return by what factor a request typically changes: the Hodges-Lehmann estimate of the paired log-ratios.

    `values[i]` and `baseline[i]` belong to the same block. The interval inverts Wilcoxon's signed-rank test, so it
    asks nothing of the distribution but that the log-ratios lie evenly around their middle. None without pairs.
    """
    logs = np.sort(_log_ratios(values, baseline))
    pairs = logs.size
    if not pairs:
        return None
    averages = pairs * (pairs + 1) // 2
    middle = (_walsh(logs, (averages + 1) // 2) + _walsh(logs, averages // 2 + 1)) / 2
    if pairs < ENOUGH_PAIRS:
        return Ratio(value=math.exp(middle), low=None, high=None)
    spread = math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)
    rank = max(1, math.floor(averages / 2 - _NORMAL_97_5 * spread))
    return Ratio(
        value=math.exp(middle),
        low=math.exp(_walsh(logs, rank)),
        high=math.exp(_walsh(logs, averages - rank + 1)),
    )


def percentile_ratio(values: ArrayLike, baseline: ArrayLike, share: float, *, seed: int) -> Ratio | None:
    """Return the ratio of two arms' percentiles, its interval from a bootstrap over pairs. None without pairs.

    Whole pairs are drawn, so that what both arms of a block had in common (the request, the provider's mood) stays
    in common.
    """
    ours, theirs = _pairs(values, baseline)
    pairs = ours.size
    if not pairs:
        return None
    value = float(np.quantile(ours, share) / np.quantile(theirs, share))
    if pairs < ENOUGH_PAIRS:
        return Ratio(value=value, low=None, high=None)
    random = np.random.default_rng(seed)
    ratios = np.empty(_RESAMPLES)
    # In parts: all draws at once would take 8 bytes * 2,000 * pairs, several times over.
    part = max(1, 1_000_000 // pairs)
    for start in range(0, _RESAMPLES, part):
        drawn = random.integers(0, pairs, size=(min(part, _RESAMPLES - start), pairs))
        ratios[start : start + len(drawn)] = np.quantile(ours[drawn], share, axis=1) / np.quantile(
            theirs[drawn], share, axis=1
        )
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Ratio(value=value, low=float(low), high=float(high))


def _pairs(values: ArrayLike, baseline: ArrayLike) -> tuple[Floats, Floats]:
    ours, theirs = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if ours.shape != theirs.shape:
        raise ValueError(f"values and baseline must pair up, got {ours.size} and {theirs.size}")
    if ours.size and not (np.all(ours > 0) and np.all(theirs > 0)):
        raise ValueError("times must be above 0")
    return ours, theirs


def _log_ratios(values: ArrayLike, baseline: ArrayLike) -> Floats:
    ours, theirs = _pairs(values, baseline)
    ratios: Floats = np.log(ours) - np.log(theirs)
    return ratios


def _walsh(ordered: Floats, rank: int) -> float:
    """Return the rank-th smallest (from 1) of the averages of all pairs of values, each value with itself included."""
    # Bisection on the value: counting the averages below one takes n log n, listing them would take n * n memory.
    low, high = float(ordered[0]), float(ordered[-1])
    indices = np.arange(ordered.size)
    for _ in range(60):
        middle = (low + high) / 2
        at_most = np.searchsorted(ordered, 2 * middle - ordered, side="right")
        if int(np.maximum(at_most - indices, 0).sum()) >= rank:
            high = middle
        else:
            low = middle
    return high
