"""Calls that wait before they are sent, and are called off when the HTTP client that would send them is closed."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol
from weakref import ref

from .._fork import in_child
from .effects import Racer


class Wait(Protocol):
    """Somebody's wait."""

    def call_off(self) -> object:
        """Wait no longer. From any thread, more than once, and when the wait is over already."""


# Who waits, and the HTTP client that is waited for, by its address: an application's own may have no hash, and it lives
# for as long as somebody waits. Copies of a client share its HTTP client: closing one closes all of them, as with
# openai's own. Dictionaries of Python change in one step, so that nobody waits for a lock: a task that waits may be
# garbage-collected. Weakly, because Ctrl-C may come before somebody has left.
_waiting: dict[ref[Wait], int] = {}


class until_closed:  # noqa: N801 - a block, not a thing
    """In this block somebody waits until something happens, or is called off because the HTTP client is closed.

    What waited goes on to be sent all the same, and finds the client closed: the error is the HTTP library's own.
    """

    __slots__ = ("_http", "_racer", "_ref", "_wait")

    def __init__(self, http: Any, wait: Wait, racer: Racer | None = None) -> None:
        """`racer`: the cancellation of that one ends the wait as well."""
        self._http = http
        self._racer = racer
        self._wait = wait
        self._ref = ref(wait, _waiting.__delitem__)

    def __enter__(self) -> None:
        if self._racer is not None:
            self._racer.waits(self._wait.call_off)
        _waiting[self._ref] = id(self._http)
        # A client is closed first, and those who wait are called off afterwards.
        if self._http is not None and self._http.is_closed:
            self._wait.call_off()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _waiting.pop(self._ref, None)
        del self._ref  # now: it would look for its entry when the wait goes


def was_closed(http: Any) -> None:
    """Call off what waits to be sent by an HTTP client that is closed; None where making one had failed."""
    for wait in waiting_on(http):
        wait.call_off()


def waiting_on(http: Any) -> list[Wait]:
    """Who waits to be sent by an HTTP client at the moment."""
    waits = [wait() for wait, address in _waiting.copy().items() if address == id(http)]
    return [wait for wait in waits if wait is not None]


in_child(_waiting.clear)  # those who wait are the parent's
