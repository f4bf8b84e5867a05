"""The metrics that fastlane exports, and their values for a call or a user action that is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..engine.pipeline import Ended
from ..plays import load_all
from ..records.metrics import LONG_SECONDS, SECONDS, SHORT_SECONDS, Metric
from ..records.record import CallRecord
from ..records.section import section_classes
from ..records.timeline import seconds
from ..records.usage import Usage
from .attributes import (
    attempt_error,
    attempt_outcome,
    error_type,
    max_gap_s,
    provider_name,
    retry_wait_s,
    server_attributes,
)
from .experiments import ExperimentArm

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from .settings import Conventions

load_all()  # each section of a play has its metrics

# Buckets

_RATES: Final = (
    1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 75.0, 100.0, 125.0, 150.0, 200.0, 250.0, 300.0, 400.0,
    500.0, 750.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0,
)  # fmt: skip
_SIZES: Final = tuple(float(256 * 4**step) for step in range(10))
"""From 256 bytes to 64 MiB."""

# https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/gen-ai-metrics.md
_GENERIC_SECONDS: Final = tuple(0.01 * 2**step for step in range(14))
_GENERIC_TOKENS: Final = tuple(float(4**step) for step in range(14))


def _counter(name: str, unit: str, description: str) -> Metric:
    return Metric(name, "counter", unit, description)


def _histogram(name: str, unit: str, buckets: tuple[float, ...], description: str) -> Metric:
    return Metric(name, "histogram", unit, description, buckets)


_DURATION: Final = "How long a call took, retries included"
_FIRST_CHUNK: Final = "Time to the first event of a stream, which may carry no output yet"
_PER_CHUNK: Final = "Time between each event of a stream that carries output and the one before it"

# The conventions', of release 1.41

_OPERATION: Final = "gen_ai.client.operation."
OPERATION_DURATION: Final = _histogram(_OPERATION + "duration", "s", _GENERIC_SECONDS, _DURATION)
OPERATION_FIRST_CHUNK: Final = _histogram(_OPERATION + "time_to_first_chunk", "s", _GENERIC_SECONDS, _FIRST_CHUNK)
OPERATION_PER_CHUNK: Final = _histogram(_OPERATION + "time_per_output_chunk", "s", _GENERIC_SECONDS, _PER_CHUNK)
TOKEN_USAGE: Final = _histogram(
    "gen_ai.client.token.usage", "{token}", _GENERIC_TOKENS, "Tokens of the prompt and of the answer"
)

# The conventions', since (https://github.com/open-telemetry/semantic-conventions-genai)

_INFERENCE: Final = "gen_ai.client.inference."
INFERENCE_DURATION: Final = _histogram(_INFERENCE + "duration", "s", _GENERIC_SECONDS, _DURATION)
INFERENCE_FIRST_CHUNK: Final = _histogram(_INFERENCE + "time_to_first_chunk", "s", _GENERIC_SECONDS, _FIRST_CHUNK)
INFERENCE_PER_CHUNK: Final = _histogram(_INFERENCE + "time_per_output_chunk", "s", _GENERIC_SECONDS, _PER_CHUNK)
INFERENCE_INPUT: Final = _histogram(
    _INFERENCE + "operation.input_tokens", "{token}", _GENERIC_TOKENS, "Tokens of a prompt"
)
INFERENCE_OUTPUT: Final = _histogram(
    _INFERENCE + "operation.output_tokens", "{token}", _GENERIC_TOKENS, "Tokens of an answer"
)
USED_INPUT: Final = _counter(_INFERENCE + "usage.input_tokens", "{token}", "Tokens of prompts, cached ones included")
USED_OUTPUT: Final = _counter(_INFERENCE + "usage.output_tokens", "{token}", "Tokens of answers, reasoning included")
USED_CACHE_READ: Final = _counter(
    _INFERENCE + "usage.cache_read.input_tokens", "{token}", "Tokens of prompts read from the provider's cache"
)
USED_CACHE_WRITE: Final = _counter(
    _INFERENCE + "usage.cache_write.input_tokens", "{token}", "Tokens of prompts written to the provider's cache"
)
USED_REASONING: Final = _counter(
    _INFERENCE + "usage.reasoning.output_tokens", "{token}", "Tokens generated as reasoning"
)

# fastlane's own

TIME_TO_FIRST_TOKEN: Final = _histogram(
    "fastlane.client.time_to_first_token", "s", SECONDS, "From issue to the first output of a stream"
)
WIRE_DURATION: Final = _histogram(
    "fastlane.client.wire.duration", "s", SHORT_SECONDS, "Each phase of the answering attempt on the wire"
)
DECODE_DURATION: Final = _histogram(
    "fastlane.client.decode.duration", "s", SECONDS, "From the first to the last output of a stream"
)
DECODE_RATE: Final = _histogram(
    "fastlane.client.decode.rate", "{token}/s", _RATES, "Output tokens per second after the first"
)
MAX_CHUNK_GAP: Final = _histogram(
    "fastlane.client.stream.max_chunk_gap", "s", SHORT_SECONDS,
    "The longest time between two neighbouring outputs of a stream",
)  # fmt: skip
INTERACTION_DURATION: Final = _histogram(
    "fastlane.interaction.duration", "s", LONG_SECONDS,
    "Application end-to-end: from a user's action to its usable result",
)  # fmt: skip
BODY_SIZE: Final = _histogram(
    "fastlane.client.request.body.size", "By", _SIZES,
    "Size of a request's body, as JSON (before) and as it was sent (after)",
)  # fmt: skip
ATTEMPTS: Final = _counter(
    "fastlane.client.attempts", "{attempt}", "Attempts of calls: why each was made, what became of it"
)
RETRY_WAIT: Final = _histogram(
    "fastlane.client.retry.wait.duration", "s", SECONDS,
    "Time that a call spent between attempts that had failed and the next",
)  # fmt: skip

DROPPED: Final = _counter(
    "fastlane.telemetry.dropped", "{call}", "Calls that no metric counts, because too many ended at once"
)

OPEN_CONNECTIONS: Final = "http.client.open_connections"
OPEN_CONNECTIONS_UNIT: Final = "{connection}"
OPEN_CONNECTIONS_DESCRIPTION: Final = "Connections that are open, with a call on them (active) or without (idle)"

OF_EVERY_CALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""The metrics of the calls themselves; connections are observed when a reader collects."""


