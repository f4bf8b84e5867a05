"""What a number of pairs can show, and how many it takes."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

from ._types import Interval

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
