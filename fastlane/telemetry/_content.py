"""Prompt and answer of one call in the conventions' form, kept only where the application has asked for that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from . import _names as names

# https://github.com/open-telemetry/semantic-conventions-genai: the JSON schemas of input and output messages.


class Content:
    """What a call's prompt and answer say; a watcher of its stream."""

    __slots__ = ("_answers", "_endpoint", "_input", "_instructions", "_tools")

    def __init__(self, endpoint: str, body: Mapping[str, Any]) -> None:
        self._endpoint = endpoint
        self._instructions: list[dict[str, Any]] = []
        self._input: list[dict[str, Any]] = []
        self._tools = _plain(body.get("tools"))
        self._answers: dict[int, _Answer] = {}
        if endpoint == "/chat/completions":
            self._take_messages(_listed(body.get("messages")))
        elif endpoint == "/responses":
            if isinstance(body.get("instructions"), str):
                self._instructions.append(_text(body["instructions"]))
            self._take_messages(_listed(body.get("input")))
        else:
            prompt = body.get("prompt", body.get("input"))
            self._input.append(
                {"role": "user", "parts": [_text(prompt if isinstance(prompt, str) else _dumped(prompt))]}
            )

    def _take_messages(self, messages: Iterable[Any]) -> None:
        for message in messages:
            if isinstance(message, str):
                self._input.append({"role": "user", "parts": [_text(message)]})
            elif isinstance(message, Mapping):
                role, parts = str(message.get("role", "assistant")), _parts(message)
                if role in ("system", "developer") and not self._input:
                    self._instructions += parts
                else:
                    self._input.append({"role": role, "parts": parts})

    # The answer

    def see(self, event: Any) -> bool:
        """Look at an event of the stream, which goes on."""
        response = getattr(event, "response", None)
        if response is not None and getattr(response, "output", None):
            self.answer(response)
        for choice in getattr(event, "choices", None) or ():
            self._answer(choice.index).take(choice, getattr(choice, "delta", None))
        return False

    def answer(self, answer: Any) -> None:
        """Look at a whole answer."""
        for choice in getattr(answer, "choices", None) or ():
            self._answer(choice.index).take(choice, getattr(choice, "message", None))
        output = getattr(answer, "output", None)
        if isinstance(output, list):
            said = self._answers[0] = _Answer()
            said.finish_reason = getattr(answer, "status", None)
            for item in output:
                said.parts += _parts(_plain(item))

    def _answer(self, index: Any) -> _Answer:
        index = index if isinstance(index, int) else 0
        if index not in self._answers:
            self._answers[index] = _Answer()
        return self._answers[index]

    # What is told

    def structured(self) -> dict[str, Any]:
        """By attribute: what was said, as lists of messages."""
        told: dict[str, Any] = {}
        if self._instructions:
            told[names.SYSTEM_INSTRUCTIONS] = self._instructions
        if self._input:
            told[names.INPUT_MESSAGES] = self._input
        if self._answers:
            told[names.OUTPUT_MESSAGES] = [said.message() for _, said in sorted(self._answers.items())]
        if self._tools:
            told[names.TOOL_DEFINITIONS] = self._tools
        return told

    def attributes(self) -> dict[str, str]:
        """The same as JSON texts, which is the form that spans' attributes can have."""
        return {name: _dumped(value) for name, value in self.structured().items()}


class _Answer:
    """One choice of an answer, as far as it has come."""

    __slots__ = ("_calls", "_texts", "finish_reason", "parts")

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.finish_reason: str | None = None
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}

    def take(self, choice: Any, said: Any) -> None:
        """Add what a choice says, be it the whole of it or a piece."""
        self.finish_reason = getattr(choice, "finish_reason", None) or self.finish_reason
        text = getattr(choice, "text", None) if said is None else getattr(said, "content", None)
        refusal, reasoning = getattr(said, "refusal", None), getattr(said, "reasoning_content", None)
        for kind, piece in (("reasoning", reasoning), ("text", text), ("refusal", refusal)):
            if isinstance(piece, str) and piece:
                self._texts.setdefault(kind, []).append(piece)
        for at, call in enumerate(getattr(said, "tool_calls", None) or ()):
            function = getattr(call, "function", None)
            index = getattr(call, "index", at)
            made = self._calls.setdefault(index, {"type": "tool_call", "id": None, "name": "", "arguments": ""})
            made["id"] = getattr(call, "id", None) or made["id"]
            made["name"] += getattr(function, "name", None) or ""
            made["arguments"] += getattr(function, "arguments", None) or ""

    def message(self) -> dict[str, Any]:
        """The message in the conventions' form."""
        parts = [{"type": kind, "content": "".join(pieces)} for kind, pieces in self._texts.items()]
        parts += [{**call, "arguments": _loaded(call["arguments"])} for _, call in sorted(self._calls.items())]
        return {"role": "assistant", "parts": [*self.parts, *parts], "finish_reason": self.finish_reason or "error"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return [] if value is None else [_plain(value)]


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of one message, or of one item of a Responses conversation."""
    kind = message.get("type")
    if kind == "function_call":
        arguments = _loaded(message.get("arguments"))
        return [
            {"type": "tool_call", "id": message.get("call_id"), "name": message.get("name"), "arguments": arguments}
        ]
    if kind == "function_call_output":
        return [{"type": "tool_call_response", "id": message.get("call_id"), "response": message.get("output")}]
    content = message.get("content")
    if message.get("role") == "tool":
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content}]
    parts: list[dict[str, Any]] = []
    if isinstance(content, str):
        parts.append(_text(content))
    elif isinstance(content, list):
        parts += [_part(part) for part in content]
    elif content is None and kind not in (None, "message"):
        parts.append(dict(message))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {} if isinstance(call, Mapping) else {}
        arguments = _loaded(function.get("arguments"))
        parts.append({"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "arguments": arguments})
    return parts


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return _text(part)
    if not isinstance(part, Mapping):
        return {"type": "unknown"}
    text = part.get("text", part.get("refusal"))
    return _text(text) if isinstance(text, str) else dict(part)


def _plain(value: Any) -> Any:
    """What the wire would carry: models of pydantic as dictionaries."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True, mode="json", warnings=False)
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value if isinstance(value, str | int | float | bool | None) else str(type(value).__name__)


def _loaded(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # cut off, or never JSON


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=lambda odd: type(odd).__name__)
