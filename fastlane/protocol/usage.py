"""Read and estimate the token counts of an answer, and read why the cache was missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from ..knowledge.tokens import Counter
from ..records.usage import Usage
from .answer_texts import answer_texts
from .content import REASONING_FIELDS
from .endpoints import CHAT, RESPONSES
from .fields import field, listed
from .request_fields import wanted_of

_INPUT, _OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")

# Larger numbers are not token counts, and metrics and spans can't carry them.
_MAX_TOKENS = 2**53

# The longest reason as of today is "previous_message_not_found". Longer texts are ignored: records must stay bounded.
_LONGEST = 64
# Reasons that do not concern the prompt: the provider did not compare it.
_NOTHING = frozenset(
    {"unavailable", "comparison_response_not_found", "previous_message_not_found", "cache_hit", "cache_miss"}
)


def usage_of(usage: Any, cached_path: Sequence[str] = ()) -> Usage:
    """Return the token counts of a `usage` of any endpoint.

    `cached_path`: this provider's path to cached tokens; empty if it is OpenAI's.
    """
    if usage is None:
        return Usage()
    fields = _members_of(usage)
    input_tokens, output_tokens = _count(fields, _INPUT), _count(fields, _OUTPUT)
    if fields.get("estimated") is True:  # its details are only there to satisfy openai's types
        return Usage(input_tokens=input_tokens, output_tokens=output_tokens, estimated=True)
    read, generated = _details(fields, _INPUT_DETAILS), _details(fields, _OUTPUT_DETAILS)
    cached = _count(read, ("cached_tokens",))
    if cached_path:
        found = usage
        for name in cached_path:
            found = field(found, name)
        own = _count({"cached_tokens": found}, ("cached_tokens",))
        cached = cached if own is None else own
    return Usage(
        input_tokens=input_tokens,
        cached_tokens=cached,
        cache_write_tokens=_count(read, ("cache_write_tokens",)),
        output_tokens=output_tokens,
        reasoning_tokens=_count(generated, ("reasoning_tokens",)),
    )


def _members_of(source: Any) -> Mapping[str, Any]:
    """Return all fields of an object or a JSON object by name, defaults included; empty for a plain value."""
    if isinstance(source, Mapping):
        return source
    members: dict[str, Any] = getattr(source, "__dict__", {})
    # `isinstance(source, BaseModel)` takes a microsecond.
    extra = getattr(source, "__pydantic_extra__", None)
    return {**members, **extra} if extra else members


def estimated_usage(endpoint: str, *, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Return an estimated `usage` in the endpoint's field names, for an answer without the provider's counts.

    It has `"estimated": True`, and zeros for the unknown details that openai's type requires.
    """
    which = 1 if endpoint == RESPONSES else 0
    usage: dict[str, Any] = {
        _INPUT[which]: input_tokens,
        _OUTPUT[which]: output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    if endpoint == RESPONSES:
        usage["input_tokens_details"] = {"cached_tokens": 0, "cache_write_tokens": 0}
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
    usage["estimated"] = True
    return usage


def _count(fields: Mapping[str, Any], names: Sequence[str]) -> int | None:
    for name in names:
        count = fields.get(name)
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _MAX_TOKENS:
            return count
    return None


def _details(fields: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Return the details of a count under the first of these names that has any."""
    for name in names:
        if fields.get(name) is not None:
            return _members_of(fields[name])
    return {}


def prompt_tokens(body: Mapping[str, Any], counting: Counter) -> int:
    """Return the tokens of everything that the model is shown."""
    prompt = body.get("messages", body.get("input", body.get("prompt", "")))
    beside = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    messages: Any = [*beside, *(prompt if isinstance(prompt, list) else [str(prompt)])]
    return counting.messages(messages, body.get("tools") or ()) + _schema_tokens(body, counting)


def answer_tokens(answer: Mapping[str, Any], endpoint: str, counting: Counter) -> int:
    """Return the tokens of a whole answer's texts, and of its visible reasoning."""
    texts = [one.text for one in answer_texts(answer, endpoint)]
    return sum(map(counting.text, (*texts, *_reasoning(answer))))


def _schema_tokens(body: Mapping[str, Any], counting: Counter) -> int:
    """Return the tokens of the schema, which the model is shown beside the prompt."""
    wanted = wanted_of(body, CHAT if "response_format" in body else RESPONSES)
    return 0 if wanted.schema is None else counting.text(orjson.dumps(wanted.schema).decode())


def _reasoning(answer: Mapping[str, Any]) -> Iterator[str]:
    for choice in listed(answer.get("choices")):
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if isinstance(message, Mapping):
            thought = next(filter(None, map(message.get, REASONING_FIELDS)), None)
            if isinstance(thought, str):
                yield thought


def cache_miss_reason(answer: Any) -> str | None:
    """Return the reason that a provider gives for a cache miss, such as "tools_changed".

    `answer` is a whole answer, the response that ends a Responses stream, or its event, as an object or a mapping. None
    if there was a hit, no comparison, or no reason. Never raises.
    """
    try:
        return _reason(answer) or _reason(field(answer, "response"))
    except Exception:  # noqa: BLE001 - an answer may contain anything
        return None


def _reason(answer: Any) -> str | None:
    diagnostics = field(answer, "prompt_cache_diagnostics")
    if diagnostics is None:
        others = field(answer, "diagnostics")
        diagnostics = field(answer if others is None else others, "cache_miss_reason")
    for _ in range(2):
        if diagnostics is None or isinstance(diagnostics, str):
            break
        inner = field(diagnostics, "reason")
        diagnostics = field(diagnostics, "type") if inner is None else inner
    if not isinstance(diagnostics, str) or not 0 < len(diagnostics) <= _LONGEST or not diagnostics.isidentifier():
        return None
    return None if diagnostics in _NOTHING else diagnostics
