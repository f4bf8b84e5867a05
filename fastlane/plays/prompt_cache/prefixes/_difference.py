"""Where and how a prompt departs from an earlier one whose segments were kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fastlane.records.prompt import DriftKind

from ..differences import Difference as ValueDifference, common_length, similarity, value_difference, written
from ._outline import Outline

_TOOLS = frozenset({"tools", "functions"})
# What these say, they say as before.
_WRITTEN_OTHERWISE = frozenset({"reordered_keys", "whitespace"})
# A message was shortened, and not edited, where it was long enough to be worth it and has become a stub, or has lost
# its end.
_SHORTENED_BYTES = 160
_STUB_SHARE, _BEGINNING_SHARE = 0.3, 0.7


class Difference(NamedTuple):
    """The first place where two prompts differ."""

    kind: DriftKind
    index: int  # type: ignore[assignment]
    """The segment of the new outline at which it departs; its length where the new one just ends."""
    path: str
    """The differing value: "messages[7].tool_calls[0].function.arguments"."""
    character: int | None
    """Characters of that value before the difference, rounded down to what is told apart; None where it is no text."""
    before_size: int
    """Characters of the prompt before the difference."""
    lost_size: int
    """Characters that would have been in common but for the difference."""


def difference(old: Outline, new: Outline, values: Sequence[Any], kept: Callable[[int], Any]) -> Difference | None:
    """Where and why `new` departs from `old`; None where one begins with all of the other.

    `values` are the segments of `new`; `kept` gives the value of one of `old`'s segments by its digest, or None
    where it is forgotten.
    """
    return _Comparison(old, new, values, kept).first()


class _Comparison:
    """Two outlines beside each other."""

    def __init__(self, old: Outline, new: Outline, values: Sequence[Any], kept: Callable[[int], Any]) -> None:
        self.old = old
        self.new = new
        self.values = values
        self.kept = kept

    def first(self) -> Difference | None:
        names = list(dict.fromkeys(name for name, _ in (*self.new.sections, *self.old.sections)))
        names.sort(key=_reading_order)
        for name in names:
            mine, theirs = self.new.span(name), self.old.span(name)
            new, old = self.new.digests[slice(*mine)], self.old.digests[slice(*theirs)]
            if new == old:
                continue
            at = _common(old, new)
            if name in _TOOLS:
                return self._tools(name, mine[0] if mine[1] else _start(self.new, name), theirs[0], at, old, new)
            if at < min(len(old), len(new)):
                return self._messages(name, mine[0], theirs[0], at, old, new)
            if _is_last(name):
                # One just ends: nothing of the other was lost.
                return None
            return self._whole("changed", mine[0] if mine[1] else _start(self.new, name), name)
        return None

    def _tools(
        self, name: str, start: int, old_start: int, at: int, old: Sequence[int], new: Sequence[int]
    ) -> Difference:
        path = f"{name}[{at}]"
        if Counter(old) == Counter(new):
            return self._whole("reordered_tools", start + at, path)
        if at >= min(len(old), len(new)):
            return self._whole("changed_tool", start + at, path)
        added = old[at] in new[at + 1 :] and new[at] not in old
        gone = new[at] in old[at + 1 :] and old[at] not in new
        if added or gone:
            return self._whole("changed_tool", start + at, path)
        if old[at] in new and new[at] in old:
            # Both stand elsewhere as well: the order is the first thing that is another.
            return self._whole("reordered_tools", start + at, path)
        return self._edited("changed_tool", start + at, old_start + at)

    def _messages(
        self, name: str, start: int, old_start: int, at: int, old: Sequence[int], new: Sequence[int]
    ) -> Difference:
        index, old_index = start + at, old_start + at
        path = self.new.path(index)
        in_middle = index >= self.new.leading and _is_last(name)
        # How many old segments are gone before this very one, or before the one behind it.
        gone = _met_again(old, at, new, at)
        if gone:
            return self._whole("compacted" if in_middle else "changed", index, path)
        if _met_again(new, at, old, at):
            return self._whole("changed", index, path)
        resumed = _resumed(old, new, at)
        if resumed is not None and in_middle and resumed[0] - at > resumed[1] - at:
            # Several became fewer: a summary stands in their place.
            return self._whole("compacted", index, path)
        shortened = in_middle and resumed is not None
        return self._edited("changed", index, old_index, "compacted" if shortened else None)

    def _edited(
        self, otherwise: DriftKind, index: int, old_index: int, shortened: DriftKind | None = None
    ) -> Difference:
        """One segment is another than it was, and is compared with that."""
        value = self.values[index]
        old = self.kept(self.old.digests[old_index])
        path = self.new.path(index)
        if old is None:
            return self._whole(otherwise, index, path)
        change = value_difference(old, value)
        if change is None:  # alike as JSON, and yet of other types
            return self._whole(otherwise, index, path)
        kind = change.kind
        if kind is None or (otherwise == "changed_tool" and change.character is None and kind != "reordered_keys"):
            kind = shortened if shortened and _is_shortened(change) else otherwise
        size = self.new.sizes[index]
        before = min(size, common_length(written(old), written(value)))
        share = 1.0 if kind in _WRITTEN_OTHERWISE else similarity(old, value)
        lost = max(0, round(share * size) - before) + self._rewritten_behind(index + 1, old_index + 1)
        return Difference(
            kind,
            index,
            path + change.path,
            change.character,
            sum(self.new.sizes[:index]) + before,
            lost + self._common_behind(index + 1, old_index + 1),
        )

    def _whole(self, kind: DriftKind, index: int, path: str) -> Difference:
        """One or more segments were moved, added or taken away as they are."""
        return Difference(kind, index, path, None, sum(self.new.sizes[:index]), self._common_behind(index, index))

    def _rewritten_behind(self, index: int, old_index: int) -> int:
        """Characters of the tools behind one that are what they were but for how they are written.

        Where the keys of one tool are in another order, those of the others mostly are too.
        """
        behind = slice(self.new.span("tools")[1]), slice(self.old.span("tools")[1])
        total = 0
        pairs = zip(self.new.digests[behind[0]][index:], self.old.digests[behind[1]][old_index:], strict=False)
        for place, (mine, theirs) in enumerate(pairs, index):
            old = None if mine == theirs else self.kept(theirs)
            if old is not None:
                change = value_difference(old, self.values[place])
                if change is not None and change.kind in _WRITTEN_OTHERWISE:
                    total += self.new.sizes[place]
        return total

    def _common_behind(self, index: int, old_index: int) -> int:
        """Characters of the new prompt's segments from one on that the old one had as well."""
        left = Counter(self.old.digests[min(index, old_index) :])
        total = 0
        for digest, size in zip(self.new.digests[index:], self.new.sizes[index:], strict=True):
            if left[digest] > 0:
                left[digest] -= 1
                total += size
        return total


