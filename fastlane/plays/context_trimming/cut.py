"""Cut a conversation down once: what goes, in which order, and what is never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fastlane.records.plays import CutKind

from .parts import MessageRole, Piece, ToolCall, pieces_of, text_of, turns_of

Count = Callable[[Mapping[str, Any]], int]
"""Tokens of one message or input item."""

# A line in the place of a result has to save more than itself. So much that a line is never replaced by another.
_LEAST_SAVED_TOKENS = 16
# A later result that is much shorter may be an error, or a note that nothing has changed.
_LEAST_LENGTH_OF_LATER = 0.5
_REASONS: Mapping[CutKind, str] = {
    "repeated": "left out because it was asked for again later", "stubbed": "left out to save space",
}  # fmt: skip
_MAX_NAME_CHARACTERS = 64


class Counting(NamedTuple):
    """How a conversation's tokens are counted, to its end: another ratio would move its cuts."""

    count: Count
    overhead: int
    """Tokens of what is sent beside the messages: instructions, tools."""
    ratio: float | None = None
    """The factor of the estimates; None where tokens are counted exactly."""


class Marks(NamedTuple):
    """How far a conversation grows and is cut, and what is left of it in any case."""

    high: int
    """Tokens above which it is cut."""
    low: int
    """Tokens to which it is cut."""
    keep_turns: int
    """The last turns, which are not touched."""
    drop_repeated: bool
    """Whether results that a later call has got again go first."""


class Change(NamedTuple):
    """What is sent in the place of one message."""

    kind: CutKind
    text: str | None
    """The line that stands for its text; None where the message is left out."""
    tokens: int
    """Tokens saved."""
    point: int
    """How many messages there were when it was cut."""


class CutPlan:
    """One cut of the messages that there are; `changes` and `total` are the outcome."""

    def __init__(
        self,
        messages: Sequence[Mapping[str, Any]],
        parts: Sequence[MessageRole],
        sizes: Sequence[int],
        stable: frozenset[int],
        changes: Mapping[int, Change],
        total: int,
        marks: Marks,
        count: Count,
    ) -> None:
        self.changes = dict(changes)
        self.total = total
        self._messages = messages
        self._parts = parts
        self._sizes = sizes
        self._stable = stable
        self._marks = marks
        self._count = count
        self._results: dict[int, ToolCall | None] = {}
        """The results of tools that are still as they came, with their calls."""
        calls: dict[str, ToolCall] = {}
        for index, part in enumerate(parts):
            calls.update((call.call_id, call) for call in part.calls)
            if part.text_field is not None and index not in changes and index not in stable:
                self._results[index] = calls.get(part.result_of or "")

    def run(self) -> CutPlan:
        """Cut down to the low-water mark, or as far as that goes."""
        marks, pieces = self._marks, pieces_of(self._parts)
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
        """Put lines in the place of results: of all that are repeated, and of the oldest until it is enough."""
        within = {index for piece in pieces for index in range(piece.start, piece.end)}
        results = [index for index in self._results if index in within]
        if self._marks.drop_repeated:
            repeated = self._repeated()
            for index in results:
                if index in repeated:
                    self._shorten(index, "repeated")
        for index in results:
            if self.total > self._marks.low:
                self._shorten(index, "stubbed")

    def _repeated(self) -> set[int]:
        """Return the results for which the same tool was called again later, with the same arguments."""
        found: set[int] = set()
        latest: dict[tuple[str, str], str] = {}
        for index, call in reversed(self._results.items()):
            text = self._messages[index].get(self._parts[index].text_field or "")
            # Without arguments it depends on when it is asked, as "the next page" does.
            if call is None or call.arguments in ("", "{}") or not isinstance(text, str):
                continue
            later = latest.setdefault((call.name, call.arguments), text)
            if later is not text and len(later) >= _LEAST_LENGTH_OF_LATER * len(text):
                found.add(index)
        return found

    def _shorten(self, index: int, kind: CutKind) -> None:
        field, call = self._parts[index].text_field, self._results[index]
        if index in self.changes or field is None:
            return
        message = self._messages[index]
        text = text_of(message.get(field))
        name = (call.name if call is not None else "tool")[:_MAX_NAME_CHARACTERS]
        lines = text.count("\n") + 1 if text else 0
        line = f"[{name}: {lines} lines, {len(text)} characters, {_REASONS[kind]}]"
        saved = self._sizes[index] - self._count({**message, field: line})
        if saved >= _LEAST_SAVED_TOKENS:
            self.changes[index] = Change(kind, line, saved, len(self._messages))
            self.total -= saved

    def _drop(self, groups: Iterable[list[Piece]]) -> None:
        for group in groups:
            if self.total <= self._marks.low:
                return
            for piece in group:
                self._leave_out(piece)

    def _leave_out(self, piece: Piece) -> None:
        indexes = range(piece.start, piece.end)
        if piece.kind in ("other", "waiting") or any(
            i in self._stable or self._parts[i].kind == "other" for i in indexes
        ):
            return
        for index in indexes:
            before = self.changes.get(index)
            if self._parts[index].kind == "system" or (before is not None and before.text is None):
                continue
            self.total -= self._sizes[index] - (before.tokens if before is not None else 0)
            self.changes[index] = Change("turn", None, self._sizes[index], len(self._messages))

    def _has_question(self, piece: Piece) -> bool:
        return any(self._parts[index].kind == "user" for index in range(piece.start, piece.end))
