"""One arm's quantiles with intervals by order statistics, or word that this many values bound none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from fastlane.errors import ConfigurationError

from ._pairs import finite
from ._types import Floats, Quantile

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
