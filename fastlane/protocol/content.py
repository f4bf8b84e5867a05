"""Where an answer and its events keep content, reasoning, tool calls, refusals and finish reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal["content", "reasoning", "tool_call", "refusal", "audio"]

Channel = tuple[int, ...]
"""Which text of the answer. Chat and completions: (choice,) for content, (choice, position) for a tool call's
arguments, (choice, -1) for those of the older function call. Responses: (output_index, content_index) for content,
(output_index, -1 - summary_index) for a summary of reasoning, (output_index,) for arguments."""

FUNCTION_CALL = -1


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


def error_of(value: Any) -> Mapping[str, Any] | None:
    """Return the error object of an event's or an answer's `error`; None if there is no error."""
    if isinstance(value, Mapping):
        return value or None
    return {"message": str(value)} if value else None
