"""A bounded priority queue in which attempts wait for a slot, with ageing so that none starves.

A play makes a subclass that says when a ticket may be granted: `RequestQueue.ready_ns`. Threads, and tasks of any event
loop, may wait in it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import openai

from .._clock import now_ns
from .._fork import new_lock, starts_over
from ..errors import CallRefusedError, QueueFullError, QueueTimeoutError
from ..knowledge import timer
from .effects import Acquire, Flow
from .session import Session

if TYPE_CHECKING:
    from ..compat.responses import RequestAttempt
    from .call import Call

FREE, QUEUED, GRANTED = range(3)
_S = 1_000_000_000
# While a level is passed over, every eighth grant goes to one of its tickets that has waited long enough.
_EVERY = 8


class QueueTicket:
    """The ticket of one attempt: an `effects.Ticket`, for one use."""

    __slots__ = (
        "ageing_ns", "ahead", "arrival", "arrived_ns", "granted_ns", "level", "max_queued", "max_wait_s", "queue",
        "round", "state", "wake",
    )  # fmt: skip

    def __init__(
        self,
        queue: RequestQueue,
        level: int,
        *,
        ageing_s: float = 30.0,
        max_queued: int = 10_000,
        max_wait_s: float | None = None,
    ) -> None:
        """Make a ticket that is not in the queue yet.

        `level`: 0 (most urgent) to 2. `ageing_s`: seconds after which a ticket counts as one level more urgent, if its
        own level is passed over. `max_queued`: the limit of waiting tickets of the same or a more urgent level.
        `max_wait_s`: seconds; None for no limit.
        """
        self.queue = queue
        self.level = level
        self.ageing_ns = int(ageing_s * _S)
        self.max_queued = max_queued
        self.max_wait_s = max_wait_s
        self.state = FREE
        self.round: object = None
        """The generation of the queue that it belongs to: a forked child starts another one."""
        self.wake: Callable[[], bool] = bool
        self.arrived_ns = self.granted_ns = self.ahead = self.arrival = 0

    @property
    def is_granted(self) -> bool:
        """Whether the attempt may be sent."""
        return self.state == GRANTED

    @property
    def waited_s(self) -> float:
        """Seconds in the queue, once it is granted."""
        return (self.granted_ns - self.arrived_ns) / _S

    def start(self, wake: Callable[[], bool]) -> None:
        """Take a free slot, or join the queue. Raises QueueFullError and QueueTimeoutError."""
        self.wake = wake
        self.queue.start(self)

    def release(self, *, failed: bool = True) -> None:
        """Release the slot, or leave the queue. Calling it again does nothing.

        `failed`: whether the attempt failed or was never sent.
        """
        self.queue.release(self, failed=failed)


class RequestQueue:
    """Grants tickets in the order of urgency and arrival. Thread-safe.

    Finalizers must not call it: their thread may hold the lock. See `QueueSession.release`.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int] | None = None,
        call_at: Callable[[int, Callable[[], None]], object] | None = None,
    ) -> None:
        """`clock` returns nanoseconds; `call_at` calls a function at a time of that clock."""
        self.clock = clock or now_ns
        self._call_at = call_at or timer.call_at
        self.lock = new_lock()
        self._alarm_ns: int | None = None
        self._clear()
        starts_over(self)

    def _clear(self) -> None:
        self._round = object()
        self.queued = [0, 0, 0]
        self._lines: tuple[deque[QueueTicket], ...] = (deque(), deque(), deque())
        self._dead = 0
        self._arrivals = 0
        self._last_ns: list[int] = [0, 0, 0]
        """When a ticket of each level was last granted."""
        self._passed = [0, 0, 0]
        """Tickets of other levels that were granted since."""
        self._woken: deque[QueueTicket] = deque()
        """Tickets that are granted but not woken yet: an interrupt may come between the two."""

    # Overridden by subclasses. Called with the lock held.

    def ready_ns(self, ticket: Any, level: int, now: int) -> int | None:
        """Return when a ticket may be granted, `now` or later; None: when another one is released.

        `level` is the ticket's, or a more urgent one for its age.
        """
        raise NotImplementedError

    def on_granted(self, ticket: Any, now: int) -> None:
        """Handle the grant of a ticket."""

    def on_released(self, ticket: Any, now: int, *, failed: bool) -> None:
        """Handle the release of a granted ticket.

        Update the counts last, without a call after that: after an interrupt it is called again.
        """

    def on_fork(self) -> None:
        """Reset the state in a forked child, which has none of its parent's tickets."""

    # Called by tickets

    def start(self, ticket: QueueTicket) -> None:
        """Grant a ticket at once, or queue it. Raises QueueFullError and QueueTimeoutError."""
        with self.lock:
            now, level = self.clock(), ticket.level
            ticket.round, ticket.arrived_ns = self._round, now
            ahead = ticket.ahead = sum(self.queued[: level + 1])
            ready_ns = self.ready_ns(ticket, level, now)
            if not ahead and ready_ns is not None and ready_ns <= now:
                self._grant(ticket, now)
                return
            least_s = None if ready_ns is None else (ready_ns - now) / _S
            if ahead >= ticket.max_queued:
                raise QueueFullError(
                    f"not sent: {ahead:,} calls wait already, and max_queued is {ticket.max_queued:,}"
                    f"{_at_least(least_s)}: send fewer at once, or let more wait",
                    expected_wait_s=least_s,
                    queued=ahead,
                )
            if least_s is not None and ticket.max_wait_s is not None and least_s > ticket.max_wait_s:
                raise _too_late("it would wait too long", least_s, ticket)
            timer.start()
            ticket.arrival = self._arrivals
            self._arrivals += 1
            self._lines[level].append(ticket)
            # Last of all, and without a call after it: an interrupt comes before or after.
            ticket.state = QUEUED
            self.queued[level] += 1
            # The first one of a level may have to be granted at a time of its own.
            if self.queued[level] == 1:
                self.grant_all(now)

    def give_up(self, ticket: QueueTicket) -> None:
        """Raise QueueTimeoutError for a ticket that was not granted in time, unless it is by now."""
        with self.lock:
            if ticket.state == GRANTED:
                return
            now = self.clock()
            ready_ns = self.ready_ns(ticket, ticket.level, now)
            self._withdraw(ticket)
        raise _too_late("it waited too long", None if ready_ns is None else (ready_ns - now) / _S, ticket) from None

    def release(self, ticket: QueueTicket, *, failed: bool) -> None:
        """See `QueueTicket.release`."""
        with self.lock:
            now = self.clock()
            if ticket.round is self._round:
                self._withdraw(ticket)
                if ticket.state == GRANTED:
                    self.on_released(ticket, now, failed=failed)
                    ticket.state = FREE  # last: after an interrupt the ticket is released again
            # Also if nothing was released: an interrupt may have cut an earlier call short.
            self.grant_all(now)

    def grant_all(self, now: int) -> None:
        """Grant every ticket that may be granted, and wake its waiter. The caller holds the lock."""
        while True:
            while self._woken:
                ticket = self._woken[0]
                if not ticket.wake() and ticket.state == GRANTED:  # its waiter is gone
                    self.on_released(ticket, now, failed=True)
                    ticket.state = FREE
                self._woken.popleft()
            granted, wake_ns = self._next(now) if any(self.queued) else (None, None)
            if granted is None:
                break
            self._woken.append(granted)
        if wake_ns is not None and (self._alarm_ns is None or wake_ns < self._alarm_ns):
            self._call_at(wake_ns, self._on_alarm)
            self._alarm_ns = wake_ns

    def begin_in_child(self) -> None:
        """See `StartsOver`."""
        self._alarm_ns = None
        self._clear()
        self.on_fork()

    def _on_alarm(self) -> None:
        """Grant tickets at the time for which the alarm was set."""
        with self.lock:
            self._alarm_ns = None
            self.grant_all(self.clock())

    # Choosing the next ticket

    def _next(self, now: int) -> tuple[QueueTicket | None, int | None]:
        """Grant and return the next ticket; or return None and the time at which to try again, if one is known."""
        heads = self._heads()
        best = heads[0]
        rank = self._rank(best, now)
        for head in heads[1:]:
            aged = self._rank(head, now)
            if (aged, head.arrival) < (rank, best.arrival):
                best, rank = head, aged
        wake_ns: int | None = None
        # What holds back a ticket that has waited long does not hold back a more urgent one.
        for ticket, level in ((best, rank), (heads[0], heads[0].level)) if best is not heads[0] else ((best, rank),):
            ready_ns = self.ready_ns(ticket, level, now)
            if ready_ns is not None and ready_ns <= now:
                self._grant(ticket, now)
                return ticket, None
            if ready_ns is not None:
                wake_ns = ready_ns if wake_ns is None else min(wake_ns, ready_ns)
        for head in heads:
            if head.level:
                older_ns = now + head.ageing_ns - (now - head.arrived_ns) % head.ageing_ns
                wake_ns = older_ns if wake_ns is None else min(wake_ns, older_ns)
        return None, wake_ns

    def _heads(self) -> list[QueueTicket]:
        heads = []
        for line in self._lines:
            while line and line[0].state != QUEUED:
                line.popleft()
                self._dead -= 1
            if line:
                heads.append(line[0])
        return heads

    def _rank(self, head: QueueTicket, now: int) -> int:
        """Return its level, or a more urgent one for its age while its own is passed over."""
        level, waited_ns = head.level, now - head.arrived_ns
        if not level or waited_ns < head.ageing_ns:
            return level
        if self._passed[level] < _EVERY - 1 and now - max(head.arrived_ns, self._last_ns[level]) < head.ageing_ns:
            return level
        return max(0, level - waited_ns // head.ageing_ns)

    def _grant(self, ticket: QueueTicket, now: int) -> None:
        level = ticket.level
        ticket.granted_ns = now
        self.on_granted(ticket, now)
        self._last_ns[level] = now
        self._passed[1] += 1
        self._passed[2] += 1
        self._passed[level] = 0
        # Last of all, and without a call after it. A ticket that leaves the queue stays at the head of its line until
        # `_heads` looks there.
        if ticket.state == QUEUED:
            self.queued[level] -= 1
            self._dead += 1
        ticket.state = GRANTED

    def _withdraw(self, ticket: QueueTicket) -> None:
        if ticket.state != QUEUED:
            return
        ticket.state = FREE
        self.queued[ticket.level] -= 1
        self._dead += 1
        # A storm of cancellations behind one that stays must not fill the memory.
        if self._dead > 64 and self._dead > sum(self.queued):
            self._lines = tuple(deque(one for one in line if one.state == QUEUED) for line in self._lines)
            self._dead = 0


def _too_late(what: str, least_s: float | None, ticket: QueueTicket) -> QueueTimeoutError:
    return QueueTimeoutError(
        f"not sent: {what}; it may wait {ticket.max_wait_s or 0.0:.3g} s, and {ticket.ahead:,} calls were ahead of it "
        f"when it came{_at_least(least_s)}: send fewer at once, or give it more time",
        expected_wait_s=least_s,
        queued=ticket.ahead,
    )


def _at_least(least_s: float | None) -> str:
    return "" if least_s is None else f"; the next call may be sent in {least_s:.3g} s"


class QueueSession(Session):
    """One call's part in a play with a queue: each attempt waits for a ticket."""

    def __init__(self, call: Call, max_wait_s: float | None) -> None:
        """`max_wait_s`: seconds that the call may wait, all attempts together; None: its own read timeout."""
        self.call = call
        self.waited_s = 0.0
        """Seconds in the queue, all attempts together."""
        self.ticket: QueueTicket | None = None
        """The ticket that this call holds or waits for."""
        self._max_wait_s = max_wait_s
        self._failure: Callable[[], Exception] | None = None
        """Makes the error of the failed attempt that is being retried."""

    def wait(self, ticket: QueueTicket, attempt: RequestAttempt) -> Flow:
        """Wait until a ticket is granted, or the HTTP client is closed.

        Raises QueueFullError and QueueTimeoutError; for a retry, the error of the previous attempt instead.
        """
        self.ticket = ticket
        ticket.max_wait_s = self._left_s(attempt)
        upstream = self.call.upstream
        try:
            if upstream is not None and upstream.must_not_wait:
                ticket.start(bool)
                if not ticket.is_granted:
                    raise CallRefusedError("no slot was free")
                return
            try:
                yield Acquire(self.call.caller.http_client, ticket, ticket.max_wait_s)
            except TimeoutError:
                ticket.queue.give_up(ticket)
        except CallRefusedError as refused:
            if self._failure is None:
                raise
            raise self._failure() from refused
        if ticket.is_granted:
            self.waited_s += ticket.waited_s

    def note_error(self, attempt: RequestAttempt, error: BaseException) -> None:
        """Keep the error of an attempt without a response, for a retry that gets no slot."""
        if isinstance(error, openai.APIConnectionError) and not isinstance(error, CallRefusedError):
            self._failure = partial(type(error), request=attempt.request)

    def note_response(self, response: Any) -> None:
        """Keep the error for an unsuccessful response, for a retry that gets no slot."""
        self._failure = partial(self.call.caller.error_of, response)

    def release(self, *, failed: bool) -> None:
        """Release the ticket, if there is one."""
        ticket = self.ticket
        if ticket is None:
            return
        release = partial(ticket.release, failed=failed)
        if isinstance(sys.exception(), GeneratorExit):
            # During garbage collection this thread may hold the lock of the queue.
            self.call.caller.later(release)
        else:
            release()
        self.ticket = None  # not before: an interrupt may come amid the release, and then it is done again

    def _left_s(self, attempt: RequestAttempt) -> float | None:
        """Return the seconds that the attempt may wait, at most until the call's deadline; None for no limit."""
        max_s: Any = self._max_wait_s
        if max_s is None:
            max_s = (attempt.request.extensions.get("timeout") or {}).get("read")
        if not isinstance(max_s, int | float) or max_s > threading.TIMEOUT_MAX:
            max_s = None  # longer than a thread can wait: no limit
        left_s = None if max_s is None else max(0.0, max_s - self.waited_s)
        upstream = self.call.upstream
        if upstream is not None and upstream.deadline_ns is not None:
            deadline_s = max(0.0, (upstream.deadline_ns - now_ns()) / 1e9)
            left_s = deadline_s if left_s is None else min(left_s, deadline_s)
        return left_s
