"""What the queue needs of a database, and what becomes of its connection when the process forks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

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

    def acquire(self) -> None:
        """Wait for it, as the next or behind the next."""
        with self._next:
            self._held.acquire()

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

    def _left_behind(self) -> None:
        """In the child of a fork: forget the connection, which is the parent's."""

    def _before_fork(self) -> None:
        """In the parent, with the lock held."""


_open: weakref.WeakSet[Database] = weakref.WeakSet()
# Those whose lock is held while the process forks.
_held: list[Database] = []


def _before() -> None:
    # No transaction may be under way in a thread that the child does not have.
    for database in list(_open):
        database._lock.acquire()
        _held.append(database)
        try:
            database._before_fork()
        except Exception:  # noqa: BLE001 - a fork cannot be refused here, and what is broken is made again
            pass


def _in_parent() -> None:
    while _held:
        _held.pop()._lock.release()


def _in_child() -> None:
    while _held:
        database = _held.pop()
        database._lock = Turns()
        database._left_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
