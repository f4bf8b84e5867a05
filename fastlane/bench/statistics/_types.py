"""What an estimate is: a value and how well it is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
