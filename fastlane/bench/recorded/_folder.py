"""A run's folder: every raw record is appended as it comes, so that a run that was cut off can be read and resumed."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from fastlane.errors import ConfigurationError

from ._header import ArmInfo, Cell, Header
from ._recorded import RecordedRun
from ._sample import Sample
from ._vitals import Vitals

if TYPE_CHECKING:
    from fastlane.records.timeline import WireStamps

    from ...emulator import RequestLog

SCHEMA: Final = 2
"""Of all files of a folder: raised when a field changes its meaning or goes away."""
RUN: Final = "run.json"
RECORDS: Final = "records.jsonl"
VITALS: Final = "vitals.jsonl"
SERVER: Final = "server.jsonl"
_OPENING: Final = '{"session"'
_SAMPLE_FIELDS: Final = tuple(field.name for field in fields(Sample) if field.name != "record")


class RunWriter:
    """Writes a run's folder while the run goes on. Raises ConfigurationError for a folder that cannot be written to."""

    def __init__(self, folder: Path, *, session: int = 0, whole_sessions: Iterable[int] = ()) -> None:
        self._folder = folder
        self._whole_sessions = list(whole_sessions)
        self._session = session
        self._files: dict[str, TextIO] = {}
        prepare(folder)

    def must_be_new(self) -> None:
        """Raise ConfigurationError where the folder holds a run."""
        if any((self._folder / name).exists() for name in (RUN, RECORDS)):
            raise ConfigurationError(
                f"{self._folder} holds a run already: resume that one, or name a folder that holds none"
            )

    def begin(self, header: Header, *, cells_done: Iterable[str] = ()) -> None:
        """Write what the run is, and open the files of its records."""
        self._write_run(header, None, cells_done)
        for name in (RECORDS, VITALS, SERVER):
            path = self._folder / name
            torn = _is_torn(path)
            file = path.open("a", encoding="utf-8")
            self._files[name] = file
            if torn:
                file.write("\n")

    def sample(self, sample: Sample) -> None:
        """Append one request's record."""
        self._append(RECORDS, {"session": self._session, **sample_data(sample)})

    def vitals(self, vitals: Vitals) -> None:
        """Append one process's vitals."""
        self._append(VITALS, {"session": self._session, **asdict(vitals)})

    def log(self, entries: Iterable[RequestLog]) -> None:
        """Append what the provider wrote down."""
        for entry in entries:
            self._append(SERVER, {"session": self._session, **entry.to_json()})

    def cell_done(self, header: Header, cells_done: Iterable[str]) -> None:
        """Write which cells need not be gone on with."""
        self._write_run(header, None, cells_done)

    def end(self, header: Header, ended: str, cells_done: Iterable[str] = ()) -> None:
        """Write why the run ended."""
        self._write_run(header, ended, cells_done)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        file = self._files[name]
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
        # To the system, not to the disk: what is written survives the process, which is what is killed.
        file.flush()

    def _write_run(self, header: Header, ended: str | None, cells_done: Iterable[str]) -> None:
        whole = self._whole_sessions if ended is None else [*self._whole_sessions, self._session]
        data = {
            "schema": SCHEMA,
            "header": asdict(header),
            "sessions": self._session + 1,
            "whole_sessions": whole,
            "cells_done": sorted(cells_done),
            "ended": ended,
        }
        text = json.dumps(data, ensure_ascii=False, indent=2) + "\n"
        # In one step: a run that is killed meanwhile has the old one or the new one.
        beside = self._folder / (RUN + ".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._folder / RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What a folder holds of a run, and how often it was begun."""

    recorded: RecordedRun
    sessions: int
    whole_sessions: tuple[int, ...]
    """Those that ended by themselves or by Ctrl-C: of which the provider's account is whole."""
    cells_done: tuple[str, ...]
    """Cells that came to an end, by whatever it was but Ctrl-C."""
    over: bool
    """Whether the run did."""


def prepare(folder: Path) -> None:
    """Make a folder for a run. Raises ConfigurationError where it cannot be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"the records need a folder that can be written to, and {folder} is none: {error.strerror or error}"
        ) from error


def write(recorded: RecordedRun, folder: Path) -> None:
    """Write a whole run into a folder that holds none. Raises ConfigurationError, and OSError where writing fails."""
    with RunWriter(folder) as writer:
        writer.must_be_new()
        writer.begin(recorded.header)
        for sample in recorded.samples:
            writer.sample(sample)
        for vitals in recorded.vitals:
            writer.vitals(vitals)
        writer.log(recorded.log or ())
        writer.end(recorded.header, recorded.ended)


def read_run(folder: Path) -> RecordedRun:
    """Read a run, also one that was cut off. Raises ConfigurationError, which names the file and line, for no run."""
    return read_kept(folder).recorded


def read_kept(folder: Path) -> StoredRun:
    """Read a run with what resuming it needs. Raises ConfigurationError, which names the file and line."""
    path = folder / RUN
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        schema, header = data["schema"], header_from(data["header"]) if data["schema"] == SCHEMA else None
    except OSError as error:
        raise ConfigurationError(f"{folder} holds no run: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is no run's: {type(error).__name__}: {error}") from error
    if header is None:
        raise ConfigurationError(
            f"{path} has schema {schema}, and this version of fastlane reads schema {SCHEMA}: "
            "read it with the version that wrote it"
        )
    rows = [(row.pop("session", 0), _sample_from(row)) for row in _rows(folder / RECORDS)]
    samples = _last_tries(rows)
    replaced = {sample.tag for _, sample in rows}.difference(sample.tag for _, sample in samples)
    log = without(_log(folder / SERVER), replaced) if header.embedded else None
    logged = {entry.tag for entry in log or ()}
    return StoredRun(
        recorded=RecordedRun(
            header=header,
            samples=tuple(sample for _, sample in samples),
            vitals=tuple(_vitals_from(row) for row in _rows(folder / VITALS)),
            log=log,
            unlogged=tuple(
                sample.tag
                for session, sample in samples
                if log is not None and session not in data["whole_sessions"] and sample.tag not in logged
            ),
            **spans_of(samples),
            ended=data["ended"] or "interrupted",
        ),
        sessions=data["sessions"],
        whole_sessions=tuple(data["whole_sessions"]),
        cells_done=tuple(data["cells_done"]),
        over=data["ended"] not in (None, "interrupted"),
    )


def sample_data(sample: Sample) -> dict[str, Any]:
    """Return a request's record as plain JSON data, without what follows from other fields."""
    data = {name: getattr(sample, name) for name in _SAMPLE_FIELDS}
    data["token_ns"] = list(sample.token_ns)
    return data


def spans_of(samples: Iterable[tuple[int, Sample]]) -> dict[str, Any]:
    """Return `duration_s` and `cell_durations_s` of a RecordedRun: each session's spans of measured requests, added up.

    `samples` are with the number of their session; monotonic stamps of two sessions are not compared.
    """
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for session, sample in samples:
        if sample.part == "measured":
            first, last = spans.get((sample.cell, session), (sample.issued_ns, sample.ended_ns))
            spans[sample.cell, session] = (min(first, sample.issued_ns), max(last, sample.ended_ns))
    cells: dict[str, float] = defaultdict(float)
    for (cell, _), (first, last) in spans.items():
        cells[cell] += (last - first) / 1e9
    return {"duration_s": sum(cells.values()), "cell_durations_s": dict(cells)}


def whole_blocks(samples: Iterable[Sample], arms: int) -> dict[str, frozenset[tuple[int, int]]]:
    """Return the lanes and numbers of the blocks of each cell in which every arm's request is recorded."""
    seen: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for sample in samples:
        if sample.part == "measured":
            seen[sample.cell, sample.lane, sample.block].add(sample.arm)
    found: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for (cell, lane, block), names in seen.items():
        if len(names) == arms:
            found[cell].add((lane, block))
    return {cell: frozenset(blocks) for cell, blocks in found.items()}


def _last_tries(rows: list[tuple[int, Sample]]) -> list[tuple[int, Sample]]:
    """Leave out the requests of blocks that a later session has sent again."""
    last: dict[tuple[str, int, int, int], int] = {}
    for session, sample in rows:
        if sample.part == "measured":
            last[sample.key] = max(session, last.get(sample.key, 0))
    return [(session, sample) for session, sample in rows if sample.part != "measured" or last[sample.key] == session]


def without(log: Iterable[RequestLog], tags: Collection[str]) -> tuple[RequestLog, ...]:
    """Return a provider's account without requests that were sent again, and whose samples do not count either."""
    return tuple(entry for entry in log if entry.tag not in tags)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        # A torn line may end within a character.
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            # A process that was killed left it: nothing but a session's last line can be torn. A further session has
            # closed it with an end of line.
            if number == len(lines) or _opens_like_a_row(line):
                continue
            raise ConfigurationError(f"{path}, line {number}: not valid JSON: {error}") from error
        if not isinstance(row, dict):
            raise ConfigurationError(f"{path}, line {number}: expected a record, got {line:.60}")
        yield row


def _opens_like_a_row(line: str) -> bool:
    return _OPENING.startswith(line[: len(_OPENING)]) and not line.endswith("}")


def _is_torn(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) != b"\n"
    except OSError:
        return False


def _sample_from(row: dict[str, Any]) -> Sample:
    known = {name: row[name] for name in _SAMPLE_FIELDS if name in row}
    return Sample(**{**known, "token_ns": array("q", row.get("token_ns", ()))})


def _vitals_from(row: dict[str, Any]) -> Vitals:
    return Vitals(**{field.name: row[field.name] for field in fields(Vitals) if field.name in row})


def _log(path: Path) -> tuple[RequestLog, ...]:
    from ...emulator import RequestLog

    found = []
    for row in _rows(path):
        row.pop("session", None)
        found.append(RequestLog.from_json(row))
    return tuple(found)


def header_from(data: Mapping[str, Any]) -> Header:
    """Rebuild a header from plain JSON data."""
    return Header(
        **{
            **{field.name: data[field.name] for field in fields(Header) if field.name in data},
            "arms": tuple(
                ArmInfo(
                    **{
                        **arm,
                        "plays": None if arm["plays"] is None else tuple(arm["plays"]),
                        "without": tuple(arm["without"]),
                    }
                )
                for arm in data["arms"]
            ),
            "cells": tuple(Cell(**cell) for cell in data["cells"]),
            "metrics": tuple(data["metrics"]),
            "workload_notes": tuple(data.get("workload_notes", ())),
        }
    )


def with_own_records(sample: Sample, round_trip_ns: int) -> Sample:
    """Return a sample with its client's record also as plain data, as files hold it.

    `round_trip_ns` is that of the emulated wire, or 0. Loopback answers a SYN at once, and the wire holds back what
    follows: the TCP handshake's round trip is in the client's stamps of TLS, and is moved to those of the connect.
    """
    if sample.record is None:
        return sample
    attempts = tuple(
        replace(attempt, wire=_connected(attempt.wire, round_trip_ns)) for attempt in sample.record.attempts
    )
    record = replace(sample.record, attempts=attempts)
    return replace(sample, record=record, call=record.to_dict())


def _connected(wire: WireStamps, round_trip_ns: int) -> WireStamps:
    if wire.connect_started_ns is None or wire.connect_ended_ns is None or wire.tls_ended_ns is None:
        return wire
    ended_ns = min(max(wire.connect_ended_ns, wire.connect_started_ns + round_trip_ns), wire.tls_ended_ns)
    return replace(wire, connect_ended_ns=ended_ns, tls_started_ns=ended_ns)
