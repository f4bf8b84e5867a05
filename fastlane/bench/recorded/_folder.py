"""A run's folder: every raw record is appended as it comes, so that a run that was cut off can be read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from pydantic import TypeAdapter

from fastlane.errors import ConfigurationError

from .._json_lines import described, json_lines
from ._header import Header
from ._recorded import RecordedRun
from ._sample import Sample
from ._vitals import Vitals

if TYPE_CHECKING:
    from fastlane.records.timeline import WireStamps

    from ...emulator import RequestLog

SCHEMA: Final = 3
"""Of all files of a folder: raised when a field changes its meaning or goes away."""
RUN: Final = "run.json"
RECORDS: Final = "records.jsonl"
VITALS: Final = "vitals.jsonl"
SERVER: Final = "server.jsonl"
_HEADER: Final = TypeAdapter(Header)
_VITALS: Final = TypeAdapter(Vitals)
_SAMPLE_FIELDS: Final = tuple(field.name for field in fields(Sample) if field.name != "record")


class RunWriter:
    """Writes a run's folder while the run goes on. Raises ConfigurationError for a folder that cannot be written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, TextIO] = {}
        see_writable(folder, "a run")
        if any((folder / name).exists() for name in (RUN, RECORDS)):
            raise ConfigurationError(f"{folder} holds a run already: name a folder that holds none")

    def begin(self, header: Header) -> None:
        """Write what the run is, and open the files of its records."""
        self._write_run(header, None)
        for name in (RECORDS, VITALS, SERVER):
            self._files[name] = (self._folder / name).open("a", encoding="utf-8")

    def sample(self, sample: Sample) -> None:
        """Append one request's record."""
        self._append(RECORDS, sample_data(sample))

    def vitals(self, vitals: Vitals) -> None:
        """Append one process's vitals."""
        self._append(VITALS, asdict(vitals))

    def log(self, entries: Iterable[RequestLog]) -> None:
        """Append what the provider wrote down."""
        for entry in entries:
            self._append(SERVER, entry.to_json())

    def end(self, header: Header, ended: str) -> None:
        """Write why the run ended."""
        self._write_run(header, ended)

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

    def _write_run(self, header: Header, ended: str | None) -> None:
        data = {"schema": SCHEMA, "header": asdict(header), "ended": ended}
        text = json.dumps(data, ensure_ascii=False, indent=2) + "\n"
        # In one step: a run that is killed meanwhile has the old one or the new one.
        beside = self._folder / (RUN + ".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self._folder / RUN)


def see_writable(folder: Path, what: str) -> None:
    """Make a folder that `what` needs. Raises ConfigurationError where it cannot be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{what} needs a folder that can be written to, and {folder} is none: {error.strerror or error}"
        ) from error


def read_run(folder: Path) -> RecordedRun:
    """Read a run, also one that was cut off. Raises ConfigurationError, which names the file and line, for no run."""
    path = folder / RUN
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        schema, header = data["schema"], _HEADER.validate_python(data["header"]) if data["schema"] == SCHEMA else None
    except OSError as error:
        raise ConfigurationError(f"{folder} holds no run: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is no run's: {type(error).__name__}: {error}") from error
    if header is None:
        raise ConfigurationError(
            f"{path} has schema {schema}, and this version of fastlane reads schema {SCHEMA}: "
            "read it with the version that wrote it"
        )
    samples = tuple(map(_sample_from, _rows(folder / RECORDS)))
    log = _log(folder / SERVER) if header.embedded else None
    logged = {entry.tag for entry in log or ()}
    return RecordedRun(
        header=header,
        samples=samples,
        vitals=tuple(map(_VITALS.validate_python, _rows(folder / VITALS))),
        log=log,
        unlogged=tuple(
            sample.tag for sample in samples if log is not None and data["ended"] is None and sample.tag not in logged
        ),
        duration_s=duration_s(samples),
        ended=data["ended"] or "interrupted",
    )


def sample_data(sample: Sample) -> dict[str, Any]:
    """Return a request's record as plain JSON data, without what follows from other fields."""
    data = {name: getattr(sample, name) for name in _SAMPLE_FIELDS}
    data["token_ns"] = list(sample.token_ns)
    return data


def duration_s(samples: Iterable[Sample]) -> float:
    """Return the seconds of all cells: from the start of the first measured request to the end of the last.

    Stamps of different shards, which may be on different machines, are never compared.
    """
    spans: dict[tuple[str, int], tuple[int, int]] = {}
    for sample in samples:
        if sample.part == "measured":
            first, last = spans.get((sample.cell, sample.shard), (sample.issued_ns, sample.ended_ns))
            spans[sample.cell, sample.shard] = min(first, sample.issued_ns), max(last, sample.ended_ns)
    cells: dict[str, float] = {}
    for (cell, _), (first, last) in spans.items():
        cells[cell] = max(cells.get(cell, 0.0), (last - first) / 1e9)
    return sum(cells.values())


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for where, row in json_lines(path, may_be_cut_off=True):
        if not isinstance(row, dict):
            raise ConfigurationError(f"{where}: expected a record, got {described(row)}")
        yield row


def _sample_from(row: dict[str, Any]) -> Sample:
    known = {name: row[name] for name in _SAMPLE_FIELDS if name in row}
    return Sample(**{**known, "token_ns": array("q", row.get("token_ns", ()))})


def _log(path: Path) -> tuple[RequestLog, ...]:
    from ...emulator import RequestLog

    return tuple(map(RequestLog.from_json, _rows(path)))


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
