"""The attributes of a plain call without its record, which costs as much as the span: equal to those of its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..records.section import queued_s_of
from . import _names as names
from ._attributes import STREAM_ENDS, add_answer, add_optimizations, add_sections, add_stream, add_times, add_wire
from ._provider_attributes import add_provider_times
from ._tree import queued_ns

if TYPE_CHECKING:
    from ..engine.observation import Observation


def is_plain(call: Observation) -> bool:
    """Whether a call was streamed to its end in one attempt over fastlane's transport, and has no record so far."""
    return (
        call.is_unrecorded
        and len(call.attempts) == 1
        and not call.before
        and call.attempts[0].form == "json"
        and call.stream
        and call.outcome == "completed"
        and all(section.checked_ns is None for section in call.sections)
        and call.attempts[0].phases.started_ns is not None
        and len(call.answer.token_ns) > 0
    )


def glance(call: Observation) -> dict[str, Any]:
    """The attributes of a plain call that is over."""
    told: dict[str, Any] = {}
    answer, attempt, usage = call.answer, call.attempts[0], call.usage
    tier = answer.service_tier
    add_answer(told, answer.request_id, answer.response_id, answer.model, answer.finish_reason, tier, usage, None)
    add_stream(told, STREAM_ENDS["completed"], answer.events)
    output = None if usage.estimated else usage.output_tokens
    if output is not None and usage.reasoning_tokens and answer.first_token_kind != "reasoning":
        output -= usage.reasoning_tokens
    started_ns = call.started_ns
    add_times(
        told,
        started_ns,
        answer.first_event_ns,
        answer.first_token_ns,
        answer.first_token_kind,
        answer.first_content_ns,
        answer.token_ns,
        None,
        output,
    )
    told[names.ATTEMPT_COUNT] = 1
    sections = call.sections
    prepared_ns = attempt.started_ns - started_ns
    told[names.PREPARE_DURATION] = (prepared_ns - queued_ns(queued_s_of(sections), prepared_ns)) / 1e9
    phases = attempt.phases
    sent_ns, opened = phases.send_ended_ns, attempt.opened
    send_s = None
    if phases.send_started_ns is not None and sent_ns is not None:
        send_s = (sent_ns - phases.send_started_ns) / 1e9
    queue_s = None
    if opened is None:
        waited_ns = phases.connection_wait_started_ns
        if waited_ns is not None and phases.send_started_ns is not None:
            queue_s = (phases.send_started_ns - waited_ns) / 1e9
        add_wire(told, queue_s, None, None, None, send_s)
    else:
        wire = attempt.record(call.ended_ns).wire
        add_wire(told, wire.connection_wait_s, wire.dns_s, wire.connect_s, wire.tls_s, send_s)
    if answer.first_token_ns is not None and sent_ns is not None:
        told[names.SERVER_WAIT] = max(0, answer.first_token_ns - sent_ns) / 1e9
    reused = opened is None if phases.opening is not None else phases.reused
    if reused is not None:
        told[names.CONNECTION_REUSED] = reused
    if phases.round_trip_time_ns is not None:
        told[names.ROUND_TRIP_TIME] = phases.round_trip_time_ns / 1e9
    if attempt.form != "json":
        told[names.REQUEST_ENCODING] = attempt.form
    means = add_sections(told, sections)
    add_optimizations(told, means, phases.http_version, attempt.form, reused=bool(reused))
    if call.provider_times is not None:
        add_provider_times(told, call.provider_times)
    return told
