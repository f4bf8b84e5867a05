"""When an upstream that fails is left alone, and when it is tried again."""

from __future__ import annotations

from random import Random
from typing import Literal

_FAILURES_TO_OPEN = 2
_FORGOTTEN_NS = 60_000_000_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_GROWTH, _MOST_PAUSES = 1.5, 12
_JITTER = 0.2
_PROBE_NS = 30_000_000_000

BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """A circuit breaker.

    The second failure in a row within a minute opens it, for a second at first, and for half as long again after every
    probe that failed, up to a minute; each pause is drawn from a range of 20 %, so that many clients do not come back
    at once. A provider that asks for a rest gets it at once, up to a minute. While it is half-open, one call at a time
    probes. The next pause is a second again after a minute without failures.
    """

    __slots__ = ("_asked_until_ns", "_failed_ns", "_failures", "_pauses", "_probe_until_ns", "_random", "until_ns")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = self._pauses = 0
        self._failed_ns = 0
        self.until_ns: int | None = None
        """Until when it is open; None where it is closed."""
        self._asked_until_ns = self._probe_until_ns = 0

    @property
    def is_closed(self) -> bool:
        """Whether calls are admitted without a probe."""
        return self.until_ns is None

    def state(self, now_ns: int) -> BreakerState:
        """Return the state; it is half-open while a call may probe, and none does."""
        if self.until_ns is None:
            return "closed"
        return "open" if self.rest_s(now_ns) > 0.0 else "half-open"

    def rest_s(self, now_ns: int) -> float:
        """Return the seconds until a call is admitted; 0 where one is now."""
        if self.until_ns is None:
            return 0.0
        return max(0, max(self.until_ns, self._probe_until_ns) - now_ns) * 1e-9

    def begin_probe(self, now_ns: int) -> None:
        """Admit no other call until this one has ended, for half a minute at most."""
        if self.until_ns is not None:
            self._probe_until_ns = now_ns + _PROBE_NS

    def end_probe(self) -> None:
        """Admit the next call: the probe was not sent, or has its first token."""
        self._probe_until_ns = 0

    def failed(self, rest_s: float | None, now_ns: int) -> None:
        """Note a failure. `rest_s`: for how long the provider asks to be left alone."""
        if rest_s is not None:
            rest_s = min(rest_s, _LONGEST_PAUSE_S)
        until_ns = self.until_ns
        if until_ns is not None and now_ns < until_ns and rest_s is None:
            return  # it was on its way before the breaker opened
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
        """Note an answer: it closes, unless the provider has asked for a rest that is not over."""
        if now_ns >= self._asked_until_ns:
            self._failures = 0
            self.until_ns = None
            self._probe_until_ns = 0
