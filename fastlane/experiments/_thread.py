"""The thread in which calls are counted, through forks and to the process's end."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from random import Random

from ._assignment import new_after_fork
from ._ledger import Ledger

log = logging.getLogger("fastlane")

# Nobody waits for it: what a killed process has counted since then is lost.
EVERY_S = 1.0
_MOST_PAUSE_S = 30.0
_LAST_WORDS_S = 1.0


class Counting:
    """Has a ledger exchange what it counted every second, for as long as its owner lives."""

    def __init__(self, ledger: Ledger, owner: object) -> None:
        self._ledger = ledger
        self._owner = weakref.ref(owner)
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self.is_running = False
        _all.add(self)

    def start(self) -> None:
        """Begin, where that has not happened yet in this process. Neither waits nor raises."""
        # Who does not get the lock has no need to wait for it: somebody else is starting it.
        if self.is_running or self._wake.is_set() or not self._starting.acquire(blocking=False):
            return
        try:
            if not self.is_running:
                threading.Thread(target=self._run, name="fastlane experiment", daemon=True).start()
                self.is_running = True
        except RuntimeError:  # no thread to be had, or none any more because the process ends
            pass
        finally:
            self._starting.release()

    def _run(self) -> None:
        # Holds itself and not its owner: what an owner that is gone has counted last is told at the process's end too.
        ledger, wake, random, pause_s = self._ledger, self._wake, Random(), EVERY_S
        # Not all processes at once.
        while not wake.wait(pause_s * random.uniform(0.8, 1.2)):
            has_owner = self._owner() is not None
            try:
                is_there = ledger.exchange()
            except Exception as error:  # noqa: BLE001 - of an application's own callback, or ours
                log.warning("the experiment %r could not be counted (%s)", ledger.name, type(error).__name__)
                is_there = False
            pause_s = EVERY_S if is_there else min(_MOST_PAUSE_S, 2 * pause_s)
            if not has_owner:
                break
        ledger.close()

    def close(self) -> None:
        """Tell the store what is left, and end."""
        if self._wake.is_set():
            return
        self._ledger.is_counting = False
        self._wake.set()
        self._ledger.try_exchange(_LAST_WORDS_S)

    def begin_in_child(self) -> None:
        """The parent's thread and locks are not here."""
        self._starting = threading.Lock()
        closed = self._wake.is_set()
        self._wake = threading.Event()
        if closed:
            self._wake.set()
        self.is_running = False
        self._ledger.begin_in_child()

    @property
    def lock(self) -> threading.RLock:
        """See `Ledger.lock`."""
        return self._ledger.lock


_all: weakref.WeakSet[Counting] = weakref.WeakSet()
_forking = threading.local()


def _everyone() -> list[Counting]:
    while True:
        try:
            return list(_all)
        except RuntimeError:  # another thread is making one
            continue


def _hold() -> None:
    # SQLite's own locks are not to be forked while a thread holds them.
    _forking.held = [lock for one in _everyone() if (lock := one.lock).acquire(timeout=_LAST_WORDS_S)]


def _release() -> None:
    for lock in _forking.__dict__.pop("held", ()):
        lock.release()


def _begin_in_child() -> None:
    _forking.__dict__.clear()
    new_after_fork()
    for one in _everyone():
        one.begin_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_begin_in_child)


@atexit.register
def _close_at_exit() -> None:
    for one in _everyone():
        one.close()
