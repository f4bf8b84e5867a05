"""Recorded conversations, and the requests that replaying them makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar, overload

from fastlane.errors import ConfigurationError

from ._messages import CHARACTERS_PER_TOKEN, Message, answer_characters

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant turn of a conversation: the request that asks for it."""

    conversation: str
    number: int
    """1 for the conversation's first assistant turn."""
    messages: Sequence[Message]
    """The whole history before the turn: a tuple, or a sequence that writes its text when it is looked at."""
    tools: Sequence[Message]
    answer_tokens: int
    """Tokens of the recorded answer, at four characters a token; at least 2, so that there is a time per token."""
    least_answer_tokens: int | None = None
    """The fewest output tokens that this request is meant to get; None where it means none."""
    input_tokens: int | None = None
    """The input tokens that it is meant to have; None where nobody says."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body."""


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
        """Every assistant turn that has something before it, in order."""
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


@dataclass(frozen=True, slots=True)
class Made(Sequence[T]):
    """Conversations, or messages, that are made each time they are looked at, each of one item.

    Thousands of them cost nothing until then. Pickles as its items and `make`.
    """

    items: Sequence[Any]
    make: Callable[[Any], T]

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Made[T]: ...
    def __getitem__(self, at: int | slice) -> T | Made[T]:
        if isinstance(at, slice):
            return Made(self.items[at], self.make)
        return self.make(self.items[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Conversations to replay. Raises ConfigurationError where none has an assistant turn to replay."""

    name: str
    conversations: Sequence[Conversation]
    """A tuple, or a sequence that makes each one when it is asked for: index it, and keep what is needed."""
    notes: tuple[str, ...] = ()
    """What had to be changed so that an API takes the messages, one sentence each."""
    source: str = ""
    """Where it comes from: a document, a file, a paper."""
    caching_forbidden: bool = False
    """Whether all prompts are unique on purpose, so that nothing may be read from a provider's cache."""
    shares_prefixes: bool = False
    """Whether prompts of different conversations begin alike on purpose: what is put before an arm's prompts must then
    be the same for all conversations."""
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

    def fitting(self, max_input_tokens: int | None) -> Workload:
        """Return the workload without turns that have a longer prompt, and what follows them; None keeps all.

        Raises ConfigurationError where no turn is left.
        """
        if max_input_tokens is None:
            return self
        shorter = partial(_shorter, max_input_tokens)
        conversations = self.conversations
        if isinstance(conversations, tuple):
            kept: Sequence[Conversation] = tuple(one for each in conversations if (one := shorter(each)).turns)
        else:
            kept = Made(conversations, shorter)
        if not kept or not kept[0].turns:
            raise ConfigurationError(
                f"no turn of workload {self.name!r} has a prompt of at most {max_input_tokens:,} tokens: allow more, "
                "or take another workload"
            )
        return replace(self, conversations=kept)


def _shorter(max_input_tokens: int, conversation: Conversation) -> Conversation:
    turns = tuple(takewhile(lambda turn: _input_tokens(turn) <= max_input_tokens, conversation.turns))
    return replace(conversation, made=turns)


def _input_tokens(turn: Turn) -> int:
    if turn.input_tokens is not None:
        return turn.input_tokens
    return len(json.dumps([*turn.messages, *turn.tools], ensure_ascii=False)) // CHARACTERS_PER_TOKEN
