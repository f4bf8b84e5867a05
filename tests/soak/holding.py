"""What the process holds when nothing is under way, and what it has said that nobody asked for."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

WATCHDOG = "soak-watchdog"
_SETTLES_S = 20.0
# It serves a whole process, from when it is first needed.
_LASTING = ("fastlane timer",)


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
    """Names of the threads that run, apart from the main one, the soak's own, and those that last, of each one."""
    main = threading.main_thread()
    names = [each.name for each in threading.enumerate() if each is not main and each.name != WATCHDOG]
    for name in _LASTING:
        if name in names:
            names.remove(name)
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


def settled(wanted: Any) -> bool:
    """Whether something comes true before it counts as never: what was closed takes a moment."""
    deadline = time.monotonic() + _SETTLES_S
    while not wanted():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
        gc.collect()
    return True


class Noises:
    """Everything that Python reports to nobody in particular: each is a failure."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def listen(self) -> None:
        """Put itself where such reports go."""
        sys.unraisablehook = self._unraisable
        threading.excepthook = self._in_thread
        warnings.simplefilter("always")
        # Said by Python of every fork of a process with threads: that one is the soak's own doing.
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*")
        warnings.showwarning = self._warned  # type: ignore[assignment]
        handler = logging.Handler(logging.WARNING)
        handler.emit = self._logged  # type: ignore[method-assign]
        logging.getLogger().addHandler(handler)

    def said(self, what: str) -> None:
        """Note one."""
        self.heard.append(what[:4_000])

    def taken(self) -> list[str]:
        """Return them, and forget them."""
        heard, self.heard = self.heard, []
        return heard

    def of_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Hear what an event loop has to tell, such as a task's exception that was never retrieved."""
        error = context.get("exception")
        told = "".join(traceback.format_exception(error)) if error is not None else ""
        self.said(f"event loop: {context.get('message')} {told}")

    def _unraisable(self, unraisable: Any) -> None:
        told = "".join(traceback.format_exception(unraisable.exc_value))
        self.said(f"unraisable: {unraisable.err_msg} {unraisable.object!r:.200} {told}")

    def _in_thread(self, raised: Any) -> None:
        told = "".join(traceback.format_exception(raised.exc_value))
        self.said(f"thread {raised.thread.name if raised.thread else '?'}: {told}")

    def _warned(self, message: Any, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        self.said(f"warning: {category.__name__}: {message} ({filename}:{lineno})")

    def _logged(self, record: logging.LogRecord) -> None:
        told = "".join(traceback.format_exception(record.exc_info[1])) if record.exc_info else ""
        self.said(f"log: {record.name}: {record.getMessage()} {told}")
