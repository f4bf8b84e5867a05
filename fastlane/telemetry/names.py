"""The names of spans and attributes: the semantic conventions' where they have one, fastlane's own where not.

Since release 1.41 of https://github.com/open-telemetry/semantic-conventions the GenAI conventions live in
https://github.com/open-telemetry/semantic-conventions-genai, which has no release: their names stand here as there.
"""

from __future__ import annotations

from typing import Final

SCOPE: Final = "fastlane"
"""The instrumentation scope of all spans and metrics."""

# Class names of errors that are the application's cancellation, and no failure.
CANCELLATIONS: Final = frozenset({"CancelledError", "Cancelled", "GeneratorExit"})

# Spans

INVOKE_WORKFLOW: Final = "invoke_workflow"
CONNECTION_WAIT: Final = "HTTP wait_for_connection"
CONNECTION_SETUP: Final = "HTTP connection_setup"
DNS_LOOKUP: Final = "DNS lookup"
SOCKET_CONNECT: Final = "socket connect"
TLS_HANDSHAKE: Final = "TLS client handshake"
SEND_REQUEST: Final = "HTTP send_request"
WAIT_FOR_RESPONSE: Final = "HTTP wait_for_response"
FIRST_TOKEN: Final = "first_token"
DECODE: Final = "decode"
PREPARE: Final = "prepare"
PLACE_WAIT: Final = "wait_for_place"
VALIDATE: Final = "validate"

# General attributes (https://opentelemetry.io/docs/specs/semconv/general/attributes/)

ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
PEER_ADDRESS: Final = "network.peer.address"
PEER_PORT: Final = "network.peer.port"
PROTOCOL_VERSION: Final = "network.protocol.version"
DNS_NAME: Final = "dns.question.name"
TLS_VERSION: Final = "tls.protocol.version"
FLAG_KEY: Final = "feature_flag.key"
FLAG_VARIANT: Final = "feature_flag.result.variant"

# HTTP (https://opentelemetry.io/docs/specs/semconv/http/http-spans/)

HTTP_METHOD: Final = "http.request.method"
HTTP_STATUS: Final = "http.response.status_code"
HTTP_RESEND_COUNT: Final = "http.request.resend_count"
HTTP_REQUEST_SIZE: Final = "http.request.body.size"
HTTP_RESPONSE_SIZE: Final = "http.response.body.size"
URL_FULL: Final = "url.full"

# GenAI

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
TEMPERATURE: Final = "gen_ai.request.temperature"
TOP_P: Final = "gen_ai.request.top_p"
SEED: Final = "gen_ai.request.seed"
CHOICE_COUNT: Final = "gen_ai.request.choice.count"
FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"
PREVIOUS_RESPONSE: Final = "gen_ai.request.previous_response.id"
ENCODING_FORMATS: Final = "gen_ai.request.encoding_formats"
OUTPUT_TYPE: Final = "gen_ai.output.type"
CONVERSATION: Final = "gen_ai.conversation.id"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_CREATION: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The name of release 1.41."""
CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
"""The name since. Tools read the one or the other, so that both are always written."""
USAGE_ESTIMATED: Final = "fastlane.usage.estimated"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
DETAILS_EVENT: Final = "gen_ai.client.inference.operation.details"

API_TYPE: Final = "openai.api.type"
REQUEST_TIER: Final = "openai.request.service_tier"
RESPONSE_TIER: Final = "openai.response.service_tier"

OPENINFERENCE_KIND: Final = "openinference.span.kind"
"""Read by Phoenix and MLflow, which have no word of the conventions' for a workflow."""

# Labels that only metrics have

TOKEN_TYPE: Final = "gen_ai.token.type"
CONNECTION_STATE: Final = "http.connection.state"
PHASE: Final = "fastlane.wire.phase"
BODY_STAGE: Final = "fastlane.http.request.body.stage"
"""Whether a size is of the body as JSON ("before") or as it was sent ("after")."""

# fastlane's own. Durations are seconds. Those of a play are in the section that it adds to the record.

TTFT: Final = "fastlane.time_to_first_token"
TTFT_CONTENT: Final = "fastlane.time_to_first_content_token"
FIRST_TOKEN_KIND: Final = "fastlane.first_token.kind"
API_END_TO_END: Final = "fastlane.api_end_to_end.duration"
PREPARE_DURATION: Final = "fastlane.prepare.duration"
VALIDATE_DURATION: Final = "fastlane.validate.duration"
WIRE: Final = "fastlane.wire.duration"
WIRE_PHASE: Final = {
    "queue": "fastlane.wire.queue.duration",
    "dns": "fastlane.wire.dns.duration",
    "connect": "fastlane.wire.connect.duration",
    "tls": "fastlane.wire.tls.duration",
    "send": "fastlane.wire.send.duration",
}
SERVER_WAIT: Final = "fastlane.server.wait.duration"
DECODE_DURATION: Final = "fastlane.decode.duration"
DECODE_RATE: Final = "fastlane.decode.tokens_per_second"
STREAM_CHUNKS: Final = "fastlane.stream.chunks"
STREAM_MAX_GAP: Final = "fastlane.stream.max_chunk_gap"
STREAM_END: Final = "fastlane.stream.end"
APPLICATION_DURATION: Final = "fastlane.application.duration"
INTERACTION_NAME: Final = "fastlane.interaction.name"
INTERACTION_CALLS: Final = "fastlane.interaction.calls"
REQUEST_ID: Final = "fastlane.request.id"
OPTIMIZATIONS: Final = "fastlane.optimizations"
CONNECTION_REUSED: Final = "fastlane.connection.reused"
CONNECTION_ID: Final = "fastlane.connection.id"
ROUND_TRIP_TIME: Final = "fastlane.connection.round_trip_time"
REQUEST_ENCODING: Final = "fastlane.http.request.encoding"
PLAIN_REQUEST_SIZE: Final = "fastlane.http.request.body.uncompressed_size"
ATTEMPT_NUMBER: Final = "fastlane.attempt.number"
ATTEMPT_KIND: Final = "fastlane.attempt.kind"
ATTEMPT_OUTCOME: Final = "fastlane.attempt.outcome"
ATTEMPT_MODEL: Final = "fastlane.attempt.model"
ATTEMPT_COUNT: Final = "fastlane.attempt.count"
RETRY_WAIT: Final = "fastlane.retry.wait.duration"
LINK_REASON: Final = "fastlane.link.reason"
OUTPUT_VERDICT: Final = "fastlane.output.verdict"
EXPERIMENT_NAME: Final = "fastlane.experiment.name"
EXPERIMENT_ARM: Final = "fastlane.experiment.arm"
EXPERIMENT_UNIT: Final = "fastlane.experiment.unit_id_hash"
PROVIDER_QUEUE: Final = "fastlane.provider.queue.duration"
PROVIDER_PREFILL: Final = "fastlane.provider.prefill.duration"
PROVIDER_DECODE: Final = "fastlane.provider.decode.duration"
PROVIDER_TOTAL: Final = "fastlane.provider.total.duration"
PROVIDER_HEAD: Final = "fastlane.provider.head.duration"
