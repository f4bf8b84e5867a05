"""Read files of JSON lines, or of one JSON list, and say where in them something is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastlane.errors import ConfigurationError


def rows_of(path: Path, *, may_be_cut_off: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the values of JSON lines, or the items of one JSON list, each with where it stands in the file.

    `may_be_cut_off`: leave out a last line that is no JSON, as a killed process leaves it. Raises ConfigurationError.
    """
    try:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    # Not str.splitlines: JSON strings may hold U+2028 and its like unescaped, which end no line of JSONL.
    lines = [(number, line.rstrip(b"\r")) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    first = lines[0][1].strip() if lines else b""
    if first == b"[" or (first.startswith(b"[") and first[1:].lstrip().startswith(b"{")):
        items = enumerate(_parsed(data, path, 1), start=1)
        yield from ((f"{path}, item {item}", value) for item, value in items)
        return
    for number, line in lines:
        try:
            value = _parsed(line, path, number)
        except ConfigurationError:
            if may_be_cut_off and number == lines[-1][0]:
                return
            raise
        yield f"{path}, line {number}", value


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


def described(value: object) -> str:
    """Describe a value in a few words."""
    if isinstance(value, dict):
        return "an object with the keys " + (", ".join(map(repr, list(value)[:6])) or "(none)")
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r:.40}")