def all_metrics() -> tuple[Metric, ...]:
    """Return the metrics of calls and those of the plays."""
    return (*OF_EVERY_CALL, *[metric for section in section_classes() for metric in section.metrics])


# What is measured


class EndedCall(NamedTuple):
    """A call that is over."""

    call: Ended
    operation: str
    """`gen_ai.operation.name`: "chat", "text_completion" or "embeddings"."""
    span: SpanContext | None
    """The call's span, for exemplars; None where there is none."""
    experiment: ExperimentArm | None
    counts_generic: bool
    """Whether `gen_ai.*` metrics are fastlane's to record: no other instrumentation records them for this call."""


class EndedAction(NamedTuple):
    """A user action that is over."""

    name: str
    duration_s: float
    error: str | None
    """Class name of the error that ended it."""
    span: SpanContext | None
    experiment: ExperimentArm | None


# Labels

MOST_VALUES: Final = 200
"""Values of one label in one process. A backend keeps every combination of labels that it has ever seen."""

MOST_CHARACTERS: Final = 128

OTHER: Final = "_OTHER"
"""Replaces every further value, as in the semantic conventions of `error.type`."""

Labels = dict[str, Any]
Measured = tuple[Metric, float, Labels]
"""A metric, its value, and its labels."""


class LabelValues:
    """The values that each label has taken in this process. From any thread."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._seen: dict[str, set[str]] = {}

    def limited(self, label: str, value: Any) -> str:
        """Return the value if it is one of the first `most` of its label, else "_OTHER".

        "_OTHER" also for what is no text, or too long, or cannot be encoded.
        """
        if type(value) is not str:
            return OTHER
        seen = self._seen.setdefault(label, set())
        if value in seen:
            return value
        if not value or len(value) > MOST_CHARACTERS or len(seen) >= self._most:
            return OTHER
        if not value.isascii() and value != value.encode("utf-8", "replace").decode():
            return OTHER
        seen.add(value)
        return value


class Measures:
    """Turns what has ended into measured values."""

    def __init__(self, values: LabelValues | None = None) -> None:
        self._values = values or LabelValues()

    def _limited(self, labels: Mapping[str, Any]) -> Labels:
        limited = self._values.limited
        return {
            name: value if isinstance(value, bool | int) else limited(name, value)
            for name, value in labels.items()
            if value is not None
        }

    def of(self, ended: EndedCall | EndedAction, conventions: Conventions) -> Iterator[Measured]:
        """Yield everything that is to be recorded."""
        arm = ended.experiment
        arms = {} if arm is None else {"fastlane.experiment.name": arm.name, "fastlane.experiment.arm": arm.arm}
        if isinstance(ended, EndedAction):
            labels = {"fastlane.interaction.name": ended.name, "error.type": ended.error, **arms}
            yield INTERACTION_DURATION, ended.duration_s, self._limited(labels)
            return
        record = ended.call.record()
        last = record.last_attempt
        origin = record.origin if last is None or last.origin is None else last.origin
        common = {
            "gen_ai.operation.name": ended.operation,
            "gen_ai.provider.name": provider_name(record.origin),
            "gen_ai.request.model": record.model if last is None or last.model is None else last.model,
        }
        server = server_attributes(origin)
        where = {
            "gen_ai.response.model": record.response_model,
            "server.address": server["server.address"] or None,
        }
        for section in record.sections:
            arms |= section.labels()
        generic, arms = self._limited({**common, **where}), self._limited(arms)
        short = {name: generic[name] for name in common if name in generic} | arms
        own = generic | arms
        if ended.counts_generic:
            if generic.get("server.address") == server["server.address"] and "server.port" in server:
                generic["server.port"] = server["server.port"]
            yield from self._generic(record, generic, conventions, is_inference=ended.operation != "embeddings")
        yield from self._times(record, short, own)
        yield from self._attempts(record, short)
        for section in record.sections:
            for metric, value, added in section.measures():
                yield metric, value, short | self._limited(added)

    def _generic(
        self, record: CallRecord, labels: Labels, conventions: Conventions, *, is_inference: bool
    ) -> Iterator[Measured]:
        """Yield the conventions' metrics. Embeddings are no inference by the newer ones, and keep the older name."""
        with_error = labels | self._limited({"error.type": error_type(record)})
        usage = Usage() if record.usage.estimated else record.usage  # the provider's count, or nothing
        if conventions != "latest" or not is_inference:
            yield OPERATION_DURATION, record.duration_s, with_error
        if conventions != "latest":
            yield from _chunks(record, OPERATION_FIRST_CHUNK, OPERATION_PER_CHUNK, labels)
            for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
                if tokens is not None:
                    yield TOKEN_USAGE, tokens, labels | {"gen_ai.token.type": kind}
        if conventions != "1.41" and is_inference:
            yield INFERENCE_DURATION, record.duration_s, with_error
            yield from _chunks(record, INFERENCE_FIRST_CHUNK, INFERENCE_PER_CHUNK, labels)
            for metric, tokens in (
                (INFERENCE_INPUT, usage.input_tokens),
                (USED_INPUT, usage.input_tokens),
                (INFERENCE_OUTPUT, usage.output_tokens),
                (USED_OUTPUT, usage.output_tokens),
                (USED_CACHE_READ, usage.cached_tokens),
                (USED_CACHE_WRITE, usage.cache_write_tokens),
                (USED_REASONING, usage.reasoning_tokens),
            ):
                if tokens is not None:
                    yield metric, tokens, labels

    def _times(self, record: CallRecord, short: Labels, own: Labels) -> Iterator[Measured]:
        last, token_ns = record.last_attempt, record.timeline.token_ns
        with_connection = own
        if last is not None and last.connection_reused is not None:
            with_connection = own | {"fastlane.connection.reused": last.connection_reused}
        if record.time_to_first_token_s is not None:
            yield TIME_TO_FIRST_TOKEN, record.time_to_first_token_s, with_connection
        if last is not None:
            for phase, taken_s in (
                ("queue", last.wire.connection_wait_s),
                ("dns", last.wire.dns_s),
                ("connect", last.wire.connect_s),
                ("tls", last.wire.tls_s),
                ("send", last.wire.send_s),
            ):
                if taken_s is not None:
                    yield WIRE_DURATION, taken_s, with_connection | {"fastlane.wire.phase": phase}
        if len(token_ns) > 1:
            yield DECODE_DURATION, (token_ns[-1] - token_ns[0]) / 1e9, own
            yield MAX_CHUNK_GAP, max_gap_s(token_ns), own
        if record.decode_rate is not None:
            yield DECODE_RATE, record.decode_rate, own
        if waited_s := retry_wait_s(record):
            yield RETRY_WAIT, waited_s, short

    def _attempts(self, record: CallRecord, short: Labels) -> Iterator[Measured]:
        for attempt in record.attempts:
            labels: Labels = {
                "fastlane.attempt.kind": attempt.kind,
                "fastlane.attempt.outcome": attempt_outcome(attempt, record),
                "error.type": attempt_error(attempt),
            }
            if (attempt.model, attempt.origin) != (record.model, record.origin):
                labels["gen_ai.provider.name"] = provider_name(attempt.origin or record.origin)
                labels["gen_ai.request.model"] = attempt.model
            yield ATTEMPTS, 1, short | self._limited(labels)
        last = record.last_attempt
        if last is not None and last.request_body_bytes is not None:
            plain = None if last.form == "json" else record.plain_body_bytes
            labels = short | {"fastlane.http.request.encoding": last.form}
            yield BODY_SIZE, plain or last.request_body_bytes, labels | {"fastlane.http.request.body.stage": "before"}
            yield BODY_SIZE, last.request_body_bytes, labels | {"fastlane.http.request.body.stage": "after"}


def _chunks(record: CallRecord, first: Metric, further: Metric, labels: Labels) -> Iterator[Measured]:
    """Yield the time to the first event of a stream, and from each event with output to the one before it."""
    first_ns, token_ns = record.timeline.first_event_ns, record.timeline.token_ns
    first_s = seconds(record.timeline.started_ns, first_ns)
    if first_s is None or first_ns is None:
        return
    yield first, first_s, labels
    if len(token_ns) and token_ns[0] > first_ns:
        yield further, (token_ns[0] - first_ns) / 1e9, labels
    for before_ns, at_ns in pairwise(token_ns):
        yield further, (at_ns - before_ns) / 1e9, labels
