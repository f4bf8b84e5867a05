"""How long a number can be in JSON, and a string that a simple pattern allows."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

# The shortest text that gives a double back has at most 17 digits: "1.7976931348623157e+308", and a sign.
_DOUBLE = 23
# Below it a whole double is written out, with ".0" behind; from it on with an exponent: "1.2345678901234568e+16".
_EXPONENT_FROM = 10**16
_WITH_EXPONENT = 22
_LONG_EXPONENT_FROM = 10**100
_NEGATIVE_ZERO = len("-0.0")
# Python refuses to write longer integers than 4,300 digits.
_MOST_BITS = 14_000
_DIGITS_PER_BIT = math.log10(2)


def as_written(value: float) -> int:
    """Return the characters of the longest text of a number: 1, 1.0 and 1e0 are one number to JSON schema."""
    if isinstance(value, float) and not math.isfinite(value):
        # No JSON, but Python writes it; "NaN" counts as much as the "null" that others write.
        return {math.inf: len("Infinity"), -math.inf: len("-Infinity")}.get(value, len("null"))
    if value == 0:
        return _NEGATIVE_ZERO
    if isinstance(value, float):
        return max(len(repr(value)), as_written(int(value)) if value.is_integer() else 0)
    longest = _digits(value) + (value < 0)
    try:
        # Beyond 2**53 that may be another number, but not to everybody who compares them.
        return max(longest, len(repr(float(value))))
    except OverflowError:
        return longest


def longest_number(minimum: float | None, maximum: float | None, *, integer: bool) -> int | None:
    """Return the characters of the longest number within a range; None where the range is open.

    A number that is not whole is taken for a double. 2.0 is an integer to JSON schema.
    """
    if minimum is None or maximum is None:
        return None
    low, high = math.floor(minimum), math.ceil(maximum)
    longest = _NEGATIVE_ZERO if low <= 0 <= high else 1
    if high > 0:
        longest = max(longest, _whole(high), 0 if integer else _DOUBLE)
    if low < 0:
        longest = max(longest, 1 + _whole(-low), 0 if integer else 1 + _DOUBLE)
    return longest


def _whole(number: int) -> int:
    """The characters of the longest whole number from 0 to this one, written as an integer or as a double."""
    digits = _digits(number)
    if number < _EXPONENT_FROM:
        return digits + len(".0")
    return max(digits, _WITH_EXPONENT + (number >= _LONG_EXPONENT_FROM))


def _digits(number: int) -> int:
    bits = number.bit_length()
    return len(str(abs(number))) if bits <= _MOST_BITS else int(bits * _DIGITS_PER_BIT) + 2


_UNICODE_WIDTH, _PAIR_WIDTH = len("\\u00e9"), len("\\ud83d\\ude00")
_SHORT_ESCAPES = frozenset(map(ord, '"\\\b\f\n\r\t'))
# One atom (a literal, an escape or a class) and its quantifier.
_ESCAPE = r'\\[dDwWsS.\-/+*?()\[\]{}|^$"\\]'
_ATOM = re.compile(
    rf"(?P<atom>{_ESCAPE}|\[\^?(?:{_ESCAPE}|[^\\\[\]])+\]|[^\\\[\]()\{{\}}|^$*+?])"
    r"(?:(?P<short>[*+?])|\{(?P<least>\d{1,9})(?P<comma>,?)(?P<most>\d{0,9})\})?(?![*+?{])"
)
_SET_OPERATIONS = re.compile(r"&&|--|~~|\|\|")
_MEMBER = re.compile(r"(\\?.)(?:-(\\?[^\]]))?", re.DOTALL)


class TextLimit(NamedTuple):
    """How long a string can be that a pattern allows."""

    length: float
    """In code points; infinity where there is no limit."""
    characters: float
    """Of the JSON text, escapes included, quotes and the newline aside."""
    width: int
    """Characters of JSON that one code point can take."""
    newline: bool = False
    """One may follow that the pattern does not match: `$` stands before it too."""

    def within(self, most: int | None) -> int | None:
        """Return the characters of JSON of at most `most` code points; None where there is no limit."""
        longest = self.characters + (2 if self.newline else 0)
        if most is not None:
            last = max(self.width, 2) if self.newline else self.width
            longest = min(longest, (most - 1) * self.width + last if most else 0)
        return None if longest == math.inf else int(longest)


ANY_TEXT = TextLimit(math.inf, math.inf, _PAIR_WIDTH)


def json_width(code: int) -> int:
    """Return the characters that a code point takes in a JSON string in which all but ASCII is escaped."""
    if code > 0xFFFF:
        return _PAIR_WIDTH
    if code in _SHORT_ESCAPES:
        return 2
    return 1 if 0x20 <= code < 0x80 else _UNICODE_WIDTH


@lru_cache(maxsize=1_024)
def pattern_limit(pattern: str) -> TextLimit:
    r"""Return how long a string can be that a pattern is found in.

    Only patterns are read that are anchored at both ends, without groups and alternatives: `^[A-Z]{2}-\d{4}$`. Any
    other sets no limit. Classes such as `\d` are those of Unicode, as in Python.
    """
    if not (pattern.startswith("^") and pattern.endswith("$")) or pattern.endswith("\\$"):
        return ANY_TEXT
    length, characters, width = 0.0, 0.0, 0
    at, end = 1, len(pattern) - 1
    while at < end:
        found = _ATOM.match(pattern, at, end)
        if found is None or _SET_OPERATIONS.search(found["atom"]):
            return ANY_TEXT
        most: float = 1
        if found["short"]:
            most = 1 if found["short"] == "?" else math.inf
        elif found["least"]:
            most = int(found["most"]) if found["most"] else math.inf if found["comma"] else int(found["least"])
        if most:
            own = _atom_width(found["atom"])
            length, characters, width = length + most, characters + most * own, max(width, own)
        at = found.end()
    return TextLimit(length, characters, width, newline=True)


def _atom_width(atom: str) -> int:
    if atom == ".":
        return _PAIR_WIDTH
    if not atom.startswith("["):
        return _width(atom)
    if atom.startswith("[^"):
        return _PAIR_WIDTH
    widest = 0
    for first, last in _MEMBER.findall(atom[1:-1]):
        widest = max(widest, _width(first))
        if last:
            low, high = ord(first[-1]), ord(last[-1])
            is_narrow = len(first) == len(last) == 1 and low <= high < 0x80
            widest = max(widest, max(map(json_width, range(low, high + 1))) if is_narrow else _PAIR_WIDTH)
    return widest


def _width(atom: str) -> int:
    if len(atom) > 1 and atom[1] in "dDwWS":
        return _PAIR_WIDTH
    return _UNICODE_WIDTH if atom == r"\s" else json_width(ord(atom[-1]))
