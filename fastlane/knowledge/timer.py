"""The timer: one thread per process that calls functions later."""

from __future__ import annotations

import _thread
import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from .._clock import now_ns
from .._fork import in_child, new_rlock

log = logging.getLogger("fastlane")

_LONGEST_WAIT_S = 3_600.0


class Handle:
    """A scheduled call."""

    __slots__ = ("_function", "_in_thread")

    def __init__(self, function: Callable[[], object], in_thread: bool) -> None:
        self._function: Callable[[], object] | None = function
        self._in_thread = in_thread

    def cancel(self) -> None:
        """Cancel the call, unless it has been made already."""
        self._function = None

    def _run(self) -> None:
        function, self._function = self._function, None
        if function is None:
            return
        try:
            if self._in_thread:
                _start(function)
            else:
                function()
        except Exception as error:  # noqa: BLE001 - the other functions still have to be called
            log.warning("a function called by the timer raised %s", type(error).__name__)


def _start(function: Callable[[], object]) -> None:
    try:
        threading.Thread(target=function, name="fastlane later", daemon=True).start()
    except RuntimeError:  # no thread can be started now
        call_later(1.0, function, in_thread=True)


class _Timer:
    """The state of the timer. A forked child starts with a new one: scheduled calls belong to its parent."""

    def __init__(self) -> None:
        # SimpleQueue is reentrant, so that finalizers may put into it.
        self.planned: SimpleQueue[tuple[int, Handle]] = SimpleQueue()
        self.runs = False


_timer = _Timer()
# Reentrant: a finalizer may run while its thread holds it. Two timer threads do no harm.
_starting = new_rlock()


@in_child
def _begin_in_child() -> None:
    _timer.__init__()  # type: ignore[misc]


def call_later(delay_s: float, function: Callable[[], object], *, in_thread: bool = False) -> Handle:
    """Call a function after `delay_s` seconds.

    The timer's thread calls it: it must take microseconds and never block. With `in_thread` it gets a thread of its
    own. Finalizers may call this. Raises RuntimeError if no thread can be started.
    """
    return call_at(now_ns() + int(delay_s * 1e9), function, in_thread=in_thread)


def call_at(at_ns: int, function: Callable[[], object], *, in_thread: bool = False) -> Handle:
    """Call a function at a time in monotonic nanoseconds (`fastlane._clock.now_ns`). See `call_later`."""
    handle = Handle(function, in_thread)
    _timer.planned.put((at_ns, handle))
    start()
    return handle


def start() -> None:
    """Start the timer's thread, unless it runs. Raises RuntimeError if no thread can be started."""
    if _timer.runs:
        return
    with _starting:
        if not _timer.runs:
            # Not threading.Thread: its start() takes locks that the thread of a finalizer may hold.
            _thread.start_new_thread(_run, (_timer.planned,))
            _timer.runs = True


def _run(planned: SimpleQueue[tuple[int, Handle]]) -> None:
    threading.current_thread().name = "fastlane timer"
    heap: list[tuple[int, int, Handle]] = []
    numbers = itertools.count()
    while True:
        wait_s = min(_LONGEST_WAIT_S, max(0.0, (heap[0][0] - now_ns()) / 1e9)) if heap else None
        try:
            at_ns, handle = planned.get(timeout=wait_s)
        except Empty:
            pass
        else:
            heapq.heappush(heap, (at_ns, next(numbers), handle))
            del handle
            continue
        while heap and heap[0][0] <= now_ns():
            heapq.heappop(heap)[2]._run()
