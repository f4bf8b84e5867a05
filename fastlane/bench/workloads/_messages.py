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
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
"""Names that other recorders use for the roles."""


class UnusableMessageError(ValueError):
    """A message that cannot be replayed: the text says which one, what was expected and what came."""


def sendable(messages: Sequence[object], changes: Counter[str]) -> tuple[Message, ...]:
    """Return the messages as an API takes them, and count in `changes` what had to be changed.

    Raises UnusableMessageError for what is no chat message at all.
    """
    cleaned: list[Message] = []
    unanswered: list[str] = []
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise UnusableMessageError(f'message {number} is no chat message: expected an object with a "role"')
        role = _ROLES.get(message["role"], message["role"])
        if role not in _KEYS:
            raise UnusableMessageError(f"message {number} has the role {role!r}: expected one of {', '.join(_KEYS)}")
        clean = {key: message[key] for key in _KEYS[role] if message.get(key) is not None}
        clean["role"] = role
        for key in message:
            if key not in _KEYS[role] and message[key] is not None:
                changes[f"left out {key!r} of {role} messages"] += 1
        _give_content(clean, number, changes)
        if role == "assistant":
            unanswered = _give_tool_calls(clean, number, changes)
        elif role == "tool":
            _give_tool_call_id(clean, unanswered, changes)
        cleaned.append(clean)
    return tuple(cleaned)


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


def _give_content(clean: dict[str, Any], number: int, changes: Counter[str]) -> None:
    content = clean.get("content")
    if content is None:
        # An assistant message may come without content only when it calls tools.
        if not clean.get("tool_calls"):
            clean["content"] = ""
            changes[f"set missing content of {clean['role']} messages to an empty text"] += 1
    elif not isinstance(content, str | list):
        if not isinstance(content, Mapping | int | float):
            raise UnusableMessageError(f"message {number} has content of type {type(content).__name__}: expected text")
        clean["content"] = json.dumps(content, ensure_ascii=False)
        changes[f"wrote structured content of {clean['role']} messages as JSON text"] += 1


def _give_tool_calls(clean: dict[str, Any], number: int, changes: Counter[str]) -> list[str]:
    if "tool_calls" not in clean:
        return []
    calls = clean["tool_calls"]
    if not isinstance(calls, list) or not all(
        isinstance(call, Mapping) and isinstance(call.get("function"), Mapping) for call in calls
    ):
        raise UnusableMessageError(f'message {number} has tool calls without a "function": expected OpenAI\'s format')
    if not calls:
        del clean["tool_calls"]
        clean.setdefault("content", "")
        changes["left out empty lists of tool calls"] += 1
        return []
    clean["tool_calls"] = [_tool_call(call, f"call_{number}_{at}", changes) for at, call in enumerate(calls)]
    return [call["id"] for call in clean["tool_calls"]]


def _tool_call(call: Mapping[str, Any], spare_id: str, changes: Counter[str]) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
        changes["wrote arguments of tool calls as JSON text"] += 1
    if not call.get("id"):
        changes["gave tool calls an id"] += 1
    return {
        "id": str(call.get("id") or spare_id),
        "type": "function",
        "function": {"name": str(function.get("name", "")), "arguments": arguments},
    }


def _give_tool_call_id(clean: dict[str, Any], unanswered: list[str], changes: Counter[str]) -> None:
    if "tool_call_id" in clean:
        if clean["tool_call_id"] in unanswered:
            unanswered.remove(clean["tool_call_id"])
    elif unanswered:
        clean["tool_call_id"] = unanswered.pop(0)
        changes["gave tool messages the id of the call that they follow"] += 1
    else:
        # The answer to no call at all: an API takes its text only as the user's.
        clean["role"] = "user"
        changes["sent tool messages that answer no call as user messages"] += 1
