"""Find the first place where two values or texts differ, and say what sort of change it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from fastlane.records.prompt import DriftKind

from .volatile import SEPARATORS, Volatile, calendar_words, find, find_glued, looks_random, words

# A number that moved by at most so much was counted; another one of so many digits was drawn.
_MOST_COUNTED = 300
_DRAWN_DIGITS = 6
_LEAST_TOKEN = 6
# What is looked at around a difference, in characters: the longest way to write a time is shorter.
_AROUND = 80
# Behind a value that was replaced, both texts go on alike for so many characters.
_SAME_BEHIND = 4
# Words in a row: the same words in another order are another text.
_ROW = 4
_NEARLY = 0.9
_NUMBER = re.compile(r"\d(?:[\d,]*\d)?")
_SPACES = re.compile(r"[\s\u200b-\u200d\u2060\ufeff]+")
_WORDS = re.compile(r"\w+")

_Span = tuple[int, int]


class Difference(NamedTuple):
    """The first difference between two values."""

    kind: DriftKind | None
    """None: it was edited, and nothing says how."""
    path: str
    """From the value on: ".function.description", ""."""
    character: int | None = None
    """Characters that the two texts have in common at the front; None for what is no text."""
    sizes: tuple[int, int] = (0, 0)
    """Characters of the two texts."""


def value_difference(old: Any, new: Any, path: str = "") -> Difference | None:
    """Find the first difference between two JSON values; None where they are written alike."""
    if isinstance(old, str) and isinstance(new, str):
        return None if old == new else _text_difference(old, new, path)
    if isinstance(old, dict) and isinstance(new, dict):
        return _object_difference(old, new, path)
    if isinstance(old, list) and isinstance(new, list):
        return _array_difference(old, new, path)
    return None if written(old) == written(new) else Difference(_number_kind(str(old), str(new)), path)


def similarity(old: Any, new: Any) -> float:
    """Return how much of the longer of two values is in both, in rows of four words: 0 to 1. Short ones by the word."""
    one, other = (value if isinstance(value, str) else written(value) for value in (old, new))
    front = common_length(one, other)
    alike = front + common_length(one[front:][::-1], other[front:][::-1])
    # One edited place, as most are: there is no need to look at the words.
    if alike >= _NEARLY * max(len(one), len(other)):
        return alike / max(len(one), len(other), 1)
    mine, theirs = _WORDS.findall(one), _WORDS.findall(other)
    row = _ROW if min(len(mine), len(theirs)) >= 4 * _ROW else 1
    before, after = (Counter(zip(*(words[start:] for start in range(row)), strict=False)) for words in (mine, theirs))
    longer = max(before.total(), after.total())
    return (before & after).total() / longer if longer else 1.0


def written(value: Any) -> str:
    """Return a value as JSON; its `repr` where it is none."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _object_difference(old: dict[str, Any], new: dict[str, Any], path: str) -> Difference | None:
    for mine, theirs in zip(old, new, strict=False):
        if mine != theirs:
            if theirs not in old:
                return Difference(None, f"{path}.{theirs}")
            return Difference("reordered_keys", path) if mine in new else Difference(None, f"{path}.{mine}")
        found = value_difference(old[mine], new[mine], f"{path}.{mine}")
        if found is not None:
            return found
    added_or_gone = [*new][len(old) :] or [*old][len(new) :]
    return Difference(None, f"{path}.{added_or_gone[0]}") if added_or_gone else None


def _array_difference(old: list[Any], new: list[Any], path: str) -> Difference | None:
    mine, theirs = [*map(written, old)], [*map(written, new)]
    if mine != theirs and sorted(mine) == sorted(theirs):
        return Difference("reordered_keys", path)
    for index, (one, other) in enumerate(zip(old, new, strict=False)):
        found = value_difference(one, other, f"{path}[{index}]")
        if found is not None:
            return found
    return None if len(old) == len(new) else Difference(None, f"{path}[{min(len(old), len(new))}]")


def _text_difference(old: str, new: str, path: str) -> Difference:
    at = common_length(old, new)
    return Difference(_text_kind(old, new, at), path, at, (len(old), len(new)))


