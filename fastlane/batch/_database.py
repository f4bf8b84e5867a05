"""What the queue needs of a database, and what becomes of its connection when the process forks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from .._clock import now_ns

# So long a fork waits for the transactions of other threads, of all databases together.
_FORK_S = 1.0

T = TypeVar("T")
Row = tuple[Any, ...]


class AgainError(Exception):
    """Somebody else was in between: the whole transaction has to be done again."""


class Transaction(Protocol):
    """One transaction. Statements mark their parameters by `?`."""

    again: bool
    """Whether it was tried before, and may have been done then although nobody heard of it."""
    for_update: str
    """What ends a SELECT that locks the rows that it finds; empty where a writer is alone anyway."""
    skip_locked: str
    """The same, of one that leaves out the rows that are locked already."""

    def now(self) -> float:
        """Seconds since the epoch by the database's clock."""
        ...

    def all(self, statement: str, *parameters: Any) -> list[Row]:
        """The rows that a statement gives."""
        ...

    def do(self, statement: str, *parameters: Any) -> int:
        """Do it; returns how many rows it changed."""
        ...

    def many(self, statement: str, rows: Iterable[Row]) -> None:
        """Do it once for each row of parameters."""
        ...

    def among(self, column: str, values: Sequence[Any]) -> tuple[str, Any]:
        """A condition that a column (of texts or of whole numbers) has one of these values, and its one parameter."""
        ...


class Turns:
    """A lock that nobody gets again, not even in a loop, before somebody who waits for it."""

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._held = threading.Lock()

    def acquire(self, timeout_s: float = -1) -> bool:
        """Wait for it, as the next or behind the next; return whether it was had in time. -1: for ever."""
        until_ns = now_ns() + int(timeout_s * 1e9)
        if not self._next.acquire(timeout=timeout_s):
            return False
        try:
            return self._held.acquire(timeout=timeout_s if timeout_s < 0 else max(0.0, (until_ns - now_ns()) / 1e9))
        finally:
            self._next.release()

    def release(self) -> None:
        """Give it back."""
        self._held.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Database:
    """One connection for one thread after the other, made again where it broke and in the children of a fork."""

    name: str

    def __init__(self) -> None:
        self._lock = Turns()
        self._closed = False
        _open.add(self)

    def run(self, work: Callable[[Transaction], T], *, writes: bool = True) -> T:
        """Do `work` in one transaction: all of it, durable when this returns, or, if it raises, nothing."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._closed = True
            self._let_go()
        _open.discard(self)

    def _let_go(self) -> None:
        """End the connection, if there is one."""
        raise NotImplementedError

    def _left_behind(self, *, in_use: bool) -> None:
        """In the child of a fork: forget the connection, which is the parent's. `in_use`: a thread there uses it."""

    def _before_fork(self) -> None:
        """In the parent, with the lock held."""


_open: weakref.WeakSet[Database] = weakref.WeakSet()
# Those that were open when the process forked, and whether their lock is held meanwhile.
_forking: list[tuple[Database, bool]] = []


def _before() -> None:
    # No transaction should be under way in a thread that the child does not have; but a server may be away for long.
    until_ns = now_ns() + int(_FORK_S * 1e9)
    for database in list(_open):
        is_held = database._lock.acquire(max(0.0, (until_ns - now_ns()) / 1e9))
        _forking.append((database, is_held))
        try:
            if is_held:
                database._before_fork()
        except Exception:  # noqa: BLE001 - a fork cannot be refused here, and what is broken is made again
            pass


def _in_parent() -> None:
    while _forking:
        database, is_held = _forking.pop()
        if is_held:
            database._lock.release()


def _in_child() -> None:
    while _forking:
        database, is_held = _forking.pop()
        database._lock = Turns()
        database._left_behind(in_use=not is_held)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
