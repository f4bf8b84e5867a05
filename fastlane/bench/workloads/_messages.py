"""Recorded chat messages in the form that an API takes: changed only where it would refuse them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]

# English and code come to about four characters a token with OpenAI's tokenizers; the embedded provider counts so.
CHARACTERS_PER_TOKEN = 4

_KEYS = {
    "system": ("role", "content", "name"),
    "developer": ("role", "content", "name"),
    "user": ("role", "content", "name"),
    "assistant": ("role", "content", "name", "refusal", "tool_calls"),
    "tool": ("role", "content", "tool_call_id"),
}


class UnusableMessageError(ValueError):
    """A message that cannot be replayed: the text says which one, what was expected and what came."""


def sendable(messages: Sequence[object], changes: Counter[str]) -> tuple[Message, ...]:
    """Return the messages as an API takes them, and count in `changes` what had to be changed.

    Raises UnusableMessageError for what an API would refuse.
    """
    return tuple(_sendable(message, number, changes) for number, message in enumerate(messages, start=1))


def _sendable(message: object, number: int, changes: Counter[str]) -> Message:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(role, str) or role not in _KEYS:
        raise UnusableMessageError(
            f'message {number} is no chat message: expected an object with a "role" of {", ".join(_KEYS)}'
        )
    clean = {key: message[key] for key in _KEYS[role] if message.get(key) is not None}
    for key in message:
        if key not in _KEYS[role] and message[key] is not None:
            changes[f"left out {key!r} of {role} messages"] += 1
    if not clean.get("tool_calls"):
        clean.pop("tool_calls", None)
        # An assistant message may come without content only when it calls tools.
        if "content" not in clean:
            clean["content"] = ""
            changes[f"set missing content of {role} messages to an empty text"] += 1
    if not isinstance(clean.get("content", ""), str | list):
        raise UnusableMessageError(f"message {number} has content that is neither a text nor a list of parts")
    if not all(map(_is_call, clean.get("tool_calls", ()))):
        raise UnusableMessageError(
            f"message {number} has tool calls without an id, a name or a text of arguments: expected OpenAI's format"
        )
    if role == "tool" and "tool_call_id" not in clean:
        raise UnusableMessageError(f"message {number} is of a tool: expected the tool_call_id that it answers")
    return clean


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    return (
        isinstance(call, Mapping)
        and isinstance(function, Mapping)
        and all(isinstance(each, str) for each in (call.get("id"), function.get("name"), function.get("arguments")))
    )


def answer_characters(message: Message) -> int:
    """Characters of an assistant message that a model had to write: text, and names and arguments of tool calls."""
    calls = (call.get("function", {}) for call in message.get("tool_calls", ()))
    text = message.get("content")
    return (len(text) if isinstance(text, str) else len(json.dumps(text or ""))) + sum(
        len(str(call.get("name", ""))) + len(str(call.get("arguments", ""))) for call in calls
    )


def salted(messages: Sequence[Message], salt: str) -> list[Message]:
    """Return the messages with `salt` as the first line of the prompt: prompts with other salts share no prefix."""
    # Once: some are written when they are looked at.
    messages = tuple(messages)
    first = messages[0]
    if first["role"] in ("system", "developer") and isinstance(first["content"], str):
        return [{**first, "content": f"{salt}\n{first['content']}"}, *messages[1:]]
    return [{"role": "system", "content": salt}, *messages]


def salted_tools(tools: Sequence[Message], salt: str) -> list[Message]:
    """Return the tools with `salt` at the start of the first one's description: providers put tools before messages."""
    tools = tuple(tools)
    if not tools or not isinstance(tools[0].get("function"), Mapping):
        return list(tools)
    function = tools[0]["function"]
    described = {**function, "description": f"{salt} {function.get('description') or ''}".rstrip()}
    return [{**tools[0], "function": described}, *tools[1:]]
