"""Sizes of JSON texts: of one value, of values within each other, and of values that exclude each other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fastlane.knowledge.tokens import Counter

from .texts import as_written

Found = tuple[str, str]
"""A path, seen from the value that it is in (".notes", "[].name", ""), and what was found there."""

JsonType = Literal["null", "boolean", "number", "string", "array", "object"]
JSON_TYPES: tuple[JsonType, ...] = ("null", "boolean", "number", "string", "array", "object")

_INDENT = 4
_MAX_FOUND = 1_000
_MAX_PATH_CHARACTERS = 200
_CHARACTERS_PER_TOKEN = 4
# A word's tokens depend on its neighbours: on its quotes, which are counted apart, and on a merge across them.
_QUOTES = 2
_SLACK = 1
# Up to this depth the tokens of an indent are counted. Beyond it, each blank counts as one.
_MAX_COUNTED_DEPTH = 32
_USUAL_NUMBER_TOKENS = 3
_USUAL_INTEGER_TOKENS = 2

_lines: dict[tuple[str | None, int], int] = {}


class TextSize(NamedTuple):
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
    """Line breaks: a value that stands one level deeper has one more indent behind each of them."""
    depth: int = 0
    """Arrays and objects within each other."""
    gaps: tuple[Found, ...] = ()
    """What has no bound; the numbers then hold what was taken for it."""
    assumed: tuple[Found, ...] = ()
    """What has a bound by a convention alone."""
    vague: bool = False
    """The schema says nothing of the value: any other keyword says more."""

    def below(self, step: str) -> TextSize:
        """Return the same size of a value that is one step down in another."""
        if not (self.gaps or self.assumed):
            return self
        return self._replace(gaps=_stepped(step, self.gaps), assumed=_stepped(step, self.assumed))

    def behind(self, key: TextSize) -> TextSize:
        """Return the size of a member of an object: its key, the colon and this value."""
        return self._replace(
            compact=key.compact + self.compact,
            tokens=key.tokens + self.tokens,
            likely=key.likely + self.likely,
            white=key.white + self.white,
        )


Shape = Mapping[JsonType, TextSize]
"""What a schema allows, by the type of the value; types that it does not allow are missing."""


def _stepped(step: str, found: tuple[Found, ...]) -> tuple[Found, ...]:
    return tuple(dict.fromkeys((_shortened(step + path), reason) for path, reason in found))


def _shortened(path: str) -> str:
    return path if len(path) <= _MAX_PATH_CHARACTERS else f"{path[: _MAX_PATH_CHARACTERS - 1]}…"


def merged(parts: Iterable[tuple[Found, ...]]) -> tuple[Found, ...]:
    """Return what was found in all parts, the first 1,000."""
    return tuple(dict.fromkeys(one for part in parts for one in part))[:_MAX_FOUND]


def largest(sizes: Iterable[TextSize]) -> TextSize:
    """Return what is enough for any of the values."""
    sizes = list(sizes)
    if len(sizes) == 1:
        return sizes[0]
    compact, tokens, likely, white, lines, depth, gaps, assumed, vague = zip(*sizes, strict=True)
    return TextSize(
        max(compact), max(tokens), max(likely), max(white), max(lines), max(depth), merged(gaps), merged(assumed),
        all(vague),
    )  # fmt: skip


def smallest(first: TextSize, second: TextSize) -> TextSize:
    """Return what is enough for a value that keeps to both."""
    ranks = [(bool(size.gaps), size.vague, bool(size.assumed)) for size in (first, second)]
    if ranks[0] != ranks[1]:
        return first if ranks[0] < ranks[1] else second
    closer = first if first.compact <= second.compact else second
    if first.gaps:
        return closer
    compact, tokens, likely, white, lines, depth = map(min, first[:6], second[:6])
    return TextSize(compact, tokens, likely, white, lines, depth, (), closer.assumed)


def either(shapes: Sequence[Shape]) -> Shape:
    """Return the shape of a value that has one of these."""
    found = {kind: [shape[kind] for shape in shapes if kind in shape] for kind in JSON_TYPES}
    return {kind: largest(sizes) for kind, sizes in found.items() if sizes}


def both(first: Shape, second: Shape) -> Shape:
    """Return the shape of a value that has both."""
    return {kind: smallest(size, second[kind]) for kind, size in first.items() if kind in second}


def within(parts: Sequence[tuple[TextSize, int]], most: int | None, likely: int) -> TextSize:
    """Return the size of an array or object of these elements, each as often as it says, and of at most so many."""
    every = sum(times for _, times in parts)
    count = every if most is None else min(every, most)
    if not count:
        return TextSize(2, 2, likely)

    def total(values: Iterable[int]) -> int:
        return _largest_sum([(value, times) for value, (_, times) in zip(values, parts, strict=True)], count, every)

    lines = total(size.lines for size, _ in parts)
    # Brackets and commas; a line for each element and one for the closing bracket.
    return TextSize(
        compact=total(size.compact for size, _ in parts) + count + 1,
        tokens=total(size.tokens for size, _ in parts) + count + 1,
        likely=likely,
        white=total(size.white + _INDENT * size.lines for size, _ in parts) + (1 + _INDENT) * count + 1,
        lines=lines + count + 1,
        depth=1 + max(size.depth for size, _ in parts),
        gaps=merged(size.gaps for size, _ in parts),
        assumed=merged(size.assumed for size, _ in parts),
    )


def _largest_sum(parts: list[tuple[int, int]], count: int, every: int) -> int:
    if count == every:
        return sum(size * times for size, times in parts)
    total = 0
    for size, times in sorted(parts, reverse=True):
        total += size * min(times, count)
        count -= min(times, count)
    return total


class TextMeasure:
    """Measures texts: by a model's tokenizer where it is at hand, else by characters, which are never fewer."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._exact = counter.exact

    def text(self, characters: int, likely_characters: int | None = None) -> TextSize:
        """Return the size of a string of which only the characters are known, quotes aside."""
        usual = characters if likely_characters is None else min(likely_characters, characters)
        return TextSize(characters + 2, characters + 2, max(1, -(-usual // _CHARACTERS_PER_TOKEN)))

    def key(self, text: str) -> TextSize:
        """Return the size of a key, the colon and the blank behind it."""
        return self.as_key(self._string(text))

    def as_key(self, size: TextSize) -> TextSize:
        """Return the size of a key of which the size as a string is known."""
        blank = 1 if self._exact else 0
        return size._replace(
            compact=size.compact + 1, tokens=size.tokens + 1 + blank, likely=size.likely + 2, white=size.white + 1
        )

    def number(self, characters: int, *, integer: bool) -> TextSize:
        """Return the size of a number of at most so many characters."""
        likely = -(-characters // _CHARACTERS_PER_TOKEN)
        return TextSize(characters, characters, min(likely, _USUAL_INTEGER_TOKENS if integer else _USUAL_NUMBER_TOKENS))

    def value(self, value: Any) -> TextSize:
        """Return the size of a value that is written out in the schema. Raises RecursionError for one too deep."""
        if isinstance(value, Mapping):
            members = [self.value(item).behind(self.key(str(key))) for key, item in value.items()]
            return within([(member, 1) for member in members], None, 1 + sum(member.likely for member in members))
        if isinstance(value, list | tuple):
            items = [self.value(item) for item in value]
            return within([(item, 1) for item in items], None, 1 + len(items) + sum(item.likely for item in items))
        if value is None or isinstance(value, bool):
            word = json.dumps(value)
            tokens = min(len(word), self._counter.text(word) + _SLACK) if self._exact else len(word)
            return TextSize(len(word), tokens, 1)
        if isinstance(value, int | float):
            return self.number(as_written(value), integer=isinstance(value, int))
        return self._string(str(value))

    def _string(self, text: str) -> TextSize:
        escaped = json.dumps(text)
        count = self._counter.text
        likely = count(text) or 1
        if not self._exact:
            return TextSize(len(escaped), len(escaped), likely)
        worst = likely + _QUOTES
        for form in (escaped, json.dumps(text, ensure_ascii=False)) if not escaped.isascii() else (escaped,):
            worst = max(worst, count(form[1:-1]) + _QUOTES, *(count(before + form) for before in ("", " ", "\n")))
        return TextSize(len(escaped), min(len(escaped), worst + _SLACK), likely)

    def whole(self, size: TextSize) -> int:
        """Return the tokens of a text with its white space."""
        if not self._exact:
            return size.tokens + size.white
        known = min(size.depth, _MAX_COUNTED_DEPTH)
        key = self._counter.encoding, known
        if key not in _lines:
            _lines[key] = max(self._counter.text("\n" + " " * blanks) for blanks in range(_INDENT * known + 1))
        return size.tokens + size.lines * (_lines[key] + _SLACK + _INDENT * (size.depth - known))
