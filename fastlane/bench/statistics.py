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

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its 95 % confidence interval; no bounds where the samples give none."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """One percentile of one arm's values with its 95 % interval by order statistics.

    `n` counts the values, and those that failed where they count; an interval exists from `wanted` on. A value or a
    bound is None if `n` is too small, and where it is a failed request.
    """

    share: float
    n: int
    value: float | None
    low: float | None = None
    high: float | None = None
    wanted: int
    withheld: str | None = None
    """Why the value must not be used, such as "client saturated: lag"; None if it may be, or there is none."""

    @property
    def interval(self) -> Interval | None:
        """The value with its bounds; None if there is no value."""
        return None if self.value is None else Interval(value=self.value, low=self.low, high=self.high)


# Replaces the log-ratio of 0 and something: beyond any other, and still a number.
_FARTHEST: Final = math.log(1e9)
_TAIL: Final = 0.025
ENOUGH_PAIRS: Final = 6
"""With fewer pairs even the widest interval (lowest to highest) has a confidence below 95 %."""
# Up to here the null distribution is exact; above it the normal one differs by less than 0.0005 at 5 %.
_EXACT: Final = 100
_RESAMPLES: Final = 2_000
# Numbers held at once: 8 bytes each, several times over.
_AT_ONCE: Final = 2_000_000
POWER: Final = 0.9
# More pairs than this are no plan.
_TOO_MANY: Final = 10_000_000


def log_ratios(values: ArrayLike, baseline: ArrayLike) -> Floats:
    """Return the logarithm of each pair's ratio. Two zeros are no change, 0 and something a ratio of a billion."""
    ours, theirs = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(ours) - np.log(theirs)
    ratios[(ours == 0) & (theirs == 0)] = 0
    clipped: Floats = np.clip(ratios, -_FARTHEST, _FARTHEST)
    return clipped


def wanted(share: float) -> int:
    """Return the n from which a 95 % interval of a quantile exists: 72 for p95, 368 for p99, 6 for the median.

    It lies above all n values, or below, with at most 2.5 % (David, Nagaraja, "Order Statistics", 2003).
    """
    outer = max(share, 1 - share)
    count = max(1, math.ceil(math.log(_TAIL) / math.log(outer)))
    # Logarithms may be a rounding error off where outer^n is 2.5 % exactly.
    return count if outer**count <= _TAIL else count + 1


def quantile(values: ArrayLike, share: float, *, failed: int = 0, lower_is_better: bool = True) -> Quantile:
    """Return a quantile, interpolated between neighbours, with its 95 % interval by order statistics.

    `failed` requests count as worse than every value; the quantile has no value where it is one.
    """
    lost = np.full(failed, np.inf if lower_is_better else -np.inf)
    ordered = np.sort(np.concatenate((np.asarray(values, dtype=np.float64), lost)))
    count, wants = ordered.size, wanted(share)
    value = float(interpolated(ordered, np.array((count - 1) * share))) if count >= wants else math.inf
    if not math.isfinite(value):
        return Quantile(share=share, n=count, value=None, wanted=wants)
    low, high = (_finite(ordered[rank - 1]) for rank in _ranks(count, share))
    return Quantile(share=share, n=count, value=value, low=low, high=high, wanted=wants)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that at least `share` of them do not exceed."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def interpolated(rows: Floats, places: Floats) -> Floats:
    """Return what lies at each place of each row in order, interpolated; infinite where an infinite value takes part.

    Its last axis is that of the places.
    """
    below = np.floor(places).astype(np.intp)
    above = np.minimum(below + 1, rows.shape[-1] - 1)
    ordered = np.partition(rows, np.union1d(below, above), axis=-1)
    first, second = ordered[..., below], ordered[..., above]
    with np.errstate(invalid="ignore"):
        mixed: Floats = first + (places - below) * (second - first)
    return np.where(np.isinf(first) | (places == below), first, mixed)


