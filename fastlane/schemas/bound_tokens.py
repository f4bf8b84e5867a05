"""Count what parts of a JSON text come to: what is written out in the schema, white space, and free text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastlane.errors import ConfigurationError
from fastlane.knowledge.tokens import Counter

from .numbers import as_written
from .sizes import INDENT, Size, within

# A word's tokens depend on what stands beside it: on its quotes, which are counted apart, and on a merge across them.
_QUOTES = 2
_SLACK = 1
# Deeper than that nobody knows the tokens of a run of blanks, other than that there are no more than blanks.
_MOST_DEPTH = 32
_CHARACTERS_PER_TOKEN = 4
_MOST_CONTAINERS = 1_000_000
# Of a number that is no integer, in digits and the point.
_USUAL_NUMBER = 3

_lines: dict[tuple[str | None, int], int] = {}


class Measure:
    """Measures texts by one counter: exactly by a model's tokenizer, else by characters, which are never fewer."""

    __slots__ = ("_counter", "_exact")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._exact = counter.exact

    def text(self, characters: int, likely_characters: int | None = None) -> Size:
        """Return the size of a string of which only the characters are known, quotes aside."""
        usual = characters if likely_characters is None else min(likely_characters, characters)
        return Size(characters + 2, characters + 2, max(1, -(-usual // _CHARACTERS_PER_TOKEN)))

    def string(self, text: str) -> Size:
        """Return the size of a string that is written out in the schema."""
        escaped = json.dumps(text)
        count = self._counter.text
        likely = count(text) or 1
        if not self._exact:
            return Size(len(escaped), len(escaped), likely)
        worst = likely + _QUOTES
        for form in (escaped, json.dumps(text, ensure_ascii=False)) if not escaped.isascii() else (escaped,):
            worst = max(worst, count(form[1:-1]) + _QUOTES, *(count(before + form) for before in ("", " ", "\n")))
        return Size(len(escaped), min(len(escaped), worst + _SLACK), likely)

    def key(self, text: str) -> Size:
        """Return the size of a key, the colon and the blank behind it."""
        return self.as_key(self.string(text))

    def as_key(self, size: Size) -> Size:
        """Return the size of a key of which the size as a string is known."""
        blank = 1 if self._exact else 0
        return size._replace(
            compact=size.compact + 1, tokens=size.tokens + 1 + blank, likely=size.likely + 2, white=size.white + 1
        )

    def number(self, characters: int, *, integer: bool) -> Size:
        """Return the size of a number of at most so many characters."""
        likely = -(-characters // _CHARACTERS_PER_TOKEN)
        return Size(characters, characters, min(likely, 2 if integer else _USUAL_NUMBER))

    def word(self, text: str) -> Size:
        """Return the size of `null`, `true` or `false`."""
        tokens = min(len(text), self._counter.text(text) + _SLACK) if self._exact else len(text)
        return Size(len(text), tokens, 1)

    def value(self, value: Any) -> Size:
        """Return the size of a value that is written out in the schema, however deep it is."""
        if isinstance(value, str):
            return self.string(value)
        if value is None or isinstance(value, bool):
            return self.word(json.dumps(value))
        if isinstance(value, int | float):
            characters = as_written(value)
            return self.number(characters, integer=isinstance(value, int))
        if not isinstance(value, Mapping | list | tuple):
            return self.string(str(value))
        # From the innermost outwards, without recursion: what is in a container is listed behind it.
        order: list[Any] = []
        waiting: list[Any] = [value]
        while waiting:
            one = waiting.pop()
            order.append(one)
            if len(order) > _MOST_CONTAINERS:
                raise ConfigurationError(
                    f"bound() takes a JSON schema, and got one with an enum or const of more than {_MOST_CONTAINERS:,} "
                    "arrays and objects, or one that contains itself: leave it out"
                )
            inner = one.values() if isinstance(one, Mapping) else one
            waiting.extend(item for item in inner if isinstance(item, Mapping | list | tuple))
        sizes: dict[int, Size] = {}
        for one in reversed(order):
            sizes[id(one)] = self._container(one, sizes)
        return sizes[id(value)]

    def _container(self, value: Any, sizes: Mapping[int, Size]) -> Size:
        def size(item: Any) -> Size:
            return sizes[id(item)] if isinstance(item, Mapping | list | tuple) else self.value(item)

        if isinstance(value, Mapping):
            members = [size(item).behind(self.key(str(key))) for key, item in value.items()]
        else:
            members = list(map(size, value))
        likely = 1 + sum(member.likely for member in members) + (0 if isinstance(value, Mapping) else len(members))
        return within([(member, 1) for member in members], None, likely)

    def whole(self, size: Size) -> int:
        """Return the tokens of a text with its white space."""
        if not self._exact:
            return size.tokens + size.white
        return size.tokens + size.lines * self._line(size.depth)

    def _line(self, depth: int) -> int:
        """The tokens of a line break and the blanks behind it, at worst."""
        known = min(depth, _MOST_DEPTH)
        key = self._counter.encoding, known
        if key not in _lines:
            _lines[key] = max(self._counter.text("\n" + " " * number) for number in range(INDENT * known + 1))
        return _lines[key] + _SLACK + INDENT * (depth - known)
