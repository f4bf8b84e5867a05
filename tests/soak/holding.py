"""What the process holds when nothing is in flight, what it reports unasked, and where it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import io
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CALL_HANGS_S = 90.0
SCENE_HANGS_S = 240.0
_SETTLES_S = 20.0
_WATCHDOG = "soak-watchdog"
# It serves a whole process, from when it is first needed.
_LASTING = "fastlane timer"


def resident() -> int:
    """Bytes of memory that this process occupies; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def descriptors() -> dict[str, str]:
    """What the open file descriptors lead to, by number."""
    found = {}
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # the one that lists them
                found[entry.name] = str(entry.readlink())
    return found


def threads() -> list[str]:
    """Names of the threads that run, apart from the main one, the soak's own, and one that lasts."""
    main = threading.main_thread()
    names = [each.name for each in threading.enumerate() if each is not main and each.name != _WATCHDOG]
    if _LASTING in names:
        names.remove(_LASTING)
    return sorted(names)


def collect() -> None:
    """Have all garbage collected that there is now.

    While another thread collects, `gc.collect()` does nothing at all, and that thread may have begun too early: the
    second end of a collection from now on is that of one that began after now.
    """
    before = gc.get_stats()[2]["collections"]
    while gc.get_stats()[2]["collections"] < before + 2:
        gc.collect()
        time.sleep(0)


def tidy() -> None:
    """Collect garbage, and give freed memory back, where the C library can."""
    collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def settled(wanted: Callable[[], bool]) -> bool:
    """Whether something comes true before it counts as never: what was closed takes a moment."""
    deadline = time.monotonic() + _SETTLES_S
    while not wanted():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
        gc.collect()
    return True


def _error(error: BaseException | None) -> str:
    return "" if error is None else "".join(traceback.format_exception(error))


class PythonReports:
    """Everything that Python reports outside of any call: each is a failure."""

    def __init__(self) -> None:
        self._reports: list[str] = []

    def listen(self) -> None:
        """Put itself where such reports go."""
        sys.unraisablehook = lambda it: self._note(
            f"unraisable: {it.err_msg} {it.object!r:.200} {_error(it.exc_value)}"
        )
        threading.excepthook = lambda it: self._note(f"thread {it.thread}: {_error(it.exc_value)}")
        warnings.simplefilter("always")
        # Python warns of every fork of a process with threads: the soak forks on purpose.
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*")
        warnings.showwarning = lambda message, category, filename, lineno, *_: self._note(
            f"warning: {category.__name__}: {message} ({filename}:{lineno})"
        )
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self._note(  # type: ignore[method-assign]
            f"log: {record.name}: {record.getMessage()} {_error(record.exc_info[1] if record.exc_info else None)}"
        )
        logging.getLogger().addHandler(handler)

    def of_loop(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note what an event loop reports, such as a task's exception that was never retrieved."""
        self._note(f"event loop: {context.get('message')} {_error(context.get('exception'))}")

    def _note(self, what: str) -> None:
        self._reports.append(what[:4_000])

    def taken(self) -> list[str]:
        """Return them, and forget them."""
        reports, self._reports = self._reports, []
        return reports


class Watchdog:
    """A thread that looks every second whether anything hangs, and calls `bark` with what and where, once."""

    def __init__(self, bark: Callable[[list[str], str], None]) -> None:
        self._bark = bark
        self._ongoing: dict[str, float] = {}
        self._loops: set[asyncio.AbstractEventLoop] = set()

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._look, name=_WATCHDOG, daemon=True).start()

    @contextlib.contextmanager
    def watching(self, what: str, limit_s: float = CALL_HANGS_S) -> Iterator[None]:
        """Have it bark if this is not over in time."""
        self._ongoing[what] = time.monotonic() + limit_s
        try:
            yield
        finally:
            self._ongoing.pop(what, None)

    @contextlib.contextmanager
    def loop(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Have it tell of the tasks of this loop too."""
        self._loops.add(loop)
        try:
            yield
        finally:
            self._loops.discard(loop)

    def _look(self) -> None:
        hanging: list[str] = []
        while not hanging:
            time.sleep(1.0)
            now = time.monotonic()
            hanging = [what for what, until in list(self._ongoing.items()) if now > until]
        stacks = io.StringIO()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            stacks.write(f"\n--- thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}")
        for loop in list(self._loops):
            for task in asyncio.all_tasks(loop):
                stacks.write(f"\n--- task {task!r:.300}\n")
                task.print_stack(file=stacks)
        self._bark(hanging, stacks.getvalue())
