"""Prompt and answer of one call in the conventions' form, kept only where the application has asked for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..protocol.assembly import assembly_of
from ..protocol.endpoints import CHAT, COMPLETIONS, RESPONSES, is_response
from ..protocol.fields import safe_name
from . import _names as names
from ._content_parts import dumped, item_parts, message_parts, plain, text, tool_definition

# https://github.com/open-telemetry/semantic-conventions-genai: the JSON schemas of input and output messages.

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

    __slots__ = ("_answer", "_assembly", "_input", "_instructions", "_tools")

    def __init__(self, endpoint: str, body: Mapping[str, Any]) -> None:
        self._instructions: list[dict[str, Any]] = []
        self._input: list[dict[str, Any]] = []
        self._tools: list[dict[str, Any]] = []
        self._answer: Any = None
        self._assembly = assembly_of(RESPONSES if is_response(endpoint) else endpoint)
        try:
            self._take(endpoint, body)
        except Exception:  # noqa: BLE001 - a body that the API would not take either, and a call that is to go on
            self._input.append({"role": "user", "parts": [{"type": "unreadable"}]})

    def _take(self, endpoint: str, body: Mapping[str, Any]) -> None:
        self._tools += [tool_definition(tool) for tool in _listed(body.get("tools"))]
        if endpoint == CHAT:
            # Instructions that stand among the messages are told among the messages.
            self._take_messages(_listed(body.get("messages")))
        elif endpoint == RESPONSES:
            if isinstance(body.get("instructions"), str):
                self._instructions.append(text(body["instructions"]))
            self._take_messages(_listed(body.get("input")))
        elif endpoint == COMPLETIONS:
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
        if self._assembly is not None:
            self._assembly.take(event)
        return False

    def answer(self, answer: Any) -> None:
        """Look at a whole answer."""
        try:
            self._answer = plain(answer)
        except Exception:  # noqa: BLE001 - an answer in no shape of the API's
            self._answer = {"choices": [{}]}

    def _messages(self) -> list[dict[str, Any]]:
        """Return the answer's messages in the conventions' form, as far as it has come."""
        answer, finished = self._answer, True
        if answer is None and self._assembly is not None:
            answer, finished = plain(self._assembly.body()), self._assembly.finished
        if not isinstance(answer, dict):
            return []
        output = answer.get("output")
        if isinstance(output, list) and (output or finished):
            parts = [part for item in output for part in item_parts(item)]
            return [_message(parts, _reason_of(answer, parts) if finished else None)]
        return [
            _message(_choice_parts(choice), choice.get("finish_reason"))
            for choice in _listed(answer.get("choices"))
            if isinstance(choice, dict)
        ]

    # What is told

    def structured(self) -> dict[str, Any]:
        """By attribute: what was said, as lists of messages."""
        told: dict[str, Any] = {}
        if self._instructions:
            told[names.SYSTEM_INSTRUCTIONS] = self._instructions
        if self._input:
            told[names.INPUT_MESSAGES] = self._input
        messages = self._messages()
        if messages:
            told[names.OUTPUT_MESSAGES] = messages
        if self._tools:
            told[names.TOOL_DEFINITIONS] = self._tools
        return told

    def attributes(self) -> dict[str, str]:
        """The same as JSON texts, which is the form that spans' attributes can have."""
        return {name: dumped(value) for name, value in self.structured().items()}


def _choice_parts(choice: dict[str, Any]) -> list[dict[str, Any]]:
    message = choice.get("message")
    _, parts = message_parts(message if isinstance(message, dict) else {"content": choice.get("text")})
    return [part for part in parts if part.get("content") != ""]


def _reason_of(response: dict[str, Any], parts: Iterable[dict[str, Any]]) -> Any:
    if response.get("status") == "completed":
        return "tool_call" if any(part["type"] == "tool_call" for part in parts) else "stop"
    details = response.get("incomplete_details")
    return (details.get("reason") if isinstance(details, dict) else None) or response.get("status")


def _message(parts: list[dict[str, Any]], reason: Any) -> dict[str, Any]:
    reason = (safe_name(reason) if isinstance(reason, str) else None) or "error"
    return {"role": "assistant", "parts": parts, "finish_reason": _FINISHED.get(reason, reason)}


def _listed(value: Any) -> list[Any]:
    made = plain(value)
    if isinstance(made, list):
        return made
    return [] if made is None else [made]
