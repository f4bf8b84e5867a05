"""Threads and tasks that wait, and how each is woken."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from typing import Any

from ._core import Waiter
from ._settings import AdmissionSettings

# How much later than asked a task may be told that its time is over.
_MOMENT_S = 0.05
_here = threading.local()


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

    def in_time(self, seconds: float) -> Slot:
        """Have it look after so many seconds: it leaves what is returned when that is over."""
        timers: _Timers | None = getattr(_here, "timers", None)
        if timers is None or timers.loop is not self._loop:
            timers = _here.timers = _Timers(self._loop)
        slot = timers.slot(seconds)
        slot.waiting.add(self)
        return slot


class Slot:
    """Those whose time is over at once, of one loop."""

    __slots__ = ("_end", "_slots", "handle", "waiting")

    handle: asyncio.TimerHandle

    def __init__(self, slots: dict[int, Slot], end: int) -> None:
        self.waiting: set[TaskWaiter] = set()
        self._slots = slots
        self._end = end

    def leave(self, waiter: TaskWaiter) -> None:
        """It waits no longer."""
        self.waiting.discard(waiter)
        # (Where its end has come, another one may have its number.)
        if not self.waiting and self._slots.get(self._end) is self:
            del self._slots[self._end]
            self.handle.cancel()


class _Timers:
    """The timers of one loop: one for all whose time is over within the same moment.

    A timer for each costs more than everything else that a call does here: the loop sorts them, cancelled ones too.
    """

    __slots__ = ("_slots", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._slots: dict[int, Slot] = {}

    def slot(self, seconds: float) -> Slot:
        """The slot in which so many seconds end, rounded up."""
        moment = math.ceil((self.loop.time() + seconds) / _MOMENT_S)
        slot = self._slots.get(moment)
        if slot is None:
            slot = self._slots[moment] = Slot(self._slots, moment)
            slot.handle = self.loop.call_at(moment * _MOMENT_S, self._over, moment)
        return slot

    def _over(self, moment: int) -> None:
        slot = self._slots.pop(moment, None)
        for waiter in () if slot is None else slot.waiting:
            waiter.expire()


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
