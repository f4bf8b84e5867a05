"""Whether single answers of an upstream are late, or most are: then a second attempt would be late as well."""

from __future__ import annotations

from heapq import heappop, heappush
from math import log

_NS = 1_000_000_000
# How many more late ones than the quantile leaves there are in a calm (few), and where everybody is slow (many).
_FEW, _MANY = 0.07, 0.23
_MOST_SHARE = 0.95
# Six late ones in a row are enough; while one in eight is late, that takes a thousand calls by chance.
_ENOUGH = 5.0
# What was seen before so long a silence says nothing any more.
_SILENCE_NS = 600 * _NS
# A call that is not reported late so long after its delay was on time: threads and loops may be busy.
_GRACE_NS = _NS // 4
_MOST_WAITING = 4_096


class Regime:
    """Weighs late calls against those on time: Page's cumulative sum, held between two bounds.

    Each call adds the logarithm of how much likelier its outcome is where many are late than where few are
    (E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954); at the upper bound everybody is slow, until the
    sum is back at 0. A late call counts when its delay is over, one on time a moment after its delay would have been
    over: were it counted at its end, the late ones would be ahead wherever answers are long. Not thread-safe.
    """

    __slots__ = ("_due", "_late", "_on_time", "_owed", "_seen_ns", "_sum", "is_slow")

    def __init__(self, quantile: float) -> None:
        few, many = (min(_MOST_SHARE, 1 - quantile + more) for more in (_FEW, _MANY))
        few = min(few, many - 0.05)
        self._late = log(many / few)
        self._on_time = log((1 - many) / (1 - few))
        self._sum = 0.0
        self._due: list[int] = []
        self._owed = 0
        self._seen_ns: int | None = None
        self.is_slow = False
        """Whether most answers are late."""

    def began(self, delay_s: float, now_ns: int) -> None:
        """A call begins that is late after `delay_s`."""
        self.settle(now_ns)
        if len(self._due) < _MOST_WAITING:
            heappush(self._due, now_ns + int(delay_s * _NS) + _GRACE_NS)

    def late(self, now_ns: int) -> None:
        """A call is late."""
        self.settle(now_ns)
        self._owed += 1
        self._count(self._late, now_ns)

    def settle(self, now_ns: int) -> None:
        """Count the calls that would have been reported late by now, and were not."""
        while self._due and self._due[0] <= now_ns:
            due_ns = heappop(self._due)
            if self._owed:
                self._owed -= 1
            else:
                self._count(self._on_time, due_ns)
        if not self._due:
            self._owed = 0

    def _count(self, weight: float, now_ns: int) -> None:
        if self._seen_ns is not None and now_ns - self._seen_ns > _SILENCE_NS:
            self._sum, self.is_slow = 0.0, False
        self._seen_ns = now_ns if self._seen_ns is None else max(now_ns, self._seen_ns)
        self._sum = min(_ENOUGH, max(0.0, self._sum + weight))
        if self._sum >= _ENOUGH:
            self.is_slow = True
        elif self._sum <= 0:
            self.is_slow = False
