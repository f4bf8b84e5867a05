"""Files for traces that nobody asked to send anywhere: this user's alone, few and small, the newest easy to find."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from .._clock import wall_ns
from ..errors import ConfigurationError

DIRECTORY_VARIABLE: Final = "FASTLANE_TRACE_DIR"

KEPT_FILES: Final = 20
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A process that has written as much goes on in another file."""
MAX_AGE_S: Final = 30 * 24 * 3600
_MAY_BE_IN_USE_S: Final = 3600

# No other file of the directory is looked at, let alone deleted.
_NAME = re.compile(r"\d{8}T\d{6}Z-\d+(?:-\d+)?\.jsonl")


def directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where traces are kept: `FASTLANE_TRACE_DIR`, or else the platform's directory for the state of programs."""
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
    """The file of traces that was written to last, or None where there is none yet."""
    try:
        found = _files(directory())
    except RuntimeError:  # no home directory
        return None
    return next((path for path, _, size in found if size), None)


def _files(where: Path) -> list[tuple[Path, float, int]]:
    """Each file of traces with when it was written to, in seconds since the epoch, and its bytes; the newest first."""
    found = []
    with contextlib.suppress(OSError):
        for path in where.iterdir():
            if _NAME.fullmatch(path.name):
                with contextlib.suppress(OSError):  # another process may delete it meanwhile
                    told = path.stat()
                    found.append((path, told.st_mtime, told.st_size))
    # Of two that were written to in the same moment, the one that was begun later.
    return sorted(found, key=lambda one: (one[1], one[0].name), reverse=True)


def _prune(where: Path) -> None:
    now_s = wall_ns() / 1e9
    for place, (path, written_s, _) in enumerate(_files(where)):
        age_s = now_s - written_s
        if (place >= KEPT_FILES and age_s > _MAY_BE_IN_USE_S) or age_s > MAX_AGE_S:
            with contextlib.suppress(OSError):
                path.unlink()


class TraceFile:
    """What lines are written to, as a text stream: a file that only this user can read, another in every process.

    Without a `path`, it is one of the directory's, made with the first line and followed by another when it is full.
    With a `path`, that file is appended to, and a process that is forked writes beside it. Raises ConfigurationError,
    which names the argument or the variable, where nothing can be written there.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.closed = False
        self._given = path
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._written = 0
        if path is not None:
            self.path = path.absolute()
            try:
                self._descriptor = self._opened(self.path, 0)
            except OSError as error:
                raise ConfigurationError(
                    f"trace_file is a file that can be written to in a directory that exists; {path} gives "
                    f"{type(error).__name__}"
                ) from error
        else:
            try:
                self._directory = directory().absolute()
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                usable = os.access(self._directory, os.W_OK | os.X_OK)
            except (OSError, RuntimeError) as error:
                raise self._unusable(type(error).__name__) from None
            if not usable:
                raise self._unusable("no permission")
            self.path = self._named()

    def _unusable(self, why: str) -> ConfigurationError:
        where = os.environ.get(DIRECTORY_VARIABLE) or "the directory for the state of programs"
        return ConfigurationError(
            f"traces are kept in files, and {where} cannot be written to ({why}): set {DIRECTORY_VARIABLE} to a "
            "directory that can, OTEL_EXPORTER_OTLP_ENDPOINT to a collector, or OTEL_TRACES_EXPORTER to none"
        )

    def _named(self) -> Path:
        begun = datetime.fromtimestamp(wall_ns() / 1e9, UTC)
        stem = f"{begun:%Y%m%dT%H%M%SZ}-{os.getpid()}"
        path, number = self._directory / f"{stem}.jsonl", 1
        while path.exists():
            number += 1
            path = self._directory / f"{stem}-{number}.jsonl"
        return path

    def _opened(self, path: Path, flags: int) -> int:
        # Appending, so that several processes may be given one file; binary, so that Windows leaves line ends alone.
        flags |= os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        return os.open(path, flags, 0o600)

    def _open(self) -> int:
        if self._given is not None:
            return self._opened(self.path, 0)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = self._opened(self.path, os.O_EXCL)
        _prune(self._directory)
        return descriptor

    def write(self, text: str) -> int:
        """Write a line. Raises OSError and ValueError, as any file does."""
        line = memoryview(text.encode())
        with self._lock:
            if self.closed:
                raise ValueError("the file of traces is closed")
            if self._given is None and self._descriptor is not None and self._written >= MAX_FILE_BYTES:
                os.close(self._descriptor)
                self._descriptor = None
                self.path = self._named()
            if self._descriptor is None:
                self._descriptor = self._open()
                self._written = 0
            self._written += len(line)
            # Nothing is kept back: after a fork two processes would write it.
            while line:
                line = line[os.write(self._descriptor, line) :]
        return len(text)

    def flush(self) -> None:
        """Do nothing: what is written is written."""

    def close(self) -> None:
        """Write no more."""
        with self._lock:
            self.closed = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def forked(self) -> None:
        """Go on in a file of this process's own."""
        self._lock = threading.Lock()  # the other process may have held it
        self._written = 0
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._given is None:
            self.path = self._named()
        else:
            beside = self._given.absolute()
            self.path = beside.with_name(f"{beside.stem}-{os.getpid()}{beside.suffix}")
