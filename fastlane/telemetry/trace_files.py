"""Files that spans are written to where no collector is named: readable by this user alone, few, and small."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from .._clock import wall_ns
from .._fork import new_lock
from ..errors import ConfigurationError

DIRECTORY_VARIABLE: Final = "FASTLANE_TRACE_DIR"

KEPT_FILES: Final = 20
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A process that has written as much goes on in another file."""
MAX_AGE_S: Final = 30 * 24 * 3600
_IN_USE_S: Final = 3600
"""A file that was written to within this time is not deleted to make room."""

RUNNING_SUFFIX: Final = ".running"
"""The calls that a process has under way: `{"at_ns": ..., "calls": [...]}`, replaced as a whole."""

# Other files of the directory are never deleted.
_NAME = re.compile(r"\d{8}T\d{6}Z-\d+(?:-\d+)?\.jsonl")
_RUNNING_NAME = re.compile(r"\d{8}T\d{6}Z-\d+(?:-\d+)?\.running(?:\.new)?")


def directory(environment: Mapping[str, str] | None = None) -> Path:
    """Return where traces are kept: `FASTLANE_TRACE_DIR`, or else the platform's directory for the state of programs.

    Raises RuntimeError if there is no home directory.
    """
    environment = os.environ if environment is None else environment
    if given := environment.get(DIRECTORY_VARIABLE, "").strip():
        return Path(given).expanduser()
    if sys.platform == "win32":
        state = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        state = Path.home() / "Library" / "Application Support"
    else:
        # The specification of these directories wants relative ones to be ignored.
        given = environment.get("XDG_STATE_HOME", "")
        state = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    return state / "fastlane" / "traces"


def newest() -> Path | None:
    """Return the file of traces that was written to last, or None if there is none yet."""
    try:
        found = _files(directory(), _NAME)
    except RuntimeError:
        return None
    return next((path for path, _, size in found if size), None)


def _files(where: Path, name: re.Pattern[str]) -> list[tuple[Path, float, int]]:
    """Return each file of a kind with its time of writing, in seconds since the epoch, and its bytes; newest first."""
    found = []
    with contextlib.suppress(OSError):
        for path in where.iterdir():
            if name.fullmatch(path.name):
                with contextlib.suppress(OSError):  # another process may delete it meanwhile
                    status = path.stat()
                    found.append((path, status.st_mtime, status.st_size))
    return sorted(found, key=lambda one: (one[1], one[0].name), reverse=True)


def _prune(where: Path) -> None:
    now_s = wall_ns() / 1e9
    for name, most in ((_NAME, KEPT_FILES), (_RUNNING_NAME, 0)):
        for number, (path, written_s, _) in enumerate(_files(where, name)):
            age_s = now_s - written_s
            if age_s > MAX_AGE_S or (number >= most and age_s > _IN_USE_S):
                with contextlib.suppress(OSError):
                    path.unlink()


class TraceFile:
    """A file of traces as a text stream for an exporter, made with the first line and followed by another when full.

    A forked child writes into a file of its own. Raises ConfigurationError, which names the variable, where nothing can
    be written in the directory.
    """

    closed = False  # read by the exporter; the file is closed when the process ends

    def __init__(self) -> None:
        self._lock = new_lock()
        self._descriptor: int | None = None
        self._written = 0
        self._process = os.getpid()
        try:
            self._directory = directory().absolute()
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            problem = None if os.access(self._directory, os.W_OK | os.X_OK) else "no permission"
        except (OSError, RuntimeError) as error:
            problem = type(error).__name__
        if problem is not None:
            where = os.environ.get(DIRECTORY_VARIABLE) or "the directory for the state of programs"
            raise ConfigurationError(
                f"traces are kept in files, and {where} cannot be written to ({problem}): set {DIRECTORY_VARIABLE} to "
                "a directory that can, OTEL_EXPORTER_OTLP_ENDPOINT to a collector, or OTEL_TRACES_EXPORTER to none"
            )
        self.path = self._new_path()

    def _new_path(self) -> Path:
        begun = datetime.fromtimestamp(wall_ns() / 1e9, UTC)
        stem = f"{begun:%Y%m%dT%H%M%SZ}-{os.getpid()}"
        names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
        return next(path for name in names if not (path := self._directory / f"{name}.jsonl").exists())

    def write(self, text: str) -> int:
        """Write a line. Raises OSError, as any file does."""
        line = memoryview(text.encode())
        with self._lock:
            if self._process != os.getpid() or self._written >= MAX_FILE_BYTES:
                if self._descriptor is not None:
                    os.close(self._descriptor)
                self._descriptor, self._process, self.path = None, os.getpid(), self._new_path()
            if self._descriptor is None:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Binary, so that Windows leaves line ends alone.
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
                self._descriptor, self._written = os.open(self.path, flags, 0o600), 0
                _prune(self._directory)
            self._written += len(line)
            # Unbuffered: after a fork two processes would write what is kept back.
            while line:
                line = line[os.write(self._descriptor, line) :]
        return len(text)

    def flush(self) -> None:
        """Do nothing: no line is buffered."""
