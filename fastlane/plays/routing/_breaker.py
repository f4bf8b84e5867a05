"""When what fails is left alone, and when it is tried again."""

from __future__ import annotations

from random import Random
from typing import Literal

_FAILURES_TO_OPEN = 2
_FORGOTTEN_NS = 60_000_000_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
# An outage of a minute is over for half of it at most before somebody looks.
_GROWTH = 1.5
_MOST_PAUSES = 12
_JITTER = 0.2
_PROBE_NS = 30_000_000_000

BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """Opens on repeated failures or at the provider's own word; then one call at a time sees whether it is over.

    The second failure without an answer between them, within a minute, opens it: for a second at first, for half as
    long again after every probe that failed, up to a minute, each pause shorter or longer by a fifth at random, so
    that many clients do not come back at once. A provider that asks for a longer rest gets it, up to a minute. What was
    open lately goes on where it ended: only after a minute without failures is the next pause a second again.
    """

    __slots__ = ("_asked_until_ns", "_failed_ns", "_failures", "_pauses", "_probe_until_ns", "_random", "until_ns")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0
        self._failed_ns = 0
        self._pauses = 0
        self.until_ns: int | None = None
        """Until when it is open; None where it is closed."""
        self._asked_until_ns = 0
        self._probe_until_ns = 0

    @property
    def closed(self) -> bool:
        """Whether calls go there without a thought."""
        return self.until_ns is None

    def state(self, now_ns: int) -> BreakerState:
        """Closed: calls go there. Open: none does. Half-open: one may, and none is under way to see."""
        if self.until_ns is None:
            return "closed"
        return "open" if self.rests_s(now_ns) > 0.0 else "half-open"

    def rests_s(self, now_ns: int) -> float:
        """Seconds until a call may go there; 0 where one may now."""
        until_ns = self.until_ns
        if until_ns is None:
            return 0.0
        return max(0, max(until_ns, self._probe_until_ns) - now_ns) * 1e-9

    def probed(self, now_ns: int) -> None:
        """A call is on its way to see: no other is, until it has come back, or half a minute has gone."""
        if self.until_ns is not None:
            self._probe_until_ns = now_ns + _PROBE_NS

    def returned(self) -> None:
        """The call that went to see says nothing, or enough for others to follow it: the next one may go."""
        self._probe_until_ns = 0

    def failed(self, rest_s: float | None, now_ns: int) -> None:
        """Note a failure; `rest_s` are seconds for which the provider asks to be left alone: a minute at most."""
        if rest_s is not None:
            rest_s = min(rest_s, _LONGEST_PAUSE_S)
        until_ns = self.until_ns
        # What was on its way already when it opened says nothing new.
        if until_ns is not None and now_ns < until_ns and rest_s is None:
            return
        if until_ns is None and now_ns - self._failed_ns > _FORGOTTEN_NS:
            self._failures = self._pauses = 0
        self._failures += 1
        self._failed_ns = now_ns
        self._probe_until_ns = 0
        if until_ns is None and rest_s is None and self._failures < _FAILURES_TO_OPEN:
            return
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * _GROWTH**self._pauses)
        pause_s *= self._random.uniform(1.0 - _JITTER, 1.0 + _JITTER)
        self._pauses = min(_MOST_PAUSES, self._pauses + 1)
        self.until_ns = max(now_ns + round(max(pause_s, rest_s or 0.0) * 1e9), until_ns or 0)
        if rest_s is not None:
            self._asked_until_ns = max(self._asked_until_ns, now_ns + round(rest_s * 1e9))

    def answered(self, now_ns: int) -> None:
        """Note an answer: it closes, but for the rest that the provider has asked for."""
        if now_ns < self._asked_until_ns:
            return
        self._failures = 0
        self.until_ns = None
        self._probe_until_ns = 0