@lru_cache(maxsize=4096)
def _ranks(count: int, share: float) -> tuple[int, int]:
    """Return between which ordered values, from 1, the quantile lies with 95 %: the number below it is binomial."""
    from scipy.stats import binom

    low, high = binom.ppf((_TAIL, 1 - _TAIL), count, share)
    return max(1, int(low)), min(count, int(high) + 1)


def signed_rank_p(differences: ArrayLike) -> float:
    """Return the two-sided p value of Wilcoxon's signed-rank test that differences lie evenly around 0; 1 without any.

    Zeros take part in the ranking (Pratt, JASA 54, 1959). Exact up to 100 differences without ties and zeros.
    """
    from scipy.stats import wilcoxon

    data = np.asarray(differences, dtype=np.float64)
    if not data.any():
        return 1.0
    sizes = np.unique(np.abs(data))
    exact = data.size <= _EXACT and sizes.size == data.size and sizes[0] > 0
    method = "exact" if exact else "asymptotic"
    return float(wilcoxon(data, zero_method="pratt", correction=True, method=method).pvalue)


def hodges_lehmann(values: ArrayLike, confidence: float = 0.95) -> Interval | None:
    """Return the Hodges-Lehmann estimate of the values' middle: the median of the averages of all pairs of them.

    The interval holds every middle that Wilcoxon's signed-rank test would not reject (Hodges and Lehmann, Annals of
    Mathematical Statistics 34, 1963). None without values; no bounds where there are too few, at 95 % below 6.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = ordered.size
    if not count:
        return None
    averages = count * (count + 1) // 2
    middle = (_walsh(ordered, (averages + 1) // 2) + _walsh(ordered, averages // 2 + 1)) / 2
    rank = _interval_rank(count, confidence)
    if rank < 1:
        return Interval(value=middle)
    return Interval(value=middle, low=_walsh(ordered, rank), high=_walsh(ordered, averages - rank + 1))


@lru_cache(maxsize=4096)
def _interval_rank(count: int, confidence: float) -> int:
    """Return which of the ordered averages bounds the interval from below, from 1; 0 where none does."""
    tail = (1 - confidence) / 2
    if count > _EXACT:
        spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return math.floor(count * (count + 1) / 4 + 0.5 - NormalDist().inv_cdf(1 - tail) * spread)
    # The probability of every sum of the ranks, each of which is added or not with probability 1/2.
    chances = np.ones(1)
    for rank in range(1, count + 1):
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    return int(np.searchsorted(np.cumsum(chances), tail * (1 + 1e-12), side="right"))


def _walsh(ordered: Floats, rank: int) -> float:
    """Return the rank-th smallest (from 1) of the averages of all pairs, by bisection: no list of n * n of them."""
    indices = np.arange(ordered.size)

    def enough(value: float) -> bool:
        at_most = np.searchsorted(ordered, 2 * value - ordered, side="right")
        return int(np.maximum(at_most - indices, 0).sum()) >= rank

    low, high = float(ordered[0]), float(ordered[-1])
    nearest = 1e-13 * max(abs(low), abs(high))
    if enough(low):
        return low
    while high - low > nearest and low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def quantile_ratios(
    values: ArrayLike, baseline: ArrayLike, shares: Sequence[float], *, seed: int = 0
) -> dict[float, Interval]:
    """Return the ratio of two arms' quantiles at each share, with the percentile interval of 2,000 resamples of pairs.

    `values[i]` and `baseline[i]` belong to the same block (Efron and Tibshirani, "An Introduction to the Bootstrap",
    1993, chapters 8 and 13). An infinite value is a failed request; 0 is one where more is better. A share is left out
    if a quantile is a failed request; no bounds below 6 pairs, nor where a bound is a failed request's.
    """
    pairs = np.stack((np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)), axis=1)
    if not len(pairs):
        return {}
    places = (len(pairs) - 1) * np.asarray(shares, dtype=np.float64)
    own, other = interpolated(pairs.T, places)
    known = np.isfinite(own) & np.isfinite(other) & (other != 0)
    low = high = np.full(len(places), math.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = own / other
        if len(pairs) >= ENOUGH_PAIRS:
            quantiles = _resampled(pairs, lambda rows: interpolated(rows.swapaxes(1, 2), places), seed)
            drawn = quantiles[:, 0] / quantiles[:, 1]
            # A ratio of two failed requests may be anything. No bound is between a finite and an infinite value.
            unknown = np.isnan(drawn)
            low = np.quantile(np.where(unknown, -np.inf, drawn), _TAIL, axis=0, method="lower")
            high = np.quantile(np.where(unknown, np.inf, drawn), 1 - _TAIL, axis=0, method="higher")
    return {
        share: Interval(value=float(ratio), low=_finite(least), high=_finite(most))
        for share, ratio, is_known, least, most in zip(shares, ratios, known, low, high, strict=True)
        if is_known
    }


def mean_changes(blocks: Floats, contrasts: Floats, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Return sums of the columns' means, weighted by each row of `contrasts`, and those of 2,000 resamples of rows."""
    values = blocks @ contrasts.T
    return values.mean(axis=0), _resampled(values, lambda drawn: drawn.mean(axis=1), seed)


