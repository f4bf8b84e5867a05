"""What a call asked for, as attributes: the parameters of its request, and none of its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..protocol.fields import safe_id
from . import _names as names

# The wire's name, the attribute, and what it has to be: anything else is none of the API's.
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

_USUAL = frozenset(
    {"model", "messages", "input", "stream", "stream_options", "tools", "tool_choice", "prompt_cache_key"}
)
"""Most calls have no other fields than these, and say nothing here."""

_OPERATIONS = {
    "/chat/completions": "chat",
    "/responses": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
}

_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_TIERS = frozenset({"auto", "default", "flex", "priority", "scale", "batch"})

_INT64 = 2**63
"""What attributes can be below of."""


def operation_of(method: str, endpoint: str) -> str | None:
    """`gen_ai.operation.name` of a call; None for one that asks no model for anything."""
    return _OPERATIONS.get(endpoint) if method == "POST" else None


def asked(endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a request's body that say how the model is to answer."""
    told: dict[str, Any] = {}
    if endpoint == "/chat/completions":
        told[names.API_TYPE] = "chat_completions"
    elif endpoint == "/responses":
        told[names.API_TYPE] = "responses"
    if body.keys() <= _USUAL:
        return told
    for field, attribute, kinds in _NUMBERS:
        value = body.get(field)
        if value is None or not isinstance(value, kinds) or isinstance(value, bool):
            continue
        if -_INT64 <= value < _INT64:
            told[attribute] = float(value) if float in kinds else value
    count = body.get("n")
    if type(count) is int and count != 1 and 0 <= count < _INT64:
        told[names.CHOICE_COUNT] = count
    effort = body.get("reasoning_effort") or _member(body, "reasoning", "effort")
    if isinstance(effort, str) and effort in _EFFORTS:
        told[names.REASONING_LEVEL] = effort
    tier = body.get("service_tier")
    if isinstance(tier, str) and tier in _TIERS:
        told[names.REQUEST_TIER] = tier
    previous = body.get("previous_response_id")
    if isinstance(previous, str) and safe_id(previous) is not None:
        told[names.PREVIOUS_RESPONSE] = previous
    conversation = body.get("conversation")
    conversation = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    if isinstance(conversation, str) and safe_id(conversation) is not None:
        told[names.CONVERSATION] = conversation
    kind = _member(body, "response_format", "type")
    if kind is None:
        text = body.get("text")
        kind = _member(text, "format", "type") if isinstance(text, Mapping) else None
    if kind in ("json_schema", "json_object"):
        told[names.OUTPUT_TYPE] = "json"
    elif kind == "text":
        told[names.OUTPUT_TYPE] = "text"
    encoding = body.get("encoding_format")
    if endpoint == "/embeddings" and encoding in ("float", "base64"):
        told[names.ENCODING_FORMATS] = (encoding,)
    return told


def _member(body: Mapping[str, Any], field: str, name: str) -> Any:
    value = body.get(field)
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else None
