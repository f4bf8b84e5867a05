"""The spans below a call's own, planned from its record: one for each attempt, and one for each phase of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from . import _names as names

if TYPE_CHECKING:
    from ..records.attempts import Attempt
    from ..records.record import CallRecord
    from ._settings import Level

PREPARE_WORTH_A_SPAN_NS = 1_000_000
"""Preparing a call for less than this is told by an attribute alone."""

_PROTOCOLS = {"HTTP/2": "2", "HTTP/1.1": "1.1"}


class Link(NamedTuple):
    """A span that another one followed from."""

    attempt: int
    """The number of the attempt whose span it is."""
    reason: Literal["retry", "hedge", "fallback", "repair"]


class SpanPlan(NamedTuple):
    """A span that is to be made. Times are monotonic nanoseconds."""

    name: str
    is_client: bool
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    error: str | None = None
    """What the status says, where that is an error: a class or a code, never a message."""
    children: tuple[SpanPlan, ...] = ()
    attempt: int | None = None
    """The number of the attempt that it stands for."""
    link: Link | None = None


class ModelCall(NamedTuple):
    """The attempts that went to one upstream: all of them, unless the call fell back to another one."""

    attempts: tuple[Attempt, ...]
    model: str | None
    origin: str
    start_ns: int
    end_ns: int
    is_last: bool
    """Whether it is the one that the record's answer or error is from."""


def model_calls(record: CallRecord) -> tuple[ModelCall, ...]:
    """The call, cut where it fell back to another upstream. In order of time; at least one."""
    attempts = tuple(sorted(record.attempts, key=lambda attempt: attempt.number))
    starts = [at for at, attempt in enumerate(attempts) if attempt.kind == "fallback" and at]
    timeline = record.timeline
    if not starts:
        return (ModelCall(attempts, record.model, record.origin, timeline.started_ns, timeline.ended_ns, is_last=True),)
    answering = record.attempts[-1].number
    made = []
    for begin, end in zip([0, *starts], [*starts, len(attempts)], strict=True):
        group = attempts[begin:end]
        first = group[0]
        is_last = any(attempt.number == answering for attempt in group)
        ended_ns = max(attempt.wire.ended_ns or attempt.wire.started_ns for attempt in group)
        made.append(
            ModelCall(
                group,
                first.model,
                first.origin or record.origin,
                timeline.started_ns if begin == 0 else first.wire.started_ns,
                timeline.ended_ns if is_last else ended_ns,
                is_last,
            )
        )
    return tuple(made)


def error_of(call: ModelCall, record: CallRecord) -> tuple[str, str] | None:
    """`error.type` and the status' words of one of a record's calls to a model; None where it did not fail.

    An answer that the application or a play wanted no more of is no failure.
    """
    if call.is_last:
        if record.outcome == "failed":
            error = record.error or "_OTHER"
            status = record.status_code
            return error, f"{error} ({status})" if status is not None and status >= 400 else error
        return ("truncated", "truncated") if record.outcome == "truncated" else None
    last = call.attempts[-1]
    if last.given_up == "lost":
        return None
    error = attempt_error(last) or ("timeout" if last.given_up == "late" else "unfit")
    return error, error


def attempt_error(attempt: Attempt) -> str | None:
    """`error.type` of an attempt: its status code, or the class of what was raised; None where neither says error."""
    if attempt.status_code is not None and attempt.status_code >= 400:
        return str(attempt.status_code)
    if attempt.given_up is not None or attempt.error in ("CancelledError", "Cancelled", "GeneratorExit"):
        return None
    return attempt.error


def attempt_outcome(attempt: Attempt, record: CallRecord) -> str:
    """What became of an attempt: "completed", "stopped", "cancelled", "failed", or "lost" and "late" given up."""
    if attempt.given_up is not None:
        return "late" if attempt.given_up == "late" else "cancelled"
    if attempt_error(attempt) is not None:
        return "failed"
    if attempt.number != record.attempts[-1].number:
        return "replaced"
    return {"closed": "cancelled", "abandoned": "cancelled", "truncated": "failed"}.get(record.outcome, record.outcome)


