"""Read on in a JSON text from one place of its grammar to the next."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ..validation._reading_rules import number_rule_broken
from ._json_numbers import LONGEST, allowed, is_number, may_become_number, shortened
from ._json_reading import Container, Reading, Stop, spaces
from ._json_strings import is_unfinished, plain, read_escape
from ._leaves import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE

# White space behind a value that says nothing yet: models end with a line feed or two.
_WHITESPACE_BEHIND: Final = 8

_number_part: Callable[..., re.Match[str]] = re.compile(r"[-+.0-9eE]*").match  # type: ignore[assignment]
_fence = re.compile(r"```[\w+-]{0,32}[ \t]{0,8}\r?\n").match
_beginning_of_fence = re.compile(r"`{1,2}|```[\w+-]{0,32}[ \t]{0,8}\r?").fullmatch
_LITERALS: Final = {"t": ("true", TRUE), "f": ("false", FALSE), "n": ("null", NULL)}
_WHITESPACE: Final = " \t\n\r"
_DIGITS: Final = "-0123456789"
_BEHIND_A_NUMBER: Final = _WHITESPACE + "`"
_BEGINNINGS: Final = '{["tfn' + _DIGITS


def lead(reading: Reading, text: str, at: int) -> int:
    """Read what comes before the value: white space, and a fence."""
    if text[at] in _WHITESPACE:
        return reading.skip(text, at)
    fence = _fence(text, at)
    if fence is not None:
        reading.step = _behind_fence
        return fence.end()
    if _beginning_of_fence(text, at):
        reading.held = text[at:]
        return len(text)
    return _behind_fence(reading, text, at)


def _behind_fence(reading: Reading, text: str, at: int) -> int:
    if text[at] in _WHITESPACE:
        return reading.skip(text, at)
    if text[at] not in _BEGINNINGS:
        raise reading.invalid("text before the JSON")
    reading.start = reading.before + at
    return _value(reading, text, at)


def _value(reading: Reading, text: str, at: int) -> int:
    first = text[at]
    kinds = reading.node.kinds
    if first == '"':
        if not kinds & STRING:
            raise reading.invalid(reading.node.kind_rule())
        reading.begin_string()
        reading.step = in_string
        return at + 1
    if first == "{":
        if not kinds & OBJECT:
            raise reading.invalid(reading.node.kind_rule())
        reading.enter(is_object=True)
        reading.step = _first_key
        return at + 1
    if first == "[":
        if not kinds & ARRAY:
            raise reading.invalid(reading.node.kind_rule())
        reading.enter(is_object=False)
        reading.step = _first_item
        return at + 1
    if first in _DIGITS:
        if not kinds & NUMBER:
            raise reading.invalid(reading.node.kind_rule())
        reading.literal = ""
        reading.number_is_cut = False
        reading.step = _in_number
        return at
    if first in _WHITESPACE:
        return reading.skip(text, at)
    literal = _LITERALS.get(first)
    if literal is None:
        raise reading.invalid("no JSON value")
    reading.literal, kind = literal
    if not kinds & kind:
        raise reading.invalid(reading.node.kind_rule())
    reading.length = 0
    reading.step = _in_literal
    return at


def _first_item(reading: Reading, text: str, at: int) -> int:
    if text[at] in _WHITESPACE:
        return reading.skip(text, at)
    if text[at] == "]":
        return _leave(reading, at)
    reading.begin_item()
    reading.step = _value
    return at


def _first_key(reading: Reading, text: str, at: int) -> int:
    if text[at] == "}":
        return _leave(reading, at)
    return _key(reading, text, at)


def _key(reading: Reading, text: str, at: int) -> int:
    if text[at] == '"':
        reading.begin_key(_inner(reading))
        reading.step = in_string
        return at + 1
    if text[at] in _WHITESPACE:
        return reading.skip(text, at)
    raise reading.invalid("no property where one is expected", inside=False)


def _colon(reading: Reading, text: str, at: int) -> int:
    if text[at] == ":":
        reading.step = _value
        return at + 1
    if text[at] in _WHITESPACE:
        return reading.skip(text, at)
    raise reading.invalid("no colon behind the property's name")


def _behind_value(reading: Reading, text: str, at: int) -> int:
    container = _inner(reading)
    char = text[at]
    if char == ",":
        if container.is_object:
            reading.step = _key
        else:
            reading.begin_item()
            reading.step = _value
        return at + 1
    if char == ("}" if container.is_object else "]"):
        return _leave(reading, at)
    if char in _WHITESPACE:
        return reading.skip(text, at)
    raise reading.invalid("no comma or end behind the value")


def in_string(reading: Reading, text: str, at: int) -> int:
    """Read on in a string, a value or a key."""
    end = plain(text, at).end()
    if end > at:
        reading.add(text[at:end])
        if end == len(text):
            return end
    char = text[end]
    if char == '"':
        if reading.is_key:
            reading.end_key()
            reading.step = _colon
            return end + 1
        reading.end_string()
        return _end_value(reading, end + 1)
    if char != "\\":
        raise reading.invalid("a control character in a string")
    if is_unfinished(text, end):
        reading.held = text[end:]
        return len(text)
    escape = read_escape(text, end)
    if escape is None:
        raise reading.invalid("an escape that JSON does not have")
    character, end = escape
    reading.add(character)
    return end


def _in_number(reading: Reading, text: str, at: int) -> int:
    end = _number_part(text, at).end()
    literal = reading.literal = reading.literal + text[at:end] if reading.literal else text[at:end]
    if end == len(text) or len(literal) > LONGEST:
        if not may_become_number(literal):
            raise reading.invalid("no JSON number")
        if len(literal) > LONGEST:
            literal = reading.literal = shortened(literal)
            reading.number_is_cut = True
        if end == len(text):
            return end
    if not is_number(literal) or (reading.container is None and text[end] not in _BEHIND_A_NUMBER):
        raise reading.invalid("no JSON number")
    rules = reading.node.numbers
    if rules is not None and not reading.number_is_cut and not allowed(literal, rules):
        raise reading.invalid(number_rule_broken(literal, rules, reading.node.kinds))
    container = reading.container
    if container is not None and not container.is_object and text[end] == ",":
        # Lists of numbers are the texts with the most values in them.
        reading.begin_item()
        reading.step = _value
        return end + 1
    return _end_value(reading, end)


def _in_literal(reading: Reading, text: str, at: int) -> int:
    more = text[at : at + len(reading.literal) - reading.length]
    if not reading.literal.startswith(more, reading.length):
        raise reading.invalid("no JSON value")
    reading.length += len(more)
    at += len(more)
    return _end_value(reading, at) if reading.length == len(reading.literal) else at


def _leave(reading: Reading, at: int) -> int:
    reading.leave()
    return _end_value(reading, at + 1)


def _end_value(reading: Reading, at: int) -> int:
    if reading.container is not None:
        reading.step = _behind_value
    else:
        reading.end = reading.before + at
        reading.step = _behind
    return at


def _behind(reading: Reading, text: str, at: int) -> int:
    # Whatever comes here, the value itself has no problem.
    end = spaces(text, at).end()
    assert reading.end is not None
    if reading.before + end - reading.end > _WHITESPACE_BEHIND:
        raise Stop("whitespace", None)
    if end == len(text):
        return end
    raise Stop("fence" if text[end] == "`" else "prose", None)


def _inner(reading: Reading) -> Container:
    assert reading.container is not None
    return reading.container
