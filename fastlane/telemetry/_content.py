"""Prompt and answer of one call in the conventions' form, kept only where the application has asked for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..protocol.fields import safe_name
from . import _names as names
from ._content_parts import dumped, item_parts, joined, loaded, message_parts, plain, text, tool_definition

# https://github.com/open-telemetry/semantic-conventions-genai: the JSON schemas of input and output messages.

_RESPONSE_TEXTS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
_RESPONSE_ARGUMENTS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})

_FINISHED = {
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "max_output_tokens": "length",
    "failed": "error",
    "cancelled": "error",
}
"""The conventions' word for why an answer ended, where it is another than the API's."""


class Content:
    """What a call's prompt and answer say; a watcher of its stream. Whatever it is shown, it raises nothing."""

    __slots__ = ("_answers", "_input", "_instructions", "_items", "_tools")

    def __init__(self, endpoint: str, body: Mapping[str, Any]) -> None:
        self._instructions: list[dict[str, Any]] = []
        self._input: list[dict[str, Any]] = []
        self._tools: list[dict[str, Any]] = []
        self._answers: dict[int, _Answer] = {}
        self._items: dict[int, _Item] = {}
        try:
            self._take(endpoint, body)
        except Exception:  # noqa: BLE001 - a body that the API would not take either, and a call that is to go on
            self._input.append({"role": "user", "parts": [{"type": "unreadable"}]})

    def _take(self, endpoint: str, body: Mapping[str, Any]) -> None:
        self._tools += [tool_definition(tool) for tool in _listed(body.get("tools"))]
        if endpoint == "/chat/completions":
            # Instructions that stand among the messages are told among the messages.
            self._take_messages(_listed(body.get("messages")))
        elif endpoint == "/responses":
            if isinstance(body.get("instructions"), str):
                self._instructions.append(text(body["instructions"]))
            self._take_messages(_listed(body.get("input")))
        elif endpoint == "/completions":
            given = plain(body.get("prompt"))
            several = given if isinstance(given, list) and all(isinstance(one, str) for one in given) else [given]
            for one in several:
                self._input.append({"role": "user", "parts": [text(one if isinstance(one, str) else dumped(one))]})

    def _take_messages(self, messages: Iterable[Any]) -> None:
        was_calling = False
        for message in messages:
            if not isinstance(message, dict):
                said = message if isinstance(message, str) else dumped(message)
                self._input.append({"role": "user", "parts": [text(said)]})
                continue
            role, parts = message_parts(message)
            is_calling = role == "assistant" and bool(parts) and all(part["type"] == "tool_call" for part in parts)
            if is_calling and was_calling and "role" not in message:
                # Tools that were called at once: in a Responses conversation each is an item of its own.
                self._input[-1]["parts"] += parts
                continue
            was_calling = is_calling
            made: dict[str, Any] = {"role": role, "parts": parts}
            if isinstance(message.get("name"), str) and "role" in message:
                made["name"] = message["name"]
            self._input.append(made)

    # The answer

    def see(self, event: Any) -> bool:
        """Look at an event of the stream, which goes on."""
        choices = getattr(event, "choices", None)
        if choices:
            for choice in choices:
                self._answer(getattr(choice, "index", 0)).take(choice, getattr(choice, "delta", None))
        elif choices is None:
            self._see_response(event)
        return False

    def _see_response(self, event: Any) -> None:
        kind = getattr(event, "type", None)
        if not isinstance(kind, str):
            return
        response = getattr(event, "response", None)
        if response is not None:
            if getattr(response, "output", None):
                self.answer(response)
            return
        at = getattr(event, "output_index", 0)
        said = getattr(event, "delta", None)
        if kind in _RESPONSE_TEXTS and isinstance(said, str):
            self._item(at).add(_RESPONSE_TEXTS[kind], said)
        elif kind in _RESPONSE_ARGUMENTS and isinstance(said, str):
            self._item(at).add("arguments", said)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._item(at).begin(plain(getattr(event, "item", None)), is_whole=kind.endswith("done"))

    def answer(self, answer: Any) -> None:
        """Look at a whole answer, which says all that its stream has said."""
        try:
            self._take_answer(answer)
        except Exception:  # noqa: BLE001 - an answer in no shape of the API's
            self._answers.setdefault(0, _Answer())

    def _take_answer(self, answer: Any) -> None:
        choices = getattr(answer, "choices", None)
        if choices:
            self._answers.clear()
            for at, choice in enumerate(choices):
                self._answer(getattr(choice, "index", at)).take(choice, getattr(choice, "message", None))
        output = getattr(answer, "output", None)
        if isinstance(output, list):
            self._items.clear()
            made = self._answers[0] = _Answer()
            for item in output:
                made.parts += item_parts(plain(item))
            reason = getattr(getattr(answer, "incomplete_details", None), "reason", None)
            status = getattr(answer, "status", None)
            made.finish_reason = reason or status
            if status == "completed":
                made.finish_reason = "tool_call" if made.calls_tools else "stop"

    def _answer(self, index: Any) -> _Answer:
        index = index if isinstance(index, int) else 0
        if index not in self._answers:
            self._answers[index] = _Answer()
        return self._answers[index]

    def _item(self, index: Any) -> _Item:
        return self._items.setdefault(index if isinstance(index, int) else 0, _Item())

    # What is told

    def structured(self) -> dict[str, Any]:
        """By attribute: what was said, as lists of messages."""
        told: dict[str, Any] = {}
        if self._instructions:
            told[names.SYSTEM_INSTRUCTIONS] = self._instructions
        if self._input:
            told[names.INPUT_MESSAGES] = self._input
        if self._items and not self._answers:
            cut = self._answers[0] = _Answer()
            cut.parts = [part for _, item in sorted(self._items.items()) for part in item.parts()]
        if self._answers:
            told[names.OUTPUT_MESSAGES] = [said.message() for _, said in sorted(self._answers.items())]
        if self._tools:
            told[names.TOOL_DEFINITIONS] = self._tools
        return told

    def attributes(self) -> dict[str, str]:
        """The same as JSON texts, which is the form that spans' attributes can have."""
        return {name: dumped(value) for name, value in self.structured().items()}