def children_of(call: ModelCall, record: CallRecord, level: Level) -> tuple[SpanPlan, ...]:
    """The spans below that of one call to a model."""
    if level not in ("attempts", "phases"):
        return ()
    plans: list[SpanPlan] = []
    timeline, is_deep = record.timeline, level == "phases"
    first = call.attempts[0] if call.attempts else None
    if is_deep and first is not None:
        queued_s = record.queued_s if len(record.attempts) == 1 else None
        waiting_ns = first.wire.started_ns - queued_ns(queued_s, first.wire.started_ns - call.start_ns)
        if waiting_ns - call.start_ns >= PREPARE_WORTH_A_SPAN_NS:
            plans.append(_internal(names.PREPARE, call.start_ns, waiting_ns))
        if waiting_ns < first.wire.started_ns:
            plans.append(_internal(names.PLACE_WAIT, waiting_ns, first.wire.started_ns))
    plans += [_attempt(attempt, call, record, is_deep=is_deep) for attempt in call.attempts]
    began_ns, ended_ns = timeline.validate_started_ns, timeline.validate_ended_ns
    if is_deep and call.is_last and began_ns is not None and ended_ns is not None:
        told = {} if record.verdict is None else {names.OUTPUT_VERDICT: record.verdict}
        plans.append(_internal(names.VALIDATE, began_ns, ended_ns, told))
    return tuple(plans)


def queued_ns(queued_s: float | None, before_ns: int) -> int:
    """How long a call waited in fastlane's own queues before its only attempt, which began `before_ns` after the call.

    `queued_s`: its wait; None without one, and for a call with several attempts: how much of the wait was before the
    first is not known.
    """
    return 0 if queued_s is None else min(before_ns, int(queued_s * 1e9))


def _internal(name: str, start_ns: int, end_ns: int, attributes: dict[str, Any] | None = None) -> SpanPlan:
    return SpanPlan(name, False, start_ns, max(start_ns, end_ns), attributes or {})


def _attempt(attempt: Attempt, call: ModelCall, record: CallRecord, *, is_deep: bool) -> SpanPlan:
    wire = attempt.wire
    ended_ns = wire.ended_ns if wire.ended_ns is not None else call.end_ns
    error = attempt_error(attempt)
    return SpanPlan(
        record.method,
        True,
        wire.started_ns,
        max(wire.started_ns, ended_ns),
        attempt_attributes(attempt, record),
        error=error,
        children=tuple(_phases(attempt, record)) if is_deep else (),
        attempt=attempt.number,
        link=_link(attempt),
    )


def _link(attempt: Attempt) -> Link | None:
    if attempt.number == 1:
        return None
    if attempt.kind == "hedge":
        return Link(attempt.number - 1, "hedge")
    if attempt.kind in ("retry", "plain"):
        return Link(attempt.number - 1, "retry")
    if attempt.kind in ("fallback", "repair"):
        return Link(attempt.number - 1, "fallback" if attempt.kind == "fallback" else "repair")
    return None


def attempt_attributes(attempt: Attempt, record: CallRecord) -> dict[str, Any]:
    """The attributes of one HTTP request. Its URL has neither query nor credentials."""
    origin = attempt.origin or record.origin
    told: dict[str, Any] = {
        names.HTTP_METHOD: record.method,
        names.URL_FULL: origin + (attempt.path or record.endpoint),
        **server(origin),
        names.ATTEMPT_NUMBER: attempt.number,
        names.ATTEMPT_KIND: attempt.kind,
        names.ATTEMPT_OUTCOME: attempt_outcome(attempt, record),
        names.REQUEST_ENCODING: attempt.form,
    }
    error = attempt_error(attempt)
    if error is not None:
        told[names.ERROR_TYPE] = error
    if attempt.kind in ("retry", "plain"):
        told[names.HTTP_RESEND_COUNT] = attempt.number - 1
    if attempt.model is not None and attempt.model != record.model:
        told[names.ATTEMPT_MODEL] = attempt.model
    if attempt.http_version is not None:
        told[names.PROTOCOL_VERSION] = _PROTOCOLS.get(attempt.http_version, attempt.http_version)
    if attempt.peer_address is not None:
        host, _, port = attempt.peer_address.rpartition(":")
        told[names.PEER_ADDRESS] = host.strip("[]")
        if port.isdecimal():
            told[names.PEER_PORT] = int(port)
    plain_bytes = record.plain_body_bytes
    if plain_bytes is not None and attempt.form != "json":
        told[names.PLAIN_REQUEST_SIZE] = plain_bytes
    found = (
        (names.HTTP_STATUS, attempt.status_code),
        (names.HTTP_REQUEST_SIZE, attempt.request_body_bytes),
        (names.HTTP_RESPONSE_SIZE, attempt.response_body_bytes),
        (names.CONNECTION_ID, attempt.connection_id),
        (names.CONNECTION_REUSED, attempt.connection_reused),
        (names.ROUND_TRIP_TIME, attempt.round_trip_time_s),
    )
    told.update({name: value for name, value in found if value is not None})
    wire, phase = attempt.wire, names.WIRE_PHASE
    for key, seconds in (
        ("queue", wire.connection_wait_s),
        ("dns", wire.dns_s),
        ("connect", wire.connect_s),
        ("tls", wire.tls_s),
        ("send", wire.send_s),
    ):
        if seconds is not None:
            told[phase[key]] = seconds
    return told


