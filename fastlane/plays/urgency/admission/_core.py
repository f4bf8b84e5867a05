"""Who of those that wait is sent next: a state machine without I/O, to which the time is handed."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from fastlane.records.urgency import LEVELS

from ._guard import Guard
from ._limit import ConcurrencyLimit
from ._pace import Pace
from ._rates import Rate
from ._settings import AdmissionSettings

# While a level is passed over, every so many-th place is that of a call which has waited long enough.
_EVERY = 8
_S = 1_000_000_000
# Before so many calls are over, and with fewer ahead, nothing is known of a wait that would be worth a refusal.
_KNOWN, _AHEAD = 32, 8
# Calls may get their places twice as fast as they did lately, and a wait is still certain.
_FASTER = 2.0

# How often it is looked how many places are to be kept free.
_WEIGHED_NS = 100_000_000

_QUEUED, _GRANTED, _GONE = range(3)
Reason = Literal["place", "pace"]


class Ticket:
    """A place that a call has."""

    __slots__ = (
        "ahead", "concurrency", "in_flight", "is_back", "is_refused", "level", "number", "spent", "tokens",
        "waited_for",
    )  # fmt: skip

    def __init__(self, level: int, tokens: int) -> None:
        self.level = level
        self.tokens = tokens
        self.ahead = 0
        self.is_refused = self.is_back = False
        """It was given back. Ctrl-C may come amid that, and then it is given back once more."""
        self.waited_for: Reason | None = None
        self.in_flight = self.number = 0
        self.concurrency: int | None = None
        self.spent: Any = None


class Waiter:
    """A call that waits."""

    __slots__ = (
        "ageing_ns", "ahead", "arrived_ns", "generation", "is_recalled", "level", "number", "settings", "state",
        "ticket", "tokens",
    )  # fmt: skip

    def __init__(self, level: int, settings: AdmissionSettings, tokens: int) -> None:
        self.level = level
        self.settings = settings
        self.ageing_ns = int(settings.ageing_s * _S)
        self.tokens = tokens
        self.state = _QUEUED
        self.ticket: Ticket | None = None
        self.arrived_ns = self.number = self.ahead = self.generation = 0
        self.is_recalled = False
        """Somebody else has called it back."""


class Core:
    """Places, and the calls that wait for one, of one origin, account and model."""

    __slots__ = (
        "_arrivals", "_blocked", "_dead", "_granted_ns", "_guard", "_left", "_lines", "_refusing", "_since",
        "_weighed_ns", "asked", "in_flight", "limit", "pacer", "queued", "refused", "under_way",
        "wake_ns",
    )  # fmt: skip

    def __init__(self, pacer: Pace | None = None, most: int | None = None) -> None:
        self.limit = ConcurrencyLimit(most)
        self.pacer = pacer
        self.in_flight = [0, 0, 0]
        self.under_way = 0
        self._refusing = 0
        """Of these, the provider has refused so many."""
        self.queued = [0, 0, 0]
        self.refused = 0
        """Calls that were not let in."""
        self.wake_ns: int | None = None
        """When to ask for the next again, though nothing happens until then."""
        self._lines: tuple[deque[Waiter], ...] = (deque(), deque(), deque())
        self._dead = 0
        self._blocked: Reason = "place"
        self._arrivals = 0
        self._granted_ns: list[int | None] = [None, None, None]
        self._since = [0, 0, 0]
        self._guard = Guard()
        self._weighed_ns = -_WEIGHED_NS
        self.asked = Rate()
        self._left = Rate()

    # What a driver does under its lock.

    def try_enter(self, level: int, settings: AdmissionSettings, tokens: int, now_ns: int) -> Ticket | None:
        """A place at once, or None: never past those that wait and are as urgent, or more so."""
        if self.ahead(level) or not self._has_place(level, settings):
            return None
        if self._ready_ns(level, settings, tokens, now_ns) > now_ns:
            return None
        if level == 0:
            self.asked.add(now_ns)
        return self._grant(level, tokens, settings, now_ns)

    def join(self, waiter: Waiter, now_ns: int, ahead: int | None = None) -> None:
        """Have it wait; `ahead` of it so many, where that is known already."""
        waiter.arrived_ns, waiter.number = now_ns, self._arrivals
        waiter.ahead = self.ahead(waiter.level) if ahead is None else ahead
        self._arrivals += 1
        self._lines[waiter.level].append(waiter)
        self.queued[waiter.level] += 1
        if waiter.level == 0:
            self.asked.add(now_ns)

    def withdraw(self, waiter: Waiter) -> bool:
        """It waits no longer; False where it has a ticket already, which is to be given back or used."""
        if waiter.state != _QUEUED:
            return waiter.state == _GONE
        waiter.state = _GONE
        self.queued[waiter.level] -= 1
        self._dead += 1
        # A storm of cancellations behind one that stays must not fill the memory.
        if self._dead > 64 and self._dead > sum(self.queued):
            self._lines = tuple(deque(one for one in line if one.state == _QUEUED) for line in self._lines)
            self._dead = 0
        return True

    def recall(self, waiter: Waiter) -> bool:
        """Have it wait no longer; False where it has a ticket already, or has left."""
        if waiter.state != _QUEUED:
            return False
        waiter.is_recalled = True
        return self.withdraw(waiter)

    def next(self, now_ns: int) -> Waiter | None:
        """One that got its ticket now; None where nobody can be sent, until something happens or `wake_ns`."""
        self.wake_ns = None
        if self.under_way >= self.limit.bound:
            self._blocked = "place"
            self.limit.wanted()
            return None
        best = first = None
        rank = 0
        for line in self._lines:
            while line and line[0].state != _QUEUED:
                line.popleft()
                self._dead -= 1
            if not line:
                continue
            head = line[0]
            if best is None:
                best = first = head
                rank = self._rank(head, now_ns)
            elif now_ns - head.arrived_ns >= head.ageing_ns:
                aged = self._rank(head, now_ns)
                if (aged, head.number) < (rank, best.number):
                    best, rank = head, aged
        if best is None or first is None:
            return None
        if not self._sendable(best, rank, now_ns):
            if first is best or first.level:
                return None
            # Whatever holds back one that has waited long does not hold back an interactive one.
            best = first
            if not self._sendable(best, 0, now_ns):
                return None
        self._lines[best.level].popleft()
        self.queued[best.level] -= 1
        best.state = _GRANTED
        best.ticket = ticket = self._grant(best.level, best.tokens, best.settings, now_ns)
        ticket.ahead, ticket.waited_for = best.ahead, self._blocked
        return best

    def leave(self, ticket: Ticket, now_ns: int, tokens: int | None, *, failed: bool = False) -> None:
        """A call is over, and gives its place back."""
        if ticket.is_back:
            return
        self._give_back(ticket)
        self._left.add(now_ns)
        if ticket.spent is not None and self.pacer is not None:
            self.pacer.settled(now_ns, ticket.spent, tokens)
        if not failed and not ticket.is_refused:
            self.limit.answered(ticket.number, now_ns)

    def unused(self, ticket: Ticket, now_ns: int) -> None:
        """A ticket that nobody took: nothing was sent."""
        if ticket.is_back:
            return
        self._give_back(ticket)
        if ticket.spent is not None and self.pacer is not None:
            self.pacer.settled(now_ns, ticket.spent, 0)

    def _give_back(self, ticket: Ticket) -> None:
        ticket.is_back = True
        self.in_flight[ticket.level] -= 1
        self.under_way -= 1
        self._refusing -= ticket.is_refused

    def tried(self, ticket: Ticket) -> bool:
        """Whether a call was one of those that were sent to find out whether more are served."""
        return ticket.in_flight > self.limit.confirmed

    def refuse(self, ticket: Ticket) -> None:
        """The provider has refused a call for want of capacity."""
        if ticket.is_back or ticket.is_refused:
            return
        ticket.is_refused = True
        self._refusing += 1
        self.limit.refused(ticket.number, ticket.in_flight, self.under_way - self._refusing)

    # What is known.

    def ahead(self, level: int) -> int:
        """Calls that would be sent before one of this level that comes now."""
        queued = self.queued
        return queued[0] if not level else queued[0] + queued[1] if level == 1 else sum(queued)

    @property
    def paced(self) -> bool:
        """Whether whoever is next waits for the pace."""
        return self._blocked == "pace"

    def expected_wait_s(self, ahead: int, now_ns: int) -> float | None:
        """Seconds until one with so many ahead of it should have its place; None where too few are over to say so."""
        rate = self._left.per_s(now_ns)
        return (ahead + 1) / rate if rate > 0 and self._left.total >= _KNOWN else None

    def certain_wait_s(
        self, level: int, settings: AdmissionSettings, tokens: int, now_ns: int, ahead: int | None = None
    ) -> float:
        """Seconds that one which comes now waits at least, as far as that is certain."""
        ahead = self.ahead(level) if ahead is None else ahead
        place_s = 0.0
        if ahead >= _AHEAD and self.limit.places is not None:
            expected_s = self.expected_wait_s(ahead - _AHEAD, now_ns)
            place_s = 0.0 if expected_s is None else expected_s / _FASTER
        return max(place_s, (self._ready_ns(level, settings, tokens, now_ns, is_next=not ahead) - now_ns) / _S)

    def oldest_ns(self) -> int | None:
        """When the one that has waited longest came."""
        return min((head.arrived_ns for head in self._heads()), default=None)

    @property
    def idle(self) -> bool:
        """Whether nobody is under way, and nobody waits."""
        return not any(self.in_flight) and not any(self.queued)

    # How the next is found.

    def _heads(self) -> list[Waiter]:
        heads = []
        for line in self._lines:
            while line and line[0].state != _QUEUED:
                line.popleft()
                self._dead -= 1
            if line:
                heads.append(line[0])
        return heads

    def _rank(self, head: Waiter, now_ns: int) -> int:
        """Its level, or a more urgent one for its age, while its own is passed over."""
        level, ageing_ns = head.level, head.ageing_ns
        if not level or now_ns - head.arrived_ns < ageing_ns:
            return level
        if self._since[level] < _EVERY - 1 and now_ns - self._last_ns(head) < ageing_ns:
            return level
        return max(0, level - (now_ns - head.arrived_ns) // ageing_ns)

    def _old_enough_ns(self, head: Waiter) -> int:
        """When its age has made it as urgent as an interactive one, if nobody else is sent until then."""
        by_age_ns = head.arrived_ns + head.level * head.ageing_ns
        if self._since[head.level] >= _EVERY - 1:
            return by_age_ns
        return max(by_age_ns, self._last_ns(head) + head.ageing_ns)

    def _last_ns(self, head: Waiter) -> int:
        return max(head.arrived_ns, self._granted_ns[head.level] or head.arrived_ns)

    def _sendable(self, head: Waiter, rank: int, now_ns: int) -> bool:
        if not self._has_place(head.level if rank else 0, head.settings):
            self._blocked = "place"
            if rank and self.under_way < self.limit.bound:
                # A place is kept free, but not for ever: not from the first of these whose age counts in full.
                for each in self._heads():
                    if each.level:
                        self._wake_at(self._old_enough_ns(each))
            return False
        ready_ns = self._ready_ns(head.level, head.settings, head.tokens, now_ns)
        if ready_ns > now_ns:
            self._blocked = "pace"
            self._wake_at(ready_ns)
            return False
        return True

    def _wake_at(self, at_ns: int) -> None:
        self.wake_ns = at_ns if self.wake_ns is None else min(self.wake_ns, at_ns)

    def _has_place(self, level: int, settings: AdmissionSettings) -> bool:
        limit, under_way = self.limit, self.under_way
        if (places := limit.places) is None:
            return True
        kept = self._guard.free(places, settings.reserved) if level else 0
        if under_way + kept < places:
            return True
        limit.wanted()
        return False

    def _ready_ns(
        self, level: int, settings: AdmissionSettings, tokens: int, now_ns: int, *, is_next: bool = True
    ) -> int:
        if self.pacer is None or not settings.pacing:
            return now_ns
        return self.pacer.ready_ns(now_ns, tokens=tokens, level=LEVELS[level], is_next=is_next)

    def _grant(self, level: int, tokens: int, settings: AdmissionSettings, now_ns: int) -> Ticket:
        ticket = Ticket(level, tokens)
        ticket.in_flight = self.under_way + 1
        ticket.concurrency = self.limit.places
        self.limit.sent(now_ns, ticket.in_flight)
        ticket.number = self.limit.number
        if self.pacer is not None and settings.pacing:
            ticket.spent = self.pacer.spend(now_ns, tokens=tokens)
        if level:
            if now_ns - self._weighed_ns > _WEIGHED_NS:
                self._weighed_ns = now_ns
                self._guard.weigh(self.asked.per_s(now_ns), self._left.per_s(now_ns))
            self._guard.draw()
        self._granted_ns[level] = now_ns
        since = self._since
        since[1] += 1
        since[2] += 1
        since[level] = 0
        # Last of all, and without a call after it: Ctrl-C may come with any call, and take no place along.
        self.in_flight[level] += 1
        self.under_way += 1
        return ticket
