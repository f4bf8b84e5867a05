"""Limits that no header tells of: those that the application states, and a pace learned from refusals alone."""

from __future__ import annotations

import math

from fastlane.providers.facts import Counts

from ._reading import MOST_WAIT_S

# A limit that is only stated may be enforced over any time: so little of a minute may go at once.
_AT_ONCE = 1 / 20
_MINUTE_S = 60.0

# What other replicas say they spent may take so much of the rate, and so many times what may go at once.
_TO_OTHERS, _OTHERS_AT_ONCE = 0.95, 1.5

# Additive increase and multiplicative decrease, as congestion control has them (Chiu and Jain, 1989); the increase is a
# share of the pace, so that a second has the same part in it at any pace.
_LESS, _MORE_PER_S = 0.85, 0.01
_LOOKED_AT_S = 10.0
# What nobody refused for so long has been lifted meanwhile.
_FORGOTTEN_S = 600.0


class Stated:
    """A bucket that holds a twentieth of a minute's limit. What it is overdrawn by is waited for."""

    __slots__ = ("_for_others", "at", "counts", "level", "limit")

    def __init__(self, counts: Counts, limit: float, now_s: float) -> None:
        self.counts = counts
        self.limit = limit
        self.at = now_s
        self.level = self._room
        self._for_others = _OTHERS_AT_ONCE * self._room

    @property
    def _room(self) -> float:
        return max(1.0, self.limit * _AT_ONCE)

    def state(self, limit: float) -> None:
        """Take another limit."""
        self.level = min(self.level, max(1.0, limit * _AT_ONCE))
        self.limit = limit

    def advance(self, now_s: float) -> None:
        """Let the time pass until now."""
        if now_s > self.at:
            came = self.limit / _MINUTE_S * (now_s - self.at)
            self.level = min(self._room, self.level + came)
            self._for_others = min(_OTHERS_AT_ONCE * self._room, self._for_others + _TO_OTHERS * came)
            self.at = now_s

    def ready_s(self, now_s: float, cost: float, *, background: bool) -> float:
        """When so much may be spent: now or later. Background leaves half of what may go at once."""
        self.advance(now_s)
        room = self._room
        need = min(cost + (0.5 * room if background else 0.0), room)
        return now_s if self.level >= need else now_s + (need - self.level) * _MINUTE_S / self.limit

    def spend(self, now_s: float, cost: float) -> None:
        """Count what leaves now."""
        self.advance(now_s)
        self.level -= cost

    def others_spent(self, now_s: float, cost: float) -> None:
        """Count what another replica spent: a part of the limit stays for this one, whatever it reports."""
        self.advance(now_s)
        cost = min(cost, self._for_others)
        self._for_others -= cost
        self.level -= cost

    def take_back(self, cost: float) -> None:
        """What was counted was not used after all, or more was."""
        self.level = min(self._room, self.level + cost)


class LearnedPace:
    """Requests per second that no refusal has spoken against: none until two were refused within ten seconds."""

    __slots__ = ("_began_s", "_cut_number", "_lifted_s", "_next_s", "_refused_s", "_seen", "_seen_s", "per_s")

    def __init__(self) -> None:
        self.per_s: float | None = None
        self._seen, self._seen_s, self._began_s = 0.0, 0.0, None
        self._cut_number = -1
        self._next_s = self._lifted_s = 0.0
        self._refused_s = -math.inf

    _began_s: float | None

    def ready_s(self, now_s: float) -> float:
        """When the next request may go."""
        if self.per_s is None:
            return now_s
        if now_s - self._refused_s > _FORGOTTEN_S:
            self.per_s = None
            return now_s
        self.per_s *= math.exp(_MORE_PER_S * max(0.0, now_s - self._lifted_s))
        self._lifted_s = now_s
        return max(now_s, self._next_s)

    def spend(self, now_s: float, requests: float) -> None:
        """Count what leaves now."""
        if self._began_s is None:
            self._began_s = self._seen_s = now_s
        self._seen = self._seen * math.exp((self._seen_s - now_s) / _LOOKED_AT_S) + requests
        self._seen_s = now_s
        if self.per_s is not None:
            self._next_s = min(now_s + MOST_WAIT_S, max(self._next_s, now_s) + requests / self.per_s)

    def refused(self, now_s: float, number: int, newest: int) -> None:
        """The request of that number was refused, and the newest that has left is `newest`."""
        is_alone = self.per_s is None and now_s - self._refused_s > _LOOKED_AT_S
        self._refused_s = self._lifted_s = now_s
        if is_alone:
            return  # the few requests before it say nothing of how many the provider accepts
        if number <= self._cut_number:
            return  # it left before the pace was lowered
        self._cut_number = newest
        if self.per_s is None:
            elapsed_s = max(1.0, now_s - self._began_s) if self._began_s is not None else 1.0
            self.per_s = self._seen / (_LOOKED_AT_S * (1 - math.exp(-elapsed_s / _LOOKED_AT_S)))
        self.per_s = max(0.05, self.per_s * _LESS)
