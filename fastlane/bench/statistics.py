"""Estimates, intervals and tests: pure functions on numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ConfigurationError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 95 % confidence interval; no bounds where the samples give none."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """One percentile of one arm's values with its 95 % interval by order statistics."""

    share: float
    """0.95 is p95."""
    n: int
    """Values, and those that failed where they count."""
    value: float | None
    """None where `n` is too small to bound it ("not available at this n"), or where it is one that failed."""
    low: float | None = None
    high: float | None = None
    """None where the bound is one that failed."""
    wanted: int
    """The n from which the interval exists."""
    withheld: str | None = None
    """Why the value must not be used, such as "client saturated: lag"; None where it may be, or there is none."""

    @property
    def interval(self) -> Interval | None:
        """The value with its bounds; None where there is no value."""
        return None if self.value is None else Interval(value=self.value, low=self.low, high=self.high)


# What counts for the ratio of 0 and something: further out than any other, and still a number to average.
_FARTHEST: Final = math.log(1e9)


def finite(values: ArrayLike, what: str = "values") -> Floats:
    """Return numbers as an array. Raises ConfigurationError where one of them is no finite number."""
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not np.isfinite(data).all():
        raise ConfigurationError(f"expected {what} to be a plain list of finite numbers: leave out pairs without one")
    return data


def paired(values: ArrayLike, baseline: ArrayLike) -> tuple[Floats, Floats]:
    """Return both arms' values, `values[i]` and `baseline[i]` of one block. An infinite one is a request that failed.

    Raises ConfigurationError where they do not pair up, or one is below 0 or NaN.
    """
    ours, theirs = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if ours.ndim != 1 or ours.shape != theirs.shape:
        raise ConfigurationError(f"expected as many values as baseline values, got {ours.size} and {theirs.size}")
    if not ((ours >= 0).all() and (theirs >= 0).all()):
        raise ConfigurationError("expected values of at least 0: leave out pairs of which one is below 0 or NaN")
    return ours, theirs


