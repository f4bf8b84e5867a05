"""Intervals by drawing whole pairs or blocks again: for changes of quantiles and for sums of means."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from fastlane.errors import ConfigurationError

from ._pairs import finite, paired
from ._signed_rank import ENOUGH_PAIRS
from ._types import Floats, Interval

_RESAMPLES: Final = 2_000
# In standard deviations: one resample in 20 million has its quantile further from its place than this.
_FAR: Final = 5.5
# Numbers held at once: 8 bytes each, several times over.
_AT_ONCE: Final = 2_000_000


def quantile_changes(
    values: ArrayLike, baseline: ArrayLike, share: float, *, seed: int = 0
) -> tuple[Interval, Interval] | None:
    """Return the ratio and the difference of two arms' quantiles at `share`, with intervals by a bootstrap over pairs.

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
    own, other = (_interpolated(np.sort(each)[None, :], place)[0] for each in (ours, theirs))
    if not (math.isfinite(own) and math.isfinite(other)) or not other:
        return None
    ratio, difference = float(own / other), float(own - other)
    if ours.size < ENOUGH_PAIRS:
        return Interval(value=ratio), Interval(value=difference)
    drawn_own, drawn_other = _drawn_quantiles(ours, theirs, place, np.random.default_rng(seed))
    with np.errstate(divide="ignore", invalid="ignore"):
        return _bounded(ratio, drawn_own / drawn_other), _bounded(difference, drawn_own - drawn_other)


def mean_changes(blocks: Floats, contrasts: Floats, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Return sums of the columns' means, and the same for 2,000 resamples of the rows.

    `blocks` holds a row for each block and a column for each arm, `contrasts` a row of weights for each sum.
    Raises ConfigurationError where one of the blocks' values is no finite number.
    """
    finite(blocks.ravel(), "blocks")
    random = np.random.default_rng(seed)
    values = blocks @ contrasts.T
    count = len(values)
    drawn = np.empty((_RESAMPLES, values.shape[1]))
    part = max(1, _AT_ONCE // max(1, values.size))
    for start in range(0, _RESAMPLES, part):
        rows = random.integers(0, count, size=(min(part, _RESAMPLES - start), count))
        drawn[start : start + len(rows)] = values[rows].mean(axis=1)
    return values.mean(axis=0), drawn


def _drawn_quantiles(ours: Floats, theirs: Floats, place: float, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Return each resample's quantile of both arms.

    Which values a resample's quantile can be is known beforehand: those whose rank is near its own. Only pairs with
    such a value in one of the arms are drawn one by one; of all others it matters how many lie below in one arm, the
    other or both, which takes four numbers. So the work grows with the root of the pairs, and the result is the same.
    """
    count = ours.size
    share = place / max(1, count - 1)
    reach = _FAR * math.sqrt(count * share * (1 - share)) + 2
    first, last = max(0, math.floor(place - reach)), min(count, math.ceil(place + reach) + 1)
    sides = [_side(each, first, last) for each in (ours, theirs)]
    near = np.flatnonzero((sides[0] == 0) | (sides[1] == 0))
    far = (sides[0] != 0) & (sides[1] != 0)
    classes = np.array(
        [np.count_nonzero(far & (sides[0] == own) & (sides[1] == other)) for own in (-1, 1) for other in (-1, 1)]
    )
    totals = random.multinomial(count, np.append(classes, near.size) / count, size=_RESAMPLES)
    found = np.empty(_RESAMPLES), np.empty(_RESAMPLES)
    part = max(1, _AT_ONCE // max(1, near.size))
    for start in range(0, _RESAMPLES, part):
        some = totals[start : start + part]
        counts = _counts(near.size, some[:, 4], random)
        for arm, (values, below) in enumerate(((ours, some[:, 0] + some[:, 1]), (theirs, some[:, 0] + some[:, 2]))):
            found[arm][start : start + part] = _weighted(values[near], sides[arm][near], counts, below, place)
    return found


def _side(values: Floats, first: int, last: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return -1 for values whose rank is below `first`, 1 for those from `last` on, and 0 for those between."""
    order = np.argsort(values, kind="stable")
    side = np.zeros(values.size, dtype=np.int64)
    side[order[:first]] = -1
    side[order[last:]] = 1
    return side


def _counts(
    size: int, drawn: np.ndarray[tuple[int, ...], np.dtype[np.int64]], random: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return how often each of `size` pairs comes in resamples which draw `drawn[i]` of them."""
    which = random.integers(0, max(1, size), size=int(drawn.sum()), dtype=np.int64)
    which += np.repeat(np.arange(drawn.size) * size, drawn)
    return np.bincount(which, minlength=drawn.size * size).reshape(drawn.size, size)


def _weighted(
    values: Floats,
    sides: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    below: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    place: float,
) -> Floats:
    """Return the quantile of resamples that hold `values[i]` `counts[:, i]` times, and `below` values below them."""
    near = np.flatnonzero(sides == 0)
    order = near[np.argsort(values[near], kind="stable")]
    ordered = values[order]
    before = below + counts[:, np.flatnonzero(sides < 0)].sum(axis=1)
    reached = np.cumsum(counts[:, order], axis=1, dtype=np.int32)
    rank = math.floor(place)
    # How many of the values near the quantile, in order, are passed before a rank is reached.
    lower = np.minimum((reached <= (rank - before)[:, None]).sum(axis=1), ordered.size - 1)
    upper = np.minimum((reached <= (rank + 1 - before)[:, None]).sum(axis=1), ordered.size - 1)
    return _interpolated(np.stack((ordered[lower], ordered[upper]), axis=1), place - rank)


def _interpolated(ordered: Floats, place: float) -> Floats:
    """Return what lies at `place` of each row, interpolated; infinite where one that failed takes part."""
    below = math.floor(place)
    part = place - below
    first: Floats = ordered[:, below]
    if not part:
        return first
    with np.errstate(invalid="ignore"):
        mixed: Floats = first + part * (ordered[:, below + 1] - first)
    mixed[np.isinf(first)] = np.inf
    return mixed


def _bounded(value: float, drawn: Floats) -> Interval:
    """Return the percentile interval; what has no value because both arms failed may be anything."""
    unknown = np.isnan(drawn)
    low = _quantile_of(np.where(unknown, -np.inf, drawn), 0.025)
    high = _quantile_of(np.where(unknown, np.inf, drawn), 0.975)
    return Interval(value=value, low=low if math.isfinite(low) else None, high=high if math.isfinite(high) else None)


def _quantile_of(drawn: Floats, share: float) -> float:
    # Not interpolated: between a finite value and an infinite one there is none.
    return float(np.quantile(drawn, share, method="higher" if share > 0.5 else "lower"))
