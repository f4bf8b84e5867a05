"""Values that are likely to differ from call to call: find them in a text, and say what sort of change a change is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, product
from typing import Final, Literal, NamedTuple

from fastlane.records.plays import DriftKind

VolatileKind = Literal["timestamp", "uuid", "counter", "random"]


class Volatile(NamedTuple):
    """One value, by its place in the text."""

    kind: VolatileKind
    start: int
    end: int


_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    "|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAY = "(?:Mon(?:day)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:rs?(?:day)?)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)"
_YEAR = r"(?:19|20)\d\d"
_ZONE = r"(?:\s?(?:Z\b|(?:UTC|GMT)?\s?[+-]\d\d?:?(?:\d\d)?\b|\(?(?!AM\b|PM\b)[A-Z]{2,4}T\b\)?|UTC\b|GMT\b))"
_HALF = r"(?:[ap]\.m\.|[ap]m\b)"
_CLOCK = (
    rf"(?:[01]?\d|2[0-4]):[0-5]\d(?::[0-6]\d(?:[.,]\d{{1,9}})?)?(?:\s?{_HALF})?{_ZONE}?"
    rf"|(?:1[0-2]|0?\d)\s?{_HALF}{_ZONE}?"
)
_ORDINAL = r"\d{1,2}(?:st|nd|rd|th)?"
_NUMERIC_DATE = (
    rf"{_YEAR}-\d\d?-\d\d?|{_YEAR}/\d\d?/\d\d?|{_YEAR}\.\d\d\.\d\d|\d\d?/\d\d?/(?:\d{{4}}|\d\d)\b|\d\d?-\d\d?-{_YEAR}"
    rf"|\d\d?\.\s?\d\d?\.\s?{_YEAR}|\d{{4}}年\d\d?月\d\d?日|\d\d?/{_MONTH}/{_YEAR}|\d\d?-{_MONTH}-(?:{_YEAR}|\d\d)\b"
)
_DATE = (
    rf"(?:{_DAY}\.?,?\s+(?:the\s)?)?(?:{_NUMERIC_DATE}"
    rf"|{_ORDINAL}\s(?:of\s)?{_MONTH}\b\.?(?:,?\s{_YEAR}|\s\d\d(?=\s\d\d?:))?"
    rf"|{_MONTH}\b\.?\s{{1,2}}{_ORDINAL}\b(?!:)(?:,?\s{_YEAR})?(?:\s+at\b)?"
    rf"|{_MONTH}\b\.?,?\s{_YEAR})"
)
_BETWEEN = r"(?:T|:|,?\s+(?:at\s+)?|\s?[-@|]\s?|_)"
_EPOCH = r"1[0-9]{9}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?(?![\d.]\d)(?!\d)"
_COMPACT = (
    rf"{_YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[T_-]?(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?(?:\.\d+)?Z?)?(?!\d)"
)
_CTIME = rf"{_DAY}\s{_MONTH}\s{{1,2}}\d\d?\s\d\d:\d\d:\d\d(?:\s[A-Z]{{2,5}})?\s{_YEAR}"

_TIME = (
    rf"(?:{_CTIME}|{_DATE}(?:{_BETWEEN}(?:{_CLOCK}))?|(?:{_CLOCK})(?:\s(?:on|of|,)?\s?|,\s)(?:{_DATE})"
    rf"|(?:{_DAY},?\s(?:at\s)?)?(?:{_CLOCK})|{_COMPACT}|{_EPOCH})"
)
_TIMESTAMP = re.compile(rf"(?<![\w.]){_TIME}(?![A-Za-z0-9])", re.IGNORECASE)
_GLUED_TIMESTAMP = re.compile(rf"(?<!\d)(?<!\d\.){_TIME}(?!\d)".replace(r"\b", ""), re.IGNORECASE)
# A lone name: enough where this very word is known to have changed, too little to be called volatile by itself.
_CALENDAR = re.compile(rf"{_DAY}|{_MONTH}|today|yesterday|tomorrow|noon|morning|afternoon|evening|[ap]m", re.IGNORECASE)
_IDENTIFIER = (
    r"(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    # Without dashes, only what bears the marks of version 1, 4 or 7 (RFC 9562): other 32 digits are as likely a digest.
    r"|(?<![0-9a-fA-F])[0-9a-fA-F]{12}[147][0-9a-fA-F]{3}[89abAB][0-9a-fA-F]{15}(?![0-9a-fA-F]))"
)
_UUID, _GLUED_UUID = re.compile(rf"(?<![0-9A-Za-z]){_IDENTIFIER}(?![0-9A-Za-z])"), re.compile(_IDENTIFIER)
_WORD = re.compile(r"[A-Za-z0-9_-](?:[A-Za-z0-9+/_~.-]*[A-Za-z0-9_-])?={0,2}")
_PART = re.compile(r"[A-Za-z0-9+]+={0,2}")
_COUNTER = re.compile(
    r"(?:#|(?<![a-z])(?:no|number|request|turn|step|attempt|call|message|iteration|round|page|run|seq|count|counter|index|version"
    r"|visits?|ticket|session|revision|build|retry|query|total)(?![a-z])(?:[\s_-]?(?:id|no|number|count|index))?\.?"
    r"(?:\s?(?:is\s|[:=#]\s?|\"\s?:\s?)|\s(?:of\s)?))#?(\d[\d,]*)(?![\w.-]*[A-Za-z])",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"[_./~-]+")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_LEAST_RANDOM, _LEAST_TOKEN = 8, 6
# A number that moved by at most so much was counted; another one of so many digits was drawn.
_MAX_COUNTED, _DRAWN_DIGITS = 300, 6
# What is looked at around a difference, in characters: the longest way to write a time is shorter.
_AROUND = 80
# Behind a value that was replaced, both texts go on alike for so many characters.
_SAME_BEHIND = 4
_NUMBER = re.compile(r"\d(?:[\d,]*\d)?")
_PATTERNS: Final[Mapping[VolatileKind, re.Pattern[str]]] = {
    "uuid": _UUID, "timestamp": _TIMESTAMP, "random": _WORD, "counter": _COUNTER,
}  # fmt: skip
_CHANGED: Final[Mapping[DriftKind, tuple[re.Pattern[str], ...]]] = {
    "uuid": (_GLUED_UUID,), "timestamp": (_TIMESTAMP, _GLUED_TIMESTAMP, _CALENDAR),
}  # fmt: skip
_SPACES = re.compile(r"[\s\u200b-\u200d\u2060\ufeff]+")


def find(text: str) -> Iterator[Volatile]:
    """Yield all such values of a text, in order, none overlapping another.

    UUIDs come before times, times before random tokens, and those before counters, which are numbers behind a word that
    says so ("request #17"). What merely has a digit is none of them.
    """
    found: list[Volatile] = []
    taken = bytearray(len(text))
    for kind, pattern in _PATTERNS.items():
        for match in pattern.finditer(text):
            start, end = match.span(pattern.groups)
            if any(taken[start:end]) or (kind == "random" and not _looks_random(match.group())):
                continue
            taken[start:end] = b"\1" * (end - start)
            found.append(Volatile(kind, start, end))
    yield from sorted(found, key=lambda volatile: volatile.start)


def kind_of_change(old: str, new: str, at: int) -> DriftKind | None:
    """Return the sort of a change that begins at a character of two texts; None for an edit like any other."""
    if _SPACES.sub("", old) == _SPACES.sub("", new):
        return "whitespace"
    for kind, patterns in _CHANGED.items():
        if any(_replaced(old, new, at, pattern) for pattern in patterns):
            return kind
    number = _replaced(old, new, at, _NUMBER)
    if number is not None and _distance(*number) <= _MAX_COUNTED:
        return "counter"
    token = _replaced(old, new, at, _WORD, _is_token) or _replaced(old, new, at, _PART, _is_token)
    if token is not None and (len(token[0]) == len(token[1]) or all(_looks_random(one, _LEAST_TOKEN) for one in token)):
        return "random"
    return None if number is None else kind_of_number(*number)


def kind_of_number(old: str, new: str) -> DriftKind | None:
    """Return the sort of a change of one number to another, both as they are written; None for what is no number."""
    if not (_NUMBER.fullmatch(old) and _NUMBER.fullmatch(new)):
        return None
    if all(_TIMESTAMP.search(number) for number in (old, new)):
        return "timestamp"
    return "counter" if _distance(old, new) <= _MAX_COUNTED or len(new) < _DRAWN_DIGITS else "random"


def _distance(old: str, new: str) -> int:
    one, other = (int(number.replace(",", "")[-18:]) for number in (old, new))
    return abs(one - other)


def _replaced(
    old: str, new: str, at: int, pattern: re.Pattern[str], accepts: Callable[[str], bool] = bool
) -> tuple[str, str] | None:
    """Return the value at a character of the old text that has become another, with the text going on behind it."""
    spans = []
    for text in (old, new):
        start = max(0, at - _AROUND)
        while 0 < start < at and not text[start - 1].isspace():
            start += 1
        found = (match.span() for match in pattern.finditer(text, start, at + _AROUND))
        spans.append([span for span in found if span[0] <= at <= span[1] and accepts(text[slice(*span)])])
    for was, now in product(*spans):
        one, other = old[slice(*was)], new[slice(*now)]
        behind = old[was[1] : was[1] + _SAME_BEHIND], new[now[1] : now[1] + _SAME_BEHIND]
        if one.casefold() != other.casefold() and behind[0] == behind[1]:
            return one, other
    return None


def _is_token(word: str) -> bool:
    return len(word) >= _LEAST_TOKEN and (not word.isalpha() or _looks_random(word))


def _looks_random(word: str, least: int = _LEAST_RANDOM) -> bool:
    """Whether a word reads like hexadecimal, base64 or another random token, at least in one of its parts."""
    whole = word.strip("=").replace("-", "").replace("_", "")
    is_worded = word.count("-") + word.count("_") > 2
    parts = _SEPARATORS.split(word.strip("="))
    return any(_is_mixed(part, least) for part in (parts if is_worded else (whole, *parts)))


def _is_mixed(part: str, least: int) -> bool:
    """Whether letters and digits, or cases, alternate as they do in no name."""
    if len(part) < least:
        return False
    if _HEX.fullmatch(part):
        return not part.isalpha()
    kinds = ["d" if one.isdigit() else "u" if one.isupper() else "l" for one in part]
    changes = sum(one != two for one, two in pairwise(kinds))
    # "version2", "2ndAttempt" and CamelCase do so seldom.
    return changes >= 3 and changes >= len(part) / 3
