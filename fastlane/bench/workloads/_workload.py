"""Recorded conversations, and the requests that replaying them makes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from ...errors import ConfigurationError

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
    """Return the messages as an API takes them, count what was changed in `changes`, or raise UnusableMessageError."""
    return tuple(_sendable(message, number, changes) for number, message in enumerate(messages, start=1))


def _sendable(message: object, number: int, changes: Counter[str]) -> Message:
    if not isinstance(message, Mapping) or str(message.get("role")) not in _KEYS:
        wanted = f'an object with a "role" of {", ".join(_KEYS)}'
        raise UnusableMessageError(f"message {number} is no chat message: expected {wanted}")
    role = str(message["role"])
    given = {key: value for key, value in message.items() if value is not None}
    clean = {key: given[key] for key in _KEYS[role] if key in given}
    changes.update(f"left out {key!r} of {role} messages" for key in given if key not in _KEYS[role])
    if not clean.get("tool_calls"):
        clean.pop("tool_calls", None)
        # An assistant message may come without content only when it calls tools.
        if "content" not in clean:
            clean["content"] = ""
            changes[f"set missing content of {role} messages to an empty text"] += 1
    if not isinstance(clean.get("content", ""), str | list):
        raise UnusableMessageError(f"message {number} has content that is neither a text nor a list of parts")
    if not all(map(_is_call, clean.get("tool_calls", ()))):
        raise UnusableMessageError(f"message {number} has tool calls that are not in OpenAI's format")
    if role == "tool" and "tool_call_id" not in clean:
        raise UnusableMessageError(f"message {number} is of a tool: expected the tool_call_id that it answers")
    return clean


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return False
    return all(isinstance(each, str) for each in (call.get("id"), function.get("name"), function.get("arguments")))


def answer_characters(message: Message) -> int:
    """Characters of an assistant message that a model had to write: text, and names and arguments of tool calls."""
    calls = [call.get("function", {}) for call in message.get("tool_calls", ())]
    text = message.get("content")
    texts = [call.get(name, "") for call in calls for name in ("name", "arguments")]
    return sum(map(len, map(str, [text if isinstance(text, str) else json.dumps(text or ""), *texts])))


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


@dataclass(frozen=True, slots=True)
class LatePrompt(Sequence[Message]):
    """One message of the user, whose text is written each time it is looked at: thousands cost nothing until then."""

    write: Callable[..., str]
    arguments: tuple[Any, ...]

    def __len__(self) -> int:
        return 1

    def __getitem__(self, at: Any) -> Any:
        return ({"role": "user", "content": self.write(*self.arguments)},)[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant turn of a conversation: the request that asks for it."""

    conversation: str
    number: int
    """1 for the conversation's first assistant turn."""
    messages: Sequence[Message]
    tools: Sequence[Message]
    answer_tokens: int
    """Tokens of the recorded answer; at least 2, so that there is a time per token."""
    least_answer_tokens: int | None = None
    input_tokens: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded conversation, in the form in which an API takes it."""

    name: str
    messages: tuple[Message, ...] = ()
    tools: tuple[Message, ...] = ()
    made: tuple[Turn, ...] | None = field(default=None, repr=False)
    """Its turns where there is no recorded text: cheap, because their messages are written when looked at."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        if self.made is not None:
            return self.made
        at = [index for index, message in enumerate(self.messages) if index and message["role"] == "assistant"]
        return tuple(
            Turn(
                conversation=self.name,
                number=number,
                messages=self.messages[:index],
                tools=self.tools,
                answer_tokens=max(2, -(-answer_characters(self.messages[index]) // CHARACTERS_PER_TOKEN)),
            )
            for number, index in enumerate(at, start=1)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Conversations to replay. Raises ConfigurationError if none has an assistant turn to replay."""

    name: str
    conversations: tuple[Conversation, ...]
    """Those that have an assistant turn; the others are left out."""
    notes: tuple[str, ...] = ()
    """What had to be changed so that an API takes the messages, one sentence each."""
    source: str = ""
    caching_forbidden: bool = False
    """Whether all prompts are unique on purpose, so that nothing may be read from a provider's cache."""
    think_s: float | None = None
    """Pause between the turns of a user that goes with it; None if any will do."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "conversations", tuple(each for each in self.conversations if each.turns))
        if not self.conversations:
            said = f"workload {self.name!r} has no assistant message that follows another message"
            raise ConfigurationError(f"{said}: there is nothing to replay. Record whole conversations")

    def limited(self, conversations: int | None) -> Workload:
        """Return the first `conversations` of the workload; None keeps all."""
        return self if conversations is None else replace(self, conversations=self.conversations[:conversations])

    def fitting(self, max_input_tokens: int | None) -> Workload:
        """Return the workload up to each turn with a longer prompt. Raises ConfigurationError if nothing is left."""
        if max_input_tokens is None:
            return self

        def fits(turn: Turn) -> bool:
            text = json.dumps([*turn.messages, *turn.tools], ensure_ascii=False) if turn.input_tokens is None else ""
            return (turn.input_tokens or len(text) // CHARACTERS_PER_TOKEN) <= max_input_tokens

        kept = [replace(each, made=tuple(takewhile(fits, each.turns))) for each in self.conversations]
        if not any(each.turns for each in kept):
            said = f"no turn of workload {self.name!r} has a prompt of at most {max_input_tokens:,} tokens"
            raise ConfigurationError(f"{said}: allow more, or take another workload")
        return replace(self, conversations=tuple(kept))