def common_length(one: str, other: str) -> int:
    """Characters that two texts have in common at the front."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _text_kind(old: str, new: str, at: int) -> DriftKind | None:
    """The sort of a change that begins at a character of both texts."""
    if _SPACES.sub("", old) == _SPACES.sub("", new):
        return "whitespace"
    if old[:1] in ("{", "[") and _is_reordered_json(old, new):
        return "reordered_keys"
    mine, theirs = _values_around(old, at), _values_around(new, at)
    for kind in ("uuid", "timestamp"):
        if _replaced(old, new, _of(kind, mine), _of(kind, theirs)):
            return kind
    number = _replaced(old, new, _numbers(old, at), _numbers(new, at))
    if number is not None and _distance(*number) <= _MOST_COUNTED:
        return "counter"
    if _replaced(old, new, _of("random", mine), _of("random", theirs)):
        return "random"
    token = _replaced(old, new, _tokens(old, at), _tokens(new, at))
    if token is not None and (len(token[0]) == len(token[1]) or all(looks_random(one, _LEAST_TOKEN) for one in token)):
        return "random"
    return None if number is None else _number_kind(*number)


def _is_reordered_json(old: str, new: str) -> bool:
    try:
        return bool(orjson.loads(old) == orjson.loads(new))
    except ValueError:
        return False


def _number_kind(old: str, new: str) -> DriftKind | None:
    """The sort of a change of one number to another, both as they were written."""
    if not (_NUMBER.fullmatch(old) and _NUMBER.fullmatch(new)):
        return None
    if all(any(value.kind == "timestamp" for value in find(number)) for number in (old, new)):
        return "timestamp"
    return "counter" if _distance(old, new) <= _MOST_COUNTED or len(new) < _DRAWN_DIGITS else "random"


def _distance(old: str, new: str) -> int:
    one, other = (int(number.replace(",", "")[-18:]) for number in (old, new))
    return abs(one - other)


def _values_around(text: str, at: int) -> list[Volatile]:
    """Volatile values that a character stands in or right behind."""
    start = max(0, at - _AROUND)
    while 0 < start < at and not text[start - 1].isspace():
        start += 1
    stop = min(len(text), at + _AROUND)
    named = [Volatile("timestamp", *span) for span in calendar_words(text, max(0, at - 12), stop)]
    values = [*find(text, start, stop), *find_glued(text, start, stop), *named]
    return [value for value in values if value.start <= at <= value.end]


def _of(kind: str, values: Iterable[Volatile]) -> list[_Span]:
    return [(value.start, value.end) for value in values if value.kind == kind]


def _numbers(text: str, at: int) -> list[_Span]:
    found = (match.span() for match in _NUMBER.finditer(text, max(0, at - 32), at + 32))
    return [(start, end) for start, end in found if start <= at <= end]


def _tokens(text: str, at: int) -> list[_Span]:
    """Words of letters and digits, and parts of such words, that a character stands in or right before."""
    start = at
    while start and not text[start - 1].isspace() and at - start < _AROUND:
        start -= 1
    found = []
    for first, last in words(text, start, min(len(text), at + _AROUND)):
        if first - 2 <= at <= last:
            found.append((first, last))
            for part in SEPARATORS.split(text[first:last]):
                if first <= at <= first + len(part):
                    found.append((first, first + len(part)))
                first += len(part) + 1
    return [(start, end) for start, end in found if end - start >= _LEAST_TOKEN and not text[start:end].isalpha()]


def _replaced(old: str, new: str, mine: Iterable[_Span], theirs: list[_Span]) -> tuple[str, str] | None:
    """The value of the old text that has become another in the new one, with the text going on behind it."""
    for was, now in ((was, now) for was in mine for now in theirs):
        one, other = old[slice(*was)], new[slice(*now)]
        behind = old[was[1] : was[1] + _SAME_BEHIND], new[now[1] : now[1] + _SAME_BEHIND]
        if one.casefold() != other.casefold() and behind[0] == behind[1]:
            return one, other
    return None
