"""The attributes of spans: what a request asks for, what is known when its call is over, and each of its attempts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from operator import sub
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ..protocol.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from ..protocol.fields import safe_id
from ..providers import facts_of
from ..records.timeline import seconds
from . import names

if TYPE_CHECKING:
    from ..records.attempts import Attempt
    from ..records.record import CallRecord
    from ..records.section import RecordSection
    from ..records.timeline import WireStamps
    from .experiments import ExperimentArm

log = logging.getLogger("fastlane")

Attributes = dict[str, Any]

MAX_NAME_CHARACTERS: Final = 256

_OPERATIONS = {CHAT: "chat", RESPONSES: "chat", COMPLETIONS: "text_completion", EMBEDDINGS: "embeddings"}
_API_TYPES = {CHAT: "chat_completions", RESPONSES: "responses"}

# Field of the request, attribute, and allowed types.
_NUMBERS: tuple[tuple[str, str, Any], ...] = (
    ("temperature", names.TEMPERATURE, (int, float)),
    ("top_p", names.TOP_P, (int, float)),
    ("seed", names.SEED, (int,)),
    ("frequency_penalty", names.FREQUENCY_PENALTY, (int, float)),
    ("presence_penalty", names.PRESENCE_PENALTY, (int, float)),
    ("max_tokens", names.MAX_TOKENS, (int,)),
    ("max_completion_tokens", names.MAX_TOKENS, (int,)),
    ("max_output_tokens", names.MAX_TOKENS, (int,)),
)
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_TIERS = frozenset({"auto", "default", "flex", "priority", "scale", "batch"})
_INT64 = 2**63

_PROTOCOLS = {"HTTP/2": "2", "HTTP/1.1": "1.1"}

_FINISH_REASONS = {"completed": "stop", "incomplete": "length", "failed": "error"}
"""The conventions' finish reason for each status of a response of the Responses API."""

_STREAM_ENDS = {
    "completed": "completed",
    "truncated": "error",
    "stopped": "client_stop",
    "closed": "client_stop",
    "abandoned": "abandoned",
    "cancelled": "client_stop",
    "failed": "error",
}
"""How a stream ended, by the outcome of its call. An early stop is no error."""


def present(attributes: Mapping[str, Any]) -> Attributes:
    """Return the attributes whose value is known."""
    return {name: value for name, value in attributes.items() if value is not None}


def printable(name: str) -> str:
    """Return a name of the application's as exporters can encode it: one invalid name would lose a whole batch."""
    name = name[:MAX_NAME_CHARACTERS]
    return name if name.isascii() else name.encode("utf-8", "replace").decode()


# The request


def operation_name(method: str, endpoint: str) -> str | None:
    """Return `gen_ai.operation.name` of a call; None for an endpoint without spans."""
    return _OPERATIONS.get(endpoint) if method == "POST" else None


def provider_name(origin: str) -> str:
    """Return `gen_ai.provider.name`: the conventions' name of a known provider, else that of its API."""
    facts = facts_of(origin)
    return facts.telemetry_name or facts.slug


@lru_cache(maxsize=1_024)
def server_attributes(origin: str) -> Mapping[str, Any]:
    """Return `server.address` and `server.port` of an origin (scheme://host:port)."""
    parsed = urlsplit(origin)
    return present({names.SERVER_ADDRESS: parsed.hostname or "", names.SERVER_PORT: parsed.port})


@lru_cache(maxsize=256)
def span_start(operation: str, origin: str, model: str | None, stream: bool) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a call's span and the attributes that a sampler sees."""
    name = operation
    attributes = {names.OPERATION: operation, names.PROVIDER: provider_name(origin), **server_attributes(origin)}
    if model is not None:
        model = attributes[names.REQUEST_MODEL] = printable(model)
        name = f"{operation} {model}"
    if stream:
        attributes[names.REQUEST_STREAM] = True
    return name, attributes


def request_attributes(endpoint: str, body: Mapping[str, Any]) -> Attributes:
    """Return the attributes of a request's parameters. None of them holds text of the prompt."""
    found: Attributes = present({names.API_TYPE: _API_TYPES.get(endpoint)})
    for field, attribute, kinds in _NUMBERS:
        value = body.get(field)
        if isinstance(value, kinds) and not isinstance(value, bool) and -_INT64 <= value < _INT64:
            found[attribute] = float(value) if float in kinds else value
    count = body.get("n")
    if type(count) is int and count != 1 and 0 <= count < _INT64:
        found[names.CHOICE_COUNT] = count
    form = _member(body, "response_format", "type") or _member(_mapping(body.get("text")), "format", "type")
    conversation = _member(body, "conversation", "id") or body.get("conversation")
    encoding = body.get("encoding_format") if endpoint == EMBEDDINGS else None
    for attribute, value, allowed in (
        (names.REASONING_LEVEL, body.get("reasoning_effort") or _member(body, "reasoning", "effort"), _EFFORTS),
        (names.REQUEST_TIER, body.get("service_tier"), _TIERS),
        (names.OUTPUT_TYPE, "json" if form in ("json_schema", "json_object") else form, ("json", "text")),
    ):
        if isinstance(value, str) and value in allowed:
            found[attribute] = value
    for attribute, value in (
        (names.PREVIOUS_RESPONSE, body.get("previous_response_id")),
        (names.CONVERSATION, conversation),
    ):
        if isinstance(value, str) and safe_id(value) is not None:
            found[attribute] = value
    if encoding in ("float", "base64"):
        found[names.ENCODING_FORMATS] = (encoding,)
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _member(body: Mapping[str, Any], field: str, name: str) -> Any:
    value = _mapping(body.get(field)).get(name)
    return value if isinstance(value, str) else None


