"""What the sums of two arms say of their difference, at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Any, Literal, NamedTuple

from ._confidence_sequence import half_width
from ._metrics import METRICS, YES_OR_NO, Metric
from ._sums import Sums

ALPHA = 0.05
LEAST_BUCKETS = 30
"""Before as many buckets of an arm have calls, nothing is said: a confidence sequence for means is asymptotic."""

# And before as many of equal size would be as much as they are: one user may make half of all calls.
_LEAST_EFFECTIVE = 5.0

# Units after which intervals are narrowest for their number: a share of 10 % has as many soon.
_OPTIMISED_FOR = 500
# Of what is left of the permitted error, the part that each stage may spend: all stages together stay within it.
_OF_WHAT_IS_LEFT = 0.8
# Hundreds of stages leave less than a float can hold; it is still divided by arms and metrics.
_LEAST_ALPHA = 1e-290

Verdict = Literal["better", "worse", "equivalent", "no difference shown so far", "too few units"]


def alpha_of(stage: int) -> float:
    """The error that a stage may make: after each change of the shares, counting begins anew."""
    return max(ALPHA * _OF_WHAT_IS_LEFT * (1 - _OF_WHAT_IS_LEFT) ** (stage - 1), _LEAST_ALPHA)


class Mean(NamedTuple):
    """The mean of a metric's values in one arm."""

    value: float
    variance: float
    """Of the mean, by units."""
    spread: float
    """Variance of the values of single calls."""
    calls: float
    is_of_enough: bool
    """Units, for anything to be said."""

    def low(self, alpha: float) -> float:
        """What it is at least, at any time."""
        return self.value - _reach(self.spread, self.variance, alpha)

    def high(self, alpha: float) -> float:
        """What it is at most, at any time."""
        return self.value + _reach(self.spread, self.variance, alpha)


def mean_of(sums: Sums, metric: int) -> Mean | None:
    """The mean of all calls, with its variance by units; None where no call has a value."""
    counts, values, squares = sums.of(metric)
    calls = sum(counts)
    if calls < 1:
        return None
    total = sum(values)
    mean = total / calls
    groups = sum(count > 0 for count in counts)
    # Where few units make most of the calls, those few are what is known: G. V. Carter, K. T. Schnepel, D. G.
    # Steigerwald, "Asymptotic behavior of a t-test robust to cluster heterogeneity", Review of Economics and Statistics
    # 99 (2017), whose effective number of clusters this is where all are alike but for their sizes.
    effective = calls * calls / sum(count * count for count in counts)
    spread = max(0.0, squares / calls - mean * mean)
    # A mean over all calls is a ratio of two sums over units; its variance by the delta method, each bucket a cluster.
    around = sum((value - mean * count) ** 2 for count, value in zip(counts, values, strict=True))
    variance = around / (calls * calls)
    if effective > _LEAST_EFFECTIVE:
        # G / (G - 1) for what the mean took, and the variance of Student's t for that it is estimated of few.
        variance *= effective / (effective - 3)
    if metric in YES_OR_NO:
        # A share that has not been seen to be other than 0 or 1 is not known without error: A. Agresti, B. A. Coull,
        # "Approximate is better than 'exact'", The American Statistician 52 (1998): two more of each.
        share = (total + 2) / (calls + 4)
        spread = max(spread, share * (1 - share))
        variance = max(variance, share * (1 - share) / calls)
    elif METRICS[metric].scale == "share":
        spread = max(spread, 0.25 / calls)
        variance = max(variance, 0.25 / calls**2)
    return Mean(mean, variance, spread, calls, groups >= LEAST_BUCKETS and effective > _LEAST_EFFECTIVE)


def _reach(spread: float, variance: float, alpha: float) -> float:
    """How far a confidence sequence reaches on each side of an estimate of that variance.

    Its time is information: the number of independent calls that would be as much as these, by the design effect (L.
    Kish, "Survey Sampling", 1965). Where the same units come again and again, that stands still, and calls do not.
    """
    if variance <= 0 or spread <= 0:
        return 0.0
    return half_width(spread / variance, spread, alpha=alpha, optimised_for=_OPTIMISED_FOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of an arm against the reference."""

    metric: str
    verdict: Verdict
    said: str
    """In words: "faster", "equivalent within 3 %" …"""
    arm: float | None
    """The arm's mean (of times, the geometric one), in the metric's unit."""
    reference: float | None
    change: float | None
    """Of times and prices the ratio less 1, of shares the difference."""
    low: float | None
    """The interval around `change`, which holds at any time."""
    high: float | None
    calls: int
    """Of the arm, with a value."""
    reference_calls: int

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """What `to_dict` has made."""
        return cls(**{name: data[name] for name in cls.__slots__})


class _Difference(NamedTuple):
    change: float
    reach: float


def _difference(metric: Metric, one: Mean, other: Mean, alpha: float) -> _Difference | None:
    if metric.scale != "amount":
        reach = _reach(one.spread + other.spread, one.variance + other.variance, alpha)
        return _Difference(one.value - other.value, reach)
    if one.value <= 0 or other.value <= 0:
        return None
    # The logarithm of a ratio of two means, by the delta method.
    squares = one.value**2, other.value**2
    spread = one.spread / squares[0] + other.spread / squares[1]
    variance = one.variance / squares[0] + other.variance / squares[1]
    return _Difference(log(one.value / other.value), _reach(spread, variance, alpha))


def limits_of(number: int, arm: Sums, reference: Sums, alpha: float) -> tuple[float, float, float] | None:
    """Change of a metric and the interval around it, as a comparison says them; None before enough units have come."""
    metric = METRICS[number]
    one, other = mean_of(arm, number), mean_of(reference, number)
    if one is None or other is None or not (one.is_of_enough and other.is_of_enough):
        return None
    found = _difference(metric, one, other, alpha)
    if found is None:
        return None
    ends = (found.change, found.change - found.reach, found.change + found.reach)
    if metric.scale == "share":
        return ends
    change, low, high = (exp(min(end, 700.0)) - 1 for end in ends)
    return change, low, high


def compared(number: int, arm: Sums, reference: Sums, alpha: float) -> Comparison | None:
    """Compare one metric; None where neither arm has a value."""
    metric = METRICS[number]
    one, other = mean_of(arm, number), mean_of(reference, number)
    if one is None and other is None:
        return None
    limits = limits_of(number, arm, reference, alpha)
    change, low, high = (None, None, None) if limits is None else limits
    verdict: Verdict = "too few units"
    said: str = verdict
    if low is not None and high is not None:
        verdict, said = _judged(metric, low, high)
    return Comparison(
        metric=metric.name,
        verdict=verdict,
        said=said,
        arm=None if one is None else metric.shown(one.value),
        reference=None if other is None else metric.shown(other.value),
        change=change,
        low=low,
        high=high,
        calls=0 if one is None else round(one.calls),
        reference_calls=0 if other is None else round(other.calls),
    )


def _judged(metric: Metric, low: float, high: float) -> tuple[Verdict, str]:
    margin = metric.equivalent
    if -margin <= low and high <= margin:
        within = f"{margin:.0%}".replace("%", " %")
        return "equivalent", f"equivalent within {within}" + (" points" if metric.scale == "share" else "")
    if low <= 0 <= high:
        return "no difference shown so far", "no difference shown so far"
    is_better = (high < 0) == metric.lower_is_better
    return ("better", metric.better) if is_better else ("worse", metric.worse)
