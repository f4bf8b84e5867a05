"""Every metric that fastlane exports: its name, kind, unit and buckets, by the conventions or fastlane's own."""

from __future__ import annotations

from typing import Final

from ..plays import load_all
from ..records.metrics import LONG_SECONDS, SECONDS, SHORT_SECONDS, Metric
from ..records.section import section_classes

load_all()  # each section has its metrics

# Attributes that only metrics have

TOKEN_TYPE: Final = "gen_ai.token.type"
CONNECTION_STATE: Final = "http.connection.state"
WIRE_PHASE: Final = "fastlane.wire.phase"
BODY_STAGE: Final = "fastlane.http.request.body.stage"
"""Whether a size is of the body as JSON ("before") or as it was sent ("after")."""

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

# The conventions', of release 1.41

OPERATION_DURATION: Final = Metric(
    "gen_ai.client.operation.duration", "histogram", "s", "How long a call took, retries included", _GENERIC_SECONDS
)
TOKEN_USAGE: Final = Metric(
    "gen_ai.client.token.usage", "histogram", "{token}", "Tokens of the prompt and of the answer", _GENERIC_TOKENS
)
OPERATION_FIRST_CHUNK: Final = Metric(
    "gen_ai.client.operation.time_to_first_chunk",
    "histogram",
    "s",
    "Time to the first event of a stream, which may carry no output yet",
    _GENERIC_SECONDS,
)
OPERATION_PER_CHUNK: Final = Metric(
    "gen_ai.client.operation.time_per_output_chunk",
    "histogram",
    "s",
    "Time between each event of a stream that carries output and the one before it",
    _GENERIC_SECONDS,
)

# The conventions', since (https://github.com/open-telemetry/semantic-conventions-genai)

INFERENCE_DURATION: Final = Metric(
    "gen_ai.client.inference.duration", "histogram", "s", "How long a call took, retries included", _GENERIC_SECONDS
)
INFERENCE_FIRST_CHUNK: Final = Metric(
    "gen_ai.client.inference.time_to_first_chunk",
    "histogram",
    "s",
    "Time to the first event of a stream, which may carry no output yet",
    _GENERIC_SECONDS,
)
INFERENCE_PER_CHUNK: Final = Metric(
    "gen_ai.client.inference.time_per_output_chunk",
    "histogram",
    "s",
    "Time between each event of a stream that carries output and the one before it",
    _GENERIC_SECONDS,
)
INFERENCE_INPUT: Final = Metric(
    "gen_ai.client.inference.operation.input_tokens", "histogram", "{token}", "Tokens of a prompt", _GENERIC_TOKENS
)
INFERENCE_OUTPUT: Final = Metric(
    "gen_ai.client.inference.operation.output_tokens", "histogram", "{token}", "Tokens of an answer", _GENERIC_TOKENS
)
USED_INPUT: Final = Metric(
    "gen_ai.client.inference.usage.input_tokens", "counter", "{token}", "Tokens of prompts, cached ones included"
)
USED_OUTPUT: Final = Metric(
    "gen_ai.client.inference.usage.output_tokens", "counter", "{token}", "Tokens of answers, reasoning included"
)
USED_CACHE_READ: Final = Metric(
    "gen_ai.client.inference.usage.cache_read.input_tokens",
    "counter",
    "{token}",
    "Tokens of prompts that were read from the provider's cache",
)
USED_CACHE_WRITE: Final = Metric(
    "gen_ai.client.inference.usage.cache_write.input_tokens",
    "counter",
    "{token}",
    "Tokens of prompts that were written to the provider's cache",
)
USED_REASONING: Final = Metric(
    "gen_ai.client.inference.usage.reasoning.output_tokens", "counter", "{token}", "Tokens generated as reasoning"
)

# fastlane's own

TIME_TO_FIRST_TOKEN: Final = Metric(
    "fastlane.client.time_to_first_token", "histogram", "s", "From issue to the first output of a stream", SECONDS
)
WIRE_DURATION: Final = Metric(
    "fastlane.client.wire.duration", "histogram", "s", "Each phase of the answering attempt on the wire", SHORT_SECONDS
)
DECODE_DURATION: Final = Metric(
    "fastlane.client.decode.duration", "histogram", "s", "From the first to the last output of a stream", SECONDS
)
DECODE_RATE: Final = Metric(
    "fastlane.client.decode.rate", "histogram", "{token}/s", "Output tokens per second after the first", _RATES
)
MAX_CHUNK_GAP: Final = Metric(
    "fastlane.client.stream.max_chunk_gap",
    "histogram",
    "s",
    "The longest time between two neighbouring outputs of a stream",
    SHORT_SECONDS,
)
INTERACTION_DURATION: Final = Metric(
    "fastlane.interaction.duration",
    "histogram",
    "s",
    "Application end-to-end: from a user's action to its usable result",
    LONG_SECONDS,
)
BODY_SIZE: Final = Metric(
    "fastlane.client.request.body.size",
    "histogram",
    "By",
    "Size of a request's body, as JSON (before) and as it was sent (after)",
    _SIZES,
)
ATTEMPTS: Final = Metric(
    "fastlane.client.attempts",
    "counter",
    "{attempt}",
    "Tries of calls on the wire: why each was made, what became of it",
)
RETRY_WAIT: Final = Metric(
    "fastlane.client.retry.wait.duration",
    "histogram",
    "s",
    "Time that a call spent between attempts that had failed and the next",
    SECONDS,
)
DROPPED: Final = Metric(
    "fastlane.telemetry.dropped", "counter", "{call}", "Calls that no metric counts, because too many came at once"
)

OPEN_CONNECTIONS: Final = "http.client.open_connections"
OPEN_CONNECTIONS_UNIT: Final = "{connection}"
OPEN_CONNECTIONS_DESCRIPTION: Final = "Connections that are open, with a call on them (active) or without (idle)"

OF_EVERY_CALL: Final = (
    OPERATION_DURATION, TOKEN_USAGE, OPERATION_FIRST_CHUNK, OPERATION_PER_CHUNK,
    INFERENCE_DURATION, INFERENCE_FIRST_CHUNK, INFERENCE_PER_CHUNK, INFERENCE_INPUT, INFERENCE_OUTPUT,
    USED_INPUT, USED_OUTPUT, USED_CACHE_READ, USED_CACHE_WRITE, USED_REASONING,
    TIME_TO_FIRST_TOKEN, WIRE_DURATION, DECODE_DURATION, DECODE_RATE, MAX_CHUNK_GAP, INTERACTION_DURATION,
    BODY_SIZE, ATTEMPTS, RETRY_WAIT, DROPPED,
)  # fmt: skip
"""Those of the calls themselves, but for the connections, which are looked at and not told."""


def all_metrics() -> tuple[Metric, ...]:
    """Those of the calls and those of the plays."""
    return (*OF_EVERY_CALL, *[metric for section in section_classes() for metric in section.metrics])
