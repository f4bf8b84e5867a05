"""Cut a conversation down once: what goes, in which order, and what is never touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fastlane.records.prompt import CutKind

from .parts import MessageRole, Piece, ToolCall, attachments_of, pieces_of, text_of, turns_of

Count = Callable[[Mapping[str, Any]], int]
"""Tokens of one message or input item."""

# A line in the place of a result has to save more than itself. So much that a line is never replaced by another.
_LEAST_SAVED_TOKENS = 16
# A later result that is much shorter may be an error, or a note that nothing has changed.
_LEAST_LENGTH_OF_LATER = 0.5
_REASONS: Mapping[CutKind, str] = {
    "repeated": "left out because it was asked for again later", "stubbed": "left out to save space",
}  # fmt: skip
_LONGEST_VALUE = 40
_LONGEST_ARGUMENTS = 120
_LONGEST_NAME = 64


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
        counting: Counting,
    ) -> None:
        self.changes = dict(changes)
        self.total = total
        self.dropped: list[int] = []
        """Messages that were left out with this batch."""
        self._messages = messages
        self._parts = parts
        self._sizes = sizes
        self._stable = stable
        self._marks = marks
        self._counting = counting
        self._pieces = pieces_of(parts)
        self._turns = turns_of(self._pieces)
        self._first_question = next((piece for piece in self._pieces if piece.kind == "user"), None)
        self._results: dict[int, ToolCall | None] = {}
        """The results of tools that are still as they came, with their calls."""
        calls: dict[str, ToolCall] = {}
        for index, part in enumerate(parts):
            calls.update((call.call_id, call) for call in part.calls)
            if part.text_field is not None and index not in changes and index not in stable:
                self._results[index] = calls.get(part.result_of or "")

    def run(self) -> CutPlan:
        """Cut down to the low-water mark, or as far as that goes."""
        kept_from = self._turns[-1] - self._marks.keep_turns + 1 if self._turns else 0
        old = [piece for piece, turn in zip(self._pieces, self._turns, strict=True) if turn < kept_from]
        # Where so many turns do not fit, their older steps go with this very cut, and not only once nothing else is
        # left: a cut that ends just below the high-water mark breaks the prefix, and the next turn breaks it again.
        steps = [] if self._turns_fit() else self._older_steps(old)
        if self._marks.drop_repeated:
            within = _indexes([*old, *steps])
            for index in self._repeated():
                if index in within:
                    self._shorten(index, "repeated")
        self._shorten_results(old)
        self._drop(self._old_turns(old))
        self._shorten_results(steps)
        self._drop([step] for step in steps)
        # The first question often says what all of it is about: it goes only where it has to.
        if self.total > self._marks.high and self._first_question in old:
            self._drop([[self._first_question]])
        return self

    @property
    def unanswered(self) -> frozenset[str]:
        """Calls that were left out with this batch and have no result yet."""
        waiting: set[str] = set()
        for index in sorted(self.dropped):
            waiting |= {call.call_id for call in self._parts[index].calls}
            waiting.discard(self._parts[index].result_of or "")
        return frozenset(waiting)

    def _turns_fit(self) -> bool:
        """Whether at every time so far the last turns, as they were given, fitted with all else that has to stay.

        Turns of a conversation are much alike: where those before did not fit, these will not when they are complete.
        """
        stays = self._counting.overhead
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
        """The steps of the last turns that are not the last steps, and hold no question."""
        steps = [piece for piece in self._pieces if piece.kind == "answer"][: -self._marks.keep_turns]
        before = set(old)
        return [piece for piece in steps if piece not in before and not self._has_question(piece)]

    def _repeated(self) -> list[int]:
        """Results for which the same tool was called again later, with the same arguments."""
        found: list[int] = []
        latest: dict[tuple[str, str], str] = {}
        for index, call in reversed(self._results.items()):
            result = self._messages[index].get(self._parts[index].text_field or "")
            # Without arguments it depends on when it is asked, as "the next page" does.
            if call is None or call.arguments in ("", "{}") or attachments_of(result):
                continue
            text = text_of(result)
            later = latest.get((call.name, call.arguments))
            if later is None:
                latest[call.name, call.arguments] = text
            elif len(later) >= _LEAST_LENGTH_OF_LATER * len(text):
                found.append(index)
        return found[::-1]

    def _shorten_results(self, pieces: Sequence[Piece]) -> None:
        within = _indexes(pieces)
        for index in self._results:
            if self.total <= self._marks.low:
                return
            if index in within:
                self._shorten(index, "stubbed")

    def _shorten(self, index: int, kind: CutKind) -> None:
        if index in self.changes:
            return
        message, part = self._messages[index], self._parts[index]
        assert part.text_field is not None
        text = line_for(self._results[index], message.get(part.text_field), _REASONS[kind])
        saved = self._sizes[index] - self._counting.count({**message, part.text_field: text})
        if saved >= _LEAST_SAVED_TOKENS:
            self.changes[index] = Change(kind, text, saved, len(self._messages))
            self.total -= saved

    def _old_turns(self, old: Sequence[Piece]) -> Iterable[list[Piece]]:
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

    def _drop(self, groups: Iterable[list[Piece]]) -> None:
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
            self.total -= self._sizes[index] - (before.tokens if before is not None else 0)
            self.changes[index] = Change("turn", None, self._sizes[index], len(self._messages))
            self.dropped.append(index)

    def _may_go(self, piece: Piece) -> bool:
        indexes = range(piece.start, piece.end)
        return not any(index in self._stable or self._parts[index].kind == "other" for index in indexes)

    def _has_question(self, piece: Piece) -> bool:
        return any(self._parts[index].kind == "user" for index in range(piece.start, piece.end))


def _indexes(pieces: Iterable[Piece]) -> set[int]:
    return {index for piece in pieces for index in range(piece.start, piece.end)}


def line_for(call: ToolCall | None, result: Any, reason: str) -> str:
    """Return the line in the place of a tool's result. Nothing of the result itself is in it."""
    text, attachments = text_of(result), attachments_of(result)
    name = _line(call.name if call is not None else "tool", _LONGEST_NAME)
    arguments = _line(_arguments(call.arguments) if call is not None else "", _LONGEST_ARGUMENTS)
    lines = text.count("\n") + 1 if text else 0
    beside = f"{attachments} pictures or files, " if attachments else ""
    return f"[{name}({arguments}): {lines} lines, {len(text)} characters, {beside}{reason}]"


def _arguments(written: str) -> str:
    """The names of a call's arguments, with those of their values that are short."""
    try:
        given = json.loads(written)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(given, dict):
        return ""
    shown = []
    for name, value in given.items():
        short = "" if isinstance(value, list | dict) else json.dumps(value, ensure_ascii=False)
        shown.append(f"{name}={short}" if 0 < len(short) <= _LONGEST_VALUE else name)
    return ", ".join(shown)


def _line(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
