"""An exchange that a task of asyncio waits for."""

from __future__ import annotations

import asyncio

from .._clock import now_ns
from ._exchange import TAIL_BYTES, RequestHead
from ._link import Link, LinkedExchange
from ._phases import Phases


class AsyncioExchange(LinkedExchange):
    """An exchange that a task waits for."""

    __slots__ = ("_loop", "_since_ns", "_timeout_s", "_timer", "_waiter")

    def __init__(self, request_head: RequestHead, phases: Phases, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(request_head, phases, link)
        self._loop = loop
        self._waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_s = 0.0
        self._since_ns = 0

    def arrived(self, data: bytes, now_ns: int) -> None:
        # As the base class has it, in one piece: this is the path of every piece of every answer.
        self.phases.data_ns.append(now_ns)
        self.tail = data if len(data) >= TAIL_BYTES else self.tail[-TAIL_BYTES:] + data
        if not self.discarding:
            self.chunks.append((now_ns, data))
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(True)

    def wake(self) -> None:
        if (self.answer_ended and self.request_ended) or self.error is not None:
            self.leave()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(True)

    def expect(self, timeout_s: float | None) -> asyncio.Future[bool]:
        """What to await until something happens: True, or False where nothing did within the time.

        To be awaited at once, and by one task at a time.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        if timeout_s is not None:
            # One timer for all waits of the exchange: to set one and take it back costs more than a piece of an answer.
            self._since_ns = now_ns()
            if timeout_s != self._timeout_s or self._timer is None:
                self._set_timer(timeout_s)
        elif self._timer is not None:
            self.done()
        return waiter

    def _set_timer(self, timeout_s: float) -> None:
        self.done()
        self._timeout_s = timeout_s
        self._timer = self._loop.call_later(timeout_s, self._look)

    def _look(self) -> None:
        self._timer = None
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        left_s = self._timeout_s - (now_ns() - self._since_ns) / 1e9
        if left_s <= 0:
            waiter.set_result(False)
        else:
            self._timer = self._loop.call_later(left_s, self._look)

    def done(self) -> None:
        """Nobody will wait any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
