"""Make the spans of a call that is over: its own, one for each fallback model, attempt and phase of an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    get_current_span,
    set_span_in_context,
)

from .attributes import (
    attempt_attributes,
    attempt_error,
    error_type,
    provider_name,
    queued_ns,
    server_attributes,
    span_start,
)
from .spans import Compute, SpanMaker, end_span

if TYPE_CHECKING:
    from ..records.attempts import Attempt
    from ..records.record import CallRecord
    from .settings import Level

PREPARE_SPAN_MIN_NS: Final = 1_000_000
"""A shorter preparation has no span of its own; its duration is an attribute of the call's."""


class ModelCall(NamedTuple):
    """The attempts that went to one upstream: all of them, unless the call fell back to another one."""

    attempts: tuple[Attempt, ...]
    model: str | None
    origin: str
    start_ns: int
    end_ns: int
    is_last: bool
    """Whether the record's answer or error is from this one."""


def model_calls(record: CallRecord) -> tuple[ModelCall, ...]:
    """Cut a call where it fell back to another upstream. In order of time; at least one."""
    attempts = tuple(sorted(record.attempts, key=lambda attempt: attempt.number))
    starts = [at for at, attempt in enumerate(attempts) if attempt.kind == "fallback" and at]
    timeline = record.timeline
    if not starts:
        return (ModelCall(attempts, record.model, record.origin, timeline.started_ns, timeline.ended_ns, is_last=True),)
    answering = record.attempts[-1].number
    calls = []
    for begin, end in zip([0, *starts], [*starts, len(attempts)], strict=True):
        group = attempts[begin:end]
        first = group[0]
        is_last = any(attempt.number == answering for attempt in group)
        ended_ns = max(attempt.wire.ended_ns or attempt.wire.started_ns for attempt in group)
        calls.append(
            ModelCall(
                group,
                first.model,
                first.origin or record.origin,
                timeline.started_ns if begin == 0 else first.wire.started_ns,
                timeline.ended_ns if is_last else ended_ns,
                is_last,
            )
        )
    return tuple(calls)


def _error_of(call: ModelCall, record: CallRecord) -> tuple[str, str] | None:
    """Return `error.type` and the status description of a call to one model; None where it did not fail."""
    if call.is_last:
        error, status = error_type(record), record.status_code
        if error is None:
            return None
        has_status = record.outcome == "failed" and status is not None and status >= 400
        return error, f"{error} ({status})" if has_status else error
    last = call.attempts[-1]
    if last.given_up == "lost":
        return None
    error = attempt_error(last) or ("timeout" if last.given_up == "late" else "unfit")
    return error, error


def with_span(span: SpanContext, context: Context) -> Context:
    """Return a context with a span that has been made."""
    return set_span_in_context(NonRecordingSpan(span), context)


class CallSpans:
    """Makes the spans of one call, each before those below it."""

    def __init__(
        self, maker: SpanMaker, record: CallRecord, operation: str, level: Level, *, is_compatible: bool = False
    ) -> None:
        """`is_compatible`: every span names the provider."""
        self._maker, self._record, self._operation = maker, record, operation
        self._has_attempts, self._has_phases = level in ("attempts", "phases"), level == "phases"
        self._is_compatible = is_compatible
        self._offset_ns = record.timeline.started_wall_ns - record.timeline.started_ns
        self._attempts: dict[int, SpanContext] = {}

    def make(self, context: Context, attributes: Compute, request: Compute) -> SpanContext | None:
        """Make all spans of the call in a context, and return that of its own; None where that is not recorded.

        `attributes` computes those of the call, `request` those of its request alone.
        """
        first, *further = model_calls(self._record)
        own = self._make_call(first, context, attributes, request)
        if own is not None:
            self._make_further(further, own, context, attributes, request)
        return own

    def end(self, span: Span, context: Context, attributes: Compute, request: Compute) -> None:
        """End the call's own span, which was started in a context, and make all others."""
        first, *further = model_calls(self._record)
        error = _error_of(first, self._record)
        computed = attributes if first.is_last else _of_left(first, error, request)
        end_span(span, first.end_ns + self._offset_ns, computed(), None if error is None else error[1])
        own = span.get_span_context()
        self._make_below(first, with_span(own, context))
        self._make_further(further, own, context, attributes, request)

    def make_requests(self, parent: Context) -> None:
        """Make the spans of a call's requests, where the call's own span is another tool's."""
        for call in model_calls(self._record):
            self._make_below(call, parent)

    def _make_further(
        self, calls: list[ModelCall], own: SpanContext, context: Context, attributes: Compute, request: Compute
    ) -> None:
        # Without a span around the call, the further ones would begin traces of their own.
        has_parent = get_current_span(context).get_span_context().is_valid
        around = context if has_parent else with_span(own, context)
        for call in calls:
            self._make_call(call, around, attributes, request, Link(own, {"fastlane.link.reason": "fallback"}))

    def _make_call(
        self, call: ModelCall, context: Context, attributes: Compute, request: Compute, link: Link | None = None
    ) -> SpanContext | None:
        error = _error_of(call, self._record)
        name, start_attributes = span_start(self._operation, call.origin, call.model, self._record.stream)
        own = self._maker.make(
            name,
            context,
            call.start_ns + self._offset_ns,
            call.end_ns + self._offset_ns,
            start_attributes,
            kind=SpanKind.CLIENT,
            links=() if link is None else (link,),
            error=None if error is None else error[1],
            compute=attributes if call.is_last else _of_left(call, error, request),
        )
        if own is not None:
            self._make_below(call, with_span(own, context))
        return own

    def _make_below(self, call: ModelCall, parent: Context) -> None:
        """Make the spans below that of one call to a model."""
        if not self._has_attempts:
            return
        children = _Children(
            self, parent, {"gen_ai.provider.name": provider_name(call.origin)} if self._is_compatible else {}
        )
        record = self._record
        if self._has_phases and call.attempts:
            started_ns = call.attempts[0].wire.started_ns
            waiting_ns = started_ns - queued_ns(record, started_ns - call.start_ns)
            if waiting_ns - call.start_ns >= PREPARE_SPAN_MIN_NS:
                children.add("prepare", call.start_ns, waiting_ns)
            if waiting_ns < started_ns:
                children.add("wait_for_place", waiting_ns, started_ns)
        for attempt in call.attempts:
            self._make_attempt(attempt, call, children)
        timeline = record.timeline
        if self._has_phases and call.is_last and timeline.validate_started_ns and timeline.validate_ended_ns:
            verdict = {} if record.verdict is None else {"fastlane.output.verdict": record.verdict}
            children.add("validate", timeline.validate_started_ns, timeline.validate_ended_ns, verdict)

    def _make_attempt(self, attempt: Attempt, call: ModelCall, children: _Children) -> None:
        wire, before = attempt.wire, self._attempts.get(attempt.number - 1)
        reason = "retry" if attempt.kind == "plain" else attempt.kind
        below = children.add(
            self._record.method,
            wire.started_ns,
            call.end_ns if wire.ended_ns is None else wire.ended_ns,
            attempt_attributes(attempt, self._record),
            kind=SpanKind.CLIENT,
            links=() if before is None else (Link(before, {"fastlane.link.reason": reason}),),
            error=attempt_error(attempt),
        )
        if below is not None:
            self._attempts[attempt.number] = get_current_span(below.parent).get_span_context()
            if self._has_phases:
                _add_phases(attempt, self._record, below)