# The call


def call_attributes(record: CallRecord) -> Attributes:
    """Return the attributes that are known when a call is over. What did not happen or is not known is absent."""
    timeline, usage, times, last = record.timeline, record.usage, record.provider_times, record.last_attempt
    found: Attributes = {
        names.REQUEST_ID: record.request_id,
        names.RESPONSE_ID: record.response_id,
        names.RESPONSE_MODEL: record.response_model,
        names.FINISH_REASONS: _finish_reasons(record),
        names.RESPONSE_TIER: record.service_tier,
        names.USAGE_ESTIMATED: usage.estimated or None,
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ: usage.cached_tokens,
        names.CACHE_CREATION: usage.cache_write_tokens,
        names.CACHE_WRITE: usage.cache_write_tokens,
        names.REASONING_TOKENS: usage.reasoning_tokens,
        names.ERROR_TYPE: error_type(record),
        names.TTFT: record.time_to_first_token_s,
        names.TTFT_CONTENT: record.time_to_first_content_token_s,
        names.FIRST_TOKEN_KIND: timeline.first_token_kind,
        names.API_END_TO_END: record.api_end_to_end_s,
        names.DECODE_RATE: record.decode_rate,
        names.VALIDATE_DURATION: seconds(timeline.validate_started_ns, timeline.validate_ended_ns),
        names.ATTEMPT_COUNT: len(record.attempts),
        names.RETRY_WAIT: retry_wait_s(record) or None,
    }
    if record.stream:
        found[names.STREAM_END] = _STREAM_ENDS[record.outcome]
        found[names.STREAM_CHUNKS] = record.events
        found[names.TIME_TO_FIRST_CHUNK] = seconds(timeline.started_ns, timeline.first_event_ns)
    if len(timeline.token_ns) > 1:
        found[names.DECODE_DURATION] = seconds(timeline.token_ns[0], timeline.token_ns[-1])
        found[names.STREAM_MAX_GAP] = max_gap_s(timeline.token_ns)
    if times is not None:
        found |= {
            names.PROVIDER_QUEUE: times.queue_s,
            names.PROVIDER_PREFILL: times.prefill_s,
            names.PROVIDER_DECODE: times.decode_s,
            names.PROVIDER_TOTAL: times.total_s,
            names.PROVIDER_HEAD: times.head_s,
        }
    if last is not None:
        wire = _wire_attributes(last.wire)
        found |= wire
        if names.WIRE_PHASE["send"] in wire:
            found[names.WIRE] = sum(wire.values())
        before_ns = record.attempts[0].wire.started_ns - timeline.started_ns
        found[names.PREPARE_DURATION] = (before_ns - queued_ns(record, before_ns)) / 1e9
        waited_s = seconds(last.wire.send_ended_ns, timeline.first_token_ns)
        found[names.SERVER_WAIT] = None if waited_s is None else max(0.0, waited_s)
        found[names.CONNECTION_REUSED] = last.connection_reused
        found[names.ROUND_TRIP_TIME] = last.round_trip_time_s
        found[names.REQUEST_ENCODING] = None if last.form == "json" else last.form
    optimizations = _add_sections(found, record.sections)
    found[names.OPTIMIZATIONS] = (*_of_connection(last), *optimizations) or None
    return present(found)


def _finish_reasons(record: CallRecord) -> tuple[str] | None:
    reason = record.finish_reason
    if reason is None:
        broken = record.stream and record.events and record.outcome in ("truncated", "failed")
        return ("error",) if broken else None
    return (_FINISH_REASONS.get(reason, reason),)


def _wire_attributes(wire: WireStamps) -> Attributes:
    return present({
        names.WIRE_PHASE["queue"]: wire.connection_wait_s,
        names.WIRE_PHASE["dns"]: wire.dns_s,
        names.WIRE_PHASE["connect"]: wire.connect_s,
        names.WIRE_PHASE["tls"]: wire.tls_s,
        names.WIRE_PHASE["send"]: wire.send_s,
    })  # fmt: skip


def _of_connection(last: Attempt | None) -> list[str]:
    """Return which optimizations of the connection and the encoding came to bear."""
    if last is None:
        return []
    found = ["http2"] if last.http_version == "HTTP/2" else []
    if last.connection_reused:
        found.append("warm_connection")
    return found if last.form == "json" else [*found, *last.form.removeprefix("json+").split("+")]


