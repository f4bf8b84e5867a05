"""Do something for calls that are late: one thread for all of them, which sleeps while none is."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Callable

from fastlane._clock import now_ns

# The thread ends when nothing was to be done for so long.
_IDLE_S = 10.0


class Alarm:
    """Something that is to be done at a moment, unless it is called off."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act

    def call_off(self) -> None:
        """It is not to be done any more; without effect where it has begun."""
        self.act = None


class LateCalls:
    """Alarms of any number of calls. Thread-safe."""

    def __init__(self) -> None:
        self._start_over()

    def _start_over(self) -> None:
        self._condition = threading.Condition()
        self._alarms: list[tuple[int, int, Alarm]] = []
        self._numbers = itertools.count()
        self._is_running = False

    def set(self, at_ns: int, act: Callable[[], None]) -> Alarm:
        """Have something done at a moment, in the thread: it must not take long. Raises RuntimeError for no thread."""
        alarm = Alarm(act)
        with self._condition:
            if not self._is_running:
                threading.Thread(target=self._run, name="fastlane late calls", daemon=True).start()
                self._is_running = True
            heapq.heappush(self._alarms, (at_ns, next(self._numbers), alarm))
            if self._alarms[0][2] is alarm:
                self._condition.notify()
        return alarm

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._alarms:
                    self._condition.wait(_IDLE_S)
                    if not self._alarms:
                        self._is_running = False
                        return
                at_ns, _, alarm = self._alarms[0]
                left_ns = at_ns - now_ns()
                if left_ns > 0 and alarm.act is not None:
                    self._condition.wait(left_ns / 1e9)
                    continue
                heapq.heappop(self._alarms)
                act, alarm.act = alarm.act, None
            if act is not None:
                act()
            del act, alarm  # it holds a call


late_calls = LateCalls()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=late_calls._start_over)
