"""Wilcoxon's signed-rank test, and the Hodges-Lehmann estimate whose interval inverts it."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from ._pairs import finite
from ._types import Floats, Interval

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
