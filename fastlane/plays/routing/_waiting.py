"""Calls of one upstream that wait for their first token, and what their waiting says before it is over."""

from __future__ import annotations

from itertools import islice
from math import erfc, log

# How unlikely their waiting has to be, if nothing has changed.
_CHANCE = 0.02
_LEAST_SLOWNESS = 1.5
_MOST_COUNTED = 4
_ROOT = 2**0.5


class Waiting:
    """Begun calls of one upstream without a first token yet.

    Those count that began after the last one which was answered: an outlier that is overtaken says nothing of the
    upstream, while calls that nobody overtakes say that it has become slow, long before a time-out does.
    """

    __slots__ = ("_answered", "_calls", "_next", "first")

    def __init__(self) -> None:
        self._calls: dict[int, tuple[int, float]] = {}
        self._next = 1
        self._answered = 0
        self.first: tuple[tuple[int, float], ...] = ()
        """Of the first that count: when they began, in nanoseconds, and seconds to the first token as expected."""

    def began(self, expected_s: float, now_ns: int) -> int:
        """Note that a call has begun; its number here."""
        number = self._next
        self._next += 1
        self._calls[number] = now_ns, expected_s
        if len(self.first) < _MOST_COUNTED:
            self.first = (*self.first, (now_ns, expected_s))
        return number

    def over(self, number: int, *, answered: bool) -> None:
        """Note that a call has its first token, or never will; a number that is not waiting any more does nothing."""
        if self._calls.pop(number, None) is None:
            return
        if answered:
            self._answered = max(self._answered, number)
        # They are in the order of their beginning.
        counting = (call for other, call in self._calls.items() if other > self._answered)
        self.first = tuple(islice(counting, _MOST_COUNTED))

    def slowness(self, spread: float, now_ns: int) -> float:
        """How many times the expected the oldest has waited, where that and the others' waiting is telling; else 1.

        `spread` is the standard deviation of a first token's logarithm.
        """
        chance, most = 1.0, 1.0
        for began_ns, expected_s in self.first:
            times = (now_ns - began_ns) * 1e-9 / expected_s
            if times > 1.0:
                most = max(most, times)
                chance *= 0.5 * erfc(log(times) / (spread * _ROOT))
        return max(_LEAST_SLOWNESS, most) if chance < _CHANCE else 1.0
