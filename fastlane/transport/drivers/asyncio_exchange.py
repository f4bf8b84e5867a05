"""An exchange that a task of asyncio waits for."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast

from fastlane._clock import now_ns

from ..protocols.exchange import TAIL_BYTES, RequestHead
from ..protocols.patience import Patience
from ..protocols.phases import Phases
from .link import Link, LinkedExchange

if TYPE_CHECKING:
    from .asyncio_connections import AsyncioLink


class AsyncioExchange(LinkedExchange):
    """An exchange that a task waits for, and what it waits on.

    Future-like in the sense of `asyncio.isfuture`: a task that waits on it is resumed by the callback that reads the
    socket, once that has taken in everything. With a future of the loop's own it would be resumed one turn of the loop
    later, and a turn (a look at all sockets included) costs about as much as the rest of the way of a piece.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "_callback",
        "_cancellation",
        "_context",
        "_is_timed",
        "_is_woken",
        "_loop",
        "_since_ns",
        "_timeout_s",
        "_timer",
        "_woken",
        "timed_out",
    )

    def __init__(
        self,
        request_head: RequestHead,
        phases: Phases,
        link: Link,
        loop: asyncio.AbstractEventLoop,
        woken: deque[AsyncioExchange],
    ) -> None:
        super().__init__(request_head, phases, link)
        self._loop = loop
        self._woken = woken
        """Those of the connection that are resumed at the end of the read that is going on."""
        self._asyncio_future_blocking = False
        self._callback: Callable[[Any], object] | None = None
        self._context: contextvars.Context | None = None
        self._cancellation: asyncio.CancelledError | None = None
        self._is_woken = False
        """Resuming the task that waits is under way."""
        self.timed_out = False
        """The last wait ended because nothing happened in time."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_timed = False
        """The end of a wait is watched, by the timer or by the connection."""
        self._timeout_s = 0.0
        self._since_ns = 0

    # What the protocol tells

    def arrived(self, data: bytes, now_ns: int) -> None:
        """Take bytes of the response's body."""
        # As the base class has it, in one piece: this is the path of every piece of every answer.
        self.phases.data_ns.append(now_ns)
        self.arrived_bytes += len(data)
        self.tail = data if len(data) >= TAIL_BYTES else self.tail[-TAIL_BYTES:] + data
        if not self.discarding:
            self.chunks.append((now_ns, data))
        if self._callback is not None and not self._is_woken:
            self._is_woken = True
            self._woken.append(self)

    def wake(self) -> None:
        """Wake the task that waits."""
        if (self.answer_ended and self.request_ended) or self.error is not None:
            self.leave()
        if self._is_timed and (self.answer_ended or self.error is not None):
            self.done()  # nobody will wait any more, and a timer would keep what nobody reads
        if self._callback is not None and not self._is_woken:
            self._is_woken = True
            if self.link.is_reading:
                self._woken.append(self)
            else:
                # Another task has done it, and no task can be resumed from within another.
                self._loop.call_soon(self.resume)

    # What a task waits on

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits."""
        return self._callback is not None

    def expect(self, timeout_s: float | None) -> AsyncioExchange:
        """What to wait on until something happens, or nothing has for `timeout_s`: then it has `timed_out`.

        To be awaited (or yielded to the task) at once, and by one task at a time.
        """
        if self._callback is not None:
            raise RuntimeError("This answer is being read by another task.")
        self._is_woken = self.timed_out = False
        self._asyncio_future_blocking = True
        if timeout_s is not None:
            # One timer for all waits of the exchange: to set one and take it back costs more than a piece of an answer.
            self._since_ns = now_ns()
            if timeout_s != self._timeout_s or not self._is_timed:
                self._set_timer(timeout_s)
        elif self._is_timed:
            self.done()
        return self

    def __await__(self) -> Generator[Any, None, bool]:
        """True where something has happened, False where nothing did within the time."""
        yield self
        return not self.timed_out

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """As a future has it."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: contextvars.Context) -> None:
        """As a future has it, for the one task that waits."""
        self._callback = callback
        self._context = context

    def cancel(self, msg: object = None) -> bool:
        """As a future has it: the task that waits is cancelled. False where it is about to be resumed."""
        if self._callback is None or self._is_woken:
            return False
        # With its message, by which whoever cancelled knows its own cancellation again.
        self._cancellation = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._is_woken = True
        self._loop.call_soon(self.resume)
        return True

    def result(self) -> None:
        """As a future has it."""
        cancellation, self._cancellation = self._cancellation, None
        if cancellation is not None:
            raise cancellation

    def resume(self) -> None:
        """Go on with the task that waits. Not to be called from within a task."""
        callback, context = self._callback, self._context
        self._callback = self._context = None
        if callback is not None and context is not None:
            context.run(callback, self)

    # Time

    def _set_timer(self, timeout_s: float) -> None:
        self.done()
        self._timeout_s = timeout_s
        link = self.link
        # A timer of its own for every exchange would cost more than all else that a wait does.
        if timeout_s > 3 * link.tick_s:
            self._is_timed = True
            link.waiting.add(self)
        else:
            self._set_timer_for(timeout_s)

    def look_ahead(self, ahead_s: float) -> None:
        """Set a timer if the wait may end within this time: the connection will not look again before."""
        left_s = self._timeout_s - (now_ns() - self._since_ns) / 1e9
        if left_s <= ahead_s:
            self.link.waiting.discard(self)
            self._set_timer_for(max(0.0, left_s))

    def _look(self) -> None:
        self._timer = None
        self._is_timed = False
        if self._callback is None or self._is_woken:
            return
        left_s = self._timeout_s - (now_ns() - self._since_ns) / 1e9
        if left_s <= 0:
            self.timed_out = True
            self.resume()
        else:
            self._set_timer_for(left_s)

    def _set_timer_for(self, left_s: float) -> None:
        self._is_timed = True
        self._timer = self._loop.call_later(left_s, self._look)

    def done(self) -> None:
        """Nobody will wait any more."""
        if not self._is_timed:
            return
        self._is_timed = False
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        else:
            self.link.waiting.discard(self)


class PatientAsyncioExchange(AsyncioExchange):
    """An exchange that is waited for with patience, and that anybody may give up."""

    __slots__ = ("__weakref__", "_patience")

    def __init__(
        self,
        request_head: RequestHead,
        phases: Phases,
        link: Link,
        loop: asyncio.AbstractEventLoop,
        woken: deque[AsyncioExchange],
        patience: Patience,
    ) -> None:
        super().__init__(request_head, phases, link, loop, woken)
        self._patience = patience
        patience.attend(self)

    def expect(self, timeout_s: float | None) -> AsyncioExchange:
        """What to wait on until something happens, or nothing has for `timeout_s`: then it has `timed_out`."""
        return super().expect(self._patience.within(timeout_s, now_ns()))

    def give_up(self) -> None:
        """Nobody wants the request any more: end it, and wake whoever waits for it. Waits for no lock."""
        # In a turn of its own: the garbage collector may come here amid the connection's work, and in any thread.
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the connection with it
            self._loop.call_soon_threadsafe(cast("AsyncioLink", self.link).drop, self, True)
