"""What the calls of two arms show about the difference between the arms, at any time, and the guards that end arms.

Calls of one unit are not independent, so variances are taken between units (A. Deng, U. Knoblich, J. Lu, "Applying the
Delta Method in Metric Analytics", KDD 2018). Units are summed in 256 buckets by their hash. Each bucket is a cluster,
and the spread of the buckets gives the variance of a mean (A. C. Cameron, D. L. Miller, "A Practitioner's Guide to
Cluster-Robust Inference", Journal of Human Resources 50, 2015). That takes the same memory for any number of units.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, expm1, log, log1p, sqrt
from operator import add
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field

from ..engine.settings import settings
from ..errors import ConfigurationError
from ..records.plays import BoundedOutputRecord, HedgingRecord, RoutingRecord

if TYPE_CHECKING:
    from ..engine.call_state import CallState

# Metrics

Scale: TypeAlias = Literal["log", "binary", "score", "amount"]
"""How values are averaged.

- log: times, as the mean of their logarithms. A change is a ratio of geometric means.
- binary: 0 or 1. A change is a difference of shares. Lower is better.
- score: values of 0 to 1. A change is a difference. Higher is better.
- amount: money, as its mean. A change is a ratio of means.
"""


class ExperimentMetric(NamedTuple):
    """One metric of the comparison."""

    name: str
    scale: Scale
    better: str
    """The verdict for an arm that is better than the reference."""
    worse: str
    unit: str = ""

    @property
    def is_ratio(self) -> bool:
        """Whether a change is a ratio less 1, and not a difference."""
        return self.scale in ("log", "amount")

    @property
    def equivalent(self) -> float:
        """The largest change at which arms are equivalent."""
        return 0.01 if self.scale == "binary" else 0.03

    def display(self, mean: float) -> float:
        """Return a mean in the metric's unit."""
        return exp(mean) if self.scale == "log" else mean


METRICS = {
    metric.name: metric
    for metric in (
        ExperimentMetric("time_to_first_token", "log", "faster", "slower", "s"),
        ExperimentMetric("time_per_output_token", "log", "faster", "slower", "s"),
        ExperimentMetric("end_to_end", "log", "faster", "slower", "s"),
        ExperimentMetric("error_rate", "binary", "fewer errors", "more errors"),
        ExperimentMetric("parse_failures", "binary", "fewer parse failures", "more parse failures"),
        ExperimentMetric("price", "amount", "cheaper", "dearer", "a call"),
        ExperimentMetric("quality", "score", "better", "worse"),
    )
}

COMPLETE = frozenset({"completed", "stopped", "truncated"})
"""Outcomes of calls that ended with an answer."""
# Errors over an answer that could not be parsed: openai's, pydantic's and ours.
_PARSE_ERRORS = frozenset({"InvalidOutputError", "LengthFinishReasonError", "ValidationError", "JSONDecodeError"})
_LEAST_NS = 1_000.0


def model_prices(catalog: Any) -> dict[str, Any]:
    """Return the prices of a catalog's models, by the model's name."""
    return {one.model: one.price for one in reversed(catalog.models) if one.price is not None} if catalog else {}


def metric_values(call: CallState, prices: dict[str, Any]) -> dict[str, float]:
    """Return the values of the metrics that are known for a call that has ended."""
    outcome, answer, tokens_ns = call.outcome, call.answer, call.answer.token_ns
    found: dict[str, float] = {}
    if outcome == "failed" or outcome in COMPLETE:
        found["error_rate"] = float(outcome == "failed")
    output = _section(call, BoundedOutputRecord)
    invalid = output is not None and (output.verdict in ("invalid", "truncated") or bool(output.rejected))
    if invalid or call.error in _PARSE_ERRORS or outcome in COMPLETE:
        found["parse_failures"] = float(invalid or call.error in _PARSE_ERRORS)
    if call.stream and answer.first_token_ns is not None:
        found["time_to_first_token"] = _log_s(answer.first_token_ns - call.started_ns)
    if outcome not in COMPLETE:
        return found
    ended_ns = tokens_ns[-1] if call.stream and len(tokens_ns) else call.ended_ns
    found["end_to_end"] = _log_s(ended_ns - call.started_ns)
    usage = call.usage
    count = None if usage.estimated else usage.output_tokens
    if count is not None and usage.reasoning_tokens and answer.first_token_kind != "reasoning":
        count -= usage.reasoning_tokens
    if call.stream and len(tokens_ns) > 1 and tokens_ns[-1] > tokens_ns[0] and count is not None and count > 1:
        found["time_per_output_token"] = _log_s((tokens_ns[-1] - tokens_ns[0]) / (count - 1))
    if (price := _price(call, prices, output)) is not None:
        found["price"] = price
    return found


