"""Append lines to a file that several processes write, and start it anew where it has grown too large."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

from ._entry import HEADER_KEY

try:
    import fcntl
except ImportError:  # Windows, where one process writes a file
    fcntl = None  # type: ignore[assignment]


_OURS = b'{"' + HEADER_KEY.encode()
_PIECE_BYTES = 1 << 16


class AppendedFile:
    """A file of lines: at most `max_bytes`, beside one older of that size under the same name with ".1"."""

    def __init__(self, path: Path, max_bytes: int, header: Callable[[], bytes]) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._header = header
        self._file: int | None = None

    @property
    def longest_line(self) -> int:
        """Bytes that a line may have."""
        return self._max_bytes - len(self._header())

    def append(self, lines: Sequence[bytes]) -> int:
        """Write whole lines, as many as the file has room for, and at least one; how many. Raises OSError."""
        file = self._locked()
        try:
            size = os.fstat(file).st_size
            if size + len(lines[0]) > self._max_bytes and size > len(self._header()):
                self._path.replace(self._older)
                self._unlock(file)
                self.close()
                file = self._locked()
                size = os.fstat(file).st_size
            ends = accumulate(map(len, lines), initial=size)
            fitting = max(1, sum(end <= self._max_bytes for end in ends) - 1)
            try:
                _write_all(file, b"".join(lines[:fitting]))
            except OSError:
                # Half a line would spoil the next one.
                os.ftruncate(file, size)
                raise
            return fitting
        finally:
            self._unlock(file)

    def begin(self) -> None:
        """Open the file and write the header. Raises OSError."""
        self._unlock(self._locked())

    def close(self) -> None:
        """Close the file; it is opened anew when it is appended to."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    @property
    def _older(self) -> Path:
        return self._path.with_name(self._path.name + ".1")

    def _locked(self) -> int:
        """The file under its name, which another process may have moved away meanwhile, with the lock held."""
        while True:
            if self._file is None:
                # What applications ask of models is nobody else's to read.
                self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
                is_new = True
            else:
                is_new = False
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX)
            if _is_at(self._file, self._path):
                if is_new:
                    _mend(self._file)
                    _write_all(self._file, self._header())
                return self._file
            self._unlock(self._file)
            self.close()

    @staticmethod
    def _unlock(file: int) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_UN)
            except OSError:  # closed with the file
                pass


def _is_at(file: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(file)
    return os.path.samestat(own, there)


def _mend(file: int) -> None:
    """Take away half a line that a process which was killed has left at the end."""
    size = at = os.fstat(file).st_size
    os.lseek(file, 0, os.SEEK_SET)
    if os.read(file, len(_OURS)) != _OURS:
        return
    while at:
        start = max(0, at - _PIECE_BYTES)
        os.lseek(file, start, os.SEEK_SET)
        newline = os.read(file, at - start).rfind(b"\n")
        if newline >= 0:
            at = start + newline + 1
            break
        at = start
    if at < size:
        os.ftruncate(file, at)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
