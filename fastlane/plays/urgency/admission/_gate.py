"""The gate before one origin, account and model: one for threads and all event loops of the process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from fastlane._clock import now_ns
from fastlane._fork import new_lock, starts_over
from fastlane.knowledge import timer
from fastlane.records.urgency import LEVELS, Level

from ..pacing import Pacer
from ._bounds import AGAIN_NS, Bounds
from ._core import Core
from ._refusals import full, too_late
from ._settings import AdmissionSettings as Settings
from ._state import GateState, state_of
from .slot import GRANTED, Slot

_RANKS: dict[str, int] = {level: rank for rank, level in enumerate(LEVELS)}
_TOO_MANY, _OVERLOADED = 429, 503
_REFUSALS = frozenset({_TOO_MANY, _OVERLOADED, 529})
_RESTS = ("retry-after", "retry-after-ms")


class Gate:
    """Grants slots in the order of urgency. Thread-safe; tasks of any event loop may wait at it too.

    No finalizer may call it: its thread may hold the lock. See `Pipeline.report_later`.
    """

    def __init__(self, origin: str, model: str | None, pacer: Pacer, *, clock: Callable[[], int] = now_ns) -> None:
        self.origin = origin
        self.model = model
        self.pacer = pacer
        self._clock = clock
        self._bounds = Bounds()
        self._core = Core(pacer)
        self._lock = new_lock()
        self._alarm_ns: int | None = None
        self._woken: deque[Slot] = deque()
        """Granted, and to be woken: an interrupt may come between the two."""
        starts_over(self)

    def slot(self, level: Level, settings: Settings, *, tokens: int, max_wait_s: float | None = None) -> Slot:
        """Make a claim to a slot. See `Slot.acquire`."""
        return Slot(_RANKS[level], settings, tokens, self, max_wait_s)

    def start(self, slot: Slot) -> None:
        """Grant a slot at once, or queue it. Raises QueueFullError and QueueTimeoutError."""
        with self._lock:
            now = self._clock()
            self._bound(slot.settings, now)
            core, level, settings = self._core, slot.level, slot.settings
            if core.enter(slot, now):
                return
            ahead = core.ahead(level)
            if ahead >= settings.max_queued:
                core.refused += 1
                raise full(ahead, settings.max_queued, core.expected_wait_s(ahead, now))
            if slot.max_wait_s is not None:
                certain_s = core.certain_wait_s(level, settings, slot.tokens, now, ahead)
                if certain_s > slot.max_wait_s:
                    core.refused += 1
                    expected_s = max(certain_s, core.expected_wait_s(ahead, now) or 0.0)
                    raise too_late("its place would come too late", expected_s, slot.max_wait_s, ahead)
            timer.start()
            core.join(slot, now, ahead)
            # The first one of a level may have to be sent at a time of its own.
            if core.queued[level] == 1:
                self._send_on(now)

    def give_up(self, slot: Slot) -> None:
        """Raise QueueTimeoutError for a slot that did not come in time, unless it has come by now."""
        with self._lock:
            if slot.state == GRANTED:
                return
            core = self._core
            expected_s = core.expected_wait_s(core.ahead(slot.level), self._clock())
            core.withdraw(slot)
            core.refused += 1
        raise too_late("its place did not come in time", expected_s, slot.max_wait_s or 0.0, slot.ahead) from None

    def answered(self, slot: Slot, status: int, headers: Mapping[str, str]) -> None:
        """See `Slot.answered`."""
        refused = status in _REFUSALS
        with self._lock:
            now = self._clock()
            if slot.state == GRANTED and slot.core is self._core:
                tried = refused and self._core.tried(slot)
                rests = status == _TOO_MANY and any(name in headers for name in _RESTS)
                explained = False
                if slot.spent is not None:
                    # One of those that were more than usual was refused for that, unless the answer asks for a rest:
                    # nothing is wrong with the pace, and nobody else has to wait.
                    told = _OVERLOADED if tried and not rests else status
                    explained = self.pacer.answered(now, slot.spent, told, headers)
                if refused and not explained and (tried or not rests):
                    self._core.refuse(slot)
            # An answer gives no slot back: it may only tell of another pace.
            if refused or self._core.paced:
                self._send_on(now)

    def release(self, slot: Slot, tokens: int | None, *, failed: bool) -> None:
        """See `Slot.release`."""
        with self._lock:
            now = self._clock()
            core = self._core
            if slot.core is core:
                core.withdraw(slot)
                core.leave(slot, now, tokens, failed=failed)
            # Also where nothing is given back: an interrupt may have come amid this before.
            self._send_on(now)

    def settle(self, slot: Slot, tokens: int) -> None:
        """See `Slot.settle`."""
        if slot.spent is not None:
            with self._lock:
                now = self._clock()
                self.pacer.settled(now, slot.spent, tokens)
                self._send_on(now)

    def state(self) -> GateState:
        """What is going on: for reports, and for telemetry."""
        with self._lock:
            return state_of(self.origin, self.model, self._core, self._clock())

    @property
    def idle(self) -> bool:
        """Whether nobody is under way, and nobody waits."""
        return self._core.idle

    def _send_on(self, now: int) -> None:
        """Have the lock: grant what can be granted, and wake who waits for it."""
        core = self._core
        while True:
            while self._woken:
                slot = self._woken[0]
                if not slot.wake() and slot.core is core:
                    core.leave(slot, now, 0, failed=True)  # nobody is there any more
                self._woken.popleft()
            granted = core.next(now)
            if granted is None:
                break
            self._woken.append(granted)
        wake_ns = core.wake_ns
        if wake_ns is not None and (self._alarm_ns is None or wake_ns < self._alarm_ns):
            timer.call_at(wake_ns, self._again)
            self._alarm_ns = wake_ns

    def _again(self) -> None:
        """The time has come at which somebody may be sent."""
        with self._lock:
            self._alarm_ns = None
            self._send_on(self._clock())

    # What several clients have set.

    def bound(self, settings: Settings) -> None:
        """A client comes that keeps to these."""
        with self._lock:
            self._bound(settings, self._clock())

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
        self._alarm_ns = None
        self._woken.clear()
        learned, pacer = self._core.limit, self._core.pacer
        self._core = Core(pacer)
        self._core.limit = learned
