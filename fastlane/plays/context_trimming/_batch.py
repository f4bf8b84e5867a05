"""Cut a conversation down once: what goes, in which order, and what is never touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastlane.records.prompt import CutKind

from ._parts import Part, Piece, ToolCall, attachments_of, pieces_of, text_of, turns_of
from ._redundant import Output, Redundant, redundant
from ._stub import DUPLICATE, STUBBED, SUPERSEDED, stub

Count = Callable[[Mapping[str, Any]], int]
"""Tokens of one message or input item."""


class Counting(NamedTuple):
    """What a conversation's tokens are counted with, to its end: another ratio would move its cuts."""

    count: Count
    overhead: int
    """Tokens of what is sent beside the messages: instructions, tools."""
    ratio: float | None = None
    """By what estimates are multiplied; None where nothing is estimated."""


# A line in the place of an output has to save more than itself, or it is worth nothing to replace it. So much that a
# line is never replaced by another.
_LEAST_SAVED_TOKENS = 16
# Of texts of the user's only long ones are looked at, and only exact copies go.
_LONG_TEXT = 1_000
_REASONS: Mapping[CutKind, str] = {"superseded": SUPERSEDED, "duplicate": DUPLICATE, "stubbed": STUBBED}


class Marks(NamedTuple):
    """How far a conversation grows and is cut, and what is left of it in any case."""

    high: int
    """Tokens above which it is cut."""
    low: int
    """Tokens to which it is cut."""
    keep_turns: int
    """The last turns, which are not touched."""
    template: str
    """What stands in the place of an output: see `STUB`."""


class Change(NamedTuple):
    """What is sent in the place of one message."""

    kind: CutKind
    text: str | None
    """The line that stands for its text; None where the message is left out."""
    tokens: int
    """Tokens saved."""
    point: int
    """How many messages there were when it was cut."""


