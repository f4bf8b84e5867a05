"""The gate before one origin, account and model: one for threads and all event loops of the process."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastlane._clock import now_ns
from fastlane._fork import new_lock, starts_over
from fastlane.knowledge import timer
from fastlane.records.urgency import LEVELS, Level

from ..pacing import Pacer
from ._bounds import AGAIN_NS, Bounds
from ._core import Core, Waiter
from ._permit import Permit
from ._recall import Recall, Recalled
from ._refusals import full, too_late
from ._settings import AdmissionSettings as Settings
from ._state import GateState, state_of
from ._waiters import TaskWaiter, ThreadWaiter, TrioWaiter, task_waiter

W = TypeVar("W", bound=Waiter)

_RANKS: dict[str, int] = {level: rank for rank, level in enumerate(LEVELS)}
_TOO_MANY, _OVERLOADED = 429, 503
_REFUSALS = frozenset({_TOO_MANY, _OVERLOADED, 529})
_RESTS = ("retry-after", "retry-after-ms")
_S = 1e9
_AT_ONCE = (False,)


class Gate:
    """Lets calls in, in the order of their urgency. Thread-safe; tasks of any event loop may wait at it too."""

    def __init__(self, origin: str, model: str | None, pacer: Pacer, *, clock: Callable[[], int] = now_ns) -> None:
        self.origin = origin
        self.model = model
        self.pacer = pacer
        self._clock = clock
        self._bounds = Bounds()
        self._core = Core(pacer)
        # Taken with `with`, lest Ctrl-C between two calls leave it taken. Whoever has had it calls `_tell` afterwards.
        self._lock = new_lock()
        self._generation = 0
        self._alarm_ns: int | None = None
        self._alarm_is_new = False
        self._woken: deque[Any] = deque()  # sent, and to be woken once the lock is let go of
        # What is given back without waiting for the lock: whoever has it takes them from here.
        self._left: deque[tuple[Permit, int | None, bool]] = deque()
        self._gone: deque[Waiter] = deque()
        starts_over(self)

    def enter(
        self, level: Level, settings: Settings, *, tokens: int, most_wait_s: float | None, recall: Recall | None = None
    ) -> Permit:
        """Wait for a place, and take it.

        `tokens` are those that the call may take, input and output. Raises QueueFullError where too many wait already,
        QueueTimeoutError where its place would certainly come after `most_wait_s` seconds, or has not come in them, and
        Recalled where `recall` was made meanwhile.
        """
        came_ns = self._clock()
        entered = self._come(ThreadWaiter, level, settings, tokens, most_wait_s, came_ns)
        try:
            if isinstance(entered, Permit):
                return entered
            if recall is not None:
                recall.waits(self, entered)
            entered.turn.acquire(timeout=-1 if most_wait_s is None else min(most_wait_s, threading.TIMEOUT_MAX))
            return self._arrived(entered, came_ns, most_wait_s)
        except BaseException:
            self._give_up(entered)
            raise

    async def async_enter(
        self, level: Level, settings: Settings, *, tokens: int, most_wait_s: float | None, recall: Recall | None = None
    ) -> Permit:
        """Do as `enter` does, for a task."""
        came_ns = self._clock()
        entered = self._come(task_waiter, level, settings, tokens, most_wait_s, came_ns)
        if isinstance(entered, Permit):
            return entered
        slot = None
        try:
            if recall is not None:
                recall.waits(self, entered)
            if isinstance(entered, TaskWaiter):
                if most_wait_s is not None:
                    slot = entered.in_time(most_wait_s)
                await entered.turn
            else:
                await entered.wait(most_wait_s)
            return self._arrived(entered, came_ns, most_wait_s)
        except GeneratorExit:
            # Somebody collects a task that never went on: a lock must not be waited for, and its loop may be over, or
            # another thread's. Its timer ends by itself.
            if slot is not None and isinstance(entered, TaskWaiter):
                slot.waiting.discard(entered)
                slot = None
            self._gone.append(entered)
            self._tell()
            raise
        except BaseException:
            self._give_up(entered)
            raise
        finally:
            if slot is not None and isinstance(entered, TaskWaiter):
                slot.leave(entered)

    def try_enter(self, level: Level, settings: Settings, *, tokens: int) -> Permit | None:
        """Take a place if nobody has to be waited for, else None."""
        now = self._clock()
        with self._lock:
            self._bound(settings, now)
            ticket = self._core.try_enter(_RANKS[level], settings, tokens, now)
            generation = self._generation
        if self._left or self._gone:
            self._tell()
        return None if ticket is None else Permit(self, ticket, generation, 0.0)

    def state(self) -> GateState:
        """What is going on: for reports, and for telemetry."""
        with self._lock:
            state = state_of(self.origin, self.model, self._core, self._clock())
        self._tell()
        return state

    @property
    def idle(self) -> bool:
        """Whether nobody is under way, and nobody waits."""
        return self._core.idle and not self._left and not self._gone

    # What enters.

    def _come(
        self,
        make: Callable[[int, Settings, int], W],
        level: Level,
        settings: Settings,
        tokens: int,
        most_wait_s: float | None,
        now: int,
    ) -> Permit | W:
        """A place at once, or one more that waits."""
        rank = _RANKS[level]
        core = self._core
        permit = ticket = None
        waiter: W | None = None
        try:
            with self._lock:
                self._bound(settings, now)
                ticket = core.try_enter(rank, settings, tokens, now)
                if ticket is not None:
                    permit = Permit(self, ticket, self._generation, 0.0)
                else:
                    ahead = core.ahead(rank)
                    if ahead >= settings.max_queued:
                        core.refused += 1
                        raise full(ahead, settings.max_queued, core.expected_wait_s(ahead, now))
                    if most_wait_s is not None:
                        certain_s = core.certain_wait_s(rank, settings, tokens, now, ahead)
                        if certain_s > most_wait_s:
                            core.refused += 1
                            expected_s = max(certain_s, core.expected_wait_s(ahead, now) or 0.0)
                            raise too_late("its place would come too late", expected_s, most_wait_s, ahead)
                    timer.start()
                    waiter = make(rank, settings, tokens)
                    core.join(waiter, now, ahead)
                    # The first one of a level may have to be sent at a time of its own.
                    if core.queued[rank] == 1:
                        self._send_on(self._clock())
            if self._woken or self._left or self._gone or self._alarm_is_new:
                self._tell()
        except BaseException:
            if ticket is not None and permit is None:  # Ctrl-C, here and below
                permit = Permit(self, ticket, self._generation, 0.0)
            self._give_up(permit or waiter)
            raise
        assert permit is not None or waiter is not None
        return permit or waiter  # type: ignore[return-value]

    def _arrived(self, waiter: Waiter, came_ns: int, most_wait_s: float | None) -> Permit:
        now = self._clock()
        ticket = waiter.ticket
        if ticket is None:
            with self._lock:
                ticket = waiter.ticket
                if waiter.is_recalled:
                    raise Recalled  # and who gives up goes on
                if ticket is None:
                    core = self._core
                    expected_s = core.expected_wait_s(core.ahead(waiter.level), now)
                    core.withdraw(waiter)
                    core.refused += 1
                    raise too_late("its place did not come in time", expected_s, most_wait_s or 0.0, waiter.ahead)
            self._go_on()
        return Permit(self, ticket, waiter.generation, max(0.0, (now - came_ns) / _S))

    def _give_up(self, entered: Permit | Waiter | None) -> None:
        """Nobody goes on with it: a place that it has is another's."""
        if isinstance(entered, Permit):
            self._left.append((entered, None, True))
        elif entered is not None:
            self._gone.append(entered)
        self._go_on()

    def recall(self, waiter: ThreadWaiter | TaskWaiter | TrioWaiter) -> None:
        """Have one wait no longer that has no place yet, and tell it."""
        with self._lock:
            was_waiting = self._core.recall(waiter)
            self._send_on(self._clock())
        self._tell()
        if was_waiting:
            waiter.wake()

    def _withdraw(self, waiter: Waiter) -> None:
        if not self._core.withdraw(waiter) and waiter.ticket is not None:
            self._core.unused(waiter.ticket, self._clock())
            waiter.ticket = None

    # What comes back.

    def _answered(self, permit: Permit, status: int, headers: Mapping[str, str]) -> None:
        now = self._clock()
        refused = status in _REFUSALS
        with self._lock:
            if not permit._over and permit._generation == self._generation:
                ticket = permit._ticket
                tried = refused and self._core.tried(ticket)
                rests = status == _TOO_MANY and any(name in headers for name in _RESTS)
                explained = False
                if ticket.spent is not None:
                    # One of those that were more than usual was refused for that, unless the answer asks for a rest:
                    # nothing is wrong with the pace, and nobody else has to wait.
                    told = _OVERLOADED if tried and not rests else status
                    explained = self.pacer.answered(now, ticket.spent, told, headers)
                if refused and not permit._refused:
                    permit._refused = True
                    if not explained and (tried or not rests):
                        self._core.refuse(ticket)
            # An answer gives no place back: it may only tell of another pace.
            if refused or self._core.paced:
                self._send_on(now)
        self._tell()

    def _leave(self, permit: Permit, tokens: int | None, failed: bool, quietly: bool) -> None:
        self._left.append((permit, tokens, failed))
        if quietly:
            self._tell()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Send the waiters that can be sent, and wake them."""
        with self._lock:
            self._send_on(self._clock())
        self._tell()

    def _send_on(self, now: int) -> None:
        """Have the lock: take back what was given back, and send whoever can be sent then."""
        core = self._core
        self._take_back(now)
        while (waiter := core.next(now)) is not None:
            waiter.generation = self._generation
            self._woken.append(waiter)
        wake_ns = core.wake_ns
        if wake_ns is not None and (self._alarm_ns is None or wake_ns < self._alarm_ns):
            self._alarm_ns, self._alarm_is_new = wake_ns, True

    def _tell(self) -> None:
        """Without the lock: wake who was sent, and go on with what was given back meanwhile.

        Whoever gave something back found the lock taken, and left it to the one who had it. Waits for no lock.
        """
        while True:
            if self._alarm_is_new:
                self._alarm_is_new = False  # before it is read: another thread may set an earlier one
                if (alarm_ns := self._alarm_ns) is not None:
                    timer.call_at(alarm_ns, self._again)
            while self._woken:
                try:
                    one = self._woken.popleft()
                except IndexError:  # another thread was faster
                    break
                if not one.wake():
                    self._gone.append(one)  # one that is gone gives its place on
            if not (self._left or self._gone):
                return
            taken: list[bool] = []
            try:
                taken += map(self._lock.acquire, _AT_ONCE)  # in one step: Ctrl-C cannot come before it is known
                if not taken[0]:
                    return
                self._send_on(self._clock())
            finally:
                if taken and taken[0]:
                    self._lock.release()

    def _take_back(self, now: int) -> None:
        while self._left:
            permit, tokens, failed = self._left[0]
            if not permit._over and permit._generation == self._generation:
                self._core.leave(permit._ticket, now, tokens, failed=failed)
                permit._over = True
            self._left.popleft()
        while self._gone:
            self._withdraw(self._gone.popleft())

    def _again(self) -> None:
        """The time has come at which somebody may be sent."""
        self._alarm_ns = None
        self._go_on()

    # What several clients have set.

    def bound(self, settings: Settings) -> None:
        """A client comes that keeps to these."""
        with self._lock:
            self._bound(settings, self._clock())
        self._tell()

    def _bound(self, settings: Settings, now: int) -> None:
        """The strictest that clients have set lately holds for all of them."""
        bounds = self._bounds
        if settings is bounds.by and now - bounds.noted_ns < AGAIN_NS:
            return
        if bounds.note(settings, now):
            self._core.limit.most, requests, tokens = bounds.strictest()
            self.pacer.state(requests_per_minute=requests, tokens_per_minute=tokens)

    def begin_in_child(self) -> None:
        """See `StartsOver`: no call of the parent's is here."""
        self._generation += 1
        self._alarm_ns, self._alarm_is_new = None, False
        self._woken.clear()
        self._left.clear()
        self._gone.clear()
        learned, pacer = self._core.limit, self._core.pacer
        self._core = Core(pacer)
        self._core.limit = learned
