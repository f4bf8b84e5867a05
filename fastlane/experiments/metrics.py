"""The metrics that are compared between arms, and their values for one call."""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ..records.plays import BoundedOutputRecord, HedgingRecord, RoutingRecord

if TYPE_CHECKING:
    from ..engine.call_state import CallState

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
    """Return what a call cost, with rejected answers and lost hedges; None where that is not known."""
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
