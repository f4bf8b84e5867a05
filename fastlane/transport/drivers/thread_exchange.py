"""An exchange that a thread waits for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from fastlane._clock import now_ns

from ..protocols.exchange import RequestHead
from ..protocols.patience import Patience
from ..protocols.phases import Phases
from .link import Link, LinkedExchange

if TYPE_CHECKING:
    from .thread_connections import ThreadLink


def lock_timeout(timeout_s: float | None) -> float:
    """A time-out as `threading` takes it: -1 for none."""
    return -1 if timeout_s is None else max(0.0, min(timeout_s, threading.TIMEOUT_MAX))


class ThreadExchange(LinkedExchange):
    """An exchange that a thread waits for."""

    __slots__ = ("_signal", "is_awaited")

    def __init__(self, request_head: RequestHead, phases: Phases, link: Link) -> None:
        super().__init__(request_head, phases, link)
        self._signal = threading.Lock()
        self._signal.acquire()
        self.is_awaited = False
        """Whether a thread waits."""

    def notify(self) -> None:
        """Wake the thread that waits."""
        # Only whoever holds the connection's lock gets here, so that no two release it at once.
        if self._signal.locked():
            self._signal.release()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something has happened; False where nothing did within the time."""
        self.is_awaited = True
        try:
            return self._signal.acquire(True, -1 if timeout_s is None else lock_timeout(timeout_s))
        finally:
            self.is_awaited = False

    def within(self, timeout_s: float | None) -> float | None:
        """Seconds for which a wait that begins now may last."""
        return timeout_s


class PatientThreadExchange(ThreadExchange):
    """An exchange that is waited for with patience, and that another thread may give up."""

    __slots__ = ("__weakref__", "_patience")

    def __init__(self, request_head: RequestHead, phases: Phases, link: Link, patience: Patience) -> None:
        super().__init__(request_head, phases, link)
        self._patience = patience
        patience.attend(self)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something has happened; False where nothing did within the time."""
        return super().wait(self.within(timeout_s))

    def within(self, timeout_s: float | None) -> float | None:
        """Seconds for which a wait that begins now may last."""
        return self._patience.within(timeout_s, now_ns())

    def give_up(self) -> None:
        """Nobody wants the request any more: end it, and wake whoever waits for it. Waits for no lock."""
        cast("ThreadLink", self.link).drop(self, given_up=True)