def _resampled(rows: Floats, statistic: Callable[[Floats], Floats], seed: int) -> Floats:
    """Return a statistic of 2,000 resamples of the rows, computed of arrays (resamples, rows, columns)."""
    random = np.random.default_rng(seed)
    part = max(1, _AT_ONCE // max(1, rows.size))
    counts = [min(part, _RESAMPLES - start) for start in range(0, _RESAMPLES, part)]
    return np.concatenate([statistic(rows[random.integers(0, len(rows), size=(count, len(rows)))]) for count in counts])


def smallest_effect(typical: Interval, alpha: float = 0.05, *, pairs: int | None = None) -> float | None:
    """Return the smallest change of the ratio, as a share, that as many pairs show in 90 of 100 cases.

    `typical` is the Hodges-Lehmann estimate of the log-ratios with its 95 % interval; `alpha` is the comparison's part
    of 5 %. With `pairs` Student's t takes the place of the normal distribution. None without an interval.
    """
    error = _standard_error(typical)
    if error is None:
        return None
    size = _z(1 - alpha / 2) + _z(POWER)
    if pairs is not None:
        from scipy.stats import t

        size = float(t.ppf(1 - alpha / 2, pairs - 1) + t.ppf(POWER, pairs - 1))
    return math.expm1(min(size * error, 700.0))


def pairs_for_effect(typical: Interval, pairs: int, alpha: float = 0.05) -> int | None:
    """Return how many pairs would show a change as large as the one seen in 90 of 100 cases; None if none would."""
    return _pairs(_z(1 - alpha / 2) + _z(POWER), typical, abs(typical.value), pairs)


def pairs_for_equivalence(typical: Interval, pairs: int, margin: float, alpha: float = 0.05) -> int | None:
    """Return how many pairs would show equivalence in 90 of 100 cases if the change seen were the true one.

    The interval at 1 - `alpha` has to lie within the margin; without any change both of its bounds must (Chow, Shao
    and Wang, "Sample Size Calculations in Clinical Research", 2008, chapter 3). None for a change beyond the margin.
    """
    missed = (1 - POWER) / (1 if typical.value else 2)
    return _pairs(_z(1 - alpha / 2) + _z(1 - missed), typical, math.log1p(margin) - abs(typical.value), pairs)


def pairs_for_interval(alpha: float = 0.05) -> int:
    """Return the fewest pairs that bound an interval at 1 - `alpha`: even the widest of n misses with 2 / 2^n."""
    return math.ceil(1 - math.log2(alpha))


_z: Final = NormalDist().inv_cdf


def _standard_error(typical: Interval) -> float | None:
    if typical.low is None or typical.high is None:
        return None
    return (typical.high - typical.low) / 2 / _z(0.975)


def _pairs(size: float, typical: Interval, distance: float, pairs: int) -> int | None:
    """Return how many pairs make `size` standard errors as small as `distance`."""
    error = _standard_error(typical)
    if error is None or distance <= 0:
        return None
    needed = math.ceil(pairs * min(size * error / distance, 1e6) ** 2)
    return max(1, needed) if needed <= _TOO_MANY else None
