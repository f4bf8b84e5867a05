"""The attributes of a call's span: every number that its record has, at every level."""

from __future__ import annotations

from itertools import pairwise
from operator import sub
from typing import TYPE_CHECKING, Any, Protocol

from . import _names as names
from ._provider_attributes import add_provider_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._call import CallRecord, Usage
    from .._output_records import BoundedOutputRecord
    from .._prompt_records import CurationRecord, PromptCacheRecord
    from .._route_records import HedgingRecord, RoutingRecord
    from ._experiment import Experiment

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

_CANDIDATES_TOLD = 20


class Played(Protocol):
    """What the plays have to say of a call: its record, or what is left of it where nobody has asked for a record."""

    @property
    def prompt_cache(self) -> PromptCacheRecord | None:
        """What was read from the provider's cache."""

    @property
    def curation(self) -> CurationRecord | None:
        """What was cut."""

    @property
    def output(self) -> BoundedOutputRecord | None:
        """How the answer was bounded."""

    @property
    def routing(self) -> RoutingRecord | None:
        """Which model was chosen."""

    @property
    def hedging(self) -> HedgingRecord | None:
        """What came of a second attempt."""


def call_attributes(record: CallRecord) -> dict[str, Any]:
    """The attributes that are known when a call is over."""
    told: dict[str, Any] = {}
    timeline, attempts = record.timeline, record.attempts
    add_answer(
        told,
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
    told[names.ATTEMPT_COUNT] = len(attempts)
    if attempts:
        last, wire = attempts[-1], attempts[-1].wire
        told[names.PREPARE_DURATION] = (attempts[0].wire.started_ns - timeline.started_ns) / 1e9
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
        add_optimizations(told, record, last.http_version, last.form, reused=bool(last.connection_reused))
    add_plays(told, record)
    if record.provider_times is not None:
        add_provider_times(told, record.provider_times)
    return told


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
    response_id: str | None,
    model: str | None,
    finish_reason: str | None,
    tier: str | None,
    usage: Usage,
    failure: str | None,
) -> None:
    """What the conventions have names for."""
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


def add_plays(told: dict[str, Any], call: Played) -> None:
    """What the plays did."""
    if call.prompt_cache is not None:
        _cache(call.prompt_cache, told)
    if call.curation is not None:
        told[names.CURATED_TOKENS] = call.curation.tokens_before - call.curation.tokens_after
    if call.output is not None:
        _output(call.output, told)
    if call.routing is not None:
        _route(call.routing, told)
    if call.hedging is not None:
        _hedge(call.hedging, told)


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


def add_optimizations(told: dict[str, Any], call: Played, http_version: str | None, form: str, *, reused: bool) -> None:
    """Which of fastlane's means came to bear on a call."""
    did = []
    if http_version == "HTTP/2":
        did.append("http2")
    if reused:
        did.append("warm_connection")
    if form != "json":
        did += form.removeprefix("json+").split("+")
    if call.prompt_cache is not None and call.prompt_cache.cached_tokens:
        did.append("prompt_cache")
    if call.curation is not None and call.curation.cuts:
        did.append("curation")
    output = call.output
    if output is not None:
        if output.ceiling_tokens is not None:
            did.append("bounded_output")
        if output.stop_reason is not None:
            did.append("early_stop")
    if call.routing is not None:
        did.append("routing")
    if call.hedging is not None and call.hedging.hedged:
        did.append("hedge")
    if did:
        told[names.OPTIMIZATIONS] = tuple(did)


def _cache(cache: PromptCacheRecord, told: dict[str, Any]) -> None:
    told[names.PREFIX_HASH] = cache.family
    told[names.PREFIX_TOKENS] = cache.reusable_tokens
    if cache.expected_tokens is not None:
        told[names.EXPECTED_READ] = cache.expected_tokens
    ratio = cache.hit_ratio
    if ratio is not None:
        told[names.CACHE_HIT_RATIO] = ratio
    if cache.drift is not None:
        told[names.CACHE_MISMATCH] = cache.drift.kind


def _output(output: BoundedOutputRecord, told: dict[str, Any]) -> None:
    if output.verdict is not None:
        told[names.OUTPUT_VERDICT] = output.verdict
        told[names.OUTPUT_VALID] = output.verdict == "valid"
        told[names.OUTPUT_REPAIRS] = len(output.rejected)
    if output.ceiling_tokens is not None:
        told[names.OUTPUT_CEILING] = output.ceiling_tokens
    if output.stop_reason is not None:
        told[names.OUTPUT_STOP] = output.stop_reason
    if output.tokens_not_generated is not None:
        told[names.OUTPUT_NOT_GENERATED] = output.tokens_not_generated


def _route(routing: RoutingRecord, told: dict[str, Any]) -> None:
    told[names.ROUTE_REQUESTED] = routing.asked
    told[names.ROUTE_MODEL] = routing.chosen
    told[names.ROUTE_REASON] = routing.reason
    told[names.ROUTE_CANDIDATE_COUNT] = len(routing.candidates)
    told[names.ROUTE_CANDIDATES] = tuple(
        [
            f"{one.model}: {one.why_not}" if one.predicted_s is None else f"{one.model}: {one.predicted_s:.3f} s"
            for one in routing.candidates[:_CANDIDATES_TOLD]
        ]
    )
    found = (
        (names.ROUTE_TASK, routing.task),
        (names.ROUTE_QUALITY_BAR, routing.quality_bar),
        (names.ROUTE_PREDICTED, routing.predicted_s),
        (names.ROUTE_PREDICTED_TTFT, routing.predicted_first_token_s),
        (names.ROUTE_PRICE, routing.price),
    )
    told.update({name: value for name, value in found if value is not None})
    if routing.fallbacks:
        told[names.ROUTE_FALLBACKS] = tuple([f"{left.model}: {left.why}" for left in routing.fallbacks])


def _hedge(hedging: HedgingRecord, told: dict[str, Any]) -> None:
    told[names.HEDGE_SENT] = hedging.hedged
    found = (
        (names.HEDGE_DELAY, hedging.delay_s),
        (names.HEDGE_WON, hedging.won),
        (names.HEDGE_EXTRA_TOKENS, hedging.extra_output_tokens),
    )
    told.update({name: value for name, value in found if value is not None})


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
