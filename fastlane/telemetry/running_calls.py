"""The running calls of this process, written beside its trace file for `fastlane live`.

The timer writes them twice a second while there are any: a call only enters a dictionary and leaves it again.
"""

from __future__ import annotations

import contextlib
import json
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .._clock import wall_ns
from .._fork import starts_over
from ..knowledge.timer import call_later
from .attributes import printable
from .trace_files import RUNNING_SUFFIX, TraceFile

if TYPE_CHECKING:
    from ..engine.call_state import CallState

_EVERY_S: Final = 0.5


class RunningCalls:
    """The calls that run now, at the upstream that each is at."""

    def __init__(self, file: TraceFile) -> None:
        self._file = file
        self._path: Path | None = None
        # Weak, because a stream that is dropped unread has to be collected to end.
        self._calls: dict[int, weakref.ref[CallState]] = {}
        self._is_planned = False
        starts_over(self)

    def begin(self, key: int, call: CallState) -> None:
        """Add a call, or note that it goes on at another upstream."""
        self._calls[key] = weakref.ref(call)
        self._plan()

    def end(self, key: int) -> None:
        """Remove a call."""
        self._calls.pop(key, None)

    def _plan(self) -> None:
        if not self._is_planned:
            with contextlib.suppress(RuntimeError):  # no thread can be started now
                call_later(_EVERY_S, self._write, in_thread=True)
                self._is_planned = True

    def _write(self) -> None:
        self._is_planned = False
        running = [call for each in self._calls.copy().values() if (call := each()) is not None and not call.is_over]
        # A directory that cannot be written to is for the exporter to report.
        with contextlib.suppress(OSError):
            if running:
                self._replace(json.dumps({"at_ns": wall_ns(), "calls": [_described(call) for call in running]}))
            elif self._path is not None:
                self._path.unlink(missing_ok=True)
        if running:
            self._plan()

    def _replace(self, text: str) -> None:
        path = self._path = self._path or self._file.path.with_suffix(RUNNING_SUFFIX)
        beside = path.with_suffix(f"{RUNNING_SUFFIX}.new")
        beside.touch(mode=0o600)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)

    def begin_in_child(self) -> None:
        """See `StartsOver`."""
        self._path, self._calls, self._is_planned = None, {}, False


def _described(call: CallState) -> dict[str, Any]:
    first_ns = call.answer.first_token_ns
    return {
        "start_ns": call.started_wall_ns,
        "model": printable(call.model or ""),
        "stream": call.stream,
        "attempts": len(call.attempts),
        "first_token_s": None if first_ns is None else (first_ns - call.started_ns) / 1e9,
        "chunks": len(call.answer.token_ns),
    }


watched: RunningCalls | None = None  # None if spans go to no trace file
