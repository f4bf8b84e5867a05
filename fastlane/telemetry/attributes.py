"""The attributes of spans: what a request asks for, what is known when its call is over, and each of its attempts.

Names are those of OpenTelemetry's semantic conventions for GenAI where they have one, else begin with "fastlane.":
https://github.com/open-telemetry/semantic-conventions-genai, which has no release. Durations are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import sub
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ..protocol.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from ..protocol.fields import safe_id
from ..providers import facts_of
from ..records.timeline import seconds
from .settings import warn_once

if TYPE_CHECKING:
    from ..records.attempts import Attempt
    from ..records.record import CallRecord
    from ..records.section import RecordSection
    from ..records.timeline import WireStamps
    from .experiments import ExperimentArm

Attributes = dict[str, Any]

CANCELLATIONS: Final = frozenset({"CancelledError", "Cancelled", "GeneratorExit"})
"""Class names of errors that are the application's cancellation, and no failure."""

MAX_NAME_CHARACTERS: Final = 256

MOST_ATTRIBUTES: Final = 25  # of fastlane's own on a span at the level "call"

OPERATIONS: Final = {CHAT: "chat", RESPONSES: "chat", COMPLETIONS: "text_completion", EMBEDDINGS: "embeddings"}
"""`gen_ai.operation.name` by the endpoint; others have no spans."""
_API_TYPES = {CHAT: "chat_completions", RESPONSES: "responses"}
_INT64 = 2**63

_PROTOCOLS = {"HTTP/2": "2", "HTTP/1.1": "1.1"}

_FINISH_REASONS = {"completed": "stop", "incomplete": "length", "failed": "error"}
"""The conventions' finish reason for each status of a response of the Responses API."""

_STREAM_ENDS = {"completed": "completed", "abandoned": "abandoned", "truncated": "error", "failed": "error"}
"""How a stream ended, by the outcome of its call. Any other is an early stop of the client's, and no error."""


def present(attributes: Mapping[str, Any]) -> Attributes:
    """Return the attributes whose value is known."""
    return {name: value for name, value in attributes.items() if value is not None}


def printable(name: str) -> str:
    """Return a name of the application's as exporters can encode it: one invalid name would lose a whole batch."""
    name = name[:MAX_NAME_CHARACTERS]
    return name if name.isascii() else name.encode("utf-8", "replace").decode()


# The request


def provider_name(origin: str) -> str:
    """Return `gen_ai.provider.name`: the conventions' name of a known provider, else that of its API."""
    facts = facts_of(origin)
    return facts.telemetry_name or facts.slug


@lru_cache(maxsize=1_024)
def server_attributes(origin: str) -> Mapping[str, Any]:
    """Return `server.address` and `server.port` of an origin (scheme://host:port)."""
    parsed = urlsplit(origin)
    return present({"server.address": parsed.hostname or "", "server.port": parsed.port})


@lru_cache(maxsize=256)
def span_start(operation: str, origin: str, model: str | None, stream: bool) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a call's span and the attributes that a sampler sees."""
    name = operation
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider_name(origin),
        **server_attributes(origin),
    }
    if model is not None:
        model = attributes["gen_ai.request.model"] = printable(model)
        name = f"{operation} {model}"
    if stream:
        attributes["gen_ai.request.stream"] = True
    return name, attributes