class Batch:
    """One cut of the messages that there are; `changes` and `total` are what it comes to."""

    def __init__(
        self,
        messages: Sequence[Mapping[str, Any]],
        parts: Sequence[Part],
        sizes: Sequence[int],
        stable: frozenset[int],
        changes: Mapping[int, Change],
        total: int,
        marks: Marks,
        counting: Counting,
    ) -> None:
        self.changes = dict(changes)
        self.total = total
        self.dropped: list[int] = []
        """Messages that were left out with this batch, in order."""
        self._messages = messages
        self._sizes = sizes
        self._stable = stable
        self._marks = marks
        self._count = counting.count
        self._overhead = counting.overhead
        self._parts = parts
        self._pieces = pieces_of(self._parts)
        self._turns = turns_of(self._pieces)
        self._first_question = next((piece for piece in self._pieces if piece.kind == "user"), None)
        self._outputs = self._outputs_left()

    def run(self) -> Batch:
        """Cut down to the low-water mark, or as far as that goes."""
        kept_from = self._turns[-1] - self._marks.keep_turns + 1 if self._turns else 0
        old = [piece for piece, turn in zip(self._pieces, self._turns, strict=True) if turn < kept_from]
        # Where so many turns do not fit, their older steps go with this very cut, and not only once nothing else is
        # left: a cut that ends just below the high-water mark breaks the prefix, and the next turn breaks it again.
        steps = [] if self._turns_fit() else self._older_steps(old)
        found = redundant(list(self._outputs.values()), self._long_texts())
        # What is redundant is of no use to anybody, and goes even where less would do: the next batch comes later.
        self._leave_redundant([*old, *steps], found)
        self._shorten(old)
        self._drop(self._old_turns(old))
        self._shorten(steps)
        self._drop(iter([[step] for step in steps]))
        # The first question often says what all of it is about: it goes only where it has to.
        if self.total > self._marks.high and self._first_question in old:
            self._drop(iter([[self._first_question]]))
        self.dropped.sort()
        return self

    def _turns_fit(self) -> bool:
        """Whether at every time so far the last turns, as they were given, fitted with all else that has to stay.

        Turns of a conversation are much alike: where those before did not fit, these will not when they are complete.
        """
        stays = self._overhead
        of_turns: dict[int, int] = {}
        for piece, turn in zip(self._pieces, self._turns, strict=True):
            may_go = self._may_go(piece)
            for index in range(piece.start, piece.end):
                if may_go and self._parts[index].kind != "system":
                    of_turns[turn] = of_turns.get(turn, 0) + self._sizes[index]
                else:
                    stays += self._sizes[index]
            last = sum(of_turns.get(turn - before, 0) for before in range(self._marks.keep_turns))
            if stays + last > self._marks.high:
                return False
        return True

    def _older_steps(self, old: Sequence[Piece]) -> list[Piece]:
        """The steps of the last turns that are not the last steps; questions are none."""
        steps = [piece for piece in self._pieces if piece.kind == "answer"][: -self._marks.keep_turns]
        before = set(old)
        return [piece for piece in steps if piece not in before and not self._has_question(piece)]

    @property
    def unanswered(self) -> frozenset[str]:
        """Calls that were left out with this batch and have no result yet."""
        waiting: set[str] = set()
        for index in self.dropped:
            part = self._parts[index]
            waiting |= {call.call_id for call in part.calls}
            waiting.discard(part.result_of or "")
        return frozenset(waiting)

    def _leave_redundant(self, pieces: Sequence[Piece], found: Sequence[Redundant]) -> None:
        within = self._within(pieces)
        for index, kind in found:
            if index in within:
                self._replace(index, kind)

    def _shorten(self, pieces: Sequence[Piece]) -> None:
        within = self._within(pieces)
        for index in self._outputs:
            if self.total <= self._marks.low:
                return
            if index in within:
                self._replace(index, "stubbed")

    def _within(self, pieces: Sequence[Piece]) -> set[int]:
        return {index for piece in pieces for index in range(piece.start, piece.end)} - self._stable

    def _replace(self, index: int, kind: CutKind) -> None:
        if index in self.changes:
            return
        part = self._parts[index]
        name = part.text_field or "content"
        call = self._outputs[index].call if index in self._outputs else ToolCall("", "message", "")
        text = stub(self._marks.template, call, self._messages[index].get(name), _REASONS[kind])
        saved = self._sizes[index] - self._count({**self._messages[index], name: text})
        if saved >= _LEAST_SAVED_TOKENS:
            self.changes[index] = Change(kind, text, saved, len(self._messages))
            self.total -= saved

    def _old_turns(self, old: Sequence[Piece]) -> Iterator[list[Piece]]:
        """What of old turns goes at once: the steps of a turn, one by one, then its question and its last step."""
        turn_of = dict(zip(self._pieces, self._turns, strict=True))
        turns: dict[int, list[Piece]] = {}
        for piece in old:
            turns.setdefault(turn_of[piece], []).append(piece)
        for pieces in turns.values():
            steps = [piece for piece in pieces if piece.kind == "answer"]
            yield from ([step] for step in steps[:-1])
            questions = [piece for piece in pieces if piece.kind == "user" and piece != self._first_question]
            yield questions + steps[-1:]

    def _drop(self, groups: Iterator[list[Piece]]) -> None:
        for group in groups:
            if self.total <= self._marks.low:
                return
            for piece in group:
                self._leave_out(piece)

    def _leave_out(self, piece: Piece) -> None:
        if not self._may_go(piece):
            return
        for index in range(piece.start, piece.end):
            before = self.changes.get(index)
            if self._parts[index].kind == "system" or (before is not None and before.text is None):
                continue
            size = self._sizes[index]
            self.total -= size - (before.tokens if before is not None else 0)
            self.changes[index] = Change("turn", None, size, len(self._messages))
            self.dropped.append(index)

    def _may_go(self, piece: Piece) -> bool:
        indexes = range(piece.start, piece.end)
        return not any(index in self._stable or self._parts[index].kind == "other" for index in indexes)

    def _has_question(self, piece: Piece) -> bool:
        return any(self._parts[index].kind == "user" for index in range(piece.start, piece.end))

    def _outputs_left(self) -> dict[int, Output]:
        """The outputs of tools that are still as they came."""
        calls: dict[str, ToolCall] = {}
        found: dict[int, Output] = {}
        for index, part in enumerate(self._parts):
            for call in part.calls:
                calls[call.call_id] = call
            if part.text_field is not None and index not in self.changes and index not in self._stable:
                output = self._messages[index].get(part.text_field)
                # Of two pictures nobody here can say whether they are the same.
                text = "" if attachments_of(output) else text_of(output)
                found[index] = Output(index, calls.get(part.result_of or ""), text)
        return found

    def _long_texts(self) -> dict[int, str]:
        found = {}
        for index, part in enumerate(self._parts):
            if part.kind == "user" and index not in self.changes:
                text = self._messages[index].get("content")
                if isinstance(text, str) and len(text) >= _LONG_TEXT:
                    found[index] = text
        return found
