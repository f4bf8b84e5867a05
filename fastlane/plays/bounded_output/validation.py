"""Say whether an answer is valid, and what is wrong with it: once without its text, and once for its model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn, TypeVar

from fastlane.records.plays import StopReason
from fastlane.schemas.given import Schema, check_schema, validator_of, written

E = TypeVar("E", bound=BaseException)

# The advice is part of the next prompt, and is paid for.
_MAX_LINES = 8
_MAX_ADVICE_CHARACTERS = 2_000
_MAX_LINE_CHARACTERS = 400
_MAX_VALUE_CHARACTERS = 80
_MAX_PATH_CHARACTERS = 200

# Messages that would name a property of the answer.
_FIXED_RULES = {
    "AdditionalProperties": "has properties that the schema does not allow",
    "UnevaluatedProperties": "has properties that the schema does not allow",
    "PropertyNames": "has a property whose name the schema does not allow",
    "UnevaluatedItems": "has items that the schema does not allow",
    "FromUtf8": "is not valid UTF-8",
}
# Errors of pydantic's whose messages hold nothing of the answer.
_PLAIN_ERRORS = frozenset({
    "bool_parsing", "bool_type", "dict_type", "enum", "extra_forbidden", "float_parsing", "float_type", "greater_than",
    "greater_than_equal", "int_from_float", "int_parsing", "int_type", "less_than", "less_than_equal", "list_type",
    "literal_error", "missing", "model_type", "multiple_of", "none_required", "string_pattern_mismatch",
    "string_too_long", "string_too_short", "string_type", "too_long", "too_short",
})  # fmt: skip
_STOPPED: Mapping[StopReason, tuple[str, str]] = {
    "whitespace": ("a run of white space", "The answer ran on in white space. Write the JSON without it."),
    "prose": ("not JSON: text before it", "There was text before the JSON. Write the JSON alone."),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an answer. `str()` and `repr()` hold no text of it."""

    path: str
    """Where, in names that the schema knows: "tags[3].name"; "$" for the whole answer, "*" for any other name."""
    rule: str
    """What was broken: 'the value is not one of "billing" or "bug"'."""
    advice: str = field(repr=False)
    """The same for the model, at most 2,000 characters. It may quote the answer: never to be logged."""
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    """The validator's own error, which may quote the answer."""

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}"


def problem_in(text: str, schema: Schema) -> Problem | None:
    """Return what keeps the text of an answer from being valid for a JSON schema; None if it is valid.

    Formats are asserted. An answer counts as valid for a pattern that takes too long to be looked for. Raises
    ConfigurationError for what is no JSON schema.
    """
    import jsonschema_rs

    value, problem = _read(text)
    if problem is not None:
        return problem
    check_schema(schema, "BoundedOutput")
    key = written(schema)
    validator = validator_of(key)
    try:
        errors = list(islice(validator.iter_errors(value), 100))
    except UnicodeEncodeError:
        # Half of a surrogate pair is JSON, and no character.
        errors = list(islice(validator.iter_errors(json.loads(encodable(json.dumps(value, ensure_ascii=False)))), 100))
    kinds = jsonschema_rs.ValidationErrorKind
    given_up = (kinds.BacktrackLimitExceeded, kinds.RegexEngineFailure)
    errors = [_closest(error) for error in errors if not isinstance(error.kind, given_up)]
    if not errors:
        return None
    errors.sort(key=lambda error: len(error.instance_path))
    first = errors[0]
    rule = _FIXED_RULES.get(type(first.kind).__name__) or encodable(first.message, _MAX_LINE_CHARACTERS)
    lines = [f"{_path(error.instance_path)}: {error.message}. Got {_shown(error.instance)}." for error in errors]
    return Problem(_path(first.instance_path, key), rule, _advice(lines), first)


def _closest(error: Any) -> Any:
    """Of an error of alternatives, return that of the branch which the answer came closest to, where it says more."""
    context = [each for branch in getattr(error.kind, "context", ()) for each in branch]
    deepest = max(context, key=lambda each: len(each.instance_path), default=error)
    return _closest(deepest) if len(deepest.instance_path) > len(error.instance_path) else error