def _float(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and -_INT64 <= value < _INT64 else None


def _integer(value: Any) -> int | None:
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def _one_of(*words: str, **renamed: Any) -> Callable[[Any], Any]:
    values = dict(zip(words, words, strict=True)) | renamed
    return lambda value: values.get(value) if isinstance(value, str) else None


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and safe_id(value) is not None else None


_effort = _one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")
_tier = _one_of("auto", "default", "flex", "priority", "scale", "batch")
_output = _one_of("json", "text", json_schema="json", json_object="json")

# Field of the request, fields inside of it, attribute, and what checks a value and returns that of the attribute.
_PARAMETERS: tuple[tuple[str, tuple[str, ...], str, Callable[[Any], Any]], ...] = (
    ("temperature", (), "gen_ai.request.temperature", _float),
    ("top_p", (), "gen_ai.request.top_p", _float),
    ("frequency_penalty", (), "gen_ai.request.frequency_penalty", _float),
    ("presence_penalty", (), "gen_ai.request.presence_penalty", _float),
    ("seed", (), "gen_ai.request.seed", _integer),
    ("max_tokens", (), "gen_ai.request.max_tokens", _integer),
    ("max_completion_tokens", (), "gen_ai.request.max_tokens", _integer),
    ("max_output_tokens", (), "gen_ai.request.max_tokens", _integer),
    ("n", (), "gen_ai.request.choice.count", lambda count: None if count == 1 else _integer(count)),
    ("reasoning", ("effort",), "gen_ai.request.reasoning.level", _effort),
    ("reasoning_effort", (), "gen_ai.request.reasoning.level", _effort),
    ("text", ("format", "type"), "gen_ai.output.type", _output),
    ("response_format", ("type",), "gen_ai.output.type", _output),
    ("previous_response_id", (), "gen_ai.request.previous_response.id", _id),
    ("conversation", ("id",), "gen_ai.conversation.id", _id),
    ("conversation", (), "gen_ai.conversation.id", _id),
    ("encoding_format", (), "gen_ai.request.encoding_formats", _one_of(float=("float",), base64=("base64",))),
    ("service_tier", (), "openai.request.service_tier", _tier),
)


def request_attributes(endpoint: str, body: Mapping[str, Any]) -> Attributes:
    """Return the attributes of a request's parameters. None of them holds text of the prompt."""
    found: Attributes = present({"openai.api.type": _API_TYPES.get(endpoint)})
    for field, inner, attribute, read in _PARAMETERS:
        if field in body:
            value = body[field]
            for name in inner:
                value = value.get(name) if isinstance(value, Mapping) else None
            if (checked := read(value)) is not None:
                found[attribute] = checked
    return found


# The call


def call_attributes(record: CallRecord, experiment: ExperimentArm | None = None) -> Attributes:
    """Return the attributes that are known when a call is over. What did not happen or is not known is absent.

    Those of fastlane's begin with the most important ones: see `most_important`.
    """
    timeline, usage, last = record.timeline, record.usage, record.last_attempt
    wire = {} if last is None else wire_attributes(last.wire)
    stream = record.stream
    decode_s = seconds(timeline.first_token_ns, timeline.last_token_ns) if len(timeline.token_ns) > 1 else None
    sections, optimizations = _of_sections(record.sections)
    return present(
        {
            "gen_ai.response.id": record.response_id,
            "gen_ai.response.model": record.response_model,
            "gen_ai.response.finish_reasons": _finish_reasons(record),
            "openai.response.service_tier": record.service_tier,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            "error.type": error_type(record),
            **experiment_attributes(experiment),
            "fastlane.time_to_first_token": record.time_to_first_token_s,
            "fastlane.api_end_to_end.duration": record.api_end_to_end_s,
            "fastlane.attempt.count": len(record.attempts),
            "fastlane.connection.reused": None if last is None else last.connection_reused,
            "fastlane.server.wait.duration": _server_wait_s(record),
            "fastlane.prepare.duration": _prepare_s(record),
            "fastlane.decode.duration": decode_s,
            "fastlane.decode.tokens_per_second": record.decode_rate,
            "fastlane.retry.wait.duration": retry_wait_s(record),
            "fastlane.stream.end": _STREAM_ENDS.get(record.outcome, "client_stop") if stream else None,
            **wire,
            "fastlane.validate.duration": seconds(timeline.validate_started_ns, timeline.validate_ended_ns),
            "fastlane.usage.estimated": usage.estimated or None,
            "fastlane.optimizations": (*_of_connection(last), *optimizations) or None,
            **sections,
            "fastlane.request.id": record.request_id,
            "fastlane.first_token.kind": timeline.first_token_kind,
            "fastlane.time_to_first_content_token": record.time_to_first_content_token_s,
            "gen_ai.response.time_to_first_chunk": (
                seconds(timeline.started_ns, timeline.first_event_ns) if stream else None
            ),
            "fastlane.stream.chunks": record.events if stream else None,
            "fastlane.stream.max_chunk_gap": max_gap_s(timeline.token_ns),
            "fastlane.wire.duration": sum(wire.values()) if "fastlane.wire.send.duration" in wire else None,
            "fastlane.connection.round_trip_time": None if last is None else last.round_trip_time_s,
            "fastlane.http.request.encoding": None if last is None or last.form == "json" else last.form,
        }
    )


def most_important(attributes: Attributes) -> Attributes:
    """Return the attributes of a span at the level "call": of fastlane's the first 25, which backends bill or limit."""
    beyond = [name for name in attributes if name.startswith("fastlane.")][MOST_ATTRIBUTES:]
    return {name: value for name, value in attributes.items() if name not in beyond}


def _server_wait_s(record: CallRecord) -> float | None:
    last = record.last_attempt
    waited_s = None if last is None else seconds(last.wire.send_ended_ns, record.timeline.first_token_ns)
    return None if waited_s is None else max(0.0, waited_s)


def _prepare_s(record: CallRecord) -> float | None:
    if not record.attempts:
        return None
    before_ns = record.attempts[0].wire.started_ns - record.timeline.started_ns
    return (before_ns - queued_ns(record, before_ns)) / 1e9


def _finish_reasons(record: CallRecord) -> tuple[str] | None:
    reason = record.finish_reason
    if reason is None:
        broken = record.stream and record.events and record.outcome in ("truncated", "failed")
        return ("error",) if broken else None
    return (_FINISH_REASONS.get(reason, reason),)


def wire_attributes(wire: WireStamps) -> Attributes:
    """Return the duration of each phase of an attempt on the wire, by `fastlane.wire.{phase}.duration`."""
    return present({
        "fastlane.wire.queue.duration": wire.connection_wait_s,
        "fastlane.wire.dns.duration": wire.dns_s,
        "fastlane.wire.connect.duration": wire.connect_s,
        "fastlane.wire.proxy.duration": wire.proxy_s,
        "fastlane.wire.tls.duration": wire.tls_s,
        "fastlane.wire.send.duration": wire.send_s,
    })  # fmt: skip


def _of_connection(last: Attempt | None) -> list[str]:
    """Return which optimizations of the connection and the encoding came to bear."""
    if last is None:
        return []
    found = ["http2"] if last.http_version == "HTTP/2" else []
    if last.connection_reused:
        found.append("warm_connection")
    return found if last.form == "json" else [*found, *last.form.removeprefix("json+").split("+")]


def _of_sections(sections: Iterable[RecordSection]) -> tuple[Attributes, list[str]]:
    """Return the attributes of the plays, and the optimizations that they name."""
    found: Attributes = {}
    optimizations: list[str] = []
    for section in sections:
        try:
            found |= section.attributes()
            optimizations += section.optimizations
        except Exception as error:  # noqa: BLE001 - a play must not break a call
            warn_once("%s raised %s; spans lack its attributes", type(section).__name__, type(error).__name__)
    return found, optimizations


def queued_ns(record: CallRecord, before_ns: int) -> int:
    """Return how long a call waited in fastlane's own queues in the `before_ns` before its first attempt.

    0 for a call with several attempts: how much of its wait was before the first is not known.
    """
    queued_s = record.queued_s if len(record.attempts) == 1 else None
    return 0 if queued_s is None else min(before_ns, int(queued_s * 1e9))


def error_type(record: CallRecord) -> str | None:
    """Return `error.type` of a call; None if it did not fail."""
    if record.outcome == "failed":
        return record.error or "_OTHER"
    return "truncated" if record.outcome == "truncated" else None


def retry_wait_s(record: CallRecord) -> float | None:
    """Return the seconds between attempts that had failed and the retry that followed, all together; None if none."""
    waits_ns = [
        max(0, after.wire.started_ns - before.wire.ended_ns)
        for before, after in pairwise(record.attempts)
        if after.kind != "fallback" and before.wire.ended_ns is not None
    ]
    return sum(waits_ns) / 1e9 or None


def max_gap_s(token_ns: Sequence[int]) -> float | None:
    """Return the longest time between two neighbouring events with output, in seconds; None for fewer than two."""
    return max(map(sub, token_ns[1:], token_ns)) / 1e9 if len(token_ns) > 1 else None


def experiment_attributes(experiment: ExperimentArm | None) -> Attributes:
    """Return which arm a call belongs to: under fastlane's names, and as the conventions name a feature flag."""
    if experiment is None:
        return {}
    return present({
        "fastlane.experiment.name": experiment.name,
        "fastlane.experiment.arm": experiment.arm,
        "feature_flag.key": experiment.name,
        "feature_flag.result.variant": experiment.arm,
        "fastlane.experiment.unit_id_hash": experiment.unit_id_hash,
    })  # fmt: skip


# The attempts


def attempt_error(attempt: Attempt) -> str | None:
    """Return `error.type` of an attempt: its status code, or the class of its error; None if it did not fail."""
    if attempt.status_code is not None and attempt.status_code >= 400:
        return str(attempt.status_code)
    if attempt.given_up is not None or attempt.error in CANCELLATIONS:
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
        "http.request.method": record.method,
        "url.full": origin + (attempt.path or record.endpoint),
        **server_attributes(origin),
        "fastlane.attempt.number": attempt.number,
        "fastlane.attempt.kind": attempt.kind,
        "fastlane.attempt.outcome": attempt_outcome(attempt, record),
        "fastlane.attempt.model": None if attempt.model == record.model else attempt.model,
        "fastlane.http.request.encoding": attempt.form,
        "fastlane.http.request.body.uncompressed_size": None if attempt.form == "json" else record.plain_body_bytes,
        "error.type": attempt_error(attempt),
        "http.request.resend_count": attempt.number - 1 if attempt.kind in ("retry", "plain") else None,
        "http.response.status_code": attempt.status_code,
        "http.request.body.size": attempt.request_body_bytes,
        "http.response.body.size": attempt.response_body_bytes,
        "network.protocol.version": _PROTOCOLS.get(attempt.http_version or "", attempt.http_version),
        "network.peer.address": None if attempt.peer_address is None else host.strip("[]"),
        "network.peer.port": int(port) if port.isdecimal() else None,
        "fastlane.connection.id": attempt.connection_id,
        "fastlane.connection.reused": attempt.connection_reused,
        "fastlane.connection.round_trip_time": attempt.round_trip_time_s,
        **wire_attributes(attempt.wire),
    })  # fmt: skip
