"""Record a client's calls to a file, beside its plays and without being one of them."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import orjson

from .._clock import wall_ns
from .._fork import starts_over
from ..errors import ConfigurationError
from .entry import HEADER_KEY, VERSION, entry, issued
from .shape import BLOCK_CHARACTERS

try:
    import fcntl
except ImportError:  # Windows, where one process writes a file
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from io import FileIO

    from ..client.clients import AsyncOpenAI, OpenAI
    from ..engine.call import Call
    from ..engine.pipeline import Pipeline
    from ..records.record import CallRecord

_log = logging.getLogger("fastlane")

_MEBIBYTE = 1 << 20
_MIN_BYTES = 64 * 1024
# Calls that are under way, and calls that wait to be written: beyond it they are dropped, so that a slow disk costs no
# memory.
_MAX_WAITING = 4_096
# After each line, so that a call never waits for more than one of them (about 0.3 ms) to have the interpreter.
_BREATH_S = 0.0002


class RecordingFile:
    """A file of lines, of at most `max_bytes`, that several processes append to.

    Each process writes `header` before its first line.
    """

    def __init__(self, path: Path, max_bytes: int, header: bytes) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._header = header
        # Device and inode of the file that has this process's header.
        self._begun: tuple[int, int] | None = None

    def append(self, line: bytes) -> None:
        """Write a line; b"" writes the header alone. Raises OSError, and ValueError where the file is full."""
        # Prompts are private to the owner of the file.
        with open(self._path, "a+b", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            try:
                status = os.fstat(file.fileno())
                begun = status.st_dev, status.st_ino
                data = line if begun == self._begun else self._header + line
                if _remove_half_line(file) + len(data) > self._max_bytes:
                    raise ValueError("the file has reached max_bytes")
                while data:
                    data = data[file.write(data) :]
                self._begun = begun
            finally:
                # Closing is not enough: a child that was forked meanwhile has the file open too.
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_UN)


def _remove_half_line(file: FileIO) -> int:
    """Remove the half line that a killed process or a full disk has left. Return the size of the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    if file.read() in (b"", b"\n"):
        return size
    file.seek(0)
    content = file.read()
    is_ours = content.startswith(b'{"' + HEADER_KEY.encode())
    return file.truncate(content.rfind(b"\n") + 1) if is_ours else size


class Recording:
    """A recording that goes on until it is closed or the process ends. A context manager that closes it."""

    def __init__(self, path: Path, pipeline: Pipeline | None, *, with_text: bool, max_bytes: int) -> None:
        self.path = path
        self._pipeline = pipeline
        self._with_text = with_text
        self._max_bytes = max_bytes
        # Never written, so that a reader of the file cannot guess prompts by their digests.
        self._salt = secrets.token_bytes(32)
        self._family = secrets.token_hex(4)
        self._under_way: dict[str, Mapping[str, Any]] = {}
        self._is_closed = False
        self.begin_in_child()
        starts_over(self)
        if pipeline is not None:
            self._file.append(b"")
            pipeline.add_listener(self)

    def begin_in_child(self) -> None:
        """Start over with a thread and a part of the file of this process: at first, and in a forked child."""
        self.written = 0
        """Calls that this process has written so far."""
        self.dropped = 0
        """Calls that this process has not written: too many at once, a full disk, a body that is no JSON."""
        self._has_warned = False
        self._room = threading.Semaphore(_MAX_WAITING)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="fastlane-recording")
        self._session = secrets.token_hex(4)
        self._began_ns = wall_ns()
        header = {
            HEADER_KEY: VERSION,
            "session": self._session,
            "family": self._family,
            "started_at": datetime.fromtimestamp(self._began_ns / 1e9, UTC).isoformat(),
            "with_text": self._with_text,
            "block_characters": BLOCK_CHARACTERS,
        }
        self._file = RecordingFile(self.path, self._max_bytes, _line_of(header))

    def began(self, call: Call) -> None:
        """Keep what is to be written of a call while it lasts. Called by the client."""
        try:
            if (asked := issued(call)) is not None:
                self._under_way[call.call_id] = asked
                if len(self._under_way) > _MAX_WAITING:
                    self._under_way.pop(next(iter(self._under_way)), None)
                    self.dropped += 1
        except Exception:  # noqa: BLE001 - no call fails by being recorded
            self.dropped += 1

    def ended(self, record: CallRecord) -> None:
        """Have a call written that is over. Called by the client."""
        asked = self._under_way.pop(record.call_id, None)
        if asked is None or self._is_closed:
            return
        try:
            if self._room.acquire(blocking=False):
                self._executor.submit(self._write, asked, record)
                return
        except RuntimeError:  # the process ends
            pass
        self.dropped += 1

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until every call that is over by now is in the file; False where that takes longer."""
        try:
            return not wait([self._executor.submit(int)], timeout_s).not_done
        except RuntimeError:  # it is closed, and was flushed before
            return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Record no more, and write what is over by now. Calls that are under way are not recorded."""
        self._is_closed = True
        if self._pipeline is not None:
            self._pipeline.remove_listener(self)
        self._under_way.clear()
        self.flush(timeout_s)
        self._executor.shutdown(wait=False)

    def _write(self, asked: Mapping[str, Any], record: CallRecord) -> None:
        try:
            at_s = max(0, record.timeline.started_wall_ns - self._began_ns) / 1e9
            shown = entry(asked, record, salt=self._salt, at_s=at_s, with_text=self._with_text)
            self._file.append(_line_of({"session": self._session, **shown}))
            self.written += 1
        except Exception as error:  # noqa: BLE001 - whatever a prompt is made of, the next ones are written
            self.dropped += 1
            if not self._has_warned:
                self._has_warned = True
                # The class alone: an error's message may quote the prompt.
                _log.warning(
                    "a recording of calls is not complete: %s (logged once; no call is affected)", type(error).__name__
                )
        finally:
            self._room.release()
        threading.Event().wait(_BREATH_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _line_of(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def record(
    client: OpenAI | AsyncOpenAI, path: str | Path, *, text: bool = False, max_bytes: int = 64 * _MEBIBYTE
) -> Recording:
    """Append every generating call of a client to a file of JSON lines from now on, for `fastlane bench` to replay.

    What is written is the shape of a call, see docs/workloads.md: no text of prompt or answer, no key and no header.
    With `text` the messages and tools are written too; answers never are.

    It happens in a thread of its own, also at exit, and neither fails nor delays a call; `dropped` counts what could
    not be written, as in a file that has reached `max_bytes`. Several clients, threads and forked processes may share a
    file. Copies of the client by `with_options` are recorded with it, copies with other plays are not. With
    FASTLANE_DISABLED nothing is recorded.

    Raises ConfigurationError for anything but a client of fastlane, and for a file that cannot be written.
    """
    from ..client.clients import _Client

    if not isinstance(client, _Client):
        raise ConfigurationError(
            f"record() takes a client of fastlane, sync or async, got {type(client).__name__}: make it with "
            "fastlane.OpenAI(...), or call fastlane.install() first"
        )
    if not isinstance(text, bool):
        raise ConfigurationError(f"text takes True or False, got {type(text).__name__}")
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or max_bytes < _MIN_BYTES:
        raise ConfigurationError(f"max_bytes takes {_MIN_BYTES:,} or more, got {max_bytes!r:.40}")
    path = Path(path).absolute()
    shell: Any = client._fastlane
    pipeline = None if shell is None else shell.pipeline
    try:
        return Recording(path, pipeline, with_text=text, max_bytes=max_bytes)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot record to {path}: {getattr(error, 'strerror', None) or error}") from error
