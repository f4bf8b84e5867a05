"""When an upstream that fails is left alone, and when it is tried again."""

from __future__ import annotations

from random import Random
from typing import Literal

from ..prediction._sighting import Failure

_FAILURES_TO_OPEN = 2
_FORGOTTEN_NS = 60_000_000_000
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_PROBE_NS = 30_000_000_000

BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """Opens on repeated failures or at the provider's own word; then one call at a time sees whether it is over.

    The second failure without an answer between them, within a minute, opens it, for a second at first and twice as
    long after every probe that failed, up to a minute, each pause 0.8 to 1.2 times that at random.
    """

    __slots__ = ("_failed_ns", "_failures", "_pauses", "_random", "_until_ns", "probe_until_ns")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0
        self._failed_ns = 0
        self._pauses = 0
        self._until_ns: int | None = None
        self.probe_until_ns = 0

    def state(self, now_ns: int) -> BreakerState:
        """Closed: calls go there. Open: none does. Half-open: one may."""
        if self._until_ns is None:
            return "closed"
        return "open" if now_ns < self._until_ns or now_ns < self.probe_until_ns else "half-open"

    def rests_s(self, now_ns: int) -> float:
        """Seconds until it may be tried; 0 where it may be now."""
        if self._until_ns is None:
            return 0.0
        return max(0, max(self._until_ns, self.probe_until_ns) - now_ns) / 1e9

    def probed(self, now_ns: int) -> None:
        """A call is on its way there to see; no other is, until it has come back or half a minute has gone."""
        self.probe_until_ns = now_ns + _PROBE_NS

    def failed(self, why: Failure, rest_s: float | None, now_ns: int) -> None:
        """Note a failure."""
        was_open = self._until_ns is not None
        # What was on its way when it opened says nothing new.
        if was_open and now_ns < (self._until_ns or 0) and rest_s is None:
            return
        if now_ns - self._failed_ns > _FORGOTTEN_NS and not was_open:
            self._failures = 0
        self._failures += 1
        self._failed_ns = now_ns
        if was_open or rest_s is not None or self._failures >= _FAILURES_TO_OPEN:
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self._pauses) * self._random.uniform(0.8, 1.2)
            self._pauses = min(8, self._pauses + 1)
            self._until_ns = now_ns + round(max(pause, rest_s or 0.0) * 1e9)
        self.probe_until_ns = 0

    def answered(self, now_ns: int) -> None:
        """Note an answer."""
        self._failures = 0
        self._until_ns = None
        self.probe_until_ns = 0
        # One that comes and goes is trusted again only after a while.
        if now_ns - self._failed_ns > _FORGOTTEN_NS:
            self._pauses = 0