def log_ratios(values: ArrayLike, baseline: ArrayLike) -> Floats:
    """Return the logarithm of each pair's ratio: below 0 where the value is less than its baseline value.

    Two zeros are no change; 0 and something, whose ratio is no number, count as a ratio of a billion, which is
    further out than any other and otherwise without influence, for what is done with them asks their order first.
    Raises ConfigurationError as `paired` does, or for a value that is infinite.
    """
    ours, theirs = paired(values, baseline)
    finite(np.concatenate((ours, theirs)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(ours) - np.log(theirs)
    ratios[(ours == 0) & (theirs == 0)] = 0
    clipped: Floats = np.clip(ratios, -_FARTHEST, _FARTHEST)
    return clipped


_TAIL: Final = 0.025


def wanted(share: float) -> int:
    """Return the n from which a 95 % interval of a quantile exists: 72 for p95, 368 for p99, 6 for the median.

    The quantile lies above all n values with probability share^n and below all with (1 - share)^n; both have to be
    at most 2.5 % (David and Nagaraja, "Order Statistics", 2003, chapter 7.1).
    Raises ConfigurationError for a share that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ConfigurationError(f"expected a share between 0 and 1, such as 0.95 for p95, got {share}")
    outer = max(share, 1 - share)
    count = max(1, math.ceil(math.log(_TAIL) / math.log(outer)))
    # Logarithms may be a rounding error off where outer^n is 2.5 % exactly.
    return count if outer**count <= _TAIL else count + 1


def quantile(values: ArrayLike, share: float, *, failed: int = 0, lower_is_better: bool = True) -> Quantile:
    """Return a quantile, interpolated between neighbours, with its 95 % interval by order statistics.

    `failed` requests gave no value and count as worse than every other: a service that drops its slowest requests
    must not look faster for it. The quantile is one of them, and has no value, where there are so many.
    Raises ConfigurationError for a value that is no finite number, or a share that is not between 0 and 1.
    """
    wants = wanted(share)
    data = np.sort(finite(values))
    lost = np.full(failed, np.inf if lower_is_better else -np.inf)
    everything = np.concatenate((data, lost) if lower_is_better else (lost, data))
    count = everything.size
    value = _known(float(interpolated(everything, (count - 1) * share))) if count >= wants else None
    if value is None:
        return Quantile(share=share, n=count, value=None, wanted=wants)
    low, high = _ranks(count, share)
    return Quantile(
        share=share,
        n=count,
        value=value,
        low=_known(everything[low - 1]),
        high=_known(everything[high - 1]),
        wanted=wants,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that at least `share` of them do not exceed."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def interpolated(rows: Floats, place: float) -> Floats:
    """Return what lies at `place` of each sorted row, interpolated; infinite where an infinite value takes part."""
    below = math.floor(place)
    above = min(below + 1, rows.shape[-1] - 1)
    ordered = np.partition(rows, (below, above), axis=-1)
    first, second = ordered[..., below], ordered[..., above]
    with np.errstate(invalid="ignore"):
        mixed: Floats = first + (place - below) * (second - first) if place > below else first
    return np.where(np.isinf(first), first, mixed)


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@lru_cache(maxsize=4096)
def _ranks(count: int, share: float) -> tuple[int, int]:
    """Return between which of the ordered values, from 1, the quantile lies with 95 %, each side missing 2.5 %.

    The quantile is below the k-th value where fewer than k of the n values lie below it, which are binomial.
    """
    from scipy.stats import binom

    # The largest k of which P(fewer than k below) is at most 2.5 %, and likewise from above.
    low, high = binom.ppf((_TAIL, 1 - _TAIL), count, share)
    return max(1, int(low)), min(count, int(high) + 1)


# With fewer pairs even the widest possible interval (lowest to highest) holds the truth less than 95 % of the time,
# and the smallest p value that there is, 2 / 2^n, is above 5 %.
ENOUGH_PAIRS: Final = 6
# Up to here the null distribution is counted out; above it the normal one differs by less than 0.0005 at 5 %.
_COUNTED_OUT: Final = 100


def signed_rank_p(differences: ArrayLike) -> float:
    """Return the two-sided p value of Wilcoxon's signed-rank test that differences lie evenly around 0; 1 without any.

    Zeros take part in the ranking and are then left out (Pratt, "Remarks on zeros and ties in the Wilcoxon signed rank
    procedures", JASA 54, 1959). Exact up to 100 differences without ties and zeros, else the normal approximation.
    Raises ConfigurationError where a difference is no finite number.
    """
    from scipy.stats import wilcoxon

    data = finite(differences, "differences")
    if not data.any():
        return 1.0
    sizes = np.unique(np.abs(data))
    exact = data.size <= _COUNTED_OUT and sizes.size == data.size and sizes[0] > 0
    method = "exact" if exact else "asymptotic"
    return float(wilcoxon(data, zero_method="pratt", correction=True, method=method).pvalue)


def hodges_lehmann(values: ArrayLike, confidence: float = 0.95) -> Interval | None:
    """Return the Hodges-Lehmann estimate of the values' middle: the median of the averages of all pairs of them.

    The interval holds every middle that Wilcoxon's signed-rank test would not reject (Hodges and Lehmann, "Estimates
    of location based on rank tests", Annals of Mathematical Statistics 34, 1963), so it asks nothing of the
    distribution but that values lie evenly around their middle. None without values; no bounds where even the
    widest interval is not wide enough, which at 95 % is below 6 values.
    Raises ConfigurationError where a value is no finite number.
    """
    ordered = np.sort(finite(values))
    count = ordered.size
    if not count:
        return None
    averages = count * (count + 1) // 2
    middle = (_walsh(ordered, (averages + 1) // 2) + _walsh(ordered, averages // 2 + 1)) / 2
    rank = _interval_rank(count, confidence)
    if rank < 1:
        return Interval(value=middle)
    return Interval(value=middle, low=_walsh(ordered, rank), high=_walsh(ordered, averages - rank + 1))


def _distribution(count: int) -> Floats:
    """Return the probability of every sum of the ranks from 1 to `count`, each added or not with probability 1/2."""
    chances = np.ones(1)
    for rank in range(1, count + 1):
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    return chances


@lru_cache(maxsize=4096)
def _interval_rank(count: int, confidence: float) -> int:
    """Return which of the ordered averages bounds the interval from below, from 1; 0 where none does."""
    tail = (1 - confidence) / 2
    if count <= _COUNTED_OUT:
        sums = np.cumsum(_distribution(count))
        return int(np.searchsorted(sums, tail * (1 + 1e-12), side="right"))
    spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    return math.floor(count * (count + 1) / 4 + 0.5 - NormalDist().inv_cdf(1 - tail) * spread)


def _walsh(ordered: Floats, rank: int) -> float:
    """Return the rank-th smallest (from 1) of the averages of all pairs of values, each value with itself included."""
    # Bisection on the value: counting the averages below one takes n log n, listing them would take n * n memory.
    low, high = float(ordered[0]), float(ordered[-1])
    nearest = 1e-13 * max(abs(low), abs(high))
    indices = np.arange(ordered.size)
    if _count(ordered, indices, low) >= rank:
        return low
    while high - low > nearest:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if _count(ordered, indices, middle) >= rank:
            high = middle
        else:
            low = middle
    return high


def _count(ordered: Floats, indices: np.ndarray[tuple[int, ...], np.dtype[np.int64]], value: float) -> int:
    at_most = np.searchsorted(ordered, 2 * value - ordered, side="right")
    return int(np.maximum(at_most - indices, 0).sum())


_RESAMPLES: Final = 2_000
# Numbers held at once: 8 bytes each, several times over.
_AT_ONCE: Final = 2_000_000


def quantile_ratio(values: ArrayLike, baseline: ArrayLike, share: float, *, seed: int = 0) -> Interval | None:
    """Return the ratio of two arms' quantiles at `share`, with an interval by a bootstrap over pairs.

    `values[i]` and `baseline[i]` belong to the same block, and whole pairs are drawn (Efron and Tibshirani, "An
    Introduction to the Bootstrap", 1993, chapters 8 and 13; the percentile interval of 2,000 resamples), so that what
    both arms of a block had in common (the request, the provider's mood) stays in common. An infinite value is a
    request that failed, slower than every other; 0 one that failed where more is better. None without pairs, or where
    a quantile is a failed request; no bounds below 6 pairs, nor where a bound is a failed request's.
    Raises ConfigurationError for values that do not pair up, or of which one is below 0 or NaN.
    """
    ours, theirs = paired(values, baseline)
    if not 0 < share < 1:
        raise ConfigurationError(f"expected a share between 0 and 1, such as 0.95 for p95, got {share}")
    if not ours.size:
        return None
    place = (ours.size - 1) * share
    pairs = np.stack((ours, theirs), axis=1)
    own, other = interpolated(pairs.T, place)
    if not (math.isfinite(own) and math.isfinite(other)) or not other:
        return None
    ratio = float(own / other)
    if ours.size < ENOUGH_PAIRS:
        return Interval(value=ratio)
    drawn_own, drawn_other = _resampled(pairs, lambda drawn: interpolated(drawn.swapaxes(1, 2), place), seed).T
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = drawn_own / drawn_other
    # A ratio of two failed requests may be anything. Bounds are not interpolated: there is no value between a finite
    # and an infinite one.
    unknown = np.isnan(drawn)
    low = float(np.quantile(np.where(unknown, -np.inf, drawn), 0.025, method="lower"))
    high = float(np.quantile(np.where(unknown, np.inf, drawn), 0.975, method="higher"))
    return Interval(value=ratio, low=low if math.isfinite(low) else None, high=high if math.isfinite(high) else None)


def mean_changes(blocks: Floats, contrasts: Floats, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Return sums of the columns' means, and the same for 2,000 resamples of the rows.

    `blocks` holds a row for each block and a column for each arm, `contrasts` a row of weights for each sum.
    Raises ConfigurationError where one of the blocks' values is no finite number.
    """
    finite(blocks.ravel(), "blocks")
    values = blocks @ contrasts.T
    return values.mean(axis=0), _resampled(values, lambda drawn: drawn.mean(axis=1), seed)


def _resampled(rows: Floats, statistic: Callable[[Floats], Floats], seed: int) -> Floats:
    """Return a statistic of 2,000 resamples of the rows, computed of arrays (resamples, rows, columns)."""
    random = np.random.default_rng(seed)
    part = max(1, _AT_ONCE // max(1, rows.size))
    counts = [min(part, _RESAMPLES - start) for start in range(0, _RESAMPLES, part)]
    return np.concatenate([statistic(rows[random.integers(0, len(rows), size=(count, len(rows)))]) for count in counts])


POWER: Final = 0.9
"""In how many of 100 cases an effect is to be found where one asks what could have been found."""
# More pairs than this are no plan.
_TOO_MANY: Final = 10_000_000


def smallest_effect(typical: Interval, alpha: float = 0.05, *, pairs: int | None = None) -> float | None:
    """Return the smallest change of the ratio, as a share, that as many pairs show in 90 of 100 cases.

    `typical` is the Hodges-Lehmann estimate of the log-ratios with its 95 % interval, which brings the pairs' own
    spread: half of it over 1.96 is the estimate's standard error (Lehmann, Annals of Mathematical Statistics 34,
    1963), robust as the interval is. The change is (z[1 - alpha / 2] + z[0.9]) of those, or with `pairs` Student's t of
    one degree fewer for z: with few pairs their own spread is not well known, and z would promise too much. `alpha`
    is what is left of 5 % where several comparisons are made. None without an interval.
    """
    error = _standard_error(typical)
    return None if error is None else math.expm1(min(_both(alpha, pairs) * error, 700.0))


def pairs_for_effect(typical: Interval, pairs: int, alpha: float = 0.05) -> int | None:
    """Return how many pairs would show a change as large as the one seen in 90 of 100 cases; None where none would."""
    error = _standard_error(typical)
    if error is None or not typical.value:
        return None
    return _pairs(_both(alpha) * error / abs(typical.value), pairs)


def pairs_for_interval(alpha: float = 0.05) -> int:
    """Return the fewest pairs that bound an interval at 1 - `alpha`: even the widest of n misses with 2 / 2^n."""
    return math.ceil(1 - math.log2(alpha))


def pairs_for_equivalence(typical: Interval, pairs: int, margin: float, alpha: float = 0.05) -> int | None:
    """Return how many pairs would show equivalence in 90 of 100 cases if the change seen were the true one.

    Equivalence is shown where the interval at 1 - `alpha` lies within the margin; without any change both of its bounds
    must (Chow, Shao and Wang, "Sample Size Calculations in Clinical Research", 2008, chapter 3). None where the change
    seen is beyond the margin.
    """
    error = _standard_error(typical)
    room = math.log1p(margin) - abs(typical.value)
    if error is None or room <= 0:
        return None
    missed = (1 - POWER) / (1 if typical.value else 2)
    normal = NormalDist()
    return _pairs((normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(1 - missed)) * error / room, pairs)


def _standard_error(typical: Interval) -> float | None:
    if typical.low is None or typical.high is None:
        return None
    return (typical.high - typical.low) / 2 / NormalDist().inv_cdf(0.975)


def _both(alpha: float, pairs: int | None = None) -> float:
    if pairs is None:
        return NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(POWER)
    from scipy.stats import t

    return float(t.ppf(1 - alpha / 2, pairs - 1) + t.ppf(POWER, pairs - 1))


def _pairs(times_too_wide: float, pairs: int) -> int | None:
    needed = math.ceil(pairs * min(times_too_wide, 1e6) ** 2)
    return max(1, needed) if needed <= _TOO_MANY else None
