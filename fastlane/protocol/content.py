"""Where an answer and its events keep content, reasoning, tool calls, refusals and finish reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from .fields import field, string

Kind = Literal["content", "reasoning", "tool_call", "refusal", "audio"]

Channel = tuple[int, ...]
"""Which text of the answer. Chat and completions: (choice,) for content, (choice, position) for a tool call's
arguments. Responses: (output_index, content_index) for content,
(output_index, -1 - summary_index) for a summary of reasoning, (output_index,) for arguments."""


class Delta(NamedTuple):
    """A piece of text that an event adds to an answer."""

    channel: Channel
    kind: Kind
    text: str
    name: str | None = None
    """The tool's name, with the first piece of its arguments."""


# Chat completions: fields of a message, or of its delta.

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Reasoning as text. The first is DeepSeek's, vLLM's and llama.cpp's; the second OpenRouter's, Cerebras' and Groq's."""

MESSAGE_KINDS: Mapping[str, Kind] = {
    "content": "content",
    **dict.fromkeys(REASONING_FIELDS, "reasoning"),
    "reasoning_details": "reasoning",  # OpenRouter
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "refusal": "refusal",
    "audio": "audio",
}
"""Fields that carry output, in the order in which the first of them decides."""

TOOL_INPUTS = {"function": "arguments", "custom": "input"}
"""The object of a tool call that holds its name, and that object's field for the arguments."""


def message_kind(message: Any) -> Kind | None:
    """Return what output a chat message or delta carries; None for a role, an empty or a missing one."""
    if message is not None:
        for name, kind in MESSAGE_KINDS.items():
            if field(message, name):
                return kind
    return None


def choices_kind(choices: Any) -> Kind | None:
    """Return what output the first choice with any carries, in an event of chat or of legacy completions."""
    for choice in choices:
        kind = message_kind(field(choice, "delta")) or ("content" if field(choice, "text") else None)
        if kind is not None:
            return kind
    return None


# Responses: events, items and parts.


class ResponseText(NamedTuple):
    """Where a response keeps the text of one kind of event."""

    kind: Kind
    field: str
    """The text's field in its part, or in its item."""
    parts: str | None
    """The item's list of parts; None if the text is a field of the item itself."""
    index_field: str
    """The event's field for the index of the part."""
    part: Mapping[str, Any]
    """An empty part, for an event whose part was not announced."""


def _part(kind: Kind, type_: str, *, field: str = "text", **more: Any) -> ResponseText:
    return ResponseText(kind, field, "content", "content_index", {"type": type_, field: "", **more})


def _item(field: str) -> ResponseText:
    return ResponseText("tool_call", field, None, "", {})


_SUMMARY = ResponseText("reasoning", "text", "summary", "summary_index", {"type": "summary_text", "text": ""})
_TEXTS: Mapping[str, ResponseText] = {
    "output_text": _part("content", "output_text", annotations=[]),
    "refusal": _part("refusal", "refusal", field="refusal"),
    "reasoning_text": _part("reasoning", "reasoning_text"),
    "reasoning_summary_text": _SUMMARY,
    "function_call_arguments": _item("arguments"),
    "mcp_call_arguments": _item("arguments"),
    "custom_tool_call_input": _item("input"),
    "code_interpreter_call_code": _item("code"),
}
RESPONSE_DELTAS: Mapping[str, ResponseText] = {f"response.{name}.delta": text for name, text in _TEXTS.items()}
RESPONSE_DONES: Mapping[str, ResponseText] = {f"response.{name}.done": text for name, text in _TEXTS.items()}

RESPONSE_KINDS: Mapping[str, Kind] = {
    **{name: text.kind for name, text in RESPONSE_DELTAS.items()},
    "response.audio.delta": "audio",
}
"""What output an event carries, by its type."""

ITEM_TEXTS: Mapping[str, tuple[str, str]] = {
    "function_call": ("arguments", "response.function_call_arguments.done"),
    "mcp_call": ("arguments", "response.mcp_call_arguments.done"),
    "custom_tool_call": ("input", "response.custom_tool_call_input.done"),
    "code_interpreter_call": ("code", "response.code_interpreter_call_code.done"),
}
"""Items that are one text, by type: the text's field, and the event that ends it."""

PART_TEXTS: Mapping[str, tuple[str, str]] = {
    "output_text": ("text", "response.output_text.done"),
    "refusal": ("refusal", "response.refusal.done"),
    "reasoning_text": ("text", "response.reasoning_text.done"),
    "summary_text": ("text", "response.reasoning_summary_text.done"),
}
"""Parts of an item, by type: the text's field, and the event that ends it."""

RESPONSE_BEGINS = frozenset({"response.created", "response.queued", "response.in_progress"})
RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""Events that carry the whole response."""


def response_channel(parts: str | None, output_index: int, index: int) -> Channel:
    """Return the channel of a text of a response. Summaries have numbers below 0: an item can have both."""
    if parts is None:
        return (output_index,)
    return (output_index, index if parts == "content" else -1 - index)


# Finish reasons and errors.

# "length" is OpenAI's; the others are what compatible providers have been seen to send.
_LIMITS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"})
_REFUSALS = frozenset({"content_filter", "refusal", "safety"})
# By OpenAI's types and codes of errors (https://platform.openai.com/docs/guides/error-codes).
_STATUSES = {
    "invalid_request_error": 400, "authentication_error": 401, "permission_error": 403, "not_found_error": 404,
    "rate_limit_exceeded": 429, "rate_limit_error": 429, "insufficient_quota": 429,
}  # fmt: skip


def finish_reason_of(answer: Any) -> str | None:
    """Return the first choice's finish reason, or a response's status."""
    choices = field(answer, "choices")
    if not choices:
        return string(field(answer, "status"))
    return string(field(choices[0], "finish_reason")) if isinstance(choices, list | tuple) else None


def is_cut_off(finish_reason: str | None) -> bool:
    """Return whether a finish reason, or a response's status, says that the answer met its limit."""
    return finish_reason is not None and (finish_reason.lower() in _LIMITS or finish_reason == "incomplete")


def is_refused(finish_reason: str | None) -> bool:
    """Return whether a finish reason says that the answer was refused or filtered."""
    return finish_reason is not None and finish_reason.lower() in _REFUSALS


def error_of(value: Any) -> Mapping[str, Any] | None:
    """Return the error object of an event's or an answer's `error`; None if there is no error."""
    if isinstance(value, Mapping):
        return value or None
    return {"message": str(value)} if value else None


def error_status(error: Mapping[str, Any]) -> int:
    """Return the HTTP status that an answer without streaming has for an error."""
    for name in ("status", "status_code", "code"):
        status = error.get(name)
        if isinstance(status, int | str) and str(status).isdecimal() and 400 <= int(status) < 600:
            return int(status)
    codes = (error.get("code"), error.get("type"))
    return next((_STATUSES[code] for code in codes if isinstance(code, str) and code in _STATUSES), 500)
