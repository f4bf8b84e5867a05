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
# Up to here it is counted on, so that some on time in a row do not end it: forty do.
_MOST = 8.0
# What was seen before so long a silence says nothing any more.
_SILENCE_NS = 600 * _NS
# A call that is not reported late so long after its delay was on time: threads and loops may be busy.
_GRACE_NS = _NS // 4
_MOST_WAITING = 4_096


class Awaited:
    """A call of which it is not known yet whether it is late."""

    __slots__ = ("due_ns", "is_counted", "is_late")

    def __init__(self, due_ns: int) -> None:
        self.due_ns = due_ns
        """When it is counted as what it is by then."""
        self.is_late = False
        self.is_counted = False

    def __lt__(self, other: Awaited) -> bool:
        return self.due_ns < other.due_ns


class Regime:
    """Weighs late calls against those on time: Page's cumulative sum, held between two bounds.

    Each call adds the logarithm of how much likelier its outcome is where many are late than where few are
    (E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954); once it is high enough everybody is slow, until
    it is back at 0. Calls count in the order in which their delays are over, late ones and others alike, a moment
    later: were the late ones counted when they are reported, and the others at their end, calls that begin together
    would first look all late and then all on time. Not thread-safe.
    """

    __slots__ = ("_awaited", "_late", "_on_time", "_seen_ns", "_sum", "is_slow")

    def __init__(self, quantile: float) -> None:
        few, many = (min(_MOST_SHARE, 1 - quantile + more) for more in (_FEW, _MANY))
        few = min(few, many - 0.05)
        self._late = log(many / few)
        self._on_time = log((1 - many) / (1 - few))
        self._sum = 0.0
        self._awaited: list[Awaited] = []
        self._seen_ns: int | None = None
        self.is_slow = False
        """Whether most answers are late."""

    def began(self, delay_s: float, now_ns: int) -> Awaited:
        """A call begins that is late after `delay_s`."""
        self.settle(now_ns)
        awaited = Awaited(now_ns + int(delay_s * _NS) + _GRACE_NS)
        if len(self._awaited) < _MOST_WAITING:
            heappush(self._awaited, awaited)
        return awaited

    def late(self, awaited: Awaited | None, now_ns: int) -> None:
        """A call is late."""
        if awaited is not None:
            awaited.is_late = True
            if awaited.is_counted:  # as one on time: its report was late itself
                self._count(self._late - self._on_time, now_ns)
        self.settle(now_ns)

    def settle(self, now_ns: int) -> None:
        """Count the calls that are known by now."""
        while self._awaited and self._awaited[0].due_ns <= now_ns:
            awaited = heappop(self._awaited)
            awaited.is_counted = True
            self._count(self._late if awaited.is_late else self._on_time, awaited.due_ns)

    def _count(self, weight: float, now_ns: int) -> None:
        if self._seen_ns is not None and now_ns - self._seen_ns > _SILENCE_NS:
            self._sum, self.is_slow = 0.0, False
        self._seen_ns = now_ns if self._seen_ns is None else max(now_ns, self._seen_ns)
        self._sum = min(_MOST, max(0.0, self._sum + weight))
        if self._sum >= _ENOUGH:
            self.is_slow = True
        elif self._sum <= 0:
            self.is_slow = False
