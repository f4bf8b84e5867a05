"""How long a request is waited for, on which connection it is not to go, and how somebody else gives it up."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import ref

from .errors import TransportError

PATIENCE = "fastlane.patience"
"""The extension by which a request brings its `Patience` along."""

GIVEN_UP = "The request was given up."

ELSEWHERE_S = 1.0
"""How long a request waits for a connection other than the one that it avoids: as long as opening one takes over a
distance of some 300 ms, and no longer, because the same one is better than none."""


class Waiting(Protocol):
    """What a request is in: the queue for a connection, or the exchange on one."""

    def give_up(self) -> None:
        """Nobody wants the request any more: end it, and wake whoever waits for it. Waits for no lock."""


class Patience:
    """How one request is waited for; of several requests one after the other, but not at once.

    Transports of other makes do not know it, and send the request without.
    """

    __slots__ = ("_waiting", "avoid", "given_up", "until_ns")

    def __init__(self, *, until_ns: int | None = None, avoid: str | None = None) -> None:
        self.until_ns = until_ns
        """When every wait for the request ends with a time-out (a connection, the head, each piece of the body), in
        nanoseconds of the one clock; None: it has only the time-outs of its own. Any thread may change it at any time,
        which counts from the next wait on."""
        self.avoid = avoid
        """Local address (`Opening.local_address`) of a connection that is not to carry the request where another is to
        be had without a long wait."""
        self.given_up = False
        """Whether nobody wants the request any more."""
        # Weakly, because an exchange knows its patience: whoever keeps one keeps no connection, and there is no cycle.
        self._waiting: ref[Any] | None = None

    def give_up(self) -> None:
        """End the request: the wait that is going on, or the next one, raises the library's ReadError.

        The server is told to stop. From any thread, any number of times, from finalisers too; without effect on an
        answer that has come to its end.
        """
        self.given_up = True
        waiting = None if self._waiting is None else self._waiting()
        if waiting is not None:
            waiting.give_up()

    def attend(self, waiting: Waiting) -> None:
        """The request is in this from now on, which is told where the request was given up already."""
        # In this order, and in the other in `give_up`: one of the two sees what the other has done.
        self._waiting = ref(waiting)
        if self.given_up:
            waiting.give_up()

    def check(self) -> None:
        """Raise TransportError where the request was given up."""
        if self.given_up:
            raise TransportError("ReadError", GIVEN_UP)

    def within(self, timeout_s: float | None, now_ns: int) -> float | None:
        """Seconds for which a wait that begins now may last; None for ever."""
        until_ns = self.until_ns
        if until_ns is None:
            return timeout_s
        left_s = max(0.0, (until_ns - now_ns) / 1e9)
        return left_s if timeout_s is None else min(left_s, timeout_s)


def elsewhere_within(timeout_s: float | None) -> float:
    """Seconds for which a request waits for a connection other than the one that it avoids."""
    return ELSEWHERE_S if timeout_s is None else min(ELSEWHERE_S, timeout_s / 2)
