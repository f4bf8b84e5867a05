"""Intervals by drawing whole pairs or blocks again: for changes of quantiles and for sums of means."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from fastlane.errors import ConfigurationError

from ._pairs import finite, paired
from ._quantiles import interpolated
from ._signed_rank import ENOUGH_PAIRS
from ._types import Floats, Interval

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
