"""Read files of JSON lines, or of one JSON list, and say where in them something is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastlane.errors import ConfigurationError


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, each with its number. Raises ConfigurationError for what cannot be read."""
    # Not universal newlines: JSON strings may hold U+2028 and its like unescaped, which end no line of JSONL.
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, start=1):
                text = data.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield number, text
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text: {error.reason} in line {number}") from error


def parsed(text: str, path: Path, first: int = 1) -> Any:
    """Return what a text of JSON, whose first line is line `first` of the file, says. Raises ConfigurationError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # Its own words count lines from the text's beginning, which is in the middle of a JSONL file.
        where = f"{path}, line {first + error.lineno - 1}"
        raise ConfigurationError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}, line {first}: not valid JSON: {error}") from error


def whole(path: Path) -> Any:
    """Return what a file of JSON says. Raises ConfigurationError for what cannot be read."""
    return parsed("\n".join(text for _, text in lines_of(path)), path)


def rows_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the values of JSON lines, or the items of one JSON list, each with where it stands in the file.

    Raises ConfigurationError, which names the line.
    """
    for at, (number, text) in enumerate(lines_of(path)):
        begin = text.strip()
        if at == 0 and (begin == "[" or (begin.startswith("[") and begin[1:].lstrip().startswith("{"))):
            yield from ((f"{path}, item {item}", value) for item, value in enumerate(whole(path), start=1))
            return
        yield f"{path}, line {number}", parsed(text, path, number)


def described(value: object) -> str:
    """Say what a value is, in a few words."""
    if isinstance(value, dict):
        return "an object with the keys " + (", ".join(map(repr, list(value)[:6])) or "(none)")
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r:.40}")
