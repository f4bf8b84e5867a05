"""Read the text of an answer as JSON, strictly, and say in words of our own why it is none."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from ._problems import EMPTY, Problem, shown, whole, without_frames

# Python turns no text of more than 4,300 digits into an integer, because that takes quadratic time. In pieces it does,
# and what a model can write does not take long.
_MOST_DIGITS = 4_000

_REASONS: tuple[tuple[str, str], ...] = (
    ("Expecting property name", "a property's name in double quotes was expected"),
    ("Illegal trailing comma", "a comma with nothing behind it"),
    ("Expecting ':'", "a colon was expected"),
    ("Expecting ','", "a comma or a closing bracket was expected"),
    ("Expecting value", "a value was expected"),
    ("Unterminated string", "a string without an end"),
    ("Invalid control character", "a control character inside of a string"),
    ("Invalid \\u", "a \\u without four hexadecimal digits"),
    ("Invalid \\", "a backslash in front of a character that takes none"),
    ("Extra data", "text behind the JSON"),
    ("Unexpected UTF-8 BOM", "text before the JSON"),
)
_TRAILING_COMMA = re.compile(r",\s*[}\]]")


class LongInteger(int):
    """An integer of more digits than Python writes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "an integer of more than 4,000 digits"

    __str__ = __repr__

    def __format__(self, specification: str) -> str:
        return repr(self)


class _NoNumberError(ValueError):
    """NaN or an infinity, which Python would take."""


def read_json(text: str) -> tuple[Any, Problem | None]:
    """Return the value of a JSON text and None, or None and why it is not JSON. Raises nothing.

    It takes what RFC 8259 takes: of names that stand twice in an object the last counts, as with every decoder an
    answer may go to, escaped halves of surrogate pairs are let through, and numbers may be of any length.
    """
    try:
        return json.loads(text, parse_constant=_refuse), None
    except json.JSONDecodeError as error:
        return None, problem_of_syntax(without_frames(error))
    except _NoNumberError as error:
        return None, _no_number(without_frames(error))
    except RecursionError:
        return None, _nested()
    except ValueError:
        pass
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_integer), None
    except json.JSONDecodeError as error:
        return None, problem_of_syntax(without_frames(error))
    except _NoNumberError as error:
        return None, _no_number(without_frames(error))
    except RecursionError:
        return None, _nested()


def _refuse(constant: str) -> NoReturn:
    raise _NoNumberError(constant)


def _no_number(error: _NoNumberError) -> Problem:
    return whole(
        "not JSON: NaN or an infinity", f"{error} is not JSON. Use a number, or null where it is allowed.", error
    )


def _nested() -> Problem:
    return whole("nested too deeply to be read", "The answer is nested too deeply to be read.")


def _integer(text: str) -> int:
    if len(text) <= _MOST_DIGITS:
        return int(text)
    digits = text.lstrip("-")
    value = 0
    for start in range(0, len(digits), _MOST_DIGITS):
        piece = digits[start : start + _MOST_DIGITS]
        value = value * 10 ** len(piece) + int(piece)
    return LongInteger(-value if text.startswith("-") else value)


def problem_of_syntax(error: json.JSONDecodeError) -> Problem:
    """Return what is wrong with a text that is not JSON, by the place where Python's decoder gave up."""
    text = error.doc if isinstance(error.doc, str) else ""
    begun = text.lstrip()
    if not begun:
        return EMPTY
    if begun.startswith("```"):
        return whole("not JSON: it begins with a Markdown fence", "The JSON stood in a Markdown fence.", error)
    if begun[0] not in '{["-0123456789tfn':
        return whole("not JSON: text before it", f"The answer began with {shown(begun[:40])} and not with JSON.", error)
    if _is_cut_off(text, error):
        return whole("not JSON: it ends before the value does", "The JSON ended before it was complete.", error)
    reason = next((reason for message, reason in _REASONS if error.msg.startswith(message)), "it cannot be read")
    at = error.pos
    comma = text.rfind(",", 0, at + 1)
    if comma >= 0 and (found := _TRAILING_COMMA.match(text, comma)) and text[comma + 1 : at].strip() == "":
        reason = "a comma with nothing behind it"
        at = found.end() - 1  # what it stands before: of the comma itself only Python 3.13 and later speak
    place = f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
    before, behind = text[max(0, at - 30) : at], text[at : at + 30]
    advice = f"The answer is not JSON: {reason}, at {place}, behind {shown(before)} and before {shown(behind)}."
    return whole(f"not JSON: {reason}, at {place}", advice, error)


def _is_cut_off(text: str, error: json.JSONDecodeError) -> bool:
    return error.msg.startswith("Unterminated string") or not text[error.pos :].strip()
