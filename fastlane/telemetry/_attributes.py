"""The attributes of a call's span: every number that its record has, at every level."""

from __future__ import annotations

from itertools import pairwise
from operator import sub
from typing import TYPE_CHECKING, Any

from . import _names as names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._call import CallRecord
    from .._output_records import BoundedOutputRecord
    from .._prompt_records import PromptCacheRecord
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

_CANDIDATES_TOLD = 20


def call_attributes(record: CallRecord) -> dict[str, Any]:
    """The attributes that are known when a call is over."""
    told = _generic(record)
    _times(record, told)
    told[names.ATTEMPT_COUNT] = len(record.attempts)
    if record.plays:
        told[names.PLAYS] = _play_names(record.plays)
    did = _optimizations(record)
    if did:
        told[names.OPTIMIZATIONS] = did
    if record.prompt_cache is not None:
        _cache(record.prompt_cache, told)
    if record.curation is not None:
        told[names.CURATED_TOKENS] = record.curation.tokens_before - record.curation.tokens_after
    if record.output is not None:
        _output(record.output, told)
    if record.routing is not None:
        _route(record.routing, told)
    if record.hedging is not None:
        _hedge(record.hedging, told)
    return told


def _generic(record: CallRecord) -> dict[str, Any]:
    """What the conventions have names for."""
    told: dict[str, Any] = {}
    if record.response_id is not None:
        told[names.RESPONSE_ID] = record.response_id
    if record.response_model is not None:
        told[names.RESPONSE_MODEL] = record.response_model
    if record.finish_reason is not None:
        told[names.FINISH_REASONS] = (record.finish_reason,)
    elif record.stream and record.outcome in ("truncated", "failed") and record.events:
        told[names.FINISH_REASONS] = ("error",)
    if record.service_tier is not None:
        told[names.RESPONSE_TIER] = record.service_tier
    usage = record.usage
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
    if record.outcome == "failed":
        told[names.ERROR_TYPE] = record.error or "_OTHER"
    elif record.outcome == "truncated":
        told[names.ERROR_TYPE] = "truncated"
    return told


def _times(record: CallRecord, told: dict[str, Any]) -> None:
    timeline, attempts = record.timeline, record.attempts
    started_ns = timeline.started_ns
    if record.stream:
        told[names.STREAM_END] = STREAM_ENDS[record.outcome]
        told[names.STREAM_CHUNKS] = record.events
        if timeline.first_event_ns is not None:
            told[names.TIME_TO_FIRST_CHUNK] = (timeline.first_event_ns - started_ns) / 1e9
    first_ns, token_ns = timeline.first_token_ns, timeline.token_ns
    if first_ns is not None:
        told[names.TTFT] = (first_ns - started_ns) / 1e9
        told[names.FIRST_TOKEN_KIND] = timeline.first_token_kind
        if timeline.first_content_token_ns is not None:
            told[names.TTFT_CONTENT] = (timeline.first_content_token_ns - started_ns) / 1e9
    if len(token_ns) > 1:
        told[names.DECODE_DURATION] = (token_ns[-1] - token_ns[0]) / 1e9
        told[names.STREAM_MAX_GAP] = max_gap_s(token_ns)
        rate = record.decode_rate
        if rate is not None:
            told[names.DECODE_RATE] = rate
    whole_s = record.api_end_to_end_s
    if whole_s is not None:
        told[names.API_END_TO_END] = whole_s
    if timeline.validate_started_ns is not None and timeline.validate_ended_ns is not None:
        told[names.VALIDATE_DURATION] = (timeline.validate_ended_ns - timeline.validate_started_ns) / 1e9
    if attempts:
        told[names.PREPARE_DURATION] = (attempts[0].wire.started_ns - started_ns) / 1e9
        _wire(record, told)


def _wire(record: CallRecord, told: dict[str, Any]) -> None:
    attempt = record.attempts[-1]
    wire, phase = attempt.wire, names.WIRE_PHASE
    on_wire_s = 0.0
    for name, value in (
        ("queue", wire.connection_wait_s),
        ("dns", wire.dns_s),
        ("connect", wire.connect_s),
        ("tls", wire.tls_s),
        ("send", wire.send_s),
    ):
        if value is not None:
            told[phase[name]] = value
            on_wire_s += value
    if wire.send_started_ns is not None:
        told[names.WIRE] = on_wire_s
    first_ns = record.timeline.first_token_ns
    if first_ns is not None and wire.send_ended_ns is not None:
        told[names.SERVER_WAIT] = max(0, first_ns - wire.send_ended_ns) / 1e9
    if attempt.connection_reused is not None:
        told[names.CONNECTION_REUSED] = attempt.connection_reused
    if attempt.round_trip_time_s is not None:
        told[names.ROUND_TRIP_TIME] = attempt.round_trip_time_s
    if attempt.form != "json":
        told[names.REQUEST_ENCODING] = attempt.form
    if len(record.attempts) > 1:
        waited_s = retry_wait_s(record)
        if waited_s:
            told[names.RETRY_WAIT] = waited_s


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


_names_of_plays: dict[tuple[str, ...], tuple[str, ...]] = {}


def _play_names(fingerprint: tuple[str, ...]) -> tuple[str, ...]:
    # A play's settings may hold an application's paths and keys: its name does not.
    found = _names_of_plays.get(fingerprint)
    if found is None:
        if len(_names_of_plays) > 256:
            _names_of_plays.clear()
        found = _names_of_plays[fingerprint] = tuple(play.partition("(")[0] for play in fingerprint)
    return found


def _optimizations(record: CallRecord) -> tuple[str, ...]:
    did = []
    last = record.attempts[-1] if record.attempts else None
    if last is not None:
        if last.http_version == "HTTP/2":
            did.append("http2")
        if last.connection_reused:
            did.append("warm_connection")
        if last.form != "json":
            did += last.form.replace("json+", "").split("+")
    if record.prompt_cache is not None and record.prompt_cache.cached_tokens:
        did.append("prompt_cache")
    if record.curation is not None and record.curation.cuts:
        did.append("curation")
    output = record.output
    if output is not None:
        if output.ceiling_tokens is not None:
            did.append("bounded_output")
        if output.stop_reason is not None:
            did.append("early_stop")
    if record.routing is not None:
        did.append("routing")
    if record.hedging is not None and record.hedging.hedged:
        did.append("hedge")
    return tuple(did)


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
    told[names.ROUTE_MODEL] = routing.model or routing.chosen
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
