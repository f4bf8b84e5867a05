"""Read files of JSON lines, or of one JSON list, and say where in them something is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastlane.errors import ConfigurationError


def json_lines(path: Path, *, may_be_cut_off: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the value of each line that is not blank, with where it stands in the file.

    `may_be_cut_off`: a last line that is no JSON is left out, which a process that was killed may have left. Raises
    ConfigurationError for what cannot be read, which names the line.
    """
    wrong: ConfigurationError | None = None
    for number, data in _lines(path):
        if wrong is not None:
            raise wrong
        try:
            value = _parsed(data, path, number)
        except ConfigurationError as error:
            if not may_be_cut_off:
                raise
            wrong = error
            continue
        yield f"{path}, line {number}", value


def rows_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the values of JSON lines, or the items of one JSON list, each with where it stands in the file.

    Raises ConfigurationError, which names the line.
    """
    _, first = next(_lines(path), (0, b""))
    begin = first.strip()
    if begin == b"[" or (begin.startswith(b"[") and begin[1:].lstrip().startswith(b"{")):
        whole = b"\n".join(data for _, data in _lines(path))
        yield from ((f"{path}, item {item}", value) for item, value in enumerate(_parsed(whole, path, 1), start=1))
    else:
        yield from json_lines(path)


def described(value: object) -> str:
    """Say what a value is, in a few words."""
    if isinstance(value, dict):
        return "an object with the keys " + (", ".join(map(repr, list(value)[:6])) or "(none)")
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r:.40}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    # Not universal newlines: JSON strings may hold U+2028 and its like unescaped, which end no line of JSONL.
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, start=1):
                line = data.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").rstrip(b"\r\n")
                if line.strip():
                    yield number, line
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error


def _parsed(data: bytes, path: Path, first: int) -> Any:
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text: {error.reason} in line {first}") from error
    except json.JSONDecodeError as error:
        # Its own words count lines from the text's beginning, which is in the middle of a JSONL file.
        where = f"{path}, line {first + error.lineno - 1}"
        raise ConfigurationError(f"{where}: not valid JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}, line {first}: not valid JSON: {error}") from error
