"""Recorded conversations, and the requests that replaying them makes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..._exceptions import ConfigurationError
from ._messages import CHARACTERS_PER_TOKEN, Message, UnusableMessageError, answer_characters, sendable


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant turn of a conversation: the request that asks for it."""

    conversation: str
    number: int
    """1 for the conversation's first assistant turn."""
    messages: tuple[Message, ...]
    """The whole history before the turn."""
    tools: tuple[Message, ...]
    answer_tokens: int
    """Tokens of the recorded answer, at four characters a token; at least 2, so that there is a time per token."""
    least_answer_tokens: int | None = None
    """The fewest output tokens that this request is meant to get; None where it means none."""
    input_tokens: int | None = None
    """The input tokens that it is meant to have; None where nobody says."""
    arrival_s: float | None = None
    """When it arrived in the traffic that was recorded, in seconds from the first; None where nobody says."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One recorded conversation, in the form in which an API takes it."""

    name: str
    messages: tuple[Message, ...]
    tools: tuple[Message, ...] = ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every assistant turn that has something before it, in order."""
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
    """Conversations to replay. Raises ConfigurationError where none has an assistant turn to replay."""

    name: str
    conversations: tuple[Conversation, ...]
    notes: tuple[str, ...] = ()
    """What had to be changed so that an API takes the messages, one sentence each."""
    source: str = ""
    """Where it comes from: a document, a file, a paper."""
    caching_forbidden: bool = False
    """Whether all prompts are unique on purpose, so that nothing may be read from a provider's cache."""
    think_s: float | None = None
    """Pause between the turns of a user that goes with it; None where any will do."""

    def __post_init__(self) -> None:
        if not any(conversation.turns for conversation in self.conversations):
            raise ConfigurationError(
                f"workload {self.name!r} has no assistant message that follows another message, so there is nothing "
                "to replay: record whole conversations, answers included"
            )

    def limited(self, conversations: int | None) -> Workload:
        """Return the first `conversations` of the workload; None keeps all."""
        return self if conversations is None else replace(self, conversations=self.conversations[:conversations])


def read_workload(path: Path, tools_path: Path | None = None) -> Workload:
    """Read conversations, one JSON object with "messages" per line, "tools" optional.

    `tools_path` names a JSON list of tool definitions for every conversation that brings none of its own.
    Raises ConfigurationError, which names the line, for what cannot be replayed.
    """
    tools = _tools_of(_json(_text(tools_path), tools_path), str(tools_path)) if tools_path else ()
    changes: Counter[str] = Counter()
    conversations = tuple(_conversations(path, _text(path), tools, changes))
    if not conversations:
        raise ConfigurationError(f'{path} holds no conversation: expected one JSON object with "messages" per line')
    notes = tuple(f"{change} ({count} times)" for change, count in sorted(changes.items()))
    return Workload(name=path.name, conversations=conversations, notes=notes)


def _conversations(path: Path, text: str, tools: tuple[Message, ...], changes: Counter[str]) -> Iterator[Conversation]:
    # Not splitlines(): JSON strings may hold U+2028 and its like unescaped, which are no ends of lines in JSONL.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        row = _json(line, path, number)
        if not isinstance(row, dict) or "messages" not in row:
            raise ConfigurationError(
                f'{where}: expected an object with a list of chat messages under "messages", got {_described(row)}'
            )
        if not isinstance(row["messages"], list):
            raise ConfigurationError(
                f'{where}: "messages" is not a list of chat messages, but {_described(row["messages"])}'
            )
        if not row["messages"]:
            raise ConfigurationError(f'{where}: "messages" is empty')
        try:
            messages = sendable(row["messages"], changes)
        except UnusableMessageError as error:
            raise ConfigurationError(f"{where}: {error}") from error
        own_tools = _tools_of(row["tools"], where) if row.get("tools") else tools
        name = next((str(row[key]) for key in ("run", "id", "name") if row.get(key)), f"line {number}")
        yield Conversation(name=name, messages=messages, tools=own_tools)


def _tools_of(value: object, where: str) -> tuple[Message, ...]:
    if isinstance(value, Mapping) and isinstance(value.get("tools"), list):
        value = value["tools"]
    if not isinstance(value, Sequence) or not all(isinstance(each, dict) and "type" in each for each in value):
        raise ConfigurationError(
            f'{where}: expected tools as a list of objects such as {{"type": "function", "function": …}}, '
            f"got {_described(value)}"
        )
    return tuple(value)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _json(text: str, path: Path, first_line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # Its own words count lines from the text's beginning, which is in the middle of a JSONL file.
        where = f"{path}, line {first_line + error.lineno - 1}"
        raise ConfigurationError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}, line {first_line}: not valid JSON: {error}") from error


def _described(value: object) -> str:
    if isinstance(value, dict):
        return "an object with the keys " + (", ".join(map(repr, list(value)[:6])) or "(none)")
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r:.40}")
