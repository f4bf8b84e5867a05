"""Sizes of JSON texts, and what comes of them when values are put into each other or exclude each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

Found = tuple[str, str]
"""Where something was found, seen from the value that it is in (".notes", "[].name", ""), and what."""

JsonType = Literal["null", "boolean", "number", "string", "array", "object"]
JSON_TYPES: tuple[JsonType, ...] = ("null", "boolean", "number", "string", "array", "object")

INDENT = 4
# Of fields that are named: a schema whose definitions use each other can have more than anybody reads.
_MOST_FOUND = 1_000
# A path is told to so many characters: of a schema with a thousand levels they would come to gigabytes.
_LONGEST_PATH = 200


class Size(NamedTuple):
    """The most that the text of a value can come to, in each respect by itself."""

    compact: int
    """Characters without white space between tokens."""
    tokens: int
    """Of that, and of the blanks behind colons where those are counted in tokens."""
    likely: int
    """Tokens of a usual value."""
    white: int = 0
    """Characters of white space, where the value stands at the margin."""
    lines: int = 0
    """Line breaks: behind each of them, a value that stands deeper has so many more blanks."""
    depth: int = 0
    """Arrays and objects within each other."""
    gaps: tuple[Found, ...] = ()
    """What has no bound; the numbers say then what was taken for it."""
    assumed: tuple[Found, ...] = ()
    """What has one by a convention alone."""
    vague: bool = False
    """Nothing at all is said of the value: whatever else is known of it says more."""

    def below(self, step: str) -> Size:
        """Return the same size of a value that is one step down in another."""
        if not (self.gaps or self.assumed):
            return self
        return self._replace(gaps=_stepped(step, self.gaps), assumed=_stepped(step, self.assumed))

    def behind(self, key: Size) -> Size:
        """Return the size of a member of an object: its key, the colon and this value."""
        return self._replace(
            compact=key.compact + self.compact,
            tokens=key.tokens + self.tokens,
            likely=key.likely + self.likely,
            white=key.white + self.white,
        )


Shape = Mapping[JsonType, Size]
"""What a schema allows, by the type of the value; types that it does not allow are missing."""


def _stepped(step: str, found: tuple[Found, ...]) -> tuple[Found, ...]:
    return tuple(dict.fromkeys((_shortened(step + path), reason) for path, reason in found))


def _shortened(path: str) -> str:
    return path if len(path) <= _LONGEST_PATH else f"{path[: _LONGEST_PATH - 1]}…"


def merged(parts: Iterable[tuple[Found, ...]]) -> tuple[Found, ...]:
    """Return what was found in all parts, the first 1,000."""
    found = dict.fromkeys(one for part in parts for one in part)
    return tuple(found)[:_MOST_FOUND]


def largest(sizes: Sequence[Size]) -> Size:
    """Return what is enough for any of the values."""
    if len(sizes) == 1:
        return sizes[0]
    compact, tokens, likely, white, lines, depth, gaps, assumed, vague = zip(*sizes, strict=True)
    return Size(
        max(compact), max(tokens), max(likely), max(white), max(lines), max(depth), merged(gaps), merged(assumed),
        all(vague),
    )  # fmt: skip


def smallest(first: Size, second: Size) -> Size:
    """Return what is enough for a value of which both are said."""
    ranks = [(bool(size.gaps), size.vague, bool(size.assumed)) for size in (first, second)]
    if ranks[0] != ranks[1]:
        return first if ranks[0] < ranks[1] else second
    closer = first if first.compact <= second.compact else second
    if first.gaps:
        return closer
    compact, tokens, likely, white, lines, depth = map(min, first[:6], second[:6])
    return Size(compact, tokens, likely, white, lines, depth, (), closer.assumed)


def either(shapes: Sequence[Shape]) -> Shape:
    """Return the shape of a value that has one of these."""
    if len(shapes) == 1:
        return shapes[0]
    found = {kind: [shape[kind] for shape in shapes if kind in shape] for kind in JSON_TYPES}
    return {kind: largest(sizes) for kind, sizes in found.items() if sizes}


def both(first: Shape, second: Shape) -> Shape:
    """Return the shape of a value that has both."""
    return {kind: smallest(size, second[kind]) for kind, size in first.items() if kind in second}


def within(parts: Sequence[tuple[Size, int]], most: int | None, likely: int) -> Size:
    """Return the size of an array or object of these elements, each as often as it says, and of at most so many."""
    every = sum(times for _, times in parts)
    count = every if most is None else min(every, most)
    if not count:
        return Size(2, 2, likely)

    def total(values: Iterable[int]) -> int:
        return _most([(value, times) for value, (_, times) in zip(values, parts, strict=True)], count, every)

    lines = total(size.lines for size, _ in parts)
    # Brackets and commas; a line for each element and one for the closing bracket.
    return Size(
        compact=total(size.compact for size, _ in parts) + count + 1,
        tokens=total(size.tokens for size, _ in parts) + count + 1,
        likely=likely,
        white=total(size.white + INDENT * size.lines for size, _ in parts) + (1 + INDENT) * count + 1,
        lines=lines + count + 1,
        depth=1 + max(size.depth for size, _ in parts),
        gaps=merged(size.gaps for size, _ in parts),
        assumed=merged(size.assumed for size, _ in parts),
    )


def _most(parts: list[tuple[int, int]], count: int, every: int) -> int:
    """The sum of the greatest of them, so many."""
    if count == every:
        return sum(size * times for size, times in parts)
    total = 0
    for size, times in sorted(parts, reverse=True):
        total += size * min(times, count)
        count -= min(times, count)
    return total