def _add_sections(found: Attributes, sections: Iterable[RecordSection]) -> list[str]:
    """Add the attributes of the plays; return the optimizations that they name."""
    optimizations: list[str] = []
    for section in sections:
        try:
            attributes, own = section.attributes(), section.optimizations
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            _warn_of_section(type(section).__name__, type(error).__name__)
        else:
            found.update(attributes)
            optimizations += own
    return optimizations


@cache
def _warn_of_section(section: str, error: str) -> None:
    log.warning("%s raised %s; spans go without its attributes (logged once)", section, error)


def queued_ns(record: CallRecord, before_ns: int) -> int:
    """Return how long a call waited in fastlane's own queues in the `before_ns` before its first attempt.

    0 for a call with several attempts: how much of its wait was before the first is not known.
    """
    queued_s = record.queued_s if len(record.attempts) == 1 else None
    return 0 if queued_s is None else min(before_ns, int(queued_s * 1e9))


def error_type(record: CallRecord) -> str | None:
    """Return `error.type` of a call; None where it did not fail."""
    if record.outcome == "failed":
        return record.error or "_OTHER"
    return "truncated" if record.outcome == "truncated" else None


def retry_wait_s(record: CallRecord) -> float:
    """Return the seconds between attempts that had failed and the retry that followed, all of them together."""
    waited_ns = 0
    for before, after in pairwise(record.attempts):
        if after.kind != "fallback" and before.wire.ended_ns is not None:
            waited_ns += max(0, after.wire.started_ns - before.wire.ended_ns)
    return waited_ns / 1e9


def max_gap_s(token_ns: Sequence[int]) -> float:
    """Return the longest time between two neighbouring events with output, in seconds."""
    longest_ns: int = max(map(sub, token_ns[1:], token_ns))
    return longest_ns / 1e9


def experiment_attributes(experiment: ExperimentArm) -> Attributes:
    """Return which arm a call belongs to: under fastlane's names, and as the conventions name a feature flag."""
    return present({
        names.EXPERIMENT_NAME: experiment.name,
        names.EXPERIMENT_ARM: experiment.arm,
        names.FLAG_KEY: experiment.name,
        names.FLAG_VARIANT: experiment.arm,
        names.EXPERIMENT_UNIT: experiment.unit_id_hash,
    })  # fmt: skip


# The attempts


def attempt_error(attempt: Attempt) -> str | None:
    """Return `error.type` of an attempt: its status code, or the class of its error; None where it did not fail."""
    if attempt.status_code is not None and attempt.status_code >= 400:
        return str(attempt.status_code)
    if attempt.given_up is not None or attempt.error in names.CANCELLATIONS:
        return None
    return attempt.error


def attempt_outcome(attempt: Attempt, record: CallRecord) -> str:
    """Return `fastlane.attempt.outcome`: an outcome of calls, or "late" or "replaced"."""
    if attempt.given_up is not None:
        return "late" if attempt.given_up == "late" else "cancelled"
    if attempt_error(attempt) is not None:
        return "failed"
    if attempt.number != record.attempts[-1].number:
        return "replaced"
    return {"closed": "cancelled", "abandoned": "cancelled", "truncated": "failed"}.get(record.outcome, record.outcome)


def attempt_attributes(attempt: Attempt, record: CallRecord) -> Attributes:
    """Return the attributes of one HTTP request. Its URL has neither query nor credentials."""
    origin = attempt.origin or record.origin
    host, _, port = (attempt.peer_address or "").rpartition(":")
    return present({
        names.HTTP_METHOD: record.method,
        names.URL_FULL: origin + (attempt.path or record.endpoint),
        **server_attributes(origin),
        names.ATTEMPT_NUMBER: attempt.number,
        names.ATTEMPT_KIND: attempt.kind,
        names.ATTEMPT_OUTCOME: attempt_outcome(attempt, record),
        names.ATTEMPT_MODEL: None if attempt.model == record.model else attempt.model,
        names.REQUEST_ENCODING: attempt.form,
        names.PLAIN_REQUEST_SIZE: None if attempt.form == "json" else record.plain_body_bytes,
        names.ERROR_TYPE: attempt_error(attempt),
        names.HTTP_RESEND_COUNT: attempt.number - 1 if attempt.kind in ("retry", "plain") else None,
        names.HTTP_STATUS: attempt.status_code,
        names.HTTP_REQUEST_SIZE: attempt.request_body_bytes,
        names.HTTP_RESPONSE_SIZE: attempt.response_body_bytes,
        names.PROTOCOL_VERSION: _PROTOCOLS.get(attempt.http_version or "", attempt.http_version),
        names.PEER_ADDRESS: None if attempt.peer_address is None else host.strip("[]"),
        names.PEER_PORT: int(port) if port.isdecimal() else None,
        names.CONNECTION_ID: attempt.connection_id,
        names.CONNECTION_REUSED: attempt.connection_reused,
        names.ROUND_TRIP_TIME: attempt.round_trip_time_s,
        **_wire_attributes(attempt.wire),
    })  # fmt: skip
