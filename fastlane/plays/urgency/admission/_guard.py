"""How many places are kept free, so that an interactive call finds one."""

from __future__ import annotations

import math

# One interactive call in twenty may find none free, and gets the next one.
_MAY_WAIT = 0.05
_WAIT_LOG = math.log(_MAY_WAIT)


class Guard:
    """Guard channels: less urgent calls are sent only while more than so many places are free.

    While they queue, the number of free places goes down with every interactive call and up with every call that is
    over, to at most `r`. Of such a birth-death process the share of the time in which none is free is (a / d) ** r,
    where `a` and `d` are the rates of interactive calls and of calls that are over; `r` is where that is one in twenty.
    (Hong and Rappaport, "Traffic model and performance analysis for cellular mobile radio telephone systems with
    prioritized and nonprioritized handoff procedures", 1986.) A fraction of a place is kept free for that fraction of
    the less urgent calls ("limited fractional guard channels": Ramjee, Towsley and Nagarajan, "On optimal call
    admission control in cellular networks", 1997).
    """

    __slots__ = ("_left_over", "_now", "_wanted")

    def __init__(self) -> None:
        self._wanted = 1.0
        self._left_over = 0.0
        self._now = 1

    def weigh(self, arrivals_per_s: float, departures_per_s: float) -> None:
        """So many interactive calls come, and so many calls are over."""
        self._wanted = guard_places(arrivals_per_s / departures_per_s if departures_per_s > 0 else 1.0)

    def draw(self) -> None:
        """A less urgent call was sent: say how many places have to be free beside the next one's."""
        if math.isfinite(self._wanted):
            self._left_over += self._wanted % 1
            extra = int(self._left_over)
            self._left_over -= extra
            self._now = int(self._wanted) + extra

    def free(self, places: int, reserved: float) -> int:
        """Places that have to stay free of so many, of which at most the share `reserved` may."""
        if reserved <= 0 or places < 2:
            return 0
        most = max(1, int(reserved * places))
        return most if self._wanted >= most else min(most, self._now)


def guard_places(ratio: float) -> float:
    """Places to keep free, with fractions: `ratio` is how many interactive calls come for each call that is over."""
    if ratio >= 1:
        return math.inf
    if ratio <= _MAY_WAIT:
        return 1.0
    whole = int(_WAIT_LOG / math.log(ratio))
    # With a fraction f of a place more, (1 - f) * ratio**whole + f * ratio**(whole + 1) is the share that waits.
    more = (ratio**whole - _MAY_WAIT) / (ratio**whole * (1 - ratio))
    return whole + max(0.0, min(1.0, more))
