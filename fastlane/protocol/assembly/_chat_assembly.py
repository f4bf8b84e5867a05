"""Put the chunks of a chat completion together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._chat_choice import ChatChoice
from ._cut import Cut
from ._deltas import Channel, Delta
from ._heads import Head
from ._merge import as_position


class ChatAssembly:
    """A chat completion; an `Assembly`."""

    __slots__ = ("_choices", "_expected", "_head", "_unfinished", "error")

    def __init__(self, choices: int = 1) -> None:
        self._expected = choices
        self._head = Head("chat.completion")
        self._choices: dict[int, ChatChoice] = {}
        self._unfinished = 0
        self.error: Mapping[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason, and no error has ended it."""
        return len(self._choices) >= self._expected and not self._unfinished and self.error is None

    def take(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        """Add one chunk."""
        if not isinstance(event, Mapping):
            return ()
        self.error = self._head.take(event) or self.error
        found = event.get("choices")
        if not isinstance(found, list | tuple):
            return ()
        deltas: list[Delta] = []
        for piece in found:
            if isinstance(piece, Mapping):
                index = as_position(piece.get("index"))
                choice = self._choices.get(index)
                if choice is None:
                    choice = self._choices[index] = ChatChoice(index)
                    self._unfinished += 1
                was_finished = choice.finish_reason is not None
                choice.take(piece, deltas)
                if not was_finished and choice.finish_reason is not None:
                    self._unfinished -= 1
        return deltas

    def text(self, channel: Channel) -> str:
        """Return the content of a choice, its refusal where there is no content, or the arguments of a tool call."""
        choice = self._choices.get(channel[0]) if channel else None
        return "" if choice is None else choice.text(channel)

    def body(self, cut: Cut | None = None) -> dict[str, Any]:
        """Return the completion."""
        choices = [self._choices[index].body(cut) for index in sorted(self._choices)]
        return self._head.body(choices, cut)