def _is_shortened(change: ValueDifference) -> bool:
    before, after = change.sizes
    kept = change.character is not None and change.character >= after / 2
    return before >= _SHORTENED_BYTES and after <= (_BEGINNING_SHARE if kept else _STUB_SHARE) * before


def _reading_order(name: str) -> int:
    """The order in which a provider reads the parts of a body."""
    if name in _TOOLS:
        return 0
    return 1 if name in {"response_format", "text.format"} else 2 if name == "instructions" else 3


def _is_last(name: str) -> bool:
    return _reading_order(name) == 3


def _start(outline: Outline, name: str) -> int:
    """Where a section would stand that an outline has not."""
    order = _reading_order(name)
    return sum(count for other, count in outline.sections if _reading_order(other) < order)


def _common(old: Sequence[int], new: Sequence[int]) -> int:
    count = 0
    for mine, theirs in zip(old, new, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _met_again(old: Sequence[int], old_at: int, new: Sequence[int], at: int) -> int:
    """How many of the old segments from one on are passed over before the new one at `at` stands there; 0 for none.

    What follows has to follow there too, as far as both go: the same short answer ("yes") stands in many places.
    """
    for index in range(old_at + 1, len(old)):
        if old[index] == new[at] and old[index : index + 2] == new[at : at + 2][: len(old) - index]:
            return index - old_at
    return 0


def _resumed(old: Sequence[int], new: Sequence[int], at: int) -> tuple[int, int] | None:
    """Where both go on alike behind what differs: the index in the old one and in the new one."""
    known: dict[int, int] = {}
    for index in range(len(old) - 1, at, -1):
        known[old[index]] = index
    for index in range(at + 1, len(new)):
        if new[index] in known:
            return known[new[index]], index
    return None
