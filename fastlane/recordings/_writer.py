"""Turn calls that are over into lines of a file, in a thread of its own: no call waits for it or fails by it."""

from __future__ import annotations

import atexit
import logging
import queue
import secrets
import threading
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from .._clock import wall_ns
from .._fork import starts_over
from ..records.record import CallRecord
from ._entry import HEADER_KEY, VERSION, IssuedCall, entry
from ._file import AppendedFile
from ._shape import BLOCK_CHARACTERS

# Calls that wait to be written: beyond it they are dropped and counted, so that a slow disk costs no memory.
_MOST_WAITING = 4_096
_MOST_AT_ONCE = 256
_PAUSE_S = 0.2
_EXIT_S = 5.0
# After each line, so that a call never waits for more than one of them (about 0.3 ms) to have the interpreter.
_BREATH_S = 0.0002

log = logging.getLogger("fastlane")

_all: weakref.WeakSet[Writer] = weakref.WeakSet()


class Writer:
    """Writes one recording. What it cannot write it counts, and says once."""

    def __init__(self, path: Path, *, with_text: bool, max_bytes: int) -> None:
        self._with_text = with_text
        # Never written: nobody who has the file can try what a prompt may have been.
        self._salt = secrets.token_bytes(32)
        self._family = secrets.token_hex(4)
        self._file = AppendedFile(path, max_bytes, self._header)
        self.written = 0
        self.dropped = 0
        self._start_over()
        _all.add(self)
        starts_over(self)

    def begin(self) -> None:
        """Open the file. Raises OSError."""
        self._file.begin()

    def _start_over(self) -> None:
        """Begin as the only thread of this process: at first, and in a forked child."""
        self._queue: queue.SimpleQueue[tuple[IssuedCall, CallRecord] | threading.Event] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._writing = threading.Lock()
        self._session = secrets.token_hex(4)
        self._began_ns = wall_ns()
        self._closed = False
        self._complained = False
        self._never = threading.Event()

    def begin_in_child(self) -> None:
        """Leave to the parent what is the parent's: what waits there, its thread and its open file."""
        closed = self._closed
        self.written = self.dropped = 0
        self._start_over()
        self._closed = closed
        self._file.close()

    def put(self, asked: IssuedCall, record: CallRecord) -> None:
        """Take a call that is over, to be written soon."""
        if self._closed or self._queue.qsize() >= _MOST_WAITING:
            self.dropped += 1
            return
        self._queue.put((asked, record))
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="fastlane-recording", daemon=True)
                    thread.start()
                    self._thread = thread

    def flush(self, timeout_s: float) -> bool:
        """Wait until what has been put so far is written; False where that takes longer."""
        if self._thread is None:
            self._drain()
            return True
        reached = threading.Event()
        self._queue.put(reached)
        return reached.wait(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write what waits, and take no more."""
        self._closed = True
        self.flush(timeout_s)
        if self._writing.acquire(timeout=timeout_s):
            try:
                self._file.close()
            finally:
                self._writing.release()

    def drain_at_exit(self) -> None:
        """Write what waits, from the thread that ends the process."""
        self._closed = True
        if self._writing.acquire(timeout=_EXIT_S):
            self._writing.release()
            self._drain()

    def _run(self) -> None:
        while True:
            # Waits without a lock, so that a fork at this moment leaves none behind that is held.
            first = self._queue.get()
            self._drain(first, breath_s=_BREATH_S)
            if self._closed and self._queue.empty():
                self._thread = None
                return
            # One write for many calls.
            if not self._closed and self._queue.empty():
                self._never.wait(_PAUSE_S)

    def _drain(
        self, first: tuple[IssuedCall, CallRecord] | threading.Event | None = None, *, breath_s: float = 0.0
    ) -> None:
        with self._writing:
            waiting = first
            while True:
                lines: list[bytes] = []
                reached: list[threading.Event] = []
                while len(lines) < _MOST_AT_ONCE:
                    if waiting is None:
                        try:
                            waiting = self._queue.get_nowait()
                        except queue.Empty:
                            break
                    if isinstance(waiting, threading.Event):
                        reached.append(waiting)
                    else:
                        line = self._line(*waiting)
                        lines += [line] if line is not None else []
                        if breath_s:
                            self._never.wait(breath_s)
                    waiting = None
                self._append(lines)
                for each in reached:
                    each.set()
                if self._queue.empty():
                    return

    def _line(self, asked: IssuedCall, record: CallRecord) -> bytes | None:
        try:
            at_s = max(0, record.timeline.started_wall_ns - self._began_ns) / 1e9
            shown = entry(asked, record, salt=self._salt, at_s=at_s, with_text=self._with_text)
            line = _written({"session": self._session, **shown})
            if len(line) > self._file.longest_line:
                raise ValueError("expected a call that max_bytes has room for")
        except Exception as error:  # noqa: BLE001 - whatever a prompt is made of, the next ones are written
            self.dropped += 1
            self._complain(error)
            return None
        return line

    def _append(self, lines: list[bytes]) -> None:
        try:
            while lines:
                written = self._file.append(lines)
                self.written += written
                lines = lines[written:]
        except OSError as error:
            self.dropped += len(lines)
            self._file.close()
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            # The class alone: an error's message may quote the prompt.
            log.warning(
                "a recording of calls is not complete: %s (logged once; no call is affected)", type(error).__name__
            )

    def _header(self) -> bytes:
        header = {
            HEADER_KEY: VERSION,
            "session": self._session,
            "family": self._family,
            "started_at": datetime.fromtimestamp(self._began_ns / 1e9, UTC).isoformat(),
            "with_text": self._with_text,
            "block_characters": BLOCK_CHARACTERS,
        }
        return _written(header)


def _written(line: dict[str, Any]) -> bytes:
    return orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def _drain_all() -> None:
    for writer in list(_all):
        try:
            writer.drain_at_exit()
        except Exception as error:  # noqa: BLE001 - the process ends, and nothing else may suffer
            writer._complain(error)


atexit.register(_drain_all)
