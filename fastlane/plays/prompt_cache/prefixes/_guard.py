"""The lock of what is remembered: no finaliser of the thread that holds it waits for it, and no fork leaves it shut."""

from __future__ import annotations

from types import TracebackType

from fastlane._fork import new_rlock, starts_over


class Guard:
    """Held around every look at what it guards, by one thread at a time; `with` says whether for the first time.

    A garbage collection may run a finaliser at any point of the thread that is inside already, and one that ends a
    stream comes here. It is let in, is told False, and leaves alone what is half done.
    """

    __slots__ = ("__weakref__", "_depth", "_lock", "is_torn")

    is_torn: bool
    """Whether this process was forked while another thread was inside: what is guarded may be half done for good."""

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._depth = 0
        self.is_torn = False
        starts_over(self)

    def __enter__(self) -> bool:
        self._lock.acquire()
        self._depth += 1
        return self._depth == 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        self._lock.release()

    def begin_in_child(self) -> None:
        """The thread that may have been inside is not in this process."""
        self.is_torn = self.is_torn or self._depth > 0
        self._depth = 0
