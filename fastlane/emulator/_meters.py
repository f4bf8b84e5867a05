"""How much of a rate limit is left: a token bucket, fixed and sliding windows, and a minute kept to by the second."""

from __future__ import annotations

import math
from collections import deque
from typing import Literal, Protocol

WindowKind = Literal["bucket", "fixed", "sliding", "quantized"]

# A wait is rounded up to a nanosecond, and what has come back by then is a sum of floats.
_CLOSE = 1e-6
# A sliding window of any length remembers at most so many moments.
_MOMENTS = 6_000


class Meter(Protocol):
    """One limit and what was taken of it; moments are of one clock, in nanoseconds."""

    limit: float

    def room(self, now: int) -> float:
        """Return how much is left."""

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until `amount` may be taken: 0 for now, None for never, because it is too much at once."""

    def take(self, now: int, amount: float) -> None:
        """Take it; less than nothing gives back."""

    def refused(self, now: int, amount: float) -> None:
        """Count something that was refused."""

    def reset_ns(self, now: int) -> int:
        """Return how long until all of the limit is there again, if nothing more is taken."""


class Bucket:
    """Refills evenly, and holds `burst` times the limit."""

    def __init__(self, limit: float, period_ns: int, burst: float, now: int) -> None:
        self.limit = limit
        self._capacity = max(1.0, limit * burst)
        self._rate = limit / period_ns
        self._level = self._capacity
        self._at = now

    def room(self, now: int) -> float:
        """Return how much is left."""
        if now > self._at:
            self._level = min(self._capacity, self._level + (now - self._at) * self._rate)
            self._at = now
        return self._level

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until `amount` may be taken."""
        missing = amount - self.room(now)
        if missing <= _CLOSE:
            return 0
        if amount > self._capacity + _CLOSE:
            return None
        return math.ceil(missing / self._rate)

    def take(self, now: int, amount: float) -> None:
        """Take it; more than there is becomes a debt."""
        self._level = min(self._capacity, self.room(now) - amount)

    def refused(self, now: int, amount: float) -> None:
        """Take as much as there is."""
        level = self.room(now)
        self._level = min(level, max(0.0, level - amount))

    def reset_ns(self, now: int) -> int:
        """Return how long until it is full."""
        return math.ceil((self._capacity - self.room(now)) / self._rate)


class FixedWindow:
    """Begins with the first request and starts anew every period."""

    def __init__(self, limit: float, period_ns: int, now: int) -> None:
        self.limit = limit
        self._period = period_ns
        self._began = now
        self._used = 0.0

    def _turn(self, now: int) -> None:
        periods = (now - self._began) // self._period
        if periods > 0:
            self._began += periods * self._period
            self._used = 0.0

    def room(self, now: int) -> float:
        """Return how much is left of this window."""
        self._turn(now)
        return self.limit - self._used

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until a window has room."""
        if amount <= self.room(now) + _CLOSE:
            return 0
        return None if amount > self.limit + _CLOSE else self._began + self._period - now

    def take(self, now: int, amount: float) -> None:
        """Take it."""
        self._turn(now)
        self._used = max(0.0, self._used + amount)

    def refused(self, now: int, amount: float) -> None:
        """Count it like any other."""
        self.take(now, amount)

    def reset_ns(self, now: int) -> int:
        """Return how long this window lasts."""
        self._turn(now)
        return self._began + self._period - now


class SlidingWindow:
    """Holds all that was taken in the period that ends now."""

    def __init__(self, limit: float, period_ns: int) -> None:
        self.limit = limit
        self._period = period_ns
        self._grain = max(1, period_ns // _MOMENTS)
        self._used = 0.0
        self._taken: deque[tuple[int, float]] = deque()

    def _slide(self, now: int) -> None:
        while self._taken and self._taken[0][0] + self._period <= now:
            self._used -= self._taken.popleft()[1]
        if not self._taken:
            self._used = 0.0

    def room(self, now: int) -> float:
        """Return how much is left."""
        self._slide(now)
        return self.limit - self._used

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until enough has left the window."""
        missing = amount - self.room(now)
        if missing <= _CLOSE:
            return 0
        if amount > self.limit + _CLOSE:
            return None
        for moment, taken in self._taken:
            missing -= taken
            if missing <= _CLOSE:
                return moment + self._period - now
        return self._period

    def take(self, now: int, amount: float) -> None:
        """Take it."""
        self._slide(now)
        self._used += amount
        # Those of one grain leave together, with the last of them: never more than the limit in any period.
        if self._taken and self._taken[-1][0] // self._grain == now // self._grain:
            amount += self._taken.pop()[1]
        self._taken.append((now, amount))

    def refused(self, now: int, amount: float) -> None:
        """Count it like any other."""
        self.take(now, amount)

    def reset_ns(self, now: int) -> int:
        """Return how long until the window is empty."""
        self._slide(now)
        return self._taken[-1][0] + self._period - now if self._taken else 0


class Quantized:
    """A bucket of which every quantum of time gives its share only, however full it is.

    What is larger than a quantum's share passes when the quantum is untouched, and takes from those that follow.
    """

    def __init__(self, limit: float, period_ns: int, burst: float, quantum_ns: int, now: int) -> None:
        self.limit = limit
        self._whole = Bucket(limit, period_ns, burst, now)
        self._share = limit * quantum_ns / period_ns
        self._quantum = quantum_ns
        self._began = now
        self._used = 0.0

    def _turn(self, now: int) -> None:
        quanta = (now - self._began) // self._quantum
        if quanta > 0:
            self._began += quanta * self._quantum
            self._used = max(0.0, self._used - quanta * self._share)

    def room(self, now: int) -> float:
        """Return how much is left of the whole, as headers tell it."""
        return self._whole.room(now)

    def wait_ns(self, now: int, amount: float) -> int | None:
        """Return how long until both the whole and a quantum have room."""
        whole = self._whole.wait_ns(now, amount)
        if whole is None:
            return None
        self._turn(now)
        over = self._used if amount > self._share else self._used + amount - self._share
        if over <= _CLOSE:
            return whole
        quanta = max(1, math.ceil((over - _CLOSE) / self._share))
        return max(whole, self._began + quanta * self._quantum - now)

    def take(self, now: int, amount: float) -> None:
        """Take it."""
        self._turn(now)
        self._whole.take(now, amount)
        self._used = max(0.0, self._used + amount)

    def refused(self, now: int, amount: float) -> None:
        """Take what is there; a quantum that is full stays full, and no longer."""
        self._turn(now)
        self._whole.refused(now, amount)
        self._used = max(self._used, min(self._used + amount, self._share))

    def reset_ns(self, now: int) -> int:
        """Return how long until the whole is full."""
        return self._whole.reset_ns(now)


def meter(kind: WindowKind, limit: float, period_ns: int, *, burst: float, quantum_ns: int, now: int) -> Meter:
    """Return a meter of this kind, with all of its limit left."""
    if kind == "fixed":
        return FixedWindow(limit, period_ns, now)
    if kind == "sliding":
        return SlidingWindow(limit, period_ns)
    if kind == "quantized":
        return Quantized(limit, period_ns, burst, quantum_ns, now)
    return Bucket(limit, period_ns, burst, now)
