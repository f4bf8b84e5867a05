"""How long first tokens of one upstream usually take, and beyond what one is late, however many are."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import exp, log
from statistics import NormalDist

_VALUES = 128
# The share below one standard deviation under the mean of a normal distribution.
_LOW = 0.15866
# A second attempt takes as long as a first one. Where all take the same, one that is a few per cent late comes before
# it: the 95th percentile is then 1.28 times the usual time.
_LEAST_SPREAD = 0.15
# While everybody is slow, so many nanoseconds lie between two values that are taken in: half a minute's fit then has a
# small part of the window, and what lasts for minutes is the new usual.
_APART_NS = 2_000_000_000
_quantile = NormalDist().inv_cdf


class Usual:
    """The latest first tokens' logarithms, of which only the lower half counts.

    The body is taken for log-normal: its middle is the median, and its spread the distance from there down to the
    16th percentile. A tail of late ones moves both by what it adds to the count alone, whatever its length: with 30 %
    of late ones the delay for the 95th percentile comes to the 99.7th percentile of the body, and not into the tail.
    One that was given up counts with the time for which it was waited for, as it lies in the upper half either way.
    Not thread-safe.
    """

    __slots__ = ("_order", "_sorted", "_taken_ns", "own")

    def __init__(self) -> None:
        # Each with whether another process has seen it.
        self._order: deque[tuple[float, bool]] = deque()
        self._sorted: list[float] = []
        self._taken_ns: int | None = None
        self.own = 0
        """How many of those that are kept were seen here."""

    def note(self, seconds: float, now_ns: int, *, is_slow: bool, is_shared: bool = False) -> None:
        """Take in the time of one first token, above 0; while everybody `is_slow`, only one now and then."""
        if is_slow and self._taken_ns is not None and now_ns - self._taken_ns < _APART_NS:
            return
        # What other processes share is a little older.
        self._taken_ns = now_ns if self._taken_ns is None else max(now_ns, self._taken_ns)
        value = log(seconds)
        self._order.append((value, is_shared))
        self.own += not is_shared
        insort(self._sorted, value)
        if len(self._order) > _VALUES:
            oldest, was_shared = self._order.popleft()
            self.own -= not was_shared
            del self._sorted[bisect_left(self._sorted, oldest)]

    def forget_shared(self) -> None:
        """Keep only what was seen here."""
        if self.own < len(self._order):
            self._order = deque(one for one in self._order if not one[1])
            self._sorted = sorted(value for value, _ in self._order)

    def late_after(self, quantile: float) -> float:
        """Seconds after which a first token is late: the quantile of the body. At least one has to be known."""
        middle = self._at(0.5)
        return exp(middle + _quantile(quantile) * max(_LEAST_SPREAD, middle - self._at(_LOW)))

    def _at(self, share: float) -> float:
        values = self._sorted
        place = share * (len(values) - 1)
        low = int(place)
        high = min(low + 1, len(values) - 1)
        return values[low] + (place - low) * (values[high] - values[low])
