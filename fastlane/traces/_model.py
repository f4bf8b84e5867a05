"""Spans as a file has them, and what they tell of user actions, calls, attempts and phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

PHASES: Final = (
    "prepare", "retries", "queue", "dns", "connect", "proxy", "tls", "send", "server", "unsplit", "decode", "validate",
    "other",
)  # fmt: skip
"""The parts of a call's time, in the order in which they pass; together they are the whole.

- prepare: planning and encoding, before anything is sent
- retries: attempts that failed or lost, and the pauses after them
- queue: for a slot that a play gives, and for a connection of the answering attempt
- dns, connect, proxy, tls, send: of the answering attempt
- server: from the last byte sent to the first token, to the response's head without a stream, or to a timeout
- unsplit: until the first token, where no span says what it was spent with
- decode: from the first token to the last
- validate: the answer was checked
- other: the remainder
"""
Kind = Literal["action", "call", "other"]


class SpanLink(NamedTuple):
    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]


class SpanEvent(NamedTuple):
    name: str
    time_ns: int
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span. Times are nanoseconds since the epoch, attributes plain JSON data."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str
    """"internal", "server", "client", "producer", "consumer", or "" where the file does not say."""
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: tuple[SpanEvent, ...]
    links: tuple[SpanLink, ...]
    failed: bool
    status_message: str
    scope: str
    """The instrumentation that made it, with its version."""
    service: str

    @property
    def key(self) -> tuple[str, str]:
        return (self.trace_id, self.span_id)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def error(self) -> str | None:
        """The class of what went wrong; None if nothing did. Never a message, which may be of any length."""
        if not self.failed:
            return None
        raised = [event.attributes.get("exception.type") for event in self.events]
        names = [self.attributes.get("error.type"), *(str(each or "").rpartition(".")[2] for each in raised)]
        return next((name for name in names if isinstance(name, str) and name), "error")

    def text(self, *names: str) -> str | None:
        """The first of these attributes that is a text and not empty."""
        return next((value for name in names if isinstance(value := self.attributes.get(name), str) and value), None)

    def count(self, *names: str) -> int | None:
        """The first of these attributes that is a whole number."""
        values = (self.attributes.get(name) for name in names)
        return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)

    def number(self, name: str) -> float | None:
        value = self.attributes.get(name)
        valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
        return float(value) if valid else None  # type: ignore[arg-type]

    def flag(self, name: str) -> bool | None:
        value = self.attributes.get(name)
        return value if isinstance(value, bool) else None


class CallPhase(NamedTuple):
    name: str
    """One of PHASES, or "connection", "wait" and "first_token", of which some of them are made."""
    start_ns: int
    end_ns: int
    span: Span | None = None
    """None if it was worked out from the attributes of the call's span."""

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAttempt:
    span: Span
    kind: str | None
    """"first", "retry", "hedge", …: why it was made."""
    outcome: str | None
    status_code: int | None
    error: str | None
    connection_reused: bool | None
    phases: tuple[CallPhase, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCall:
    """One logical call to a model, retries included. Durations are seconds; None is unknown."""

    span: Span
    model: str | None
    response_model: str | None
    provider: str | None
    error: str | None
    time_to_first_token_s: float | None
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    tokens_per_second: float | None
    route_reason: str | None
    connection_reused: bool | None
    attempt_count: int | None
    cache_miss: str | None
    """What broke the prompt's prefix, such as "timestamp"; None if nothing did."""
    cache_miss_path: str | None
    """The field of the request that differs, such as "messages[0].content"."""
    cache_lost_tokens: int | None
    """Tokens that the provider's cache did not have because of it, estimated."""
    attempts: tuple[TraceAttempt, ...]
    phases: tuple[CallPhase, ...]
    durations_s: Mapping[str, float]
    """Seconds for each of PHASES that took any: the call's whole time."""


class WaterfallBar(NamedTuple):
    depth: int
    label: str
    phase: str
    """"action", "call", "attempt", "pause" (between attempts), "span", or a phase's name."""
    start_ns: int
    end_ns: int
    span: Span | None = None
    error: str | None = None
    first_token_ns: int | None = None
    note: str = ""
    """How it differs from its neighbours, in a few words: "retry", "hedge, lost", "new connection"."""


class TraceArm(NamedTuple):
    experiment: str
    arm: str
    unit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """What is listed: a user action, a call without one, or a trace that has neither."""

    kind: Kind
    name: str
    trace_id: str
    start_ns: int
    end_ns: int
    error: str | None
    calls: tuple[TraceCall, ...]
    rows: tuple[WaterfallBar, ...]
    within: tuple[str, ...] = ()
    """Names of the spans around it, the outermost first."""
    experiment: TraceArm | None = None
    durations_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds for each of PHASES, over all calls; and what the calls do not account for."""

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds to the first token of the only call; None if there are several, or none."""
        if len(self.calls) != 1 or (first_s := self.calls[0].time_to_first_token_s) is None:
            return None
        return first_s + (self.calls[0].span.start_ns - self.start_ns) / 1e9