def _price(call: CallState, prices: dict[str, Any], output: BoundedOutputRecord | None) -> float | None:
    """Return what a call cost, with rejected answers and lost hedges; None if that is not known."""
    price, usage = prices.get(call.model or ""), call.usage
    routing, hedging = _section(call, RoutingRecord), _section(call, HedgingRecord)
    if routing is not None and routing.price is not None:
        cost: float = routing.price
    elif price is not None and usage.input_tokens is not None and usage.output_tokens is not None:
        cost = price.of(usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0)
    else:
        return None
    if price is not None and output is not None:
        cost += sum(price.of(one.input_tokens or 0, one.output_tokens or 0) for one in output.rejected)
    return cost + ((hedging.extra_price or 0.0) if hedging is not None else 0.0)


def _section(call: CallState, kind: type[Any]) -> Any:
    return next((one for one in call.sections if isinstance(one, kind)), None)


def _log_s(taken_ns: float) -> float:
    return log(max(taken_ns, _LEAST_NS) / 1e9)


# Sums and their comparison

ALPHA = 0.05
"""The permitted error of all verdicts of an experiment together, and that of all its guards."""
LEAST_BUCKETS = 30
"""Buckets of an arm that must have calls before there is a verdict: a confidence sequence for means is asymptotic."""

_BUCKETS = 256
_LEAST_EFFECTIVE = 5.0
# The number of units for which intervals are as narrow as possible.
_OPTIMISED_FOR = 500
_LARGEST_EXPONENT = 700.0

Cells: TypeAlias = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=256, max_length=256)]


def half_width(count: float, variance: float, *, alpha: float = 0.05, optimised_for: int = 100) -> float:
    """Return half the width of a confidence sequence for a mean, at `count` values of this variance.

    The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas ("Time-uniform central limit
    theory and asymptotic confidence sequences", Annals of Statistics 52, 2024; arXiv:2103.06476, theorem 2.2): with
    t values it is mean +- sd * sqrt(2 (t r^2 + 1) / (t^2 r^2) * log(sqrt(t r^2 + 1) / alpha)), Robbins' normal
    mixture (1970). r is chosen so that it is narrowest at t = `optimised_for`, where it is 1.5 times as wide as the
    interval for a single look, for alpha = 5 %.

    Raises ConfigurationError for a count that is not above 0, a variance below 0, or an alpha outside 0 to 1.
    """
    if not (count > 0 and variance >= 0 and 0 < alpha < 1 and optimised_for >= 1):
        raise ConfigurationError(
            f"expected a count above 0, a variance of at least 0, alpha between 0 and 1 and optimised_for of at least "
            f"1, got {count}, {variance}, {alpha} and {optimised_for}"
        )
    # The width's derivative by x = t r^2 is 0 where x = log(1 + x) - log(alpha^2). Every step gains a digit or more,
    # since the right side's slope is 1 / (1 + x).
    scaled = 1 - 2 * log(alpha)
    for _ in range(60):
        scaled = log1p(scaled) - 2 * log(alpha)
    scaled *= count / optimised_for
    return sqrt(variance * 2 * (scaled + 1) / (count * scaled) * log(sqrt(scaled + 1) / alpha))


