"""Knows what is under way and since when, and tells where everything stands when something takes too long."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.soak.holding import WATCHDOG

CALL_HANGS_S = 90.0
SCENE_HANGS_S = 240.0


class Watchdog:
    """A thread that looks every second whether anything hangs, and calls `bark` with what and where, once."""

    def __init__(self, bark: Callable[[list[str], str], None]) -> None:
        self._bark = bark
        self._ongoing: dict[str, tuple[float, float]] = {}
        self._loops: set[asyncio.AbstractEventLoop] = set()

    def start(self) -> None:
        """Begin to look."""
        threading.Thread(target=self._look, name=WATCHDOG, daemon=True).start()

    @contextmanager
    def watching(self, what: str, limit_s: float = CALL_HANGS_S) -> Iterator[None]:
        """Have it bark if this is not over in time."""
        self._ongoing[what] = (time.monotonic(), limit_s)
        try:
            yield
        finally:
            self._ongoing.pop(what, None)

    @contextmanager
    def loop(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Have it tell of the tasks of this loop too."""
        self._loops.add(loop)
        try:
            yield
        finally:
            self._loops.discard(loop)

    def hanging(self) -> list[str]:
        """Return what takes too long."""
        now = time.monotonic()
        return [what for what, (began, limit_s) in list(self._ongoing.items()) if now - began > limit_s]

    def _look(self) -> None:
        while True:
            time.sleep(1.0)
            hanging = self.hanging()
            if hanging:
                self._bark(hanging, self.everything())
                return

    def everything(self) -> str:
        """Return the stacks of all threads and tasks."""
        told = io.StringIO()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            told.write(f"\n--- thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}")
        for loop in list(self._loops):
            for task in asyncio.all_tasks(loop):
                told.write(f"\n--- task {task!r:.300}\n")
                task.print_stack(file=told)
        return told.getvalue()