def _of_left(call: ModelCall, error: tuple[str, str] | None, request: Compute) -> Compute:
    """Return what computes the attributes of a call to a model that was left for another one."""
    known = {"fastlane.attempt.count": len(call.attempts), **({} if error is None else {"error.type": error[0]})}
    return lambda: {**request(), **known}


@dataclass(frozen=True, slots=True)
class _Children:
    """Makes spans below one parent. Times are monotonic nanoseconds."""

    of: CallSpans
    parent: Context
    attributes: Mapping[str, Any]
    """Of every span."""

    def add(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: Mapping[str, Any] | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: tuple[Link, ...] = (),
        error: str | None = None,
    ) -> _Children | None:
        """Make a span, and return what makes those below it; None where it is not recorded."""
        context = self.of._maker.make(
            name,
            self.parent,
            start_ns + self.of._offset_ns,
            max(start_ns, end_ns) + self.of._offset_ns,
            {**self.attributes, **(attributes or {})},
            kind=kind,
            links=links,
            error=error,
        )
        return None if context is None else _Children(self.of, with_span(context, self.parent), self.attributes)


def _add_phases(attempt: Attempt, record: CallRecord, spans: _Children) -> None:
    """Make a span for each phase of an attempt that was seen."""
    wire, timeline = attempt.wire, record.timeline
    server = server_attributes(attempt.origin or record.origin)
    host = server["server.address"]
    address = f"{host}:{server.get('server.port', '')}"
    opening_ns = wire.dns_started_ns if wire.dns_started_ns is not None else wire.connect_started_ns
    wait_ended_ns = wire.send_started_ns if opening_ns is None else opening_ns
    if wire.connection_wait_started_ns is not None and wait_ended_ns is not None:
        spans.add(f"HTTP wait_for_connection {address}", wire.connection_wait_started_ns, wait_ended_ns)
    if opening_ns is not None:
        _add_connection_setup(attempt, spans, host, address, opening_ns)
    sent_ns, head_ns = wire.send_ended_ns, wire.headers_received_ns
    if wire.send_started_ns is None or sent_ns is None:
        return
    if head_ns is not None:
        # The sending thread may read the clock only after another has seen the head of the response.
        sent_ns = max(wire.send_started_ns, min(sent_ns, head_ns))
    spans.add("HTTP send_request", wire.send_started_ns, sent_ns)
    if head_ns is None:
        return
    spans.add("HTTP wait_for_response", sent_ns, head_ns)
    first_ns = timeline.first_token_ns
    if attempt.number != record.attempts[-1].number or first_ns is None:
        return
    kind = timeline.first_token_kind
    spans.add("first_token", head_ns, first_ns, {} if kind is None else {"fastlane.first_token.kind": kind})
    if len(timeline.token_ns) > 1:
        spans.add("decode", first_ns, timeline.token_ns[-1])


def _add_connection_setup(attempt: Attempt, spans: _Children, host: str, address: str, start_ns: int) -> None:
    wire = attempt.wire
    tls = {} if attempt.tls_version is None else {"tls.protocol.version": attempt.tls_version.removeprefix("TLSv")}
    peer = attempt.peer_address or address
    steps = [
        (name, from_ns, until_ns, attributes)
        for name, from_ns, until_ns, attributes in (
            (f"DNS lookup {host}", wire.dns_started_ns, wire.dns_ended_ns, {"dns.question.name": host}),
            (f"socket connect {peer}", wire.connect_started_ns, wire.connect_ended_ns, {}),
            (f"TLS client handshake {host}", wire.tls_started_ns, wire.tls_ended_ns, tls),
        )
        if from_ns is not None and until_ns is not None
    ]
    end_ns = max([start_ns, *(until_ns for _, _, until_ns, _ in steps)])
    below = spans.add(f"HTTP connection_setup {address}", start_ns, end_ns)
    if below is not None:
        for step in steps:
            below.add(*step)
