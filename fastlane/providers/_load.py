"""Read files of provider facts."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import ConfigurationError
from ._schema import ProviderFacts

M = TypeVar("M", bound=BaseModel)

_MOST_ERRORS = 5
_WORDS = {"extra_forbidden": "unknown key", "missing": "expected this key, got none"}
_MOST_LETTERS = 60


def read_file(path: Path) -> ProviderFacts:
    """Read one file, without what it extends. Raises ConfigurationError."""
    return facts_from(parsed(content_of(path, "provider facts"), str(path)), slug=path.stem, file=str(path))


def read_packaged(slug: str) -> ProviderFacts:
    """Read the facts of the package, without what they extend."""
    file = f"{slug}.toml"
    return facts_from(parsed(packaged(file), file), slug=slug, file=file)


def packaged(file: str) -> bytes:
    """Return the content of a file beside this one."""
    return resources.files("fastlane.providers").joinpath(file).read_bytes()


def content_of(path: Path, subject: str) -> bytes:
    """Return the content of a file that the user named. Raises ConfigurationError where it cannot be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{str(path)!r}: expected a TOML file with {subject}, got: {why}") from error


def parsed(written: bytes, file: str) -> dict[str, Any]:
    """Return the tables of a TOML file. Raises ConfigurationError where it is not TOML."""
    try:
        return tomllib.loads(written.decode())
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or too many digits or levels for Python
        raise ConfigurationError(f"{file}: expected TOML, got something else: {error}") from error


def facts_from(tables: Mapping[str, Any], *, slug: str, file: str) -> ProviderFacts:
    """Return the facts in the tables of a file. Raises ConfigurationError."""
    return checked(ProviderFacts, {"slug": slug.lower(), **tables}, file)


def checked(model: type[M], tables: Mapping[str, Any], file: str, hidden: Collection[str] = ()) -> M:
    """Return the tables of a file as `model`. Raises ConfigurationError with the first mistakes, one line each.

    What stands in the keys of `hidden` is not quoted.
    """
    try:
        return model.model_validate(dict(tables))
    except ValidationError as error:
        said = explained(error, file, hidden)
    # Outside of `except`: pydantic's error quotes all values, and must not become the context of ours.
    raise ConfigurationError(said)


def explained(error: ValidationError, where: str, hidden: Collection[str] = ()) -> str:
    """Return one line for each of the first mistakes: where it is, what was expected and what came."""
    mistakes = error.errors(include_url=False)
    lines = []
    for one in mistakes[:_MOST_ERRORS]:
        key = ".".join(shortened(str(part)) for part in one["loc"] if part != "[key]")
        said = _WORDS.get(one["type"]) or one["msg"].removeprefix("Value error, ")
        if ", got " not in said:
            value = one["input"]
            is_shown = isinstance(value, str | int | float) and not set(hidden) & set(one["loc"])
            said += f", got {shortened(repr(value)) if is_shown else type(value).__name__}"
        said = said.replace("Input should be", "expected")
        lines.append(f"{where}: {key if key.isprintable() else ascii(key)}: {said}")
    if len(mistakes) > _MOST_ERRORS:
        lines.append(f"{where}: {len(mistakes) - _MOST_ERRORS} more")
    return "\n".join(lines)


def shortened(text: str) -> str:
    """Return the beginning of a text, which may be of any length."""
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def resolved(facts: ProviderFacts, named: Callable[[str], ProviderFacts]) -> ProviderFacts:
    """Return facts laid over those which they extend. Raises ConfigurationError where these are not known."""
    if facts.extends is None:
        return facts
    try:
        base = named(facts.extends)
    except ConfigurationError as error:
        raise ConfigurationError(f"{facts.slug}: extends: {error}") from None
    return facts.over(base)
