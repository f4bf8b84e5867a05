"""What a file of spans tells of user actions, of their calls, of the calls' attempts and of the phases of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from ._spans import Span

PHASES: Final = (
    "prepare", "retries", "queue", "dns", "connect", "tls", "send", "server", "unsplit", "decode", "validate", "other",
)  # fmt: skip
"""The parts of a call's time, in the order in which they pass; together they are the whole.

- prepare: planning and encoding, before anything is sent
- retries: attempts that failed or lost, and the pauses after them
- queue: for a slot that a play gives, and for a connection of the answering attempt
- dns, connect, tls, send: of the answering attempt
- server: from the last byte sent to the first token, to the answer's head where there was no stream, or to a timeout
- unsplit: until the first token, where nobody said what it was spent with
- decode: from the first token to the last
- validate: the answer was checked
- other: what is left
"""

Kind = Literal["action", "call", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPhase:
    """A stretch of a call's time."""

    name: str
    """One of PHASES, or "connection", "wait" and "first_token", of which some of them are made."""
    start_ns: int
    end_ns: int
    span: Span | None = None
    """None where it was worked out from the attributes of the call's span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAttempt:
    """One HTTP request of a call."""

    span: Span
    number: int | None
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
    issued_ns: int
    """When the application issued it: before its span where that is of a model which the call fell back to."""
    model: str | None
    """The model asked for."""
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
    cache_miss: str | None = None
    """What broke the prompt's prefix, such as "timestamp"; None where nothing did."""
    cache_miss_path: str | None = None
    """The field of the request that differs, such as "messages[0].content"."""
    cache_lost_tokens: int | None = None
    """Tokens that the provider's cache did not have because of it, estimated."""
    attempts: tuple[TraceAttempt, ...] = ()
    phases: tuple[CallPhase, ...] = ()
    """All of them, those of attempts included, in the order in which they began."""
    durations_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds for each of PHASES that took any: the call's whole time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallBar:
    """One bar of a waterfall."""

    depth: int
    label: str
    phase: str
    """"action", "call", "attempt", "pause" (between attempts), "span", or a phase's name."""
    start_ns: int
    end_ns: int
    span: Span | None
    error: str | None = None
    first_token_ns: int | None = None
    """When the first token came; for calls."""
    note: str = ""
    """What tells it from its neighbours, in a few words: "retry", "hedge, lost", "new connection"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArm:
    """The side of an experiment that something belongs to."""

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
        """Seconds from its start to its end."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def time_to_first_token_s(self) -> float | None:
        """Seconds to the first token of the only call; None where there are several, or none."""
        issued = {call.issued_ns for call in self.calls}
        if len(issued) != 1 or (first_s := self.calls[-1].time_to_first_token_s) is None:
            return None
        return first_s + (issued.pop() - self.start_ns) / 1e9
