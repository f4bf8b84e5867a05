"""Where the time of one call went: phases that follow each other, from its issue until it was over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from ..records.timeline import seconds

if TYPE_CHECKING:
    from ..records.record import CallRecord

Phase = Literal[
    "prepare", "wait_for_place", "earlier attempts", "queue", "dns", "connect", "proxy", "tls", "send", "wait",
    "first token", "decode", "body", "tail", "validate", "hand over", "other",
]  # fmt: skip
"""A part of a call's time; docs/reports.md defines each. From `queue` to `wait`: of the attempt that answered."""

PHASES: tuple[Phase, ...] = get_args(Phase)


def phases_of(record: CallRecord) -> dict[Phase, float]:
    """Return the seconds of each phase of an answered call, without those that did not happen or are unknown."""
    timeline, last = record.timeline, record.last_attempt
    if last is None:
        return {"other": record.duration_s}
    wire, started_ns, done_ns = last.wire, timeline.started_ns, timeline.answer_ended_ns
    first_ns, last_ns = timeline.first_token_ns, timeline.last_token_ns
    begun_ns = min(attempt.wire.started_ns for attempt in record.attempts)
    # How much of the wait of a call with several attempts was before the first is unknown.
    waited_ns = round((record.queued_s or 0.0) * 1e9) if len(record.attempts) == 1 else 0
    placed_ns = begun_ns - min(waited_ns, max(0, begun_ns - started_ns))
    sent_ns, head_ns = wire.send_ended_ns, wire.headers_received_ns
    opening_ns = wire.dns_started_ns or wire.connect_started_ns or wire.proxy_started_ns
    queued_until_ns = opening_ns or wire.send_started_ns
    # A check that began before the last byte counts only from there.
    checked_ns, check_started_ns, check_ended_ns = done_ns, timeline.validate_started_ns, timeline.validate_ended_ns
    if done_ns is not None and check_started_ns is not None and check_ended_ns is not None:
        checked_ns = done_ns + max(0, min(check_ended_ns, timeline.ended_ns) - max(check_started_ns, done_ns))
    streamed = first_ns is not None and last_ns is not None
    spans: list[tuple[Phase, int | None, int | None]] = [
        ("prepare", started_ns, placed_ns),
        ("wait_for_place", placed_ns if placed_ns < begun_ns else None, begun_ns),
        ("earlier attempts", begun_ns if begun_ns < wire.started_ns else None, wire.started_ns),
        ("queue", wire.started_ns, queued_until_ns),
        ("dns", wire.dns_started_ns, wire.dns_ended_ns),
        ("connect", wire.connect_started_ns, wire.connect_ended_ns),
        ("proxy", wire.proxy_started_ns, wire.proxy_ended_ns),
        ("tls", wire.tls_started_ns, wire.tls_ended_ns),
        ("send", wire.send_started_ns, sent_ns),
        ("wait", sent_ns, head_ns),
        ("first token", head_ns, first_ns),
        ("decode", first_ns, last_ns),
        ("body", None if streamed else head_ns, done_ns),
        ("tail", last_ns, done_ns),
        ("validate", done_ns if checked_ns != done_ns else None, checked_ns),
        ("hand over", checked_ns, timeline.ended_ns),
    ]
    # Each nanosecond counts once: a connection may have begun to open before the call, and the thread that sends may be
    # paused until after the response.
    found: dict[Phase, float] = {}
    until_ns = started_ns
    for phase, start_ns, end_ns in spans:
        if start_ns is not None and end_ns is not None:
            found[phase] = max(0, end_ns - max(start_ns, until_ns)) / 1e9
            until_ns = max(until_ns, end_ns)
    found["other"] = max(0.0, record.duration_s - sum(found.values()))
    return found


def opening_of(record: CallRecord) -> list[tuple[str, float]]:
    """Return the connections that a call waited for: their origin, and the seconds from DNS lookup to TLS."""
    found = []
    for attempt in record.attempts:
        wire = attempt.wire
        began_ns = wire.dns_started_ns or wire.connect_started_ns or wire.proxy_started_ns
        connected_ns = wire.connect_ended_ns if wire.proxy_started_ns is None else wire.proxy_ended_ns
        ended_ns = wire.tls_ended_ns if wire.tls_started_ns is not None else connected_ns
        took = seconds(began_ns, ended_ns)
        if took is not None and attempt.origin is not None:
            found.append((attempt.origin, took))
    return found
