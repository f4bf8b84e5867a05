"""Say what is wrong with an answer: once without any of its text, and once for the model that wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastlane.records.output import StopReason

E = TypeVar("E", bound=BaseException)

ROOT = "$"
UNKNOWN = "*"
"""What stands in a path for a name that the schema does not know, because the model made it up."""

_NAMING = frozenset(("properties", "required", "$defs", "definitions", "dependentSchemas"))

# What a model is told is part of the next prompt, and is paid for: as much as it takes to put a usual answer right.
_MOST_LINES = 8
_MOST_CHARACTERS = 2_000
_MOST_IN_A_LINE = 400
_MOST_OF_A_VALUE = 80
_MOST_OF_A_PATH = 200


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an answer. `str()` and `repr()` hold no text of it."""

    path: str
    """Where, in names that the schema knows: "tags[3].name"; "$" for the whole answer, "*" for any other name."""
    rule: str
    """What was broken: "not one of the allowed values"."""
    advice: str = field(repr=False)
    """The same for the model, at most 2,000 characters. It may quote the answer: never to be logged."""
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    """The validator's own error, which may quote the answer; None where it was none."""

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}"


def without_frames(error: E) -> E:
    """Let an error forget where it came from: Python's frames lead back to the call, and would keep its prompt."""
    at: BaseException | None = error
    while at is not None:
        at.__traceback__ = None
        at = at.__context__
    return error


def whole(rule: str, advice: str, cause: BaseException | None = None) -> Problem:
    """Return a problem of the answer as a whole."""
    return Problem(ROOT, rule, sayable(advice, _MOST_CHARACTERS), cause)


def shown_path(steps: Iterable[Any], known: frozenset[str] | None = None) -> str:
    """Return a path as text. With `known`, every name that is not among these is "*"."""
    written = ""
    for step in steps:
        if isinstance(step, int):
            written += f"[{step}]"
            continue
        name = str(step) if known is None or step in known else UNKNOWN
        written += f".{name}" if written else name
    return sayable(written, _MOST_OF_A_PATH) or ROOT


def names_in(schema: Any) -> frozenset[str]:
    """Return every name of a property that stands in a schema, and of its definitions: what its author wrote."""
    names: set[str] = set()
    waiting = [schema]
    while waiting:
        at = waiting.pop()
        if isinstance(at, Mapping):
            for keyword, value in at.items():
                kind: Any = list | tuple if keyword == "required" else Mapping
                if keyword in _NAMING and isinstance(value, kind):
                    names.update(name for name in value if isinstance(name, str))
            waiting.extend(at.values())
        elif isinstance(at, list | tuple):
            waiting.extend(at)
    return frozenset(names)


def advice_of(lines: Iterable[str], *, more: int = 0, at_least: bool = False) -> str:
    """Return these lines as one text that is no longer than is worth paying for. `more`: how many were left out."""
    taken: list[str] = []
    left = _MOST_CHARACTERS - 60
    seen = set()
    for line in lines:
        line = sayable(line, _MOST_IN_A_LINE)
        if line in seen:
            continue
        seen.add(line)
        if len(taken) == _MOST_LINES or len(line) + 3 > left:
            more += 1
            continue
        taken.append(f"- {line}")
        left -= len(line) + 3
    if more:
        taken.append(f"- and {'at least ' if at_least else ''}{more} more of the kind")
    return "\n".join(taken)


def sayable(text: str, most: int) -> str:
    """Return text that any encoder takes, with its middle left out where it is longer than `most` characters."""
    if len(text) > most:
        head = most * 3 // 4
        text = f"{text[:head]}…{text[head + 1 - most :]}"
    return without_lone_surrogates(text)


def without_lone_surrogates(text: str) -> str:
    """Return text that can be sent: half of a surrogate pair, which is no character, becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def shown(value: Any) -> str:
    """Return a value of an answer for the model that wrote it, in at most about 80 characters."""
    if isinstance(value, Mapping):
        return f"an object with {len(value)} properties"
    if isinstance(value, list | tuple):
        return f"an array with {len(value)} items"
    if isinstance(value, str):
        return sayable(json.dumps(value[: _MOST_OF_A_VALUE * 2], ensure_ascii=False), _MOST_OF_A_VALUE)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        return sayable(str(value), _MOST_OF_A_VALUE)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number that is too long"


def written(value: Any, most: int = _MOST_IN_A_LINE // 2) -> str:
    """Return a value of a schema as JSON, in at most `most` characters."""
    try:
        return sayable(json.dumps(value, ensure_ascii=False), most)
    except (TypeError, ValueError, RecursionError):
        return shown(value)


EMPTY = whole("empty", "The answer was empty. A JSON value was expected.")

_STOPPED: Mapping[StopReason, tuple[str, str]] = {
    "whitespace": ("a run of white space", "The answer ran on in white space. Write the JSON without it."),
    "prose": ("text behind the JSON", "There was text behind the JSON. Write nothing behind it."),
    "fence": ("a Markdown fence", "There was a Markdown fence. Write the JSON without one."),
}


def stopped(reason: StopReason, said: str | None = None) -> Problem:
    """Return the problem of an answer that was stopped on the way. `said` is what the parser said: "category: ..."."""
    if reason in _STOPPED:
        rule, advice = _STOPPED[reason]
        return whole(rule, advice)
    path, colon, rule = (said or "can no longer become valid").partition(": ")
    if not colon:
        path, rule = ROOT, path
    advice = f"{path}: {rule}. The answer was stopped there, because it could no longer become valid."
    return Problem(path, rule, sayable(advice, _MOST_CHARACTERS))
