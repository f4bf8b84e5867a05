"""Where one segment departs from another of which a sketch is known: the value, its path, and what sort of change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastlane.records.prompt import DriftKind

from ._alignment import align
from ._kinds import Change, short_change, text_change
from ._sketch import (
    ARRAYS,
    OBJECTS,
    PARENT_AT,
    PATH_AT,
    PATH_BITS,
    VALUE_BITS,
    Leaf,
    Sketch,
    below,
    paths,
    record,
    walk,
)

# Names that are tried for a member that is gone, beside those that still stand somewhere in the segment.
_USUAL = (
    "description", "type", "properties", "required", "additionalProperties", "enum", "items", "title", "default",
    "examples", "format", "minimum", "maximum", "pattern", "strict", "anyOf", "parameters", "function", "name",
    "content", "role", "tool_calls", "tool_call_id", "id", "arguments", "refusal", "cache_control", "text", "schema",
    "nullable", "minLength", "maxLength", "minItems", "maxItems", "const", "$ref", "$defs", "oneOf", "allOf",
)  # fmt: skip


class MemberChange(NamedTuple):
    """The first change within a segment."""

    kind: DriftKind
    path: str
    """From the segment on: ".function.parameters.properties.x.description", ""."""
    character: int | None
    before: int
    """Characters of the segment before the value that changed."""
    share: float
    """How much of the segment is the same: 0 to 1."""
    sizes: tuple[int, int] = (0, 0)
    """Bytes of the text that changed, before and after, where both are known."""


def member_change(old: Sketch, value: Any, otherwise: DriftKind) -> MemberChange:
    """The first change from what was sketched; `otherwise` is the kind of what is no known sort of value."""
    found = walk(value)
    ways = paths(value)
    new = [record(*one) for one in found]
    at = 0
    most = min(len(new), len(old.leaves))
    while at < most and new[at] == old.leaves[at]:
        at += 1
    before = sum(_size(member) + 8 for _, _, member in found[:at])
    if at == len(new) == len(old.leaves):
        # Alike in 24 bits of every value, and yet another digest: another type of key, or chance.
        return MemberChange(otherwise, "", None, 0, 1.0)
    share = _share(old, new, found)
    if len(new) == len(old.leaves) and sorted(new) == sorted(old.leaves):
        return MemberChange("reordered_keys", _written(_reordered(old, new, ways, at)), None, before, share)
    if at < most and _filled_or_emptied(old.leaves[at], new[at]):
        # A container that was empty has got a member, or has lost its only one.
        way = ways[at + 1] if found[at][2] else _gone(found, ways, at, old.leaves[at + 1])
        return MemberChange(otherwise, _written(way), None, before, share)
    if at < most and new[at] >> PATH_AT == old.leaves[at] >> PATH_AT:
        change = _change(old, at, found[at][2])
        kind = otherwise if change.kind == "changed_text" else change.kind
        if otherwise == "changed_tool" and not isinstance(found[at][2], str):
            # A bound in a schema was edited; nothing counts in it.
            kind = otherwise
        if len(found) == 1 or _size(found[at][2]) * 2 > sum(_size(member) for _, _, member in found):
            share = max(share, change.share)
        return MemberChange(kind, _written(ways[at]), change.character, before, share, change.sizes)
    return MemberChange(otherwise, _written(_added_or_gone(old, new, found, ways, at)), None, before, share)


def segment_share(old: Sketch, value: Any) -> float:
    """How much of a segment is the same as what was sketched: 0 to 1, texts by their blocks."""
    found = walk(value)
    return _share(old, [record(*one) for one in found], found)


def _filled_or_emptied(old: int, new: int) -> bool:
    """Whether one is a container with members and the other the same container without any."""
    kinds = {old & VALUE_BITS, new & VALUE_BITS}
    return old >> PATH_AT == new >> PATH_AT and kinds in (OBJECTS, ARRAYS)


def _change(old: Sketch, at: int, value: Any) -> Change:
    if isinstance(value, str):
        for index, sketched in old.texts:
            if index == at:
                return text_change(sketched, value)
    elif isinstance(value, Mapping | list | tuple):
        return Change("changed_text", None, 0.0)
    return short_change(old.leaves[at] & VALUE_BITS, value)


def _share(old: Sketch, new: list[int], found: list[tuple[int, int, Any]]) -> float:
    """The same values at the same paths, and of texts at the same path as much as is the same."""
    known = Counter(old.leaves)
    sketched = {old.leaves[index] >> PATH_AT: text for index, text in old.texts}
    total = same = 0.0
    for mark, (_, _, member) in zip(new, found, strict=True):
        size = _size(member)
        total += size
        if known[mark] > 0:
            known[mark] -= 1
            same += size
        elif isinstance(member, str) and mark >> PATH_AT in sketched:
            same += size * align(sketched[mark >> PATH_AT], member).share
    return min(1.0, same / max(total, old.size, 1))


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return 1 if isinstance(value, Mapping | list | tuple) else 4


def _reordered(old: Sketch, new: list[int], ways: list[Leaf], at: int) -> Leaf:
    """The innermost container that has both what stands there now and what stood there before."""
    gone = old.leaves[at] >> PATH_AT
    way = ways[at]
    for length in range(len(way) - 1, -1, -1):
        container = way[:length]
        for mark, other in zip(new, ways, strict=True):
            if mark >> PATH_AT == gone and len(other) > length and other[:length] == container:
                return container
    return ()


def _added_or_gone(old: Sketch, new: list[int], found: list[tuple[int, int, Any]], ways: list[Leaf], at: int) -> Leaf:
    """The member that is new or gone; where the name of what is gone cannot be guessed, what it was a member of."""
    before = Counter(mark >> PATH_AT for mark in old.leaves[at:])
    after = Counter(mark >> PATH_AT for mark in new[at:])
    if at < len(new) and (at >= len(old.leaves) or before[new[at] >> PATH_AT] == 0):
        gone = at < len(old.leaves) and after[old.leaves[at] >> PATH_AT] == 0
        same_container = gone and (old.leaves[at] >> PARENT_AT & PATH_BITS) != (new[at] >> PARENT_AT & PATH_BITS)
        if not same_container:
            return ways[at]
    if at >= len(old.leaves):
        return ways[at]
    container = old.leaves[at] >> PARENT_AT & PATH_BITS
    # The nearest container in front is likelier than one of the same 20 bits elsewhere.
    for index in sorted(range(len(found)), key=lambda index: abs(index - at)):
        if found[index][0] & PATH_BITS == container and isinstance(found[index][2], Mapping | list | tuple):
            return _gone(found, ways, index, old.leaves[at])
    return ways[min(at, len(ways) - 1)][:-1]


def _gone(found: list[tuple[int, int, Any]], ways: list[Leaf], index: int, mark: int) -> Leaf:
    """The path of a member that a container had, by trying names; else that of the container."""
    path, _, member = found[index]
    if isinstance(member, Mapping):
        for name in _names(value for _, _, value in found):
            if below(path, name) & PATH_BITS == mark >> PATH_AT:
                return (*ways[index], name)
    elif below(path, len(member)) & PATH_BITS == mark >> PATH_AT:
        return (*ways[index], len(member))
    return ways[index]


def _names(members: Iterator[Any]) -> Iterator[str]:
    yield from _USUAL
    for member in members:
        if isinstance(member, str):
            if len(member) < 64:
                yield member
        elif isinstance(member, Mapping):
            yield from (key for key in member if isinstance(key, str))


def _written(way: Leaf) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in way)
