"""Put the events of a legacy completion together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._chat_choice import reason_after
from ._cut import Cut, tokens_within
from ._deltas import Channel, Delta
from ._heads import Head
from ._merge import as_position, merge_delta, own, replace_fields

_OF_CHOICE = frozenset(("finish_reason", "index", "logprobs", "text"))


class _Choice:
    __slots__ = ("extra", "finish_reason", "logprobs", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.extra: dict[str, Any] = {}
        self.logprobs: dict[str, Any] | None = None
        self.finish_reason: Any = None


class CompletionsAssembly:
    """A legacy completion; an `Assembly`."""

    __slots__ = ("_choices", "_expected", "_head", "error")

    def __init__(self, choices: int = 1) -> None:
        self._expected = choices
        self._head = Head("text_completion")
        self._choices: dict[int, _Choice] = {}
        self.error: Mapping[str, Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason, and no error has ended it."""
        if self.error is not None:
            return False
        choices = self._choices.values()
        return len(choices) >= self._expected and all(choice.finish_reason is not None for choice in choices)

    def take(self, event: Mapping[str, Any]) -> Sequence[Delta]:
        """Add one event."""
        if not isinstance(event, Mapping):
            return ()
        self.error = self._head.take(event) or self.error
        found = event.get("choices")
        if not isinstance(found, list | tuple):
            return ()
        deltas = []
        for piece in found:
            if not isinstance(piece, Mapping):
                continue
            index = as_position(piece.get("index"))
            choice = self._choices.get(index)
            if choice is None:
                choice = self._choices[index] = _Choice()
            text, reason, logprobs = piece.get("text"), piece.get("finish_reason"), piece.get("logprobs")
            if isinstance(text, str) and text:
                choice.pieces.append(text)
                deltas.append(Delta((index,), "content", text))
            if reason:
                choice.finish_reason = reason
            if isinstance(logprobs, Mapping):
                choice.logprobs = choice.logprobs or {}
                merge_delta(choice.logprobs, logprobs)
            replace_fields(choice.extra, piece, _OF_CHOICE, lists_go_on=True)
        return deltas

    def text(self, channel: Channel) -> str:
        """Return the text of a choice."""
        choice = self._choices.get(channel[0]) if len(channel) == 1 else None
        return "" if choice is None else "".join(choice.pieces)

    def body(self, cut: Cut | None = None) -> dict[str, Any]:
        """Return the completion."""
        return self._head.body([self._choice(index, cut) for index in sorted(self._choices)], cut)

    def _choice(self, index: int, cut: Cut | None) -> dict[str, Any]:
        choice = self._choices[index]
        text, logprobs = "".join(choice.pieces), own(choice.logprobs)
        if cut is not None and cut.concerns((index,)):
            start, end = cut.span((index,), len(text))
            if logprobs is not None and isinstance(logprobs.get("tokens"), list):
                within = tokens_within(logprobs["tokens"], text, start, end)
                logprobs = {
                    name: values[within] if isinstance(values, list) else values for name, values in logprobs.items()
                }
            text = text[start:end]
        return {
            **own(choice.extra),
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": reason_after(cut, choice.finish_reason, called=None, index=index),
        }
