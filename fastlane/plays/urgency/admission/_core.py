"""Who of those that wait is sent next: a state machine without I/O, to which the time is handed."""

from __future__ import annotations

from collections import deque

from fastlane.records.urgency import LEVELS

from ._guard import Guard
from ._limit import ConcurrencyLimit
from ._pace import Pace
from ._rates import Rate
from ._settings import AdmissionSettings
from .slot import FREE, GRANTED, QUEUED, Reason, Slot

# While a level is passed over, every so many-th place is that of a call which has waited long enough.
_EVERY = 8
_S = 1_000_000_000
# Before so many calls are over, and with fewer ahead, nothing is known of a wait that would be worth a refusal.
_KNOWN, _AHEAD = 32, 8
# Calls may get their places twice as fast as they did lately, and a wait is still certain.
_FASTER = 2.0

# How often it is looked how many places are to be kept free.
_WEIGHED_NS = 100_000_000


class Core:
    """The slots of one origin, account and model: granted ones, and those in the queue."""

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
        self._lines: tuple[deque[Slot], ...] = (deque(), deque(), deque())
        self._dead = 0
        self._blocked: Reason = "place"
        self._arrivals = 0
        self._granted_ns: list[int | None] = [None, None, None]
        self._since = [0, 0, 0]
        self._guard = Guard()
        self._weighed_ns = -_WEIGHED_NS
        self.asked = Rate()
        self._left = Rate()

    # What a gate does under its lock.

    def enter(self, slot: Slot, now_ns: int) -> bool:
        """Grant a slot at once. Returns False where it has to wait: never past those that are as urgent, or more so."""
        level, settings = slot.level, slot.settings
        if self.ahead(level) or not self._has_place(level, settings):
            return False
        if self._ready_ns(level, settings, slot.tokens, now_ns) > now_ns:
            return False
        if level == 0:
            self.asked.add(now_ns)
        slot.arrived_ns = now_ns
        self._grant(slot, now_ns)
        return True

    def join(self, slot: Slot, now_ns: int, ahead: int | None = None) -> None:
        """Queue a slot; `ahead` of it so many, where that is known already."""
        slot.core, slot.arrived_ns, slot.arrival = self, now_ns, self._arrivals
        slot.ahead = self.ahead(slot.level) if ahead is None else ahead
        self._arrivals += 1
        if slot.level == 0:
            self.asked.add(now_ns)
        self._lines[slot.level].append(slot)
        # Last of all, and without a call after it: an interrupt comes before or after.
        slot.state = QUEUED
        self.queued[slot.level] += 1

    def withdraw(self, slot: Slot) -> None:
        """Take a slot out of the queue."""
        if slot.state != QUEUED:
            return
        slot.state = FREE
        self.queued[slot.level] -= 1
        self._dead += 1
        # A storm of cancellations behind one that stays must not fill the memory.
        if self._dead > 64 and self._dead > sum(self.queued):
            self._lines = tuple(deque(one for one in line if one.state == QUEUED) for line in self._lines)
            self._dead = 0

    def next(self, now_ns: int) -> Slot | None:
        """Grant the next slot, and return it; None where nobody can be sent until something happens, or `wake_ns`."""
        self.wake_ns = None
        if self.under_way >= self.limit.bound:
            self._blocked = "place"
            self.limit.wanted()
            return None
        best = first = None
        rank = 0
        for line in self._lines:
            while line and line[0].state != QUEUED:
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
                if (aged, head.arrival) < (rank, best.arrival):
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
        best.waited_for = self._blocked
        self._grant(best, now_ns)
        return best

    def leave(self, slot: Slot, now_ns: int, tokens: int | None, *, failed: bool = False) -> None:
        """Give a granted slot back."""
        if slot.state != GRANTED:
            return
        slot.state = FREE
        self.in_flight[slot.level] -= 1
        self.under_way -= 1
        self._refusing -= slot.is_refused
        self._left.add(now_ns)
        if slot.spent is not None and self.pacer is not None:
            self.pacer.settled(now_ns, slot.spent, tokens)
        if not failed and not slot.is_refused:
            self.limit.answered(slot.number, now_ns)

    def tried(self, slot: Slot) -> bool:
        """Whether a call was one of those that were sent to find out whether more are served."""
        return slot.in_flight > self.limit.confirmed

    def refuse(self, slot: Slot) -> None:
        """The provider has refused a call for want of capacity."""
        if slot.state != GRANTED or slot.is_refused:
            return
        slot.is_refused = True
        self._refusing += 1
        self.limit.refused(slot.number, slot.in_flight, self.under_way - self._refusing)

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

    def _heads(self) -> list[Slot]:
        heads = []
        for line in self._lines:
            while line and line[0].state != QUEUED:
                line.popleft()
                self._dead -= 1
            if line:
                heads.append(line[0])
        return heads

    def _rank(self, head: Slot, now_ns: int) -> int:
        """Its level, or a more urgent one for its age, while its own is passed over."""
        level, ageing_ns = head.level, head.ageing_ns
        if not level or now_ns - head.arrived_ns < ageing_ns:
            return level
        if self._since[level] < _EVERY - 1 and now_ns - self._last_ns(head) < ageing_ns:
            return level
        return max(0, level - (now_ns - head.arrived_ns) // ageing_ns)

    def _old_enough_ns(self, head: Slot) -> int:
        """When its age has made it as urgent as an interactive one, if nobody else is sent until then."""
        by_age_ns = head.arrived_ns + head.level * head.ageing_ns
        if self._since[head.level] >= _EVERY - 1:
            return by_age_ns
        return max(by_age_ns, self._last_ns(head) + head.ageing_ns)

    def _last_ns(self, head: Slot) -> int:
        return max(head.arrived_ns, self._granted_ns[head.level] or head.arrived_ns)

    def _sendable(self, head: Slot, rank: int, now_ns: int) -> bool:
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

    def _grant(self, slot: Slot, now_ns: int) -> None:
        level = slot.level
        slot.core = self
        slot.granted_ns = now_ns
        slot.in_flight = self.under_way + 1
        slot.concurrency = self.limit.places
        self.limit.sent(now_ns, slot.in_flight)
        slot.number = self.limit.number
        if self.pacer is not None and slot.settings.pacing:
            slot.spent = self.pacer.spend(now_ns, tokens=slot.tokens)
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
        # Last of all, and without a call after it: an interrupt comes before or after. A slot that leaves the queue
        # stays at the head of its line until `next` looks there.
        if slot.state == QUEUED:
            self.queued[level] -= 1
            self._dead += 1
        slot.state = GRANTED
        self.in_flight[level] += 1
        self.under_way += 1
