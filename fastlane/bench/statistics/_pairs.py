"""Two arms' values as paired log-ratios, and what they may be."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from fastlane.errors import ConfigurationError

from ._types import Floats

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