def problem_of(error: BaseException, schema: Schema | None = None) -> Problem | None:
    """Return what pydantic or Python's JSON decoder found wrong with an answer; None for any other error.

    `schema` is the one that the model follows: the path shows the names that stand in it, and "*" for any other,
    because the error alone does not tell a field's name from a key that the model made up.
    """
    if isinstance(error, json.JSONDecodeError):
        return _syntax_problem(error)
    from pydantic_core import ValidationError

    if not isinstance(error, ValidationError):
        return None
    details = error.errors(include_url=False)
    if not details:
        return _whole("refused by the model class", "The answer was refused by the class that reads it.", error)
    first = details[0]
    if first["type"] == "json_invalid":
        problem = _read(first["input"])[1] if isinstance(first["input"], str) else None
        return problem or _whole("not JSON", f"The answer is not JSON: {first['msg']}.", error)
    lines = [f"{_path(each['loc'])}: {each['msg']:.300}. Got {_shown(each.get('input'))}." for each in details]
    rule = first["msg"] if first["type"] in _PLAIN_ERRORS else "refused by the model class"
    return Problem(_path(first["loc"], b"" if schema is None else written(schema)), rule, _advice(lines), error)


def stopped(reason: StopReason) -> Problem:
    """Return the problem of an answer whose stream was stopped inside of its JSON, or before it."""
    return _whole(*_STOPPED[reason])


# The text


def _read(text: str) -> tuple[Any, Problem | None]:
    """Return the value of a JSON text and None, or None and why it is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant), None
    except json.JSONDecodeError as error:
        return None, _syntax_problem(without_frames(error))
    except ValueError as error:
        # Python reads no integer of more than 4,300 digits.
        reason = str(error).partition(";")[0]
        return None, _whole(f"not JSON: {reason}", f"The answer is not JSON: {reason}.")
    except RecursionError:
        return None, _whole("nested too deeply to be read", "The answer is nested too deeply to be read.")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _syntax_problem(error: json.JSONDecodeError) -> Problem:
    text = error.doc
    begun = text.lstrip()
    if not begun:
        return _whole("empty", "The answer was empty. A JSON value was expected.", error)
    if begun[0] not in '{["-0123456789tfn':
        advice = f"The answer began with {_shown(begun[:40])} and not with JSON."
        return _whole("not JSON: text before it", advice, error)
    if error.msg.startswith("Unterminated string") or not text[error.pos :].strip():
        return _whole("not JSON: it ends before the value does", "The JSON ended before it was complete.", error)
    reason = f"{error.msg}, at line {error.lineno}, column {error.colno}"
    around = f"behind {_shown(text[max(0, error.pos - 30) : error.pos])}, before {_shown(text[error.pos :][:30])}"
    return _whole(f"not JSON: {reason}", f"The answer is not JSON: {reason}, {around}.", error)


def without_frames(error: E) -> E:
    """Let an error forget where it came from: its frames lead to the call, and would keep the prompt."""
    at: BaseException | None = error
    while at is not None:
        at.__traceback__ = None
        at = at.__context__
    return error


# Words


def _whole(rule: str, advice: str, cause: BaseException | None = None) -> Problem:
    return Problem("$", rule, encodable(advice, _MAX_ADVICE_CHARACTERS), cause)


def _path(steps: Iterable[Any], schema: bytes | None = None) -> str:
    """Return a path as text. With a schema, every name that does not stand in it is "*"."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
            continue
        name = encodable(str(step))
        if schema is not None and json.dumps(name, ensure_ascii=False).encode() not in schema:
            name = "*"
        path += f".{name}" if path else name
    return encodable(path, _MAX_PATH_CHARACTERS) or "$"


def _advice(lines: list[str]) -> str:
    """Return these lines as one text that is no longer than is worth paying for."""
    lines = list(dict.fromkeys(encodable(line, _MAX_LINE_CHARACTERS) for line in lines))
    taken = [f"- {line}" for line in lines[:_MAX_LINES]]
    if len(lines) > _MAX_LINES:
        taken.append(f"- and {len(lines) - _MAX_LINES} more")
    return encodable("\n".join(taken), _MAX_ADVICE_CHARACTERS)


def encodable(text: str, most: int | None = None) -> str:
    """Return text that can be sent, with its middle left out where it is longer than `most` characters.

    Half of a surrogate pair, which is no character, becomes "?".
    """
    if most is not None and len(text) > most:
        head = most * 3 // 4
        text = f"{text[:head]}…{text[head + 1 - most :]}"
    return text.encode(errors="replace").decode()


def _shown(value: Any) -> str:
    """Return a value of an answer for the model that wrote it, in at most about 80 characters."""
    if isinstance(value, Mapping):
        return f"an object with {len(value)} properties"
    if isinstance(value, list | tuple):
        return f"an array with {len(value)} items"
    if isinstance(value, str):
        return encodable(json.dumps(value[: 2 * _MAX_VALUE_CHARACTERS], ensure_ascii=False), _MAX_VALUE_CHARACTERS)
    return encodable(json.dumps(value, default=str), _MAX_VALUE_CHARACTERS)
