"""Read files of provider facts, and say what is wrong with one: which key, what was expected, what came."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..errors import ConfigurationError
from ._schema import Fact, ProviderFacts

M = TypeVar("M", bound=BaseModel)

_MOST_ERRORS = 5
_MOST_LETTERS = 60
# The deepest fact stands in the sixth table.
_MOST_LEVELS = 50


def read_file(path: Path) -> ProviderFacts:
    """Read one file as it is, without what it extends. Raises ConfigurationError where it cannot be used."""
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: expected a TOML file with provider facts, and there is no file") from None
    except ValueError as error:  # a NUL in the path
        raise ConfigurationError(f"{str(path)!r}: expected the path of a TOML file with provider facts") from error
    except OSError as error:
        what = "a directory" if path.is_dir() else error.strerror
        raise ConfigurationError(f"{path}: expected a TOML file with provider facts, got {what}") from error
    return facts_from(parsed(written, str(path)), slug=path.stem, file=str(path))


def read_packaged(slug: str) -> ProviderFacts:
    """Read the facts that the package brings, as they are. Raises ConfigurationError where it brings none."""
    file = f"{slug}.toml"
    return facts_from(parsed(packaged(file), file), slug=slug, file=file)


def packaged(file: str) -> bytes:
    """Return the content of a file beside this one."""
    return resources.files("fastlane.providers").joinpath(file).read_bytes()


def parsed(written: bytes, file: str) -> dict[str, Any]:
    """Return what a TOML file says. Raises ConfigurationError where it is none."""
    try:
        tables = tomllib.loads(written.decode())
    except ValueError as error:  # no TOML, no UTF-8, or a number of more digits than Python reads
        raise ConfigurationError(f"{file}: expected TOML, got something else: {error}") from error
    except RecursionError:
        is_deep = True
    else:
        is_deep = _is_deep(tables)
    if is_deep:
        raise ConfigurationError(f"{file}: expected TOML, got lists or tables nested more than {_MOST_LEVELS} deep")
    return tables


def _is_deep(tables: Any) -> bool:
    # Not by recursion: dotted keys nest as deeply as they are long, deeper than anything here could go down.
    waiting = [(tables, 0)]
    while waiting:
        value, level = waiting.pop()
        if level > _MOST_LEVELS:
            return True
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(one, level + 1) for one in inner if isinstance(one, dict | list)]
    return False


def facts_from(tables: Mapping[str, Any], *, slug: str, file: str) -> ProviderFacts:
    """Return facts made of what a file says. Raises ConfigurationError."""
    return checked(ProviderFacts, {"slug": slug.lower(), **tables}, file)


def checked(model: type[M], tables: Mapping[str, Any], file: str) -> M:
    """Return what a file says as `model`. Raises ConfigurationError with everything that is wrong with it."""
    try:
        return model.model_validate(dict(tables))
    except ValidationError as error:
        raise ConfigurationError(_explained(error.errors(), model, file)) from None


def resolved(facts: ProviderFacts, named: Callable[[str], ProviderFacts]) -> ProviderFacts:
    """Return facts laid over those which they extend. Raises ConfigurationError where these are not known."""
    if facts.extends is None:
        return facts
    try:
        base = named(facts.extends)
    except ConfigurationError as error:
        raise ConfigurationError(f"{facts.slug}: extends: {error}") from None
    return facts.over(base)


def _explained(errors: Iterable[ErrorDetails], model: type[BaseModel], file: str) -> str:
    all_errors = list(errors)
    lines = [f"{file}: {shortened(f'{_key(error)}: {_wrong(error, model)}')}" for error in all_errors[:_MOST_ERRORS]]
    further = len(all_errors) - len(lines)
    return "\n".join([*lines, *([f"{file}: {further} more"] if further else [])])


def shortened(text: str, most: int = 1_000) -> str:
    """A text of a file's, which may be of any length, as far as anybody reads it."""
    return text if len(text) <= most else f"{text[:most]}..."


def _key(error: ErrorDetails) -> str:
    """The key as TOML would write it."""
    return ".".join(key_part(str(part)) for part in error["loc"] if part != "[key]") or "the table"


def key_part(part: str) -> str:
    """A part of a key as TOML would write it: on one line."""
    part = shortened(part, _MOST_LETTERS)
    return json.dumps(part, ensure_ascii=False) if set(part) & set("./ ") or not part.isprintable() else part


def _wrong(error: ErrorDetails, model: type[BaseModel]) -> str:
    got = shortened(repr(error["input"]), _MOST_LETTERS)
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key; expected one of {', '.join(sorted(_known_keys(model, error['loc'][:-1])))}"
        case "missing":
            return f"expected this key, got none beside {got}"
        case "model_type" | "model_attributes_type" | "dict_type" | "mapping_type":
            return f"expected a table, got {got}"
        case "tuple_type":
            return f"expected a list, got {got}"
        case "value_error":
            said = error["msg"].removeprefix("Value error, ")
            return said if ", got " in said else f"{said}, got {got}"
        case "string_pattern_mismatch":
            return f"expected a text that matches {error['ctx']['pattern']!r}, got {got}"
        case kind if kind.startswith("date"):
            return f"expected a date such as 2026-11-22, without quotes, got {got}"
        case _:
            return f"{error['msg'].replace('Input should be', 'expected')}, got {got}"


def _known_keys(model: type[BaseModel], keys: tuple[int | str, ...]) -> list[str]:
    """The keys that a table may have."""
    found: Any = model
    for key in keys:
        if isinstance(found, type) and issubclass(found, BaseModel):
            found = _inner(found.model_fields[str(key)].annotation)
        elif get_origin(found) is Mapping:
            # What stands in a table by endpoint or by name.
            found = _inner(get_args(found)[1])
    if isinstance(found, type) and issubclass(found, BaseModel):
        return list(found.model_fields)
    return list(Fact.model_fields)


def _inner(annotation: Any) -> Any:
    """The model in `Model | None`, or what it is otherwise."""
    options = [one for one in getattr(annotation, "__args__", ()) if one is not NoneType]
    is_model = len(options) == 1 and isinstance(options[0], type)
    return options[0] if is_model and not isinstance(annotation, type) else annotation
