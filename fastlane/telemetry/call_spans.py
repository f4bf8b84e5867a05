"""End a call's span and make those below it: one for each attempt, one for each phase, one for each fallback model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, get_current_span, set_span_in_context

from . import names
from .attributes import (
    attempt_attributes,
    attempt_error,
    error_type,
    provider_name,
    queued_ns,
    server_attributes,
    span_start,
)
from .spans import SpanStarter, set_failed

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


@dataclass(frozen=True, slots=True)
class CallSpans:
    """Makes the spans of one call that is over."""

    starter: SpanStarter
    record: CallRecord
    level: Level
    is_compatible: bool = False
    """Whether every span names the provider."""

    def end(
        self, span: Span, context: Context, attributes: Mapping[str, Any], request: Mapping[str, Any], operation: str
    ) -> None:
        """End the call's span, with the spans below it, and make one for each model that the call fell back to.

        `context` is the one that the span was started in, `attributes` those of the call, `request` those of its
        request alone.
        """
        first, *further = model_calls(self.record)
        # Without a span around the call, the further ones would begin traces of their own.
        around = context
        if further and not get_current_span(context).get_span_context().is_valid:
            around = set_span_in_context(span, context)
        made: dict[int, SpanContext] = {}
        try:
            self._below(first, set_span_in_context(span, context), made)
            for call in further:
                name, start_attributes = span_start(operation, call.origin, call.model, self.record.stream)
                link = Link(span.get_span_context(), {names.LINK_REASON: "fallback"})
                other = self.starter.start(
                    name, around, self._wall(call.start_ns), start_attributes, kind=SpanKind.CLIENT, links=[link]
                )
                try:
                    self._below(call, set_span_in_context(other, context), made)
                finally:
                    self._end(other, call, attributes, request)
        finally:
            self._end(span, first, attributes, request)

    def requests(self, parent: Context) -> None:
        """Make the spans of a call's requests, where the call's own span is another tool's."""
        made: dict[int, SpanContext] = {}
        for call in model_calls(self.record):
            self._below(call, parent, made)

    def _wall(self, stamp_ns: int) -> int:
        """Return nanoseconds since the epoch of a monotonic stamp."""
        timeline = self.record.timeline
        return stamp_ns + timeline.started_wall_ns - timeline.started_ns

    def _end(self, span: Span, call: ModelCall, attributes: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        error = _error_of(call, self.record)
        if not call.is_last:
            attributes = {**request, names.ATTEMPT_COUNT: len(call.attempts)}
            if error is not None:
                attributes[names.ERROR_TYPE] = error[0]
        span.set_attributes(attributes)
        if error is not None:
            set_failed(span, error[1])
        span.end(self._wall(call.end_ns))

    def _below(self, call: ModelCall, parent: Context, made: dict[int, SpanContext]) -> None:
        """Make the spans below that of one call to a model. `made`: the spans of attempts by number, for links."""
        if self.level == "call":
            return
        spans = _Children(self, parent, {names.PROVIDER: provider_name(call.origin)} if self.is_compatible else {})
        record, has_phases = self.record, self.level == "phases"
        if has_phases and call.attempts:
            started_ns = call.attempts[0].wire.started_ns
            waiting_ns = started_ns - queued_ns(record, started_ns - call.start_ns)
            if waiting_ns - call.start_ns >= PREPARE_SPAN_MIN_NS:
                spans.add(names.PREPARE, call.start_ns, waiting_ns)
            if waiting_ns < started_ns:
                spans.add(names.PLACE_WAIT, waiting_ns, started_ns)
        for attempt in call.attempts:
            self._attempt(attempt, call, spans, made, has_phases=has_phases)
        timeline = record.timeline
        if has_phases and call.is_last and timeline.validate_started_ns and timeline.validate_ended_ns:
            verdict = {} if record.verdict is None else {names.OUTPUT_VERDICT: record.verdict}
            spans.add(names.VALIDATE, timeline.validate_started_ns, timeline.validate_ended_ns, verdict)

    def _attempt(
        self, attempt: Attempt, call: ModelCall, spans: _Children, made: dict[int, SpanContext], *, has_phases: bool
    ) -> None:
        wire, before = attempt.wire, made.get(attempt.number - 1)
        reason = {"plain": "retry"}.get(attempt.kind, attempt.kind)
        made[attempt.number] = spans.add(
            self.record.method,
            wire.started_ns,
            call.end_ns if wire.ended_ns is None else wire.ended_ns,
            attempt_attributes(attempt, self.record),
            kind=SpanKind.CLIENT,
            links=[] if before is None else [Link(before, {names.LINK_REASON: reason})],
            error=attempt_error(attempt),
            below=(lambda children: _add_phases(attempt, self.record, children)) if has_phases else None,
        )


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
        links: list[Link] | None = None,
        error: str | None = None,
        below: Callable[[_Children], None] | None = None,
    ) -> SpanContext:
        """Make a span, and with `below` its children."""
        own = {**self.attributes, **(attributes or {})}
        span = self.of.starter.start(name, self.parent, self.of._wall(start_ns), own, kind=kind, links=links or ())
        try:
            if error is not None:
                set_failed(span, error)
            if below is not None and span.is_recording():
                below(_Children(self.of, set_span_in_context(span, self.parent), self.attributes))
        finally:
            span.end(self.of._wall(max(start_ns, end_ns)))
        return span.get_span_context()