class _Answer:
    """One choice of an answer, as far as it has come."""

    __slots__ = ("_calls", "_texts", "finish_reason", "parts")

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.finish_reason: Any = None
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}

    @property
    def calls_tools(self) -> bool:
        """Whether a tool is to be called."""
        return any(part["type"] == "tool_call" for part in self.parts)

    def take(self, choice: Any, said: Any) -> None:
        """Add what a choice says, be it the whole of it or a piece."""
        self.finish_reason = getattr(choice, "finish_reason", None) or self.finish_reason
        content = getattr(choice, "text", None) if said is None else getattr(said, "content", None)
        reasoning = getattr(said, "reasoning_content", None) or getattr(said, "reasoning", None)
        # What a model refuses with is what the user reads.
        for kind, piece in (("reasoning", reasoning), ("text", content), ("text", getattr(said, "refusal", None))):
            if isinstance(piece, str) and piece:
                self._texts.setdefault(kind, []).append(piece)
        calls = getattr(said, "tool_calls", None)
        for at, call in enumerate(calls if isinstance(calls, list) else ()):
            index = getattr(call, "index", at)
            self._call(index if isinstance(index, int) else at, call, getattr(call, "function", None))
        legacy = getattr(said, "function_call", None)
        if legacy is not None:
            self._call(0, None, legacy)

    def _call(self, index: int, call: Any, function: Any) -> None:
        custom = getattr(call, "custom", None)
        made = self._calls.setdefault(index, {"type": "tool_call", "id": None, "name": [], "arguments": []})
        made["id"] = getattr(call, "id", None) or made["id"]
        for source, name, kept in (
            (function, "name", "name"), (function, "arguments", "arguments"),
            (custom, "name", "name"), (custom, "input", "arguments"),
        ):  # fmt: skip
            piece = getattr(source, name, None)
            if isinstance(piece, str):
                made[kept].append(piece)

    def message(self) -> dict[str, Any]:
        """The message in the conventions' form."""
        parts = [*self.parts, *({"type": kind, "content": joined(said)} for kind, said in self._texts.items())]
        for _, call in sorted(self._calls.items()):
            parts.append({**call, "name": joined(call["name"]), "arguments": loaded(joined(call["arguments"]))})
        reason = (safe_name(self.finish_reason) if isinstance(self.finish_reason, str) else None) or "error"
        return {"role": "assistant", "parts": parts, "finish_reason": _FINISHED.get(reason, reason)}


class _Item:
    """One item of a Responses answer, as far as its stream has come."""

    __slots__ = ("_pieces", "_said", "_whole")

    def __init__(self) -> None:
        self._said: dict[str, Any] = {}
        self._whole = False
        self._pieces: dict[str, list[str]] = {}

    def begin(self, item: Any, *, is_whole: bool) -> None:
        """Take the item as it is when it begins, or when it is done."""
        if isinstance(item, dict):
            self._said, self._whole = item, is_whole

    def add(self, kind: str, piece: str) -> None:
        """Add a piece of a text or of a tool's arguments."""
        self._pieces.setdefault(kind, []).append(piece)

    def parts(self) -> list[dict[str, Any]]:
        """What has come of it."""
        if self._whole:
            return item_parts(self._said)
        arguments = self._pieces.pop("arguments", None)
        if arguments is not None:
            field = "input" if self._said.get("type") == "custom_tool_call" else "arguments"
            return item_parts({"type": "function_call", **self._said, field: joined(arguments)})
        return [{"type": kind, "content": joined(pieces)} for kind, pieces in self._pieces.items()]


def _listed(value: Any) -> list[Any]:
    made = plain(value)
    if isinstance(made, list):
        return made
    return [] if made is None else [made]
