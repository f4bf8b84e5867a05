"""How long a number can be in JSON, and a string that a simple pattern allows."""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import NamedTuple

PAIR_WIDTH = len("\\ud83d\\ude00")
"""The most characters of JSON that one character of a text takes, where all but ASCII is escaped."""

# The shortest text that gives a double back has at most 17 digits: "1.7976931348623157e+308", and a sign.
_DOUBLE = 23
# Whole doubles of so many digits are written out, with ".0" behind; longer ones with an exponent.
_WRITTEN_OUT = 16
_NEGATIVE_ZERO = len("-0.0")


def number_length(value: float) -> int:
    """Return the characters of the longest text of a number: 1 and 1.0 are the same number to JSON schema.

    Raises ValueError for an integer of more than 4,300 digits.
    """
    forms = [value]
    if isinstance(value, int):
        try:
            forms.append(float(value))
        except OverflowError:
            pass
    elif value.is_integer():
        forms.append(int(value))
    return max(len(json.dumps(form)) for form in forms) if value else _NEGATIVE_ZERO


def longest_number(minimum: float, maximum: float, *, integer: bool) -> int:
    """Return the characters of the longest number of a range.

    A number that is not whole is taken for a double. 2.0 is an integer to JSON schema. Raises ValueError for limits of
    more than 4,300 digits.
    """
    low, high, sign = math.floor(minimum), math.ceil(maximum), minimum < 0
    longest = max(_NEGATIVE_ZERO, _whole(high), _whole(low) + sign)
    return longest if integer else max(longest, _DOUBLE + sign)


def _whole(number: int) -> int:
    """Return the characters of the longest whole number from 0 to this one, written as an integer or as a double."""
    digits = len(str(abs(number)))
    return digits + len(".0") if digits <= _WRITTEN_OUT else max(digits, _DOUBLE)


# One atom (a literal, an escape or a class) and its quantifier.
_ESCAPE = r'\\[dDwWsS.\-/+*?()\[\]{}|^$"\\]'
_CLASS = rf"\[\^?(?:{_ESCAPE}|(?!--|&&|~~|\|\|)[^\\\[\]])+\]"
_ATOM = re.compile(
    rf"(?P<atom>{_ESCAPE}|{_CLASS}|[^\\\[\]()\{{\}}|^$*+?])"
    r"(?:(?P<short>[*+?])|\{(?P<least>\d{1,9})(?P<comma>,?)(?P<most>\d{0,9})\})?(?![*+?{])"
)
_UNICODE = re.compile(r"\.|\[\^.*|.*\\[dDwWsS].*", re.DOTALL).fullmatch


class TextLimit(NamedTuple):
    """How long a string can be that a pattern allows."""

    characters: float
    """Of the JSON text, escapes included, quotes and the newline aside; infinity where there is no limit."""
    width: int
    """Characters of JSON that one character of the string can take."""

    def within(self, most: int | None) -> int | None:
        """Return the characters of JSON of at most `most` characters; None where there is no limit."""
        longest = self.characters + 2  # `$` stands before a newline too
        if most is not None:
            longest = min(longest, (most - 1) * self.width + max(self.width, 2) if most else 0)
        return None if longest == math.inf else int(longest)


_ANY_TEXT = TextLimit(math.inf, PAIR_WIDTH)


@lru_cache(maxsize=1_024)
def pattern_limit(pattern: str) -> TextLimit:
    r"""Return how long a string can be that a pattern is found in.

    Only patterns are read that are anchored at both ends, without groups and alternatives: `^[A-Z]{2}-\d{4}$`. Any
    other sets no limit. Classes such as `\d` are those of Unicode, as in Python.
    """
    if not (pattern.startswith("^") and pattern.endswith("$")) or pattern.endswith("\\$"):
        return _ANY_TEXT
    characters, width = 0.0, 0
    at, end = 1, len(pattern) - 1
    while at < end:
        found = _ATOM.match(pattern, at, end)
        if found is None:
            return _ANY_TEXT
        most: float = 1
        if found["short"]:
            most = 1 if found["short"] == "?" else math.inf
        elif found["least"]:
            most = int(found["most"]) if found["most"] else math.inf if found["comma"] else int(found["least"])
        if most:
            own = _atom_width(found["atom"])
            characters, width = characters + most * own, max(width, own)
        at = found.end()
    return TextLimit(characters, width)


@lru_cache(maxsize=1_024)
def _atom_width(atom: str) -> int:
    """Return the most characters of JSON that one character takes that an atom matches."""
    if not atom.isascii() or _UNICODE(atom):
        return PAIR_WIDTH
    try:
        matches = re.compile(atom).fullmatch
    except re.error:  # a range that runs backwards
        return PAIR_WIDTH
    return max((len(json.dumps(char)) - 2 for char in map(chr, range(128)) if matches(char)), default=0)
