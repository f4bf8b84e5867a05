"""Where in a response's output the texts stand that its events bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ._deltas import Channel, Kind


class Place(NamedTuple):
    """Where the text of one kind of event goes."""

    kind: Kind
    field: str
    """Of the part, or of the item: where its text stands."""
    parts: str | None
    """The item's list of parts; None where the text stands in the item itself."""
    numbered_by: str
    """The event's field that says which part."""
    part: Mapping[str, Any]
    """A part without text, for an event that comes before its part was announced."""


def _part(kind: Kind, name: str, *, field: str = "text", **more: Any) -> Place:
    return Place(kind, field, "content", "content_index", {"type": name, field: "", **more})


_PLACES: Mapping[str, Place] = {
    "output_text": _part("content", "output_text", annotations=[]),
    "refusal": _part("refusal", "refusal", field="refusal"),
    "reasoning_text": _part("reasoning", "reasoning_text"),
    "reasoning_summary_text": Place(
        "reasoning", "text", "summary", "summary_index", {"type": "summary_text", "text": ""}
    ),
    "function_call_arguments": Place("tool_call", "arguments", None, "", {}),
    "mcp_call_arguments": Place("tool_call", "arguments", None, "", {}),
    "custom_tool_call_input": Place("tool_call", "input", None, "", {}),
    "code_interpreter_call_code": Place("tool_call", "code", None, "", {}),
}
DELTAS: Mapping[str, Place] = {f"response.{name}.delta": place for name, place in _PLACES.items()}
DONES: Mapping[str, Place] = {f"response.{name}.done": place for name, place in _PLACES.items()}

ITEM_TEXTS: Mapping[str, tuple[str, str]] = {
    "function_call": ("arguments", "response.function_call_arguments.done"),
    "mcp_call": ("arguments", "response.mcp_call_arguments.done"),
    "custom_tool_call": ("input", "response.custom_tool_call_input.done"),
    "code_interpreter_call": ("code", "response.code_interpreter_call_code.done"),
}
"""Items that are a text themselves: the text's field, and the event that ends it."""

PART_TEXTS: Mapping[str, tuple[str, str]] = {
    "output_text": ("text", "response.output_text.done"),
    "refusal": ("refusal", "response.refusal.done"),
    "reasoning_text": ("text", "response.reasoning_text.done"),
    "summary_text": ("text", "response.reasoning_summary_text.done"),
}
"""The same for the parts of an item."""


def channel_of(parts: str | None, output_index: int, index: int) -> Channel:
    """Return the channel of a text. A summary of reasoning stands beside the reasoning, and has numbers below 0."""
    if parts is None:
        return (output_index,)
    return (output_index, index) if parts == "content" else (output_index, -1 - index)
