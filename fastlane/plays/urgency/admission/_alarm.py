"""One thread that asks gates again at a time at which they may let somebody in though nothing happened."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from fastlane._clock import now_ns

_S = 1e9
_LONGEST_S = 3_600.0


class _Alarms:
    """Runs what it is told to at its time. `at` takes no lock, so that a finaliser may call it."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[int, Callable[[], None]]] = SimpleQueue()
        self._lock = threading.Lock()
        self.running = False

    def start(self) -> None:
        """Have a thread for it, before anybody waits."""
        if self.running:
            return
        with self._lock:
            if not self.running:
                threading.Thread(target=self._run, args=(self._asked,), name="fastlane-admission", daemon=True).start()
                self.running = True

    def at(self, when_ns: int, run: Callable[[], None]) -> None:
        self._asked.put((when_ns, run))

    @staticmethod
    def _run(asked: SimpleQueue[tuple[int, Callable[[], None]]]) -> None:
        planned: list[tuple[int, int, Callable[[], None]]] = []
        numbers = itertools.count()
        while True:
            left_s = min(_LONGEST_S, (planned[0][0] - now_ns()) / _S) if planned else None
            try:
                when_ns, run = asked.get(timeout=None if left_s is None else max(0.0, left_s))
            except Empty:
                pass
            else:
                heapq.heappush(planned, (when_ns, next(numbers), run))
                del run
                continue
            while planned and planned[0][0] <= now_ns():
                heapq.heappop(planned)[2]()


alarms = _Alarms()


def _after_fork() -> None:
    # The thread is not there any more, and what it was asked is the parent's.
    _Alarms.__init__(alarms)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