def server(origin: str) -> dict[str, Any]:
    """`server.address` and `server.port` of an origin (scheme://host:port)."""
    found = _servers.get(origin)
    if found is None:
        parsed = urlsplit(origin)
        found = {names.SERVER_ADDRESS: parsed.hostname or ""}
        if parsed.port is not None:
            found[names.SERVER_PORT] = parsed.port
        if len(_servers) >= 1_000:
            _servers.clear()
        _servers[origin] = found
    return found


_servers: dict[str, dict[str, Any]] = {}


def _phases(attempt: Attempt, record: CallRecord) -> Iterator[SpanPlan]:
    """What happened one after the other in one attempt, as far as it was seen."""
    wire = attempt.wire
    host = server(attempt.origin or record.origin)
    where = f"{host[names.SERVER_ADDRESS]}:{host.get(names.SERVER_PORT, '')}"
    connecting_ns = wire.dns_started_ns if wire.dns_started_ns is not None else wire.connect_started_ns
    if wire.connection_wait_started_ns is not None and wire.connection_wait_s is not None:
        until_ns = connecting_ns if connecting_ns is not None else wire.send_started_ns
        if until_ns is not None:
            yield _internal(f"{names.CONNECTION_WAIT} {where}", wire.connection_wait_started_ns, until_ns)
    if connecting_ns is not None:
        yield _connection_setup(attempt, where, str(host[names.SERVER_ADDRESS]), connecting_ns)
    if wire.send_started_ns is None:
        return
    sent_ns = wire.send_ended_ns
    if sent_ns is None:
        return
    answered_ns = wire.headers_received_ns
    if answered_ns is not None:
        # The thread that sends may come to say so only after another has seen the head of the answer.
        sent_ns = max(wire.send_started_ns, min(sent_ns, answered_ns))
    yield _internal(names.SEND_REQUEST, wire.send_started_ns, sent_ns)
    if answered_ns is None:
        return
    yield _internal(names.WAIT_FOR_RESPONSE, sent_ns, answered_ns)
    timeline = record.timeline
    if attempt.number != record.attempts[-1].number or timeline.first_token_ns is None:
        return
    told = {} if timeline.first_token_kind is None else {names.FIRST_TOKEN_KIND: timeline.first_token_kind}
    yield _internal(names.FIRST_TOKEN, answered_ns, timeline.first_token_ns, told)
    if len(timeline.token_ns) > 1:
        yield _internal(names.DECODE, timeline.first_token_ns, timeline.token_ns[-1])


def _connection_setup(attempt: Attempt, where: str, host: str, started_ns: int) -> SpanPlan:
    wire = attempt.wire
    parts = []
    ended_ns = started_ns
    for name, begin_ns, end_ns, told in (
        (f"{names.DNS_LOOKUP} {host}", wire.dns_started_ns, wire.dns_ended_ns, {names.DNS_NAME: host}),
        (
            f"{names.SOCKET_CONNECT} {attempt.peer_address or where}",
            wire.connect_started_ns,
            wire.connect_ended_ns,
            {},
        ),
        (
            f"{names.TLS_HANDSHAKE} {host}",
            wire.tls_started_ns,
            wire.tls_ended_ns,
            {} if attempt.tls_version is None else {names.TLS_VERSION: attempt.tls_version.removeprefix("TLSv")},
        ),
    ):
        if begin_ns is not None and end_ns is not None:
            parts.append(_internal(name, begin_ns, end_ns, dict(told)))
            ended_ns = max(ended_ns, end_ns)
    setup = _internal(f"{names.CONNECTION_SETUP} {where}", started_ns, ended_ns)
    return setup._replace(children=tuple(parts))
