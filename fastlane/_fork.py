"""Start over in forked children. The transport, which imports nothing else of the package, does so by itself."""

from __future__ import annotations

# Imported here to register its fork handlers. If other modules imported it while a fork waits for `no_fork` below,
# Python would run only the second half of those handlers.
import concurrent.futures.thread  # noqa: F401
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar

F = TypeVar("F", bound=Callable[[], None])


class StartsOver(Protocol):
    """An object with state that a forked child must not share with its parent."""

    def begin_in_child(self) -> None:
        """Start over. Take no lock: a thread that the child doesn't have may hold it until this has returned."""


no_fork = threading.RLock()
"""Held during imports, and while pydantic builds validators: every fork waits for it. A child that is forked amid
either waits for ever, because it lacks the thread that goes on with it."""

_LONGEST_WAIT_S = 1.0
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_library_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_held = ExitStack()
_objects: weakref.WeakSet[Any] = weakref.WeakSet()
_functions: list[Callable[[], None]] = []


def new_lock() -> threading.Lock:
    """Return a lock that is open in a forked child, whichever thread of the parent held it."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def new_rlock() -> threading.RLock:
    """Return a reentrant lock that is open in a forked child, whichever thread of the parent held it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def new_library_lock() -> threading.Lock:
    """Return a lock to hold while a library is at work: forks wait for it, for at most a second.

    A child has no thread that opens the library's own locks, and would wait for them for ever.
    """
    lock = new_lock()
    _library_locks.add(lock)
    return lock


def starts_over(one: StartsOver) -> None:
    """Call `one.begin_in_child()` in each forked child, as long as the object lives."""
    _objects.add(one)


def in_child(function: F) -> F:
    """Call a function in each forked child: a decorator. The rule of `StartsOver.begin_in_child` holds."""
    _functions.append(function)
    return function


def _begin_in_child() -> None:
    for function in [*_functions, *[one.begin_in_child for one in list(_objects)]]:
        try:
            function()
        except Exception:  # noqa: BLE001 - the others still have to start over
            pass
    # Last, so that an object can see whether its lock was held.
    _held.pop_all()
    for lock in list(_locks):
        lock._at_fork_reinit()


def _hold_library_locks() -> None:
    for lock in list(_library_locks):
        if lock.acquire(timeout=_LONGEST_WAIT_S):
            _held.callback(lock.release)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
    os.register_at_fork(before=_hold_library_locks, after_in_parent=_held.close)
    os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)
