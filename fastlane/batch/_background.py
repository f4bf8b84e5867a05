"""A worker in a thread of the application's own process."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable

from .._fork import new_lock, starts_over
from ..errors import FastlaneError
from ._worker import Worker

_log = logging.getLogger("fastlane.batch")

# How long the end of a process waits for what its worker has under way; what is not over then is gone on with later.
_AT_EXIT_S = 10.0


class Background:
    """Runs a worker in a daemon thread, which ends with `stop()` or the process. A fork's child has none."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._lock = new_lock()
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        """Why the worker ended by itself; None while it runs, and after `stop()`."""
        _all.add(self)
        starts_over(self)

    @property
    def is_running(self) -> bool:
        """Whether the worker is at work."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def start(self) -> None:
        """Begin, unless it is at work already. Raises what making a worker raises."""
        with self._lock:
            if self.is_running:
                return
            self.error = None
            worker = self._worker = self._make()
            self._thread = threading.Thread(target=self._run, args=[worker], name="fastlane-batch", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Have it end, and wait for that; returns whether it has. What is at the provider goes on there."""
        with self._lock:
            worker, thread = self._worker, self._thread
        if worker is None or thread is None:
            return True
        worker.stop()
        if thread is not threading.current_thread():
            thread.join(timeout_s)
        if thread.is_alive():
            return False
        self.error = None
        return True

    def _run(self, worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - nobody waits for this thread: it is told and kept
            self.error = error.with_traceback(None)
            # What others say may quote what they were given.
            _log.error("the worker has ended: %s", error if isinstance(error, FastlaneError) else type(error).__name__)

    def begin_in_child(self) -> None:
        """See `StartsOver`: the thread stayed with the parent."""
        self._worker = self._thread = None


_all: weakref.WeakSet[Background] = weakref.WeakSet()


def _end_all() -> None:
    running = [one for one in _all if one.is_running]
    for one in running:
        if one._worker is not None:
            one._worker.stop()
    for one in running:
        one.stop(_AT_EXIT_S)


atexit.register(_end_all)
