"""The attributes of a call's span: every number that its record has, at every level."""

from __future__ import annotations

import logging
from functools import cache
from itertools import pairwise
from operator import sub
from typing import TYPE_CHECKING, Any

from . import _names as names
from ._provider_attributes import add_provider_times
from ._tree import queued_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..records.record import CallRecord
    from ..records.section import RecordSection
    from ..records.usage import Usage
    from ._experiment import Experiment

log = logging.getLogger("fastlane")

STREAM_ENDS = {
    "completed": "completed",
    "truncated": "error",
    "stopped": "client_stop",
    "closed": "client_stop",
    "abandoned": "abandoned",
    "cancelled": "client_stop",
    "failed": "error",
}
"""How a stream ended, by the outcome of its call. An early stop is no error."""

_FINISHED = {"completed": "stop", "incomplete": "length", "failed": "error"}
"""What the conventions say, by the status of a Responses answer."""


def call_attributes(record: CallRecord) -> dict[str, Any]:
    """The attributes that are known when a call is over."""
    told: dict[str, Any] = {}
    timeline, attempts = record.timeline, record.attempts
    add_answer(
        told,
        record.request_id,
        record.response_id,
        record.response_model,
        _finish_reason(record),
        record.service_tier,
        record.usage,
        failure_of(record.outcome, record.error),
    )
    if record.stream:
        add_stream(told, STREAM_ENDS[record.outcome], record.events)
    add_times(
        told,
        timeline.started_ns,
        timeline.first_event_ns if record.stream else None,
        timeline.first_token_ns,
        timeline.first_token_kind,
        timeline.first_content_token_ns,
        timeline.token_ns,
        timeline.answer_ended_ns,
        record.streamed_output_tokens,
    )
    if timeline.validate_started_ns is not None and timeline.validate_ended_ns is not None:
        told[names.VALIDATE_DURATION] = (timeline.validate_ended_ns - timeline.validate_started_ns) / 1e9
    means = add_sections(told, record.sections)
    told[names.ATTEMPT_COUNT] = len(attempts)
    if attempts:
        last, wire = attempts[-1], attempts[-1].wire
        prepared_ns = attempts[0].wire.started_ns - timeline.started_ns
        queued_s = record.queued_s if len(attempts) == 1 else None
        told[names.PREPARE_DURATION] = (prepared_ns - queued_ns(queued_s, prepared_ns)) / 1e9
        add_wire(told, wire.connection_wait_s, wire.dns_s, wire.connect_s, wire.tls_s, wire.send_s)
        if timeline.first_token_ns is not None and wire.send_ended_ns is not None:
            told[names.SERVER_WAIT] = max(0, timeline.first_token_ns - wire.send_ended_ns) / 1e9
        if last.connection_reused is not None:
            told[names.CONNECTION_REUSED] = last.connection_reused
        if last.round_trip_time_s is not None:
            told[names.ROUND_TRIP_TIME] = last.round_trip_time_s
        if last.form != "json":
            told[names.REQUEST_ENCODING] = last.form
        if len(attempts) > 1 and (waited_s := retry_wait_s(record)):
            told[names.RETRY_WAIT] = waited_s
        add_optimizations(told, means, last.http_version, last.form, reused=bool(last.connection_reused))
    if record.provider_times is not None:
        add_provider_times(told, record.provider_times)
    return told


def add_sections(told: dict[str, Any], sections: Iterable[RecordSection]) -> list[str]:
    """What the plays say of a call; return which of their means came to bear on it."""
    means: list[str] = []
    for section in sections:
        try:
            attributes, own_means = section.attributes(), section.optimizations
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            _warn_of_section(type(section).__name__, type(error).__name__)
        else:
            told.update(attributes)
            means += own_means
    return means


@cache
def _warn_of_section(section: str, error: str) -> None:
    log.warning("%s raised %s; spans go without its attributes (logged once)", section, error)


def add_optimizations(
    told: dict[str, Any], means: Iterable[str], http_version: str | None, form: str, *, reused: bool
) -> None:
    """Which of fastlane's means came to bear on a call; `means`: those of the plays."""
    did = []
    if http_version == "HTTP/2":
        did.append("http2")
    if reused:
        did.append("warm_connection")
    if form != "json":
        did += form.removeprefix("json+").split("+")
    did += means
    if did:
        told[names.OPTIMIZATIONS] = tuple(did)


def failure_of(outcome: str, error: str | None) -> str | None:
    """`error.type` of a call; None where it did not fail."""
    if outcome == "failed":
        return error or "_OTHER"
    return "truncated" if outcome == "truncated" else None


def _finish_reason(record: CallRecord) -> str | None:
    if record.finish_reason is None and record.stream and record.events and record.outcome in ("truncated", "failed"):
        return "error"
    return record.finish_reason


