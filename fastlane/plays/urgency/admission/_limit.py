"""How many calls may be under way at once: any number until the provider refuses some, then as many as it served."""

from __future__ import annotations

import math

from ._overload import Overload

# A limit that no call has waited for in so long is forgotten.
_FORGOTTEN_NS = 600_000_000_000
# A limit that was confirmed is tried again after so many windows at most, twice as many each time, or after so long.
_LONGEST_HOLD, _LONGEST_HOLD_NS = 16, 60_000_000_000
# The fewest calls in the windows of a limit that was confirmed.
_FEWEST = 32


class ConcurrencyLimit:
    """The limit of the calls to one provider.

    Additive increase and decrease by refusals: a refusal lowers the limit to the calls that are being served. A window
    is as many answered calls as the limit; after one in which calls waited, the limit grows by 1, then 2, 4, 8 and so
    on, until the provider refuses again. A limit that was met again is tried after twice as many windows as before.
    """

    __slots__ = (
        "_before", "_bound_ns", "_changed_at", "_changed_ns", "_cut_at", "_hold", "_learned", "_most", "_overload",
        "_sent_ns", "_served", "_step", "_wanted", "bound", "confirmed", "number",
    )  # fmt: skip

    bound: float
    """The most calls at once; infinite where no limit is known."""
    confirmed: float
    """The limit before it last grew: a call sent among more was sent to find out whether more are served."""
    number: int
    """How many calls were sent: what tells a call sent after a refusal from one before it."""

    def __init__(self, most: int | None = None) -> None:
        self._overload = Overload()
        self._learned = self._before = self.confirmed = math.inf
        self._hold, self._step = 1, 1
        self._served = self._changed_at = self._cut_at = self.number = 0
        self._sent_ns = self._bound_ns = self._changed_ns = 0
        self._wanted = False
        self.most = most

    @property
    def most(self) -> int | None:
        """The most that the application allows; None: no bound of its."""
        return self._most

    @most.setter
    def most(self, most: int | None) -> None:
        self._most = most
        self.bound = self._learned if most is None else min(self._learned, most)

    @property
    def places(self) -> int | None:
        """The most calls at once; None where no limit is known."""
        return None if math.isinf(self.bound) else int(self.bound)

    def wanted(self) -> None:
        """A call waits for a place, or soon will: more would be used."""
        self._wanted = True

    def sent(self, now_ns: int, in_flight: int) -> None:
        """A call is sent; there are so many with it."""
        self.number += 1
        self._sent_ns = now_ns
        self._overload.sent(in_flight)
        if self._wanted or math.isinf(self._learned):
            self._bound_ns = now_ns
        elif now_ns - self._bound_ns > _FORGOTTEN_NS:
            self.confirmed = math.inf
            self._set(math.inf)

    def answered(self, number: int, now_ns: int) -> None:
        """The `number`-th call was answered, and is over."""
        if not self._wanted or number <= self._changed_at or math.isinf(self._learned):
            return
        self._served += 1
        is_held = self._step == 1 and self._hold > 1 and now_ns - self._changed_ns < _LONGEST_HOLD_NS
        if self._served < (self._hold * max(_FEWEST, self._learned) if is_held else self._learned):
            return
        if self._step > 1:
            self._hold = 1  # the step before this one was not refused
        self.confirmed = self._learned
        self._set(self._learned + self._step)
        self._step *= 2

    def refused(self, number: int, in_flight: int, serving: int) -> None:
        """The `number`-th call was refused, sent among so many; `serving` others are under way, and not refused."""
        if in_flight <= 1:
            return  # it was alone: the number of calls was not why
        if number > self._cut_at:
            if not self._overload.refused(number, in_flight, since=self._cut_at) or serving >= self._learned:
                return
            # A call that was sent before this was known belongs to the same refusal.
            self._cut_at, self._before = self.number, self._learned
            is_known = abs(serving - self.confirmed) <= max(0.5, serving / 16)
            self._hold = min(_LONGEST_HOLD, 2 * self._hold) if is_known else 1
        if not serving:
            # All were refused, however many there were: their number was not why.
            self.confirmed = self._before
            self._set(self._before)
        elif serving < self._learned:
            self.confirmed, self._step = serving, 1
            self._set(serving)

    def _set(self, learned: float) -> None:
        self._learned = learned
        self._changed_at, self._changed_ns, self._served, self._wanted = self.number, self._sent_ns, 0, False
        self.most = self._most