def _add_phases(attempt: Attempt, record: CallRecord, spans: _Children) -> None:
    """Make a span for each phase of an attempt that was seen."""
    wire, timeline = attempt.wire, record.timeline
    server = server_attributes(attempt.origin or record.origin)
    host = server[names.SERVER_ADDRESS]
    address = f"{host}:{server.get(names.SERVER_PORT, '')}"
    opening_ns = wire.dns_started_ns if wire.dns_started_ns is not None else wire.connect_started_ns
    wait_ended_ns = wire.send_started_ns if opening_ns is None else opening_ns
    if wire.connection_wait_started_ns is not None and wait_ended_ns is not None:
        spans.add(f"{names.CONNECTION_WAIT} {address}", wire.connection_wait_started_ns, wait_ended_ns)
    if opening_ns is not None:
        _add_connection_setup(attempt, spans, host, address, opening_ns)
    sent_ns, head_ns = wire.send_ended_ns, wire.headers_received_ns
    if wire.send_started_ns is None or sent_ns is None:
        return
    if head_ns is not None:
        # The sending thread may read the clock only after another has seen the head of the response.
        sent_ns = max(wire.send_started_ns, min(sent_ns, head_ns))
    spans.add(names.SEND_REQUEST, wire.send_started_ns, sent_ns)
    if head_ns is None:
        return
    spans.add(names.WAIT_FOR_RESPONSE, sent_ns, head_ns)
    first_ns = timeline.first_token_ns
    if attempt.number != record.attempts[-1].number or first_ns is None:
        return
    kind = timeline.first_token_kind
    spans.add(names.FIRST_TOKEN, head_ns, first_ns, {} if kind is None else {names.FIRST_TOKEN_KIND: kind})
    if len(timeline.token_ns) > 1:
        spans.add(names.DECODE, first_ns, timeline.token_ns[-1])


def _add_connection_setup(attempt: Attempt, spans: _Children, host: str, address: str, start_ns: int) -> None:
    wire = attempt.wire
    tls = {} if attempt.tls_version is None else {names.TLS_VERSION: attempt.tls_version.removeprefix("TLSv")}
    peer = attempt.peer_address or address
    steps = [
        (name, from_ns, until_ns, attributes)
        for name, from_ns, until_ns, attributes in (
            (f"{names.DNS_LOOKUP} {host}", wire.dns_started_ns, wire.dns_ended_ns, {names.DNS_NAME: host}),
            (f"{names.SOCKET_CONNECT} {peer}", wire.connect_started_ns, wire.connect_ended_ns, {}),
            (f"{names.TLS_HANDSHAKE} {host}", wire.tls_started_ns, wire.tls_ended_ns, tls),
        )
        if from_ns is not None and until_ns is not None
    ]

    def add_steps(children: _Children) -> None:
        for step in steps:
            children.add(*step)

    end_ns = max([start_ns, *(until_ns for _, _, until_ns, _ in steps)])
    spans.add(f"{names.CONNECTION_SETUP} {address}", start_ns, end_ns, below=add_steps)