def add_answer(
    told: dict[str, Any],
    request_id: str | None,
    response_id: str | None,
    model: str | None,
    finish_reason: str | None,
    tier: str | None,
    usage: Usage,
    failure: str | None,
) -> None:
    """What the provider says of itself and of its answer, and what went wrong."""
    if request_id is not None:
        told[names.REQUEST_ID] = request_id
    if response_id is not None:
        told[names.RESPONSE_ID] = response_id
    if model is not None:
        told[names.RESPONSE_MODEL] = model
    if finish_reason is not None:
        told[names.FINISH_REASONS] = (_FINISHED.get(finish_reason, finish_reason),)
    if tier is not None:
        told[names.RESPONSE_TIER] = tier
    if usage.estimated:
        told[names.USAGE_ESTIMATED] = True
    if usage.input_tokens is not None:
        told[names.INPUT_TOKENS] = usage.input_tokens
    if usage.output_tokens is not None:
        told[names.OUTPUT_TOKENS] = usage.output_tokens
    if usage.cached_tokens is not None:
        told[names.CACHE_READ] = usage.cached_tokens
    if usage.cache_write_tokens is not None:
        told[names.CACHE_CREATION] = told[names.CACHE_WRITE] = usage.cache_write_tokens
    if usage.reasoning_tokens is not None:
        told[names.REASONING_TOKENS] = usage.reasoning_tokens
    if failure is not None:
        told[names.ERROR_TYPE] = failure


def add_stream(told: dict[str, Any], end: str, events: int) -> None:
    """How a stream went."""
    told[names.STREAM_END] = end
    told[names.STREAM_CHUNKS] = events


def add_times(
    told: dict[str, Any],
    started_ns: int,
    first_event_ns: int | None,
    first_ns: int | None,
    first_kind: str | None,
    first_content_ns: int | None,
    token_ns: Sequence[int],
    answer_ended_ns: int | None,
    output_tokens: int | None,
) -> None:
    """What is measured from the call's issue, and of its decoding."""
    if first_event_ns is not None:
        told[names.TIME_TO_FIRST_CHUNK] = (first_event_ns - started_ns) / 1e9
    if first_ns is not None:
        told[names.TTFT] = (first_ns - started_ns) / 1e9
        told[names.FIRST_TOKEN_KIND] = first_kind
        if first_content_ns is not None:
            told[names.TTFT_CONTENT] = (first_content_ns - started_ns) / 1e9
    if token_ns:
        last_ns = token_ns[-1]
        told[names.API_END_TO_END] = (last_ns - started_ns) / 1e9
        if len(token_ns) > 1:
            decode_ns = last_ns - token_ns[0]
            told[names.DECODE_DURATION] = decode_ns / 1e9
            told[names.STREAM_MAX_GAP] = max_gap_s(token_ns)
            if decode_ns and output_tokens is not None and output_tokens > 1:
                told[names.DECODE_RATE] = (output_tokens - 1) * 1e9 / decode_ns
    elif answer_ended_ns is not None:
        told[names.API_END_TO_END] = (answer_ended_ns - started_ns) / 1e9


def add_wire(
    told: dict[str, Any],
    queue_s: float | None,
    dns_s: float | None,
    connect_s: float | None,
    tls_s: float | None,
    send_s: float | None,
) -> None:
    """The phases before the provider could begin; those are absent that did not happen."""
    wire_s = 0.0
    if queue_s is not None:
        told[names.WIRE_PHASE["queue"]] = queue_s
        wire_s += queue_s
    if dns_s is not None:
        told[names.WIRE_PHASE["dns"]] = dns_s
        wire_s += dns_s
    if connect_s is not None:
        told[names.WIRE_PHASE["connect"]] = connect_s
        wire_s += connect_s
    if tls_s is not None:
        told[names.WIRE_PHASE["tls"]] = tls_s
        wire_s += tls_s
    if send_s is not None:
        told[names.WIRE_PHASE["send"]] = send_s
        told[names.WIRE] = wire_s + send_s


def retry_wait_s(record: CallRecord) -> float:
    """Seconds between an attempt that had ended and the retry that followed it, all of them together."""
    waited_ns = 0
    attempts = record.attempts
    for before, after in pairwise(attempts):
        if after.kind in ("retry", "plain", "repair") and before.wire.ended_ns is not None:
            waited_ns += max(0, after.wire.started_ns - before.wire.ended_ns)
    return waited_ns / 1e9


def max_gap_s(token_ns: Sequence[int]) -> float:
    """The longest time between two neighbouring events with output, in seconds."""
    longest_ns: int = max(map(sub, token_ns[1:], token_ns))
    return longest_ns / 1e9


def experiment_attributes(experiment: Experiment) -> dict[str, Any]:
    """Which arm a call belongs to: under fastlane's names, and as the conventions name a feature flag."""
    told = {
        names.EXPERIMENT_NAME: experiment.name,
        names.EXPERIMENT_ARM: experiment.arm,
        names.FLAG_KEY: experiment.name,
        names.FLAG_VARIANT: experiment.arm,
    }
    if experiment.unit_id_hash is not None:
        told[names.EXPERIMENT_UNIT] = experiment.unit_id_hash
    return told
