"""The lock of what is remembered: no finaliser of the thread that holds it waits for it, and no fork leaves it shut."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Any


class Guard:
    """Held around every look at what it guards, by one thread at a time; `with` says whether for the first time.

    A garbage collection may run a finaliser at any point of the thread that is inside already, and one that ends a
    stream comes here. It is let in, is told False, and leaves alone what is half done.
    """

    __slots__ = ("__weakref__", "_depth", "_lock", "is_torn")

    is_torn: bool
    """Whether this process was forked while another thread was inside: what is guarded may be half done for good."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.is_torn = False
        _guards.add(self)

    def __enter__(self) -> bool:
        self._lock.acquire()
        self._depth += 1
        return self._depth == 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        self._lock.release()

    def forked(self) -> None:
        """This is a child process, and the thread that may have been inside is not in it."""
        self.is_torn = self.is_torn or self._depth > 0
        self._lock = threading.RLock()
        self._depth = 0


_guards: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    for guard in tuple(_guards):
        guard.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
