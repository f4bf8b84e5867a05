"""Where the time of one call went: phases that follow each other, from its issue until it was over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from ..records.timeline import seconds

if TYPE_CHECKING:
    from ..records.record import CallRecord
    from ..records.timeline import Timeline

Phase = Literal[
    "prepare", "wait_for_place", "earlier attempts", "queue", "dns", "connect", "tls", "send", "wait", "first token",
    "decode", "body", "tail", "validate", "hand over", "other",
]  # fmt: skip
"""A part of a call's time. Those from `queue` to `wait` are of the attempt that answered (docs/measuring.md).

- prepare: from issue until the first attempt was handed to the HTTP client: plays, and writing the request;
  without the wait for a place
- wait_for_place: in fastlane's own queue, before the only attempt (of a call with several, how much of its wait was
  before the first is not known: it stays in `prepare` and `earlier attempts`)
- earlier attempts: from there until the attempt that answered began: failures, pauses, the wait before a hedge
- first token: from the head of the answer to its first output
- decode: from the first to the last output
- body: of an answer that is not streamed, from its head to its last byte
- tail: of a stream, from its last output to its last byte: usage, [DONE]
- validate: the check of a structured answer, after its last byte
- hand over: from the last byte until the call was over for the application: decoding, and what it had yet to read;
  without the check
- other: what lies between these
"""

PHASES: tuple[Phase, ...] = get_args(Phase)


def phases_of(record: CallRecord) -> dict[Phase, float]:
    """Seconds of each phase of a call that was answered; without those that did not happen or could not be seen."""
    timeline, last = record.timeline, record.last_attempt
    if last is None:
        return {"other": record.duration_s}
    wire, started_ns, done_ns = last.wire, timeline.started_ns, timeline.answer_ended_ns
    first_ns, last_ns = timeline.first_token_ns, timeline.last_token_ns
    begun_ns = min(attempt.wire.started_ns for attempt in record.attempts)
    placed_ns = begun_ns - round((_placed_s(record, begun_ns) or 0.0) * 1e9)
    sent_ns, head_ns = wire.send_ended_ns, wire.headers_received_ns
    queued_until_ns = wire.dns_started_ns or wire.connect_started_ns or wire.send_started_ns
    checked_ns = _checked_until_ns(timeline)
    streamed = first_ns is not None and last_ns is not None
    spans: list[tuple[Phase, int | None, int | None]] = [
        ("prepare", started_ns, placed_ns),
        ("wait_for_place", placed_ns if placed_ns < begun_ns else None, begun_ns),
        ("earlier attempts", begun_ns if begun_ns < wire.started_ns else None, wire.started_ns),
        ("queue", wire.started_ns, queued_until_ns),
        ("dns", wire.dns_started_ns, wire.dns_ended_ns),
        ("connect", wire.connect_started_ns, wire.connect_ended_ns),
        ("tls", wire.tls_started_ns, wire.tls_ended_ns),
        ("send", wire.send_started_ns, sent_ns),
        ("wait", sent_ns, head_ns),
        ("first token", head_ns, first_ns),
        ("decode", first_ns, last_ns),
        ("body", None if streamed else head_ns, done_ns),
        ("tail", last_ns, done_ns),
        ("validate", done_ns if checked_ns is not None else None, checked_ns),
        ("hand over", done_ns if checked_ns is None else checked_ns, timeline.ended_ns),
    ]
    # Each nanosecond counts once: a connection may have begun to open before the call, and a thread that was kept
    # waiting may say that it has sent after the answer came.
    found: dict[Phase, float] = {}
    until_ns = started_ns
    for phase, start_ns, end_ns in spans:
        if start_ns is not None and end_ns is not None:
            found[phase] = max(0, end_ns - max(start_ns, until_ns)) / 1e9
            until_ns = max(until_ns, end_ns)
    found["other"] = max(0.0, record.duration_s - sum(found.values()))
    return found


def _placed_s(record: CallRecord, begun_ns: int) -> float | None:
    """Seconds in fastlane's own queue before the only attempt, as the span `wait_for_place` has them."""
    queued_s = record.queued_s
    if queued_s is None or len(record.attempts) != 1:
        return None
    return min(queued_s, max(0, begun_ns - record.timeline.started_ns) / 1e9)


def _checked_until_ns(timeline: Timeline) -> int | None:
    """When the check of the answer would have ended had it begun at the last byte; None if it took no time after it."""
    began_ns, ended_ns, came_ns = timeline.validate_started_ns, timeline.validate_ended_ns, timeline.answer_ended_ns
    if began_ns is None or ended_ns is None or came_ns is None:
        return None
    took_ns = min(ended_ns, timeline.ended_ns) - max(began_ns, came_ns)
    return came_ns + took_ns if took_ns > 0 else None


def opening_of(record: CallRecord) -> list[tuple[str, float]]:
    """The connections that a call had to wait for: their origin, and the seconds from name lookup to TLS."""
    found = []
    for attempt in record.attempts:
        wire = attempt.wire
        began_ns = wire.dns_started_ns if wire.dns_started_ns is not None else wire.connect_started_ns
        ended_ns = wire.tls_ended_ns if wire.tls_started_ns is not None else wire.connect_ended_ns
        took = seconds(began_ns, ended_ns)
        if took is not None and attempt.origin is not None:
            found.append((attempt.origin, took))
    return found
