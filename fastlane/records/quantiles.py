"""Quantiles of some numbers, interpolated between neighbours as numpy does by default."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the ordered numbers lie, interpolated between the two neighbours."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return min(high, low + (high - low) * (place - below))  # between the two even after rounding
