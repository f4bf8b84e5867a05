"""Say what is wrong with a catalog: which model, which key, what was expected, what came; quote no secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fastlane.providers._load import key_part, shortened

_MOST_ERRORS = 5
_MOST_LETTERS = 60
_LINE_ENDS = str.maketrans("\r\n", "  ")

# Where people put a key by mistake: what stands there is never quoted.
_CONFIDENTIAL = frozenset({"api_key_env", "base_url"})


def explained(error: ValidationError, kind: type[BaseModel], data: Mapping[str, Any], where: str) -> str:
    """Return a line for each of the first mistakes, which begins with `where`."""
    all_errors = error.errors(include_url=False)
    lines = [f"{where}: {shortened(_key(one, data) + _wrong(one, kind))}" for one in all_errors[:_MOST_ERRORS]]
    further = len(all_errors) - len(lines)
    return "\n".join([*lines, *([f"{where}: {further} more"] if further else [])])


def _key(error: ErrorDetails, data: Mapping[str, Any]) -> str:
    """The key as TOML would write it, a model's with the model's name."""
    written = ""
    for part in error["loc"]:
        if isinstance(part, int):
            written += f"[{part}]"
        elif part != "[key]":
            written += ("." if written else "") + key_part(part)
    match error["loc"]:
        case ("models", int(number), *rest) if (name := _name(data, number)) is not None:
            start = f"models[{number}]"
            written = f'{start} ("{name}"){": " if rest else ""}{written.removeprefix(start).removeprefix(".")}'
    return f"{written}: " if written else ""


def _name(data: Mapping[str, Any], number: int) -> str | None:
    try:
        name = data["models"][number]["name"]
    except (KeyError, IndexError, TypeError):
        return None
    return shortened(name, _MOST_LETTERS).translate(_LINE_ENDS) if isinstance(name, str) else None


def _wrong(error: ErrorDetails, kind: type[BaseModel]) -> str:
    got = _shown(error)
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key; expected one of {', '.join(sorted(_known_keys(kind, error['loc'][:-1])))}"
        case "missing":
            return "expected this key, got none"
        case "model_type" | "model_attributes_type" | "dict_type" | "mapping_type":
            return f"expected a table, got {got}"
        case "tuple_type" if isinstance(error["input"], Mapping) and error["loc"] == ("models",):
            return f"expected [[models]], in two brackets each time, got {got}"
        case "tuple_type":
            return f"expected a list, got {got}"
        case "value_error":
            said = error["msg"].removeprefix("Value error, ")
            return said if ", got " in said else f"{said}, got {got}"
        case "string_pattern_mismatch":
            return f"expected a text that matches {error['ctx']['pattern']!r}, got {got}"
        case sort if sort.startswith("date"):
            return f"expected a date such as 2026-11-22, without quotes, got {got}"
        case _:
            return f"{error['msg'].replace('Input should be', 'expected')}, got {got}"


def _shown(error: ErrorDetails) -> str:
    if isinstance(error["input"], Mapping):
        return "a table"
    if _CONFIDENTIAL & set(error["loc"]):
        return f"a {type(error['input']).__name__}"
    return shortened(repr(error["input"]), _MOST_LETTERS)


def _known_keys(kind: type[BaseModel], keys: tuple[int | str, ...]) -> list[str]:
    """The keys that a table may have."""
    for key in keys:
        inner = _model_in(kind.model_fields[key].annotation) if key in kind.model_fields else None
        kind = inner or kind
    return list(kind.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model in an annotation such as `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one)) is not None), None)
