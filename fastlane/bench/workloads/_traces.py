"""Traces of production traffic that others have published: Mooncake's, BurstGPT's and Azure's forms."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from fastlane.errors import ConfigurationError

from ._lines import FileLine, described, lines_of, parsed
from ._trace_rows import TraceRow

BLOCK_TOKENS = 512
"""Of Mooncake's blocks, by the description of its traces."""
_MOST_TOKENS = 10_000_000

BURSTGPT_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def mooncake_rows(path: Path, changes: Counter[str]) -> Iterator[TraceRow]:
    """Yield the requests of a trace of JSON lines: timestamp (ms), input_length, output_length, hash_ids (optional).

    The form is that of https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release. Raises ConfigurationError,
    which names the line.
    """
    for line in lines_of(path):
        row = parsed(line, path, line.number)
        if not isinstance(row, dict):
            raise ConfigurationError(
                f'{line.where}: expected an object with "timestamp", "input_length" and "output_length", '
                f"got {described(row)}"
            )
        length = _whole(row, "input_length", line)
        blocks = _blocks(row.get("hash_ids"), length, line)
        output = _whole(row, "output_length", line)
        if not length or not output:
            changes["left out requests without a prompt or without an answer"] += 1
            continue
        arrival = _number(row.get("timestamp"), "timestamp", "milliseconds, 0 or more", line)
        yield TraceRow(line.number, arrival / 1e3, length, output, blocks)


def burstgpt_rows(path: Path, changes: Counter[str]) -> Iterator[TraceRow]:
    """Yield the requests of a CSV with Timestamp (seconds), Request tokens and Response tokens among its columns.

    The form is that of https://github.com/HPMLL/BurstGPT, with or without "Session ID" and "Elapsed time". Requests
    without a response failed, and are left out. Raises ConfigurationError, which names the line.
    """
    for line, row in _table(path, BURSTGPT_COLUMNS):
        arrival = _number(row["Timestamp"], "Timestamp", "seconds, 0 or more", line)
        yield from _plain(row, "Request tokens", "Response tokens", arrival, line, changes)


def azure_rows(path: Path, changes: Counter[str]) -> Iterator[TraceRow]:
    """Yield the requests of a CSV with TIMESTAMP (a date and time), ContextTokens and GeneratedTokens.

    The form is that of https://github.com/Azure/AzurePublicDataset, of 2023 and of 2024. Raises ConfigurationError,
    which names the line.
    """
    for line, row in _table(path, AZURE_COLUMNS):
        arrival = _moment(row["TIMESTAMP"], line)
        yield from _plain(row, "ContextTokens", "GeneratedTokens", arrival, line, changes)


def _plain(
    row: Mapping[str, str], prompt: str, answer: str, arrival: float, line: FileLine, changes: Counter[str]
) -> Iterator[TraceRow]:
    length, output = _whole(row, prompt, line), _whole(row, answer, line)
    if length and output:
        yield TraceRow(line.number, arrival, length, output)
    else:
        changes["left out requests without a prompt or without an answer"] += 1


def _table(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[FileLine, dict[str, str]]]:
    header: list[str] | None = None
    for line in lines_of(path):
        cells = [cell.strip() for cell in next(csv.reader([line.rstrip("\r\n")]), [])]
        if header is None:
            header = cells
            missing = [name for name in needed if name not in header]
            if missing:
                raise ConfigurationError(
                    f"{line.where}: expected the columns {', '.join(needed)}, got {', '.join(header)[:200]}"
                )
            continue
        if len(cells) != len(header):
            raise ConfigurationError(
                f"{line.where}: expected {len(header)} cells as in the first line, got {len(cells)}"
            )
        yield line, dict(zip(header, cells, strict=True))


def _whole(row: Mapping[str, Any], name: str, line: FileLine) -> int:
    value = row.get(name)
    number = _number(value, name, f"a whole number of tokens from 0 to {_MOST_TOKENS:,}", line)
    if number != int(number) or number > _MOST_TOKENS:
        _refuse(value, name, f"a whole number of tokens from 0 to {_MOST_TOKENS:,}", line)
    return int(number)


def _number(value: object, name: str, expected: str, line: FileLine) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < math.inf:
        _refuse(value, name, expected, line)
    return number


def _moment(text: str, line: FileLine) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        _refuse(text, "TIMESTAMP", 'a date and time such as "2023-11-16 18:15:46.6805900"', line)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _blocks(value: object, length: int, line: FileLine) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        _refuse(value, "hash_ids", "a list of whole numbers, 0 or more", line)
    most = math.ceil(length / BLOCK_TOKENS)
    if len(value) > most:
        raise ConfigurationError(
            f'{line.where}: expected at most {most} "hash_ids" for {length} tokens, one for each block of '
            f"{BLOCK_TOKENS}, got {len(value)}"
        )
    return tuple(value)


def _refuse(value: object, name: str, expected: str, line: FileLine) -> NoReturn:
    got = described(value) if not isinstance(value, str) else repr(value[:40])
    raise ConfigurationError(f'{line.where}: expected "{name}" to be {expected}, got {got}')
