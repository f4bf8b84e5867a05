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
    wire = last.wire
    head_ns, first_ns, last_ns = wire.headers_received_ns, timeline.first_token_ns, timeline.last_token_ns
    begun_ns = min(attempt.wire.started_ns for attempt in record.attempts)
    streamed = first_ns is not None and last_ns is not None
    # A head that came before the request's last byte has left was waited for until then, as `wait_s` has it.
    answered_ns = head_ns if head_ns is None or wire.send_ended_ns is None else max(head_ns, wire.send_ended_ns)
    if answered_ns is not None and first_ns is not None and first_ns >= wire.started_ns:
        answered_ns = min(answered_ns, first_ns)
    placed_s = _placed_s(record, begun_ns)
    handed_s, checked_s = seconds(timeline.answer_ended_ns, timeline.ended_ns), _checked_s(timeline)
    measured: dict[Phase, float | None] = {
        "prepare": (begun_ns - timeline.started_ns) / 1e9 - (placed_s or 0.0),
        "wait_for_place": placed_s,
        "earlier attempts": seconds(begun_ns, wire.started_ns) if wire.started_ns > begun_ns else None,
        "queue": wire.queue_s,
        "dns": wire.dns_s,
        "connect": wire.connect_s,
        "tls": wire.tls_s,
        "send": wire.send_s,
        "wait": wire.wait_s,
        "first token": seconds(answered_ns, first_ns),
        "decode": seconds(first_ns, last_ns),
        "body": None if streamed else seconds(answered_ns, timeline.answer_ended_ns),
        "tail": seconds(last_ns, timeline.answer_ended_ns),
        "validate": checked_s,
        "hand over": handed_s - (checked_s or 0.0) if handed_s is not None else None,
    }
    # Below 0 is what two stamps of different attempts would give: of an answer that was asked for again, say.
    found = {phase: took for phase, took in measured.items() if took is not None and took >= 0}
    found["other"] = max(0.0, record.duration_s - sum(found.values()))
    return found


def _placed_s(record: CallRecord, begun_ns: int) -> float | None:
    """Seconds in fastlane's own queue before the only attempt, as the span `wait_for_place` has them."""
    queued_s = record.queued_s
    if queued_s is None or len(record.attempts) != 1:
        return None
    return min(queued_s, max(0, begun_ns - record.timeline.started_ns) / 1e9)


def _checked_s(timeline: Timeline) -> float | None:
    """Seconds of the check, as far as it came after the last byte of the answer."""
    began_ns, ended_ns, came_ns = timeline.validate_started_ns, timeline.validate_ended_ns, timeline.answer_ended_ns
    if began_ns is None or ended_ns is None or came_ns is None:
        return None
    took = seconds(max(began_ns, came_ns), min(ended_ns, timeline.ended_ns))
    return took if took is not None and took > 0 else None


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
