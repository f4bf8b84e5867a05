"""From which earlier prompt a new one departs, if from any: whether a difference broke a beginning or made another.

A conversation that goes on has drifted where something before its end differs. Another question after the same system
prompt, an edited or regenerated last message, or another agent's prompt has not: nothing was to be had in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from fastlane.records.prompt import DriftKind

from ..differences import similarity
from ._difference import Difference, difference
from ._lines import Attributes, Line
from ._outline import Outline

# Two segments of which this share is the same are one, edited.
_SIMILAR = 0.5
# And of which this share is the same needs no better one.
_NEARLY = 0.9
# A conversation of whose rest this share comes later again is the same one.
_SHARED = 0.3
# Prompts that have this share of what the most alike has of a conversation are of that conversation too.
_SAME_CONVERSATION = 0.5
# What is shorter is said in many conversations: "yes", "continue".
_TELLING = 32
# How many earlier prompts are looked at where none has a message in common with the new one: each takes a millisecond.
_MOST_COMPARED = 5
# Of these it is certain that a segment is otherwise the same.
_SAME_BUT_FOR = frozenset({"reordered_keys", "reordered_tools", "whitespace"})
# And of these it is not.
_ANOTHER = frozenset({"changed", "changed_tool", "compacted"})


class Seen(NamedTuple):
    """A line as it was when a prompt was compared with it; a line itself goes on meanwhile."""

    line: Line
    attributes: Attributes
    outline: Outline
    chain: tuple[int, ...]
    family: str
    size: int
    """Its characters."""
    tokens: int | None
    used_ns: int


class Departure(NamedTuple):
    """Where a prompt departs from an earlier one that it was expected to begin like."""

    kind: DriftKind
    path: str
    character: int | None
    before_size: int
    """Characters of the prompt before the difference."""
    lost_size: int
    """Characters that would have been in common but for it."""
    seen: Seen
    related: bool
    """Whether the prompts are still of one family."""
    elsewhere: bool
    """Whether the provider keeps the earlier prompt apart from this one."""
    place: int | None = None
    """The segment of the new prompt; None where the prompts are the same and something else differs."""


def seen(line: Line) -> Seen:
    """A line as it is now."""
    return Seen(line, line.attributes, line.outline, line.chain, line.family, line.size, line.tokens, line.used_ns)


def departure(
    new: Outline,
    values: Sequence[Any],
    attributes: Attributes,
    known: int,
    sharing: Iterable[tuple[Seen, int]],
    recent: Sequence[Seen],
    kept: Callable[[int], Any],
) -> Departure | None:
    """What broke the beginning of a prompt, of which the first `known` segments were sent before; None for nothing.

    `sharing`: earlier prompts that have segments of it, each with the characters of those; `recent`: the latest of
    several families.
    """
    ranked = _ranked(sharing, new, attributes)
    kept_together = attributes.but_for_the_key()
    own = next((one for one in ranked if one.attributes.but_for_the_key() == kept_together), None)
    found = None
    if own is not None and _says_as_much(own.outline, new):
        found = _broken(own, new, values, attributes, kept)
    elif known < new.leading:
        alike = [one for one in ranked if one.attributes.but_for_the_key() == kept_together][:_MOST_COMPARED]
        others = [one for one in recent if one.attributes.but_for_the_key() == kept_together]
        found = _broken_beginning(_distinct(alike, others), new, values, attributes, kept)
    reach = sum(new.sizes[:known])
    if found is not None and found.before_size + found.lost_size <= reach:
        found = None
    apart = _kept_apart(ranked, new, attributes, known)
    if apart is not None and (found is None or apart.lost_size > found.before_size + found.lost_size):
        return apart
    return found


def _ranked(sharing: Iterable[tuple[Seen, int]], new: Outline, attributes: Attributes) -> list[Seen]:
    """Earlier prompts: those of the same conversation first, the one that begins alike for longest, then the latest.

    Of the same conversation are those that have about as much of what was said in it as the one that has the most, in
    messages and in characters. Behind them, what has the most in common.
    """
    reached = list(accumulate(new.sizes, initial=0))
    said = dict(zip(new.digests[new.leading :], new.sizes[new.leading :], strict=True))
    ranks = []
    for number, (one, shared) in enumerate(sharing):
        if one.attributes[:2] == attributes[:2]:
            own = [said[segment] for segment in set(one.outline.digests[one.outline.leading :]) if segment in said]
            ranks.append(((sum(own), len(own)), reached[in_common(one.outline, new)], one.used_ns, shared, number, one))
    size, count = max((rank[0] for rank in ranks), default=(0, 0))
    same: list[Any] = []
    others: list[Any] = []
    for rank in ranks:
        enough = rank[0][0] >= max(_TELLING, _SAME_CONVERSATION * size) and rank[0][1] >= _SAME_CONVERSATION * count
        (same if enough else others).append(rank)
    same.sort(key=lambda rank: rank[1:5], reverse=True)
    others.sort(key=lambda rank: (rank[1] + rank[3], rank[2], rank[4]), reverse=True)
    return [rank[-1] for rank in (*same, *others)]


def in_common(old: Outline, new: Outline) -> int:
    """Segments that two prompts begin with alike."""
    count = min(len(old.digests), len(new.digests))
    if old.digests[:count] == new.digests[:count]:
        return count
    return next(place for place, (one, other) in enumerate(zip(old.digests, new.digests, strict=False)) if one != other)


def _distinct(first: Iterable[Seen], second: Iterable[Seen]) -> list[Seen]:
    lines: dict[int, Seen] = {}
    for one in (*first, *second):
        if len(lines) < _MOST_COMPARED:
            lines.setdefault(id(one.line), one)
    return list(lines.values())


def _says_as_much(old: Outline, new: Outline) -> bool:
    """Whether two prompts have anything in common that is said in one conversation alone."""
    others = set(old.digests[old.leading :])
    shared = [
        size for one, size in zip(new.digests[new.leading :], new.sizes[new.leading :], strict=True) if one in others
    ]
    return len(shared) > 1 or sum(shared) >= _TELLING


def _kept_apart(earlier: Sequence[Seen], new: Outline, attributes: Attributes, known: int) -> Departure | None:
    """The same prompt under another model or parameter than the latest one that is like it for about as long as any."""
    others = [(in_common(one.outline, new), one) for one in earlier if one.attributes != attributes]
    longest = max((count for count, _ in others), default=0)
    least = max(known + 1, new.leading + 1, round(_SAME_CONVERSATION * longest))
    alike = [(one.used_ns, count, one) for count, one in others if count >= least]
    if not alike:
        return None
    _, count, one = max(alike, key=lambda found: found[:2])
    parameter = attributes.changed(one.attributes)
    if one.attributes.model != attributes.model:
        kind: DriftKind = "changed_model"
        path = "model"
    elif parameter is not None and not _got_its_key(one.attributes, attributes):
        kind, path = "changed_parameter", parameter
    else:
        return None
    return Departure(kind, path, None, 0, sum(new.sizes[:count]), one, related=False, elsewhere=True)


def _got_its_key(old: Attributes, new: Attributes) -> bool:
    """Whether nothing but a cache key was added or left out, which is no doing of the application's.

    What is known of a provider behind another's address is known from its first answer on, and a key is added then.
    """
    return None in (old.key, new.key) and old.but_for_the_key() == new.but_for_the_key()


def _broken(
    one: Seen, new: Outline, values: Sequence[Any], attributes: Attributes, kept: Callable[[int], Any]
) -> Departure | None:
    """Where a prompt departs from an earlier one that has messages of it."""
    old = one.outline
    place = in_common(old, new)
    if place == min(len(old.digests), len(new.digests)):
        return None
    goes_on = len(new.digests) > len(old.digests)
    leads = place < min(old.leading, new.leading)
    shared, share, count = _later(old, new, place, leads=leads)
    telling = count > 1 or shared >= _TELLING
    if leads:
        # Everything that was said is said again, or what differs is the same text edited.
        follows = telling and share >= _SIMILAR and (count > 1 or goes_on)
        alike = False if follows else _similar(old, place, new, place, values, kept) >= _SIMILAR
        if not (alike or follows or telling):
            return None
        found = _difference(old, new, values, kept)
        # A short segment may be too short to have anything in common but for its digits.
        if found is None or not (alike or follows or found.kind in _SAME_BUT_FOR):
            return None
        related = alike or place < _first_message(new) or found.kind not in _ANOTHER
        if not related:
            related = _similar(old, place, new, place, values, kept) >= _SIMILAR
        return _departed(found, one, attributes, related=related)
    is_last = place == len(new.digests) - 1
    # What was said last is said again, among other things: however much went before it, it is this conversation. Where
    # it is not, the rest may be examples, or documents, of which each call has drawn others.
    recalled = old.digests[-1] in new.digests[place:]
    drifts = (recalled and (count > 1 or (telling and share >= _SHARED))) or (
        (telling or goes_on) and not is_last and _similar(old, place, new, place, values, kept) >= _SIMILAR
    )
    found = _difference(old, new, values, kept) if drifts else None
    return None if found is None else _departed(found, one, attributes, related=True)


def _broken_beginning(
    candidates: Sequence[Seen],
    new: Outline,
    values: Sequence[Any],
    attributes: Attributes,
    kept: Callable[[int], Any],
) -> Departure | None:
    """Where the leading segments depart from the most similar ones of another conversation."""
    best, most = None, 0.0
    for one in candidates:
        old = one.outline
        place = in_common(old, new)
        if place >= min(old.leading, new.leading):
            if place >= new.leading:
                return None  # they are the same
            continue
        alike = _beginnings_alike(old, new, place, values, kept)
        if alike > most:
            best, most = one, alike
            if most >= _NEARLY:
                break
    if best is None or most < _SIMILAR:
        return None
    found = _difference(best.outline, new, values, kept)
    return None if found is None else _departed(found, best, attributes, related=True)


def _beginnings_alike(
    old: Outline, new: Outline, place: int, values: Sequence[Any], kept: Callable[[int], Any]
) -> float:
    """How much of two leading parts is the same: of the instructions where there are any, else of the tools."""
    start, old_start = _first_message(new), _first_message(old)
    if start < new.leading and old_start < old.leading:
        first, old_first = max(start, place), max(start, place) - start + old_start
        if first >= new.leading or old_first >= old.leading:
            first, old_first = start, old_start
        if new.digests[first] != old.digests[old_first]:
            return _similar(old, old_first, new, first, values, kept)
        if place >= start:
            return 1.0
    elif start < new.leading or old_start < old.leading:
        return 0.0
    others = set(old.digests[: old.leading])
    shared = sum(size for one, size in zip(new.digests, new.sizes[: new.leading], strict=False) if one in others)
    whole = max(sum(new.sizes[: new.leading]), sum(old.sizes[: old.leading]), 1)
    return max(shared / whole, _similar(old, place, new, place, values, kept))


def _first_message(outline: Outline) -> int:
    """The first segment that is neither a tool nor a format."""
    start = 0
    for name, count in outline.sections:
        if name in ("messages", "instructions", "input", "prompt"):
            break
        start += count or 1
    return start


def _later(old: Outline, new: Outline, place: int, *, leads: bool) -> tuple[int, float, int]:
    """What two prompts have in common from a place on: characters, their share of what could be, and segments.

    A long text before the same short question is another prompt. Instructions are longer than what is said at first.
    """
    olds, news = set(old.digests[place:]), set(new.digests[place:])
    both = olds & news
    if not both:
        return 0, 0.0, 0
    ahead = list(zip(new.digests[place:], new.sizes[place:], strict=True))
    behind = list(zip(old.digests[place:], old.sizes[place:], strict=True))
    shared = sum(size for one, size in ahead if one in both)
    rests = []
    for rest in (ahead, behind):
        first, size = rest[0]
        rests.append(sum(one for _, one in rest) - (size if leads and first not in both else 0))
    return shared, min(1.0, shared / max(1, min(rests))), sum(one in both for one, _ in ahead)


def _similar(
    old: Outline,
    old_place: int,
    new: Outline,
    place: int,
    values: Sequence[Any],
    kept: Callable[[int], Any],
) -> float:
    """How much of two segments is the same; 0 where it cannot be enough to matter, or one is forgotten."""
    if old_place >= len(old.digests) or place >= len(new.digests):
        return 0.0
    before, after = old.sizes[old_place], new.sizes[place]
    if min(before, after) < _SIMILAR * max(before, after):
        return 0.0
    earlier = kept(old.digests[old_place])
    return 0.0 if earlier is None else similarity(earlier, values[place])


def _difference(old: Outline, new: Outline, values: Sequence[Any], kept: Callable[[int], Any]) -> Difference | None:
    return difference(old, new, values, kept)


def _departed(found: Difference, one: Seen, attributes: Attributes, *, related: bool) -> Departure:
    return Departure(
        kind=found.kind,
        path=found.path,
        character=found.character,
        before_size=found.before_size,
        lost_size=found.lost_size,
        seen=one,
        related=related,
        elsewhere=one.attributes != attributes,
        place=found.index,
    )
