"""What is compared between arms, and how it is read out of a call that is over."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any, Literal

from ..records.output import BoundedOutputRecord
from ..records.route import HedgingRecord, RoutingRecord

if TYPE_CHECKING:
    from ..engine.observation import Observation
    from ..records.record import CallRecord

Scale = Literal["log", "share", "amount"]
"""How values are put together.

- log: times, as the mean of their logarithms: differences are ratios of typical (geometric mean) times
- share: 0 to 1, such as whether a call failed, or how good its answer was: differences are of shares
- amount: money, as its mean, since the bill is a sum: differences are ratios of means
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One thing that is compared."""

    name: str
    scale: Scale
    better: str
    """What an arm is called where it is shown to be better."""
    worse: str
    equivalent: float
    """Within which difference arms are equivalent: of a ratio - 1, or of shares."""
    lower_is_better: bool = True
    unit: str = ""

    def shown(self, mean: float) -> float:
        """A mean on the metric's scale, as people read it."""
        return exp(mean) if self.scale == "log" else mean


METRICS = (
    Metric(name="time_to_first_token", scale="log", better="faster", worse="slower", equivalent=0.03, unit="s"),
    Metric(name="time_per_output_token", scale="log", better="faster", worse="slower", equivalent=0.03, unit="s"),
    Metric(name="end_to_end", scale="log", better="faster", worse="slower", equivalent=0.03, unit="s"),
    Metric(name="error_rate", scale="share", better="fewer errors", worse="more errors", equivalent=0.01),
    Metric(
        name="parse_failures",
        scale="share",
        better="fewer parse failures",
        worse="more parse failures",
        equivalent=0.01,
    ),
    Metric(name="price", scale="amount", better="cheaper", worse="dearer", equivalent=0.03, unit="a call"),
    Metric(name="quality", scale="share", better="better", worse="worse", equivalent=0.03, lower_is_better=False),
    # Of a quantile, by the share of calls beyond it: that is a mean, and means are what is known at any time.
    Metric(
        name="time_to_first_token_p95",
        scale="share",
        better="fewer slow first tokens",
        worse="more slow first tokens",
        equivalent=0.01,
    ),
)
BY_NAME = {metric.name: number for number, metric in enumerate(METRICS)}

_TTFT, _TPOT, _E2E, _ERRORS, PARSING, PRICE, QUALITY, SLOW = range(len(METRICS))
YES_OR_NO = frozenset({_ERRORS, PARSING, SLOW})
"""Metrics whose values are 0 and 1."""

# Errors over an answer that came and could not be read as it was asked for: openai's own, pydantic's and ours.
_PARSE_ERRORS = frozenset({"InvalidOutputError", "LengthFinishReasonError", "ValidationError", "JSONDecodeError"})
ANSWERED = frozenset({"completed", "stopped", "truncated"})
"""Outcomes of calls that came to an end by themselves, and to no error."""
# Clocks are finer, and no time is 0.
_LEAST_S = 1e-6

Values = list[tuple[int, float]]
"""Numbers of metrics in `METRICS`, each with the call's value on its scale."""


class Prices:
    """What calls cost, by a catalog."""

    def __init__(self, catalog: Any) -> None:
        self._prices: dict[str, Any] = {}
        for model in () if catalog is None else catalog.models:
            if model.price is not None:
                self._prices.setdefault(model.model, model.price)

    def __len__(self) -> int:
        return len(self._prices)

    def of(self, call: Observation) -> float | None:
        """All that a call has cost, rejected answers and lost hedges included; None where that is not known."""
        price = self._prices.get(call.model or "")
        usage, output = call.usage, _output_of(call)
        routing = next((one for one in call.sections if isinstance(one, RoutingRecord)), None)
        hedging = next((one for one in call.sections if isinstance(one, HedgingRecord)), None)
        if routing is None and price is None:
            return None
        known: float | None = None
        if routing is not None and routing.price is not None:
            known = routing.price
        elif price is not None and usage.input_tokens is not None and usage.output_tokens is not None:
            known = price.of(usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0)
        if known is None:
            return None
        if price is not None and output is not None:
            known += sum(price.of(one.input_tokens or 0, one.output_tokens or 0) for one in output.rejected)
        return known + (hedging.extra_price or 0.0 if hedging is not None else 0.0)


def _output_of(call: Observation | CallRecord) -> BoundedOutputRecord | None:
    return next((one for one in call.sections if isinstance(one, BoundedOutputRecord)), None)


def parse_failure(call: Observation | CallRecord) -> float | None:
    """1 for an answer that was not valid, 0 for any other one; None for a call that has no whole answer."""
    output = _output_of(call)
    is_unreadable = call.error in _PARSE_ERRORS or (
        output is not None and (output.verdict in ("invalid", "truncated") or bool(output.rejected))
    )
    return float(is_unreadable) if is_unreadable or call.outcome in ANSWERED else None


def values_of(call: Observation, prices: Prices, slow_s: float | None) -> Values:
    """What one call that is over says of the metrics that can be known of it.

    `slow_s`: after how many seconds a first token is a slow one; None where nobody asks.
    """
    outcome, answer, unreadable = call.outcome, call.answer, parse_failure(call)
    found: Values = []
    if outcome == "failed" or outcome in ANSWERED:
        found.append((_ERRORS, float(outcome == "failed")))
    if unreadable is not None:
        found.append((PARSING, unreadable))
    tokens_ns, started_ns = answer.token_ns, call.started_ns
    if call.stream and answer.first_token_ns is not None:
        first_ns = answer.first_token_ns - started_ns
        found.append((_TTFT, _log_s(first_ns)))
        if slow_s is not None:
            found.append((SLOW, float(first_ns > slow_s * 1e9)))
    if outcome in ANSWERED:
        ended_ns = tokens_ns[-1] if call.stream and len(tokens_ns) else call.ended_ns
        found.append((_E2E, _log_s(ended_ns - started_ns)))
    # What a call that failed has cost, nobody says.
    if outcome in ANSWERED:
        if call.stream and len(tokens_ns) > 1 and tokens_ns[-1] > tokens_ns[0]:
            usage = call.usage
            count = None if usage.estimated else usage.output_tokens
            if count is not None and usage.reasoning_tokens and answer.first_token_kind != "reasoning":
                count -= usage.reasoning_tokens
            if count is not None and count > 1:
                found.append((_TPOT, _log_s((tokens_ns[-1] - tokens_ns[0]) / (count - 1))))
        if prices or call.sections:
            price = prices.of(call)
            if price is not None:
                found.append((PRICE, price))
    return found


def _log_s(taken_ns: float) -> float:
    return log(max(taken_ns / 1e9, _LEAST_S))
