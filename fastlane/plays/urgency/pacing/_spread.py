"""Requests evenly spread: for limits of which the provider takes only small parts at once."""

from __future__ import annotations

from collections import deque

from ._reading import MOST_WAIT_S

SMOOTH = 0.97
"""What is left of a limit's rate where it is enforced over shorter times than it says."""
# Additive increase and multiplicative decrease, by requests: at most one of 210 finds out that it was too much.
_LEAST, _LESS, _MORE = 0.02, 0.9, 1.0005
# How late requests may be and still be caught up with, as a share of that time: a busy process wakes late, and what is
# taken in the time itself is bounded anyway.
_LATE = 0.25
# "60,000 requests/minute may be enforced as 1,000 requests/second": OpenAI's guide, and its reading of no other time.
_USUAL_S = 1.0
# Requests on their way overtake each other by about as much, as a share of that time.
_GUARD = 0.02
_MOST_SENT = 4_096


class Spread:
    """The parts of one limit that have been taken lately. Times are seconds of the monotonic clock.

    The provider's short times begin nobody knows when. What no time of that length has too much of, whenever it begins,
    has too much in none of theirs.
    """

    __slots__ = ("_every_s", "_next_s", "_sent", "_sum", "share")

    def __init__(self, every_s: float | None) -> None:
        self.share = 0.0
        """The share of the limit's rate that requests are spread to, each for itself; 0: they may come at once."""
        self._every_s = every_s or _USUAL_S
        self._next_s = 0.0
        self._sent: deque[tuple[float, float]] = deque()
        self._sum = 0.0
        if every_s is not None:
            self.share = SMOOTH

    def less(self) -> None:
        """Refused though enough was left: only small parts are taken at once, and now smaller ones."""
        self.share = SMOOTH if not self.share else max(_LEAST, self.share * _LESS)

    def ready_s(self, now_s: float, cost: float, rate: float) -> float:
        """When a request may go, by a limit of that rate each second."""
        ready_s = max(now_s, self._next_s)
        length_s = self._every_s * (1 + _GUARD)
        over = self._sum + cost - rate * self._every_s * self.share / SMOOTH
        if over <= 0:
            return ready_s
        sent = self._sent
        while sent and sent[0][0] + length_s <= now_s:
            gone = sent.popleft()[1]
            self._sum -= gone
            over -= gone
        for at_s, taken in sent:
            if over <= 1e-9:
                break
            over -= taken
            ready_s = max(ready_s, at_s + length_s)
        return ready_s

    def spend(self, now_s: float, cost: float, rate: float) -> None:
        """Count what leaves now."""
        self.share = min(SMOOTH, self.share * _MORE)
        next_s = max(self._next_s, now_s - _LATE * self._every_s) + cost / (self.share * rate)
        self._next_s = min(next_s, now_s + MOST_WAIT_S)
        self._sent.append((now_s, cost))
        self._sum += cost
        if len(self._sent) > _MOST_SENT:
            self._sum -= self._sent.popleft()[1]
