"""Read files of any size line by line or object by object, and say where in them something is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from fastlane.errors import ConfigurationError

_PIECE_BYTES = 1 << 20
_BYTE_ORDER_MARK = "\ufeff"


class FileLine(str):  # noqa: SLOT000 - a few at a time
    """One line of a file, which knows where it stands."""

    number: int
    where: str


def lines_of(path: Path) -> Iterator[FileLine]:
    """Yield the lines that are not blank. Raises ConfigurationError for what cannot be read."""
    # Not universal newlines: JSON strings may hold U+2028 and its like unescaped, which end no line of JSONL.
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, start=1):
                try:
                    text = data.decode("utf-8")
                except UnicodeDecodeError as error:
                    where = f"{error.reason} at byte {error.start} of line {number}"
                    raise ConfigurationError(f"{path} is not UTF-8 text: {where}") from error
                if number == 1:
                    text = text.removeprefix(_BYTE_ORDER_MARK)
                if text.strip():
                    line = FileLine(text.rstrip("\r\n"))
                    line.number, line.where = number, f"{path}, line {number}"
                    yield line
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error


def text_of(path: Path) -> str:
    """Return the whole text of a file. Raises ConfigurationError for what cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def first_line(path: Path) -> FileLine | None:
    """Return the first line that is not blank; None for a file without one."""
    return next(lines_of(path), None)


def parsed(text: str, path: Path, first: int = 1) -> Any:
    """Return what a text of JSON, whose first line is line `first` of the file, says. Raises ConfigurationError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        _not_json(path, first, error)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}, line {first}: not valid JSON: {error}") from error


def objects_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the items of a file that is one JSON list, each with where it stands: item 1, item 2 and so on.

    The file is read as far as items are asked for. Raises ConfigurationError for what is no list.
    """
    decoder, number = json.JSONDecoder(), 0
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(_PIECE_BYTES).lstrip()
            if not text.startswith("["):
                raise ConfigurationError(f"{path}: expected a JSON list, got {text[:40]!r}")
            text = text[1:]
            while True:
                text = text.lstrip(" \t\r\n,")
                if text.startswith("]"):
                    return
                where = f"{path}, item {number + 1}"
                try:
                    value, end = decoder.raw_decode(text)
                    # A number may go on in the next piece.
                    whole = end < len(text)
                except json.JSONDecodeError as error:
                    value, end, whole, problem = None, 0, False, error.msg
                except RecursionError as error:
                    raise ConfigurationError(f"{where}: not valid JSON: nested too deeply") from error
                else:
                    problem = "the list does not end"
                if not whole:
                    # Doubled each time, so that a long item is not read from its start for every piece.
                    more = file.read(max(_PIECE_BYTES, len(text)))
                    if not more:
                        raise ConfigurationError(f"{where}: not valid JSON: {problem}")
                    text += more
                    continue
                number += 1
                yield where, value
                text = text[end:]
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text: {error.reason}") from error


def described(value: object) -> str:
    """Say what a value is, in a few words."""
    if isinstance(value, dict):
        return "an object with the keys " + (", ".join(map(repr, list(value)[:6])) or "(none)")
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r:.40}")


def _not_json(path: Path, first: int, error: json.JSONDecodeError) -> NoReturn:
    # Its own words count lines from the text's beginning, which is in the middle of a JSONL file.
    where = f"{path}, line {first + error.lineno - 1}"
    raise ConfigurationError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from error
