"""How long a text can be that a regular expression allows: the expression is read, and never run."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

_ESCAPED_SHORT = frozenset(map(ord, '"\\\b\f\n\r\t'))
_UNICODE_WIDTH, _PAIR_WIDTH = len("\\u00e9"), len("\\ud83d\\ude00")
# What stands beyond says nothing that a limit could be made of.
_MOST_LENGTH = 10**12
_MOST_DIGITS = 9

_QUANTIFIER = re.compile(r"\{(\d+)(,?)(\d*)\}")
_GROUP_NAME = re.compile(r"\(\?P?<([^\W\d]\w*)>")
_NAME_BEHIND = re.compile(r"<([^\W\d]\w*)>")
_HEXADECIMAL = {name: re.compile(f"[0-9a-fA-F]{{{digits}}}") for name, digits in (("x", 2), ("u", 4), ("U", 8))}
_CODE_POINT = re.compile(r"\{([0-9a-fA-F]{1,6})\}")
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "a": 7}
_SET_OPERATIONS = ("&&", "--", "~~", "||")


class Pattern(NamedTuple):
    """What a regular expression allows at most."""

    starts: bool = False
    """It can only match at the start of a text."""
    ends: bool = False
    """It can only match up to the end of a text."""
    length: float = 0
    """In code points; infinity where there is no limit."""
    characters: float = 0
    """Of the JSON text, escapes included."""
    width: int = 0
    """Characters of JSON that one code point can take."""
    newline: bool = False
    """One may follow that is not matched: `$` stands before it too."""

    def within(self, most: int | None) -> int | None:
        """Return the characters of JSON, quotes aside, of at most so many code points; None where there is no limit."""
        longest = self.characters + (2 if self.newline else 0)
        if most is not None:
            last = max(self.width, 2) if self.newline else self.width
            longest = min(longest, (most - 1) * self.width + last if most else 0)
        return None if longest == math.inf else int(longest)


class _UnknownError(Exception):
    """Something in a pattern that has no meaning here, or two."""


class _Frame:
    """A group that is being read."""

    def __init__(self, names: tuple[int | str, ...] = (), *, looks: bool = False) -> None:
        self.names = names
        self.looks = looks
        self.done: Pattern | None = None
        self.branch = Pattern()

    def close_branch(self) -> None:
        self.done = self.branch if self.done is None else _either(self.done, self.branch)
        self.branch = Pattern()


def json_width(code: int) -> int:
    """Return the characters that a code point takes in a JSON string where all that is not ASCII is escaped."""
    if code > 0xFFFF:
        return _PAIR_WIDTH
    if code in _ESCAPED_SHORT:
        return 2
    return 1 if 0x20 <= code < 0x80 else _UNICODE_WIDTH


@lru_cache(maxsize=1_024)
def longest_match(pattern: str) -> Pattern | None:
    r"""Return what a whole text can be that a pattern is found in; None where nothing limits it.

    Something does where every branch begins with `^` and ends with `$`: then the length, or at least the width of a
    code point. Classes such as `\d` are those of Unicode, `$` is also found before a newline at the end, as Python has
    it; look-around does not narrow anything; and what regular expressions of different languages read in different
    ways counts as unknown.
    """
    try:
        found = _read(pattern)
    except _UnknownError:
        return None
    if not (found.starts and found.ends):
        return None
    return found._replace(newline="$" in pattern)


def _read(pattern: str) -> Pattern:
    frames = [_Frame()]
    groups: dict[int | str, Pattern] = {}
    number = at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "(":
            opened, at = _group(pattern, at)
            if isinstance(opened, str):
                piece = _again(groups, opened)
            else:
                if opened.names:
                    number += 1
                    opened.names = (number, *opened.names[1:])
                frames.append(opened)
                continue
        elif character == "|":
            frames[-1].close_branch()
            at += 1
            continue
        elif character == ")":
            if len(frames) == 1:
                raise _UnknownError
            frame = frames.pop()
            frame.close_branch()
            piece = Pattern() if frame.looks or frame.done is None else frame.done
            if not groups.keys().isdisjoint(frame.names):
                raise _UnknownError
            groups |= dict.fromkeys(frame.names, piece)
            at += 1
        elif character == "[":
            width, at = _class(pattern, at)
            piece = _wide(width)
        elif character == "\\":
            piece, at = _escape(pattern, at, groups)
        else:
            piece = {"^": Pattern(starts=True), "$": Pattern(ends=True), ".": _wide(_PAIR_WIDTH)}.get(
                character
            ) or _one(ord(character))
            if character in "*+?":
                raise _UnknownError
            at += 1
        piece, at = _repeated(piece, pattern, at)
        frames[-1].branch = _both(frames[-1].branch, piece)
    if len(frames) > 1:
        raise _UnknownError
    frames[0].close_branch()
    return frames[0].done or Pattern()


def _group(pattern: str, at: int) -> tuple[_Frame | str, int]:
    """What an opening parenthesis opens: a group, or a reference to one by name; and where it goes on."""
    if not pattern.startswith("(?", at):
        return _Frame((0,)), at + 1
    for opening in ("(?=", "(?!", "(?<=", "(?<!"):
        if pattern.startswith(opening, at):
            return _Frame(looks=True), at + len(opening)
    for opening in ("(?:", "(?>"):
        if pattern.startswith(opening, at):
            return _Frame(), at + len(opening)
    if named := _GROUP_NAME.match(pattern, at):
        return _Frame((0, named[1])), named.end()
    end = pattern.find(")", at)
    if pattern.startswith("(?P=", at) and end > 0:
        return pattern[at + 4 : end], end + 1
    # Flags change what everything else means, and conditions depend on other groups.
    raise _UnknownError


def _again(groups: dict[int | str, Pattern], name: int | str) -> Pattern:
    """What a group has matched, once more."""
    if name not in groups:
        raise _UnknownError
    return groups[name]._replace(starts=False, ends=False)


def _escape(pattern: str, at: int, groups: dict[int | str, Pattern]) -> tuple[Pattern, int]:
    """What a backslash outside of a class stands for, and where it goes on."""
    name = pattern[at + 1 : at + 2]
    if name in {"b", "B"}:
        return Pattern(), at + 2
    if name == "A":
        return Pattern(starts=True), at + 2
    if name in {"Z", "z"}:
        return Pattern(ends=True), at + 2
    if name == "k" and (named := _NAME_BEHIND.match(pattern, at + 2)):
        return _again(groups, named[1]), named.end()
    if name.isdecimal() and name != "0":
        digits = 2 if pattern[at + 2 : at + 3].isdecimal() else 1
        if pattern[at + 1 + digits : at + 2 + digits].isdecimal():
            raise _UnknownError
        return _again(groups, int(pattern[at + 1 : at + 1 + digits])), at + 1 + digits
    code, width, at = _escaped(pattern, at)
    return (_wide(width) if code is None else _one(code)), at


def _escaped(pattern: str, at: int) -> tuple[int | None, int, int]:
    """The code point of an escape, or None where it is a class of them; its width; and where it goes on."""
    name = pattern[at + 1 : at + 2]
    at += 2
    if name == "s":
        return None, _UNICODE_WIDTH, at
    if name in {"d", "D", "w", "W", "S"}:
        return None, _PAIR_WIDTH, at
    if name in {"p", "P"} and pattern.startswith("{", at) and (end := pattern.find("}", at)) > 0:
        return None, _PAIR_WIDTH, end + 1
    if name in _CONTROLS:
        code = _CONTROLS[name]
    elif name == "c" and pattern[at : at + 1].isalpha() and pattern[at : at + 1].isascii():
        code, at = ord(pattern[at]) % 32, at + 1
    elif name == "0" and not pattern[at : at + 1].isdecimal():
        code = 0
    elif name == "u" and (point := _CODE_POINT.match(pattern, at)):
        code, at = int(point[1], 16), point.end()
    elif name in _HEXADECIMAL and (digits := _HEXADECIMAL[name].match(pattern, at)):
        code, at = int(digits[0], 16), digits.end()
    elif not name or (name.isalnum() and name.isascii()):
        raise _UnknownError
    else:
        code = ord(name)
    return code, json_width(code), at


def _class(pattern: str, at: int) -> tuple[int, int]:
    """How wide a code point of a class in brackets can be, and where it goes on."""
    at += 1
    negated = pattern.startswith("^", at)
    at += negated
    width = 0
    start = at
    while not pattern.startswith("]", at):
        if at >= len(pattern) or pattern[at] == "[" or pattern.startswith(_SET_OPERATIONS, at):
            raise _UnknownError
        low, one, at = _member(pattern, at)
        width = max(width, one)
        if pattern.startswith("-", at) and at + 1 < len(pattern) and pattern[at + 1] != "]":
            high, one, at = _member(pattern, at + 1)
            if low is None or high is None or high < low:
                raise _UnknownError
            width = max(width, one, _widest(low, high))
    if at == start:
        raise _UnknownError
    return (_PAIR_WIDTH if negated else width), at + 1


def _member(pattern: str, at: int) -> tuple[int | None, int, int]:
    if pattern[at] == "[":
        raise _UnknownError
    if pattern[at] != "\\":
        return ord(pattern[at]), json_width(ord(pattern[at])), at + 1
    if pattern.startswith("\\b", at):
        return ord("\b"), 2, at + 2
    return _escaped(pattern, at)


def _widest(low: int, high: int) -> int:
    return json_width(high) if high >= 0x80 else max(map(json_width, range(low, high + 1)))


def _repeated(piece: Pattern, pattern: str, at: int) -> tuple[Pattern, int]:
    """A piece with the quantifier behind it."""
    character = pattern[at : at + 1]
    if character in {"*", "+", "?"}:
        least, most = character == "+", 1 if character == "?" else math.inf
        at += 1
    elif character == "{":
        counted = _QUANTIFIER.match(pattern, at)
        if counted is None:
            if pattern.startswith("{,", at):
                raise _UnknownError  # No quantifier in every language.
            return piece, at
        if max(len(counted[1]), len(counted[3])) > _MOST_DIGITS:
            raise _UnknownError
        least = int(counted[1]) > 0
        most = int(counted[3]) if counted[3] else math.inf if counted[2] else int(counted[1])
        at = counted.end()
    else:
        return piece, at
    if pattern[at : at + 1] in {"?", "+"}:
        at += 1
    if pattern[at : at + 1] in {"*", "+", "?"} or _QUANTIFIER.match(pattern, at):
        raise _UnknownError
    return Pattern(
        starts=piece.starts and least,
        ends=piece.ends and least,
        length=_times(piece.length, most),
        characters=_times(piece.characters, most),
        width=piece.width if most else 0,
    ), at


def _times(size: float, count: float) -> float:
    return _limited(size * count) if size and count else 0


def _limited(size: float) -> float:
    return size if size <= _MOST_LENGTH else math.inf


def _both(first: Pattern, second: Pattern) -> Pattern:
    return Pattern(
        starts=first.starts or second.starts,
        ends=first.ends or second.ends,
        length=_limited(first.length + second.length),
        characters=_limited(first.characters + second.characters),
        width=max(first.width, second.width),
    )


def _either(first: Pattern, second: Pattern) -> Pattern:
    return Pattern(
        starts=first.starts and second.starts,
        ends=first.ends and second.ends,
        length=max(first.length, second.length),
        characters=max(first.characters, second.characters),
        width=max(first.width, second.width),
    )


def _one(code: int) -> Pattern:
    return _wide(json_width(code))


def _wide(width: int) -> Pattern:
    return Pattern(length=1, characters=width, width=width)