@dataclass(slots=True)
class MetricSums:
    """The values of one metric, by bucket."""

    counts: Cells = field(default_factory=lambda: [0.0] * _BUCKETS)
    values: Cells = field(default_factory=lambda: [0.0] * _BUCKETS)
    squares: float = 0.0
    """The sum of the squares of all values."""

    def plus(self, other: MetricSums) -> MetricSums:
        """Return the sums of both."""
        counts, values = list(map(add, self.counts, other.counts)), list(map(add, self.values, other.values))
        return MetricSums(counts, values, self.squares + other.squares)


@dataclass(slots=True)
class ArmSums:
    """The calls of one arm."""

    calls: int = 0
    metrics: dict[str, MetricSums] = field(default_factory=dict)

    def add(self, metric: str, unit_id_hash: str, value: float) -> None:
        """Count one value of a metric."""
        sums = self.metrics.setdefault(metric, MetricSums())
        bucket = int(unit_id_hash[:2], 16)
        sums.counts[bucket] += 1
        sums.values[bucket] += value
        sums.squares += value * value

    def plus(self, other: ArmSums) -> ArmSums:
        """Return the sums of both."""
        names = self.metrics | other.metrics
        empty = MetricSums()
        metrics = {name: self.metrics.get(name, empty).plus(other.metrics.get(name, empty)) for name in names}
        return ArmSums(self.calls + other.calls, metrics)


class Mean(NamedTuple):
    """The mean of a metric in one arm."""

    value: float
    variance: float
    """Of the mean, between units."""
    spread: float
    """The variance of the values of single calls."""
    calls: int
    is_usable: bool
    """Whether there are enough units, and of prices a mean above 0."""


