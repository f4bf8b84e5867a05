"""Threads and tasks that wait, and how each is woken."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from typing import Any

from ._core import Waiter
from ._settings import AdmissionSettings


class ThreadWaiter(Waiter):
    """A thread that waits."""

    __slots__ = ("turn",)

    def __init__(self, level: int, settings: AdmissionSettings, tokens: int) -> None:
        super().__init__(level, settings, tokens)
        self.turn = threading.Lock()
        self.turn.acquire()

    def wake(self) -> bool:
        """Tell it that it has its place; False where nobody is there any more. Takes no lock that is waited for."""
        self.turn.release()
        return True


class TaskWaiter(Waiter):
    """A task that waits."""

    __slots__ = ("_loop", "_thread", "turn")

    def __init__(self, level: int, settings: AdmissionSettings, tokens: int) -> None:
        super().__init__(level, settings, tokens)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.turn: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> bool:
        """Tell it that it has its place; False where its loop is closed."""
        try:
            if threading.get_ident() == self._thread:
                # What wakes a loop from another thread costs several times as much.
                self.expire()
            else:
                self._loop.call_soon_threadsafe(self.expire)
        except RuntimeError:  # The loop is closed. One that closes from here on has woken it, or ends it.
            return False
        return True

    def expire(self) -> None:
        """Have it look: it has its place, or its time is over."""
        if not self.turn.done():
            self.turn.set_result(None)

    def after(self, seconds: float) -> asyncio.TimerHandle:
        """Have it look after so many seconds."""
        return self._loop.call_later(seconds, self.expire)


class TrioWaiter(Waiter):
    """A task of trio that waits."""

    __slots__ = ("_token", "_trio", "_turn")

    def __init__(self, level: int, settings: AdmissionSettings, tokens: int) -> None:
        super().__init__(level, settings, tokens)
        self._trio: Any = sys.modules["trio"]
        self._token = self._trio.lowlevel.current_trio_token()
        self._turn = self._trio.Event()

    def wake(self) -> bool:
        """Tell it that it has its place; False where its run is over."""
        try:
            self._token.run_sync_soon(self._turn.set)
        except self._trio.RunFinishedError:
            return False
        return True

    async def wait(self, most_s: float | None) -> None:
        """Until it has its place, or its time is over."""
        with self._trio.move_on_after(math.inf if most_s is None else most_s):
            await self._turn.wait()


def task_waiter(level: int, settings: AdmissionSettings, tokens: int) -> TaskWaiter | TrioWaiter:
    """One for the loop that runs."""
    try:
        return TaskWaiter(level, settings, tokens)
    except RuntimeError:
        if "trio" not in sys.modules:
            raise
        return TrioWaiter(level, settings, tokens)
