"""Read tokens, usage and finish reasons out of what a provider sent: openai's typed objects, or JSON with attributes.

Everything is read with `getattr`, so that an answer which lacks a field, or has it in another shape, is never an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from ..engine.call import Usage
from ..records.timeline import TokenKind

# Fields of a chat delta that carry output, in the order in which they are looked for. `reasoning_content` (DeepSeek,
# vLLM, llama.cpp) and `reasoning` (OpenRouter, Cerebras, Groq) are no part of OpenAI's own schema.
_DELTA_FIELDS: tuple[tuple[str, TokenKind], ...] = (
    ("reasoning_content", "reasoning"),
    ("reasoning", "reasoning"),
    ("tool_calls", "tool_call"),
    ("function_call", "tool_call"),
    ("refusal", "refusal"),
    ("audio", "audio"),
)

# Events of a Responses stream that carry output. `response.reasoning_summary_text.delta` is what a user of a
# reasoning model sees first.
_RESPONSE_DELTAS: dict[str, TokenKind] = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool_call",
    "response.custom_tool_call_input.delta": "tool_call",
    "response.mcp_call_arguments.delta": "tool_call",
    "response.code_interpreter_call_code.delta": "tool_call",
    "response.audio.delta": "audio",
}

_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")

_RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})

# What a server says in the place of a name is no more trusted than its errors, which quote prompts and keys: a name is
# short, and one word.
_NAME = re.compile(r"[!-~]{1,128}")
_ID = re.compile(r"[!-~]{1,512}")
_NO_NAME = "_OTHER"
_MOST_NAMES = 1_024
_names: set[str] = set()

# Beyond this it is no count of tokens, and more than metrics and spans can carry.
_MOST_TOKENS = 2**53


def from_json(data: bytes | str) -> Any:
    """Parse JSON so that it can be read like openai's objects; ValueError if it is none."""
    try:
        return json.loads(data, object_hook=lambda fields: SimpleNamespace(**fields))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply to be read") from None


def kind_of_delta(delta: Any) -> TokenKind | None:
    """What output a chat delta carries; None for a role, an empty or a missing delta."""
    if delta is None:
        return None
    if getattr(delta, "content", None):
        return "content"
    for name, kind in _DELTA_FIELDS:
        if getattr(delta, name, None):
            return kind
    return None


def kind_of_choices(choices: Any) -> TokenKind | None:
    """What output a chat or completions event carries: that of the first choice which carries any."""
    for choice in choices:
        kind = kind_of_delta(getattr(choice, "delta", None))
        if kind is None and getattr(choice, "text", None):
            return "content"
        if kind is not None:
            return kind
    return None


def kind_of_response_event(event_type: str) -> TokenKind | None:
    """What output an event of a Responses stream carries, by its type."""
    return _RESPONSE_DELTAS.get(event_type)


def ends_response(event_type: str) -> bool:
    """Whether an event of this type ends a Responses stream and carries the whole answer."""
    return event_type in _RESPONSE_ENDS


def usage_of(usage: Any, cached_path: Sequence[str] = ()) -> Usage:
    """Token counts from a `usage` of chat completions, embeddings or Responses; what it lacks is None, not 0.

    `cached_path` is where this provider's counts cached tokens, if it is elsewhere than OpenAI's.
    """
    if usage is None:
        return Usage()
    if _read(usage, "estimated") is True:
        # Details that openai's types ask for were filled in.
        return Usage(
            input_tokens=_first_int(usage, "prompt_tokens", "input_tokens"),
            output_tokens=_first_int(usage, "completion_tokens", "output_tokens"),
            estimated=True,
        )
    cached = _at(usage, cached_path) if cached_path else None
    if cached is None:
        cached = _detail(usage, _INPUT_DETAILS, "cached_tokens")
    return Usage(
        input_tokens=_first_int(usage, "prompt_tokens", "input_tokens"),
        output_tokens=_first_int(usage, "completion_tokens", "output_tokens"),
        cached_tokens=cached,
        cache_write_tokens=_detail(usage, _INPUT_DETAILS, "cache_write_tokens"),
        reasoning_tokens=_detail(usage, ("completion_tokens_details", "output_tokens_details"), "reasoning_tokens"),
    )


def counted(usage: Any) -> tuple[int | None, int | None]:
    """Tokens of the prompt and of the answer as the provider has counted them; None for what nobody has counted."""
    if _read(usage, "estimated") is True:
        return None, None
    return _first_int(usage, "prompt_tokens", "input_tokens"), _first_int(usage, "completion_tokens", "output_tokens")


def finish_reason_of(answer: Any) -> str | None:
    """The first choice's finish reason, or the status of a Responses answer."""
    choices = getattr(answer, "choices", None)
    if choices:
        try:
            return _text(getattr(choices[0], "finish_reason", None))
        except (TypeError, KeyError, IndexError):
            return None
    return _text(getattr(answer, "status", None))


def text_of(source: Any, name: str) -> str | None:
    """A field that should be text; None where it is missing or something else."""
    return _text(getattr(source, name, None))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def name_in(said: str | None) -> str | None:
    """A name by a server's word, such as a model's or a finish reason; "_OTHER" where it cannot be one."""
    if said is None or said in _names:
        return said
    if _NAME.fullmatch(said) is None:
        return _NO_NAME
    if len(_names) < _MOST_NAMES:
        _names.add(said)
    return said


def id_in(said: str | None) -> str | None:
    """An id by a server's word; None where it cannot be one."""
    return said if said is not None and _ID.fullmatch(said) is not None else None


def member_of(source: Any, name: str) -> Any:
    """A field of an object or of plain JSON; None where it has none of that name."""
    return source.get(name) if isinstance(source, Mapping) else _read(source, name)


def _read(source: Any, name: str) -> Any:
    # pydantic takes microseconds to say that it has not got a field.
    if isinstance(source, BaseModel):
        fields = source.__dict__
        if name in fields:
            return fields[name]
        extra = source.__pydantic_extra__
        return extra.get(name) if extra else None
    return getattr(source, name, None)


def _first_int(source: Any, *names: str) -> int | None:
    for name in names:
        value = _count(_read(source, name))
        if value is not None:
            return value
    return None


def _count(value: Any) -> int | None:
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS
    return value if is_one else None


def _at(source: Any, path: Sequence[str]) -> int | None:
    for name in path:
        source = member_of(source, name)
    return _count(source)


def _detail(usage: Any, parents: tuple[str, ...], name: str) -> int | None:
    for parent in parents:
        details = _read(usage, parent)
        if details is not None:
            value = _first_int(details, name)
            if value is not None:
                return value
    return None
