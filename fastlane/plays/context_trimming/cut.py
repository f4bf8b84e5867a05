"""Cut a conversation down once: what goes, in which order, and what is never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastlane.records.plays import CutKind

from .parts import MessageRole, Piece, pieces_of, text_of, turns_of

Count = Callable[[Mapping[str, Any]], int]
"""Tokens of one message or input item."""

# A line in the place of a result has to save more than itself. So much that a line is never replaced by another.
_LEAST_SAVED_TOKENS = 16
_MAX_NAME_CHARACTERS = 64


class Counting(NamedTuple):
    """How a conversation's tokens are counted, to its end: another way would move its cuts."""

    count: Count
    overhead: int
    """Tokens of what is sent beside the messages: instructions, tools."""


class Marks(NamedTuple):
    """How far a conversation grows and is cut, and what is left of it in any case."""

    high: int
    """Tokens above which it is cut."""
    low: int
    """Tokens to which it is cut."""
    keep_turns: int
    """The last turns, which are not touched."""


class Change(NamedTuple):
    """What is sent in the place of one message."""

    kind: CutKind
    text: str | None
    """The line that stands for its text; None if the message is left out."""
    tokens: int
    """Tokens saved."""
    point: int
    """How many messages there were when it was cut."""


@dataclass(slots=True)
class CutPlan:
    """One cut of the messages that there are; `changes` and `total` are the outcome."""

    messages: Sequence[Mapping[str, Any]]
    roles: Sequence[MessageRole]
    sizes: Sequence[int]
    stable: frozenset[int]
    changes: dict[int, Change]
    total: int
    marks: Marks
    count: Count

    def run(self) -> CutPlan:
        """Cut down to the low-water mark, or as far as that goes."""
        marks, pieces = self.marks, pieces_of(self.roles)
        turns = turns_of(pieces)
        first_old = turns[-1] - marks.keep_turns + 1 if turns else 0
        old: dict[int, list[Piece]] = {}
        for piece, turn in zip(pieces, turns, strict=True):
            if turn < first_old:
                old.setdefault(turn, []).append(piece)
        first_question = next((piece for piece in pieces if piece.kind == "user"), None)
        self._shorten_results([piece for turn in old.values() for piece in turn])
        for turn_pieces in old.values():
            # The steps of a turn, one by one, then its question and its last step.
            steps = [piece for piece in turn_pieces if piece.kind == "answer"]
            questions = [piece for piece in turn_pieces if piece.kind == "user" and piece != first_question]
            self._drop([*([step] for step in steps[:-1]), questions + steps[-1:]])
        # The last turns take so much that the next cut would be right behind this one: their older steps go as well.
        if self.total > (marks.low + marks.high) // 2:
            steps = [piece for piece in pieces if piece.kind in ("answer", "waiting")][: -marks.keep_turns]
            steps = [piece for piece in steps if not self._has_question(piece)]
            self._shorten_results(steps)
            self._drop([step] for step in steps)
        # The first question often says what all of it is about: it goes only where it has to.
        is_old = any(first_question in turn_pieces for turn_pieces in old.values())
        if self.total > marks.high and first_question is not None and is_old:
            self._drop([[first_question]])
        return self

    def _shorten_results(self, pieces: Iterable[Piece]) -> None:
        """Put lines in the place of results, of the oldest until it is enough."""
        within = {index for piece in pieces for index in range(piece.start, piece.end)}
        tools = {call.call_id: call.name for role in self.roles for call in role.calls}
        for index, role in enumerate(self.roles):
            if self.total <= self.marks.low:
                return
            if index in within and index not in self.stable and index not in self.changes and role.text_field:
                self._shorten(index, role.text_field, tools.get(role.result_of or "", "tool"))

    def _shorten(self, index: int, field: str, tool: str) -> None:
        message = self.messages[index]
        text = text_of(message.get(field))
        lines = text.count("\n") + 1 if text else 0
        line = f"[{tool[:_MAX_NAME_CHARACTERS]}: {lines} lines, {len(text)} characters, left out to save space]"
        saved = self.sizes[index] - self.count({**message, field: line})
        if saved >= _LEAST_SAVED_TOKENS:
            self.changes[index] = Change("stubbed", line, saved, len(self.messages))
            self.total -= saved

    def _drop(self, groups: Iterable[list[Piece]]) -> None:
        for group in groups:
            if self.total <= self.marks.low:
                return
            for piece in group:
                self._leave_out(piece)

    def _leave_out(self, piece: Piece) -> None:
        indexes = range(piece.start, piece.end)
        if piece.kind in ("other", "waiting") or any(
            i in self.stable or self.roles[i].kind == "other" for i in indexes
        ):
            return
        for index in indexes:
            before = self.changes.get(index)
            if self.roles[index].kind == "system" or (before is not None and before.text is None):
                continue
            self.total -= self.sizes[index] - (before.tokens if before is not None else 0)
            self.changes[index] = Change("turn", None, self.sizes[index], len(self.messages))

    def _has_question(self, piece: Piece) -> bool:
        return any(self.roles[index].kind == "user" for index in range(piece.start, piece.end))