def mean_of(arm: ArmSums, metric: ExperimentMetric) -> Mean | None:
    """Return the mean of a metric, with its variance between units; None without a value."""
    sums = arm.metrics.get(metric.name)
    calls = sum(sums.counts) if sums is not None else 0.0
    if sums is None or not calls:
        return None
    total = sum(sums.values)
    mean = total / calls
    # The effective number of clusters, where few units make most of the calls: G. V. Carter, K. T. Schnepel, D. G.
    # Steigerwald, "Asymptotic behavior of a t-test robust to cluster heterogeneity", Review of Economics and Statistics
    # 99 (2017), for clusters that differ in size alone.
    effective = calls * calls / sum(count * count for count in sums.counts)
    spread = max(0.0, sums.squares / calls - mean * mean)
    # The mean of all calls is a ratio of two sums over units: its variance by the delta method.
    around = sum((value - mean * count) ** 2 for count, value in zip(sums.counts, sums.values, strict=True))
    variance = around / (calls * calls)
    if effective > _LEAST_EFFECTIVE:
        # G / (G - 1) for the mean, and the variance of Student's t for a variance that is itself estimated.
        variance *= effective / (effective - 3)
    if metric.scale == "binary":
        # A share that was only ever 0 or 1 is not certain: A. Agresti, B. A. Coull, "Approximate is better than
        # 'exact'", The American Statistician 52 (1998): two more of each.
        share = (total + 2) / (calls + 4)
        spread = max(spread, share * (1 - share))
        variance = max(variance, share * (1 - share) / calls)
    elif metric.scale == "score":
        spread = max(spread, 0.25 / calls)
        variance = max(variance, 0.25 / calls**2)
    has_units = sum(count > 0 for count in sums.counts) >= LEAST_BUCKETS and effective > _LEAST_EFFECTIVE
    return Mean(mean, variance, spread, round(calls), has_units and (metric.scale != "amount" or mean > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of an arm against the reference."""

    metric: str
    verdict: str
    """Such as "faster", "equivalent within 3 %", "no difference shown so far" or "too few units"."""
    arm: float | None
    """The arm's mean in the metric's unit. Of times it is the geometric mean."""
    reference: float | None
    change: float | None
    """Of times and prices the ratio less 1, of shares the difference."""
    low: float | None
    """The interval around `change`. It holds at any time."""
    high: float | None
    calls: int
    """Calls of the arm that have a value."""
    reference_calls: int


def compare(metric: ExperimentMetric, arm: ArmSums, reference: ArmSums, alpha: float) -> Comparison | None:
    """Compare one metric, with an interval of error `alpha`; None if neither arm has a value."""
    one, other = mean_of(arm, metric), mean_of(reference, metric)
    if one is None and other is None:
        return None
    interval = None
    if one is not None and other is not None and one.is_usable and other.is_usable:
        interval = _interval(metric, one, other, alpha)
    change, low, high = interval or (None, None, None)
    return Comparison(
        metric=metric.name,
        verdict=_verdict(metric, interval),
        arm=one and metric.display(one.value),
        reference=other and metric.display(other.value),
        change=change,
        low=low,
        high=high,
        calls=one.calls if one else 0,
        reference_calls=other.calls if other else 0,
    )


def compare_all(arm: ArmSums, reference: ArmSums, arms: int) -> tuple[Comparison, ...]:
    """Compare all metrics that have values. `arms`: how many are compared with the reference."""
    metrics = [metric for metric in METRICS.values() if metric.name in (arm.metrics | reference.metrics)]
    # Bonferroni's correction for everything that is looked at.
    alpha = ALPHA / max(1, arms * len(metrics))
    found = [compare(metric, arm, reference, alpha) for metric in metrics]
    return tuple([one for one in found if one is not None])


def _interval(metric: ExperimentMetric, one: Mean, other: Mean, alpha: float) -> tuple[float, float, float]:
    """Return the change from `other` to `one`, and its lower and upper bound."""
    if metric.scale == "amount":
        # The logarithm of a ratio of two means, by the delta method.
        one, other = (
            mean._replace(
                value=log(mean.value), variance=mean.variance / mean.value**2, spread=mean.spread / mean.value**2
            )
            for mean in (one, other)
        )
    change = one.value - other.value
    reach = _reach(one.spread + other.spread, one.variance + other.variance, alpha)
    ends = change, change - reach, change + reach
    change, low, high = (expm1(min(end, _LARGEST_EXPONENT)) if metric.is_ratio else end for end in ends)
    return change, low, high


def _reach(spread: float, variance: float, alpha: float) -> float:
    """Return half the width of a confidence sequence around an estimate of this variance.

    Its sample size is that of independent calls of the same information (L. Kish, "Survey Sampling", 1965): it stands
    still where the same units return.
    """
    if variance <= 0 or spread <= 0:
        return 0.0
    return half_width(spread / variance, spread, alpha=alpha, optimised_for=_OPTIMISED_FOR)


def _verdict(metric: ExperimentMetric, interval: tuple[float, float, float] | None) -> str:
    if interval is None:
        return "too few units"
    margin, (_, low, high) = metric.equivalent, interval
    if -margin <= low and high <= margin:
        return f"equivalent within {100 * margin:.0f} %" + ("" if metric.is_ratio else " points")
    if low <= 0 <= high:
        return "no difference shown so far"
    return metric.better if (high < 0) == (metric.scale != "score") else metric.worse


# Guards

MetricName: TypeAlias = Literal[
    "time_to_first_token", "time_per_output_token", "end_to_end", "error_rate", "parse_failures", "price", "quality"
]


@settings
class Guard:
    """Ends an arm that is shown to be worse than the reference: `Guard("error_rate")`, `Guard("price", worse_by=0.2)`.

    "Shown" means by an interval that holds at any time: all guards of an experiment together end an arm that is not
    worse in at most one of 20 experiments. Raises ConfigurationError.
    """

    metric: MetricName = field(kw_only=False)
    worse_by: Annotated[float, Field(ge=0)] = 0.0
    """The tolerated distance from the reference: of times and prices a ratio (0.1 is 10 %), of shares a difference."""

    def reason_to_end(self, arm: ArmSums, reference: ArmSums, alpha: float) -> str | None:
        """Return why an arm has to end, or None."""
        metric = METRICS[self.metric]
        comparison = compare(metric, arm, reference, alpha)
        if comparison is None or comparison.low is None or comparison.high is None:
            return None
        least = -comparison.high if metric.scale == "score" else comparison.low
        unit = "%" if metric.is_ratio else "percentage points"
        text = f"{self.metric} is worse than the reference's by at least {100 * least:.2g} {unit}"
        return text if least > self.worse_by else None
