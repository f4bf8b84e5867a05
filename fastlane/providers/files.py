"""Read TOML files into models, with errors that name the file, the key, what was expected and what was given."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import ConfigurationError

M = TypeVar("M", bound=BaseModel)

_MOST_ERRORS = 5
_LONGEST_SHOWN = 60
_WORDS = {"extra_forbidden": "unknown key", "missing": "expected this key, got none"}


def content_of(path: Path, subject: str) -> bytes:
    """Return the content of a file that the user named. Raises ConfigurationError if it cannot be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{str(path)!r}: expected a TOML file with {subject}, got: {why}") from error


def parsed(written: bytes, file: str) -> dict[str, Any]:
    """Return the tables of a TOML file. Raises ConfigurationError if it is not TOML."""
    try:
        return tomllib.loads(written.decode())
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or too many digits or levels for Python
        raise ConfigurationError(f"{file}: expected TOML, got something else: {error}") from error


def checked(model: type[M], tables: Mapping[str, Any], file: str, hidden: Collection[str] = ()) -> M:
    """Return the tables of a file as a model. Raises ConfigurationError with the first mistakes, one line each.

    Values of the keys in `hidden` are not quoted.
    """
    try:
        return model.model_validate(dict(tables))
    except ValidationError as error:
        problem = explained(error, file, hidden)
    # Outside of `except`: pydantic's error quotes all values, and must not become the context of ours.
    raise ConfigurationError(problem)


def explained(error: ValidationError, where: str, hidden: Collection[str] = ()) -> str:
    """Return one line for each of the first mistakes: where it is, what was expected and what was given."""
    mistakes = error.errors(include_url=False)
    lines = []
    for one in mistakes[:_MOST_ERRORS]:
        key = ".".join(str(part)[:_LONGEST_SHOWN] for part in one["loc"] if part != "[key]")
        text = _WORDS.get(one["type"], one["msg"]).removeprefix("Value error, ")
        text = re.sub("^(Input|String|Tuple) should (be|match pattern|have)", "expected", text)
        if ", got " not in text:
            value = one["input"]
            is_shown = isinstance(value, str | int | float) and not set(hidden) & set(one["loc"])
            text += f", got {repr(value)[:_LONGEST_SHOWN] if is_shown else type(value).__name__}"
        lines.append(f"{where}: {key if key.isprintable() else ascii(key)}: {text}")
    if len(mistakes) > _MOST_ERRORS:
        lines.append(f"{where}: {len(mistakes) - _MOST_ERRORS} more")
    return "\n".join(lines)
