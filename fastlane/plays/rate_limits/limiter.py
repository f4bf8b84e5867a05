"""When the next request of one model and account may be sent, by everything that is known of its rate limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import add, sub
from random import Random

from fastlane.providers.facts import Counts, RateLimitFacts

from .bucket import AnnouncedBucket, RequestCost, TokenBucket
from .headers import HeaderReader

MAX_WAIT_S = 60.0
"""The longest time without any request while requests wait, whatever a provider or another replica asks for. Then one
request finds out. openai's retries follow a `Retry-After` of one or two minutes at most, depending on the version."""
_REFUSED = 429
_RESTING = frozenset({_REFUSED, 503, 529})
# Without `Retry-After`: the first and the longest pause of openai's own retries.
_FIRST_REST_S, _MAX_REST_S = 0.5, 8.0
# A rest is longer than asked for by so much at most, by chance: not all replicas begin again at once.
_REST_JITTER, _MAX_REST_JITTER_S = 0.05, 0.5
# A limit that the application states may be enforced over any time: so much of a minute may go at once.
_STATED_BURST = 1 / 20
_MAX_STATED = 16
# Other replicas may spend so much of it.
_TO_OTHERS = 0.95
# What other replicas share is ignored for so long after a request was answered that should have rested by it.
_DOUBTED_S = 600.0
# Reading headers costs most of a response's time here, and more often than this they say nothing new.
_READ_EVERY_S = 0.01
# Requests that are sent within so short a time may be counted in any order.
_BURST_S = 0.1
_NS = 1e9


@dataclass(slots=True)
class Burst:
    """Requests of one moment, which the provider may count in any order."""

    began_s: float
    before: RequestCost
    """What all requests had taken before the first of them."""
    after: RequestCost
    """What they had taken after the last of them."""


@dataclass(slots=True)
class Reservation:
    """What one request has taken. To be handed back, not to be changed."""

    number: int
    sent_s: float
    cost: RequestCost
    """What was counted of it."""
    burst: Burst
    is_probe: bool
    is_answered: bool = False
    is_settled: bool = False


class RateLimiter:
    """Keeps the requests for one model with one account to the provider's limits.

    It does no I/O: the time is handed in, as monotonic nanoseconds. Not thread-safe: its owner has a lock. Nothing is
    held back until a limit is known, by the application, a response or a refusal.
    """

    def __init__(self, facts: RateLimitFacts | None = None, *, jitter: Random | None = None) -> None:
        self._random = (jitter or Random()).random
        self._reader = HeaderReader(facts)
        self._is_refunded = facts is not None and facts.refunded is not None and bool(facts.refunded.value)
        self._announced: dict[str, AnnouncedBucket] = {}
        self._stated: dict[tuple[Counts, float], tuple[TokenBucket, TokenBucket]] = {}
        """Of each limit: what is left, and what other replicas may spend of it."""
        self._learned = LearnedRate()
        self._total = RequestCost(0.0)
        self._burst = Burst(-math.inf, self._total, self._total)
        self._number = 0
        self._sent_s = -math.inf
        """When a request was last sent, or could have been."""
        self._rest_until_s = self._asked_until_s = 0.0
        """Until when nothing is sent, and until when the provider asked for that, which may be longer."""
        self._rested = -1
        """The last request before the rest: a response to a later one ends it."""
        self._is_others_rest = False
        self._doubted_until_s = -math.inf
        """Until when what other replicas share is ignored."""
        self._is_probe = False
        self._in_vain = 0
        self._in_vain_s = self._read_s = -math.inf
        self.refused = 0
        """Responses of status 429 so far."""
        self.waits_for: str | None = None
        """What `ready_ns` last found to wait for: the name of a limit, or "retry-after"."""

    def ready_ns(
        self, now_ns: int, cost: RequestCost, *, patient: bool = False, stated: Sequence[tuple[Counts, float]] = ()
    ) -> int:
        """Return when a request may be sent: `now_ns` or later.

        `patient`: whether it leaves the last of a limit to more urgent ones. `stated`: the limits of the settings,
        what they count and how much of it in a minute. A response may be wrong: a minute after the last request, one
        finds out.
        """
        now_s = now_ns / _NS
        ready_s, waits_for = max(now_s, self._rest_until_s), "retry-after"
        learned_s = self._learned.ready_s(now_s)
        if learned_s > ready_s:
            ready_s, waits_for = learned_s, "refusals"
        for name, bucket in self._announced.items():
            limit_s = bucket.ready_s(now_s, cost[bucket.part], patient=patient)
            if limit_s > ready_s:
                ready_s, waits_for = limit_s, name
        if ready_s <= now_s:
            self._sent_s = now_s
        latest_s = self._sent_s + MAX_WAIT_S
        self._is_probe = ready_s > now_s >= latest_s
        ready_s = min(ready_s, max(now_s, latest_s))
        for counts, per_minute in stated:
            own = self._state(counts, per_minute, now_s)
            stated_s = own.ready_s(now_s, cost[own.part], patient=patient)
            if stated_s > ready_s:
                ready_s, waits_for = stated_s, "stated"
        self.waits_for = waits_for if ready_s > now_s else None
        return now_ns if ready_s <= now_s else max(now_ns + 1, math.ceil(ready_s * _NS))

    def spend(self, now_ns: int, cost: RequestCost) -> Reservation:
        """Count a request that is sent now."""
        now_s = now_ns / _NS
        for announced in self._announced.values():
            announced.spend(now_s, cost[announced.part])
        for bucket, _ in self._stated.values():
            bucket.spend(now_s, cost[bucket.part])
        self._learned.spend(now_s)
        if now_s - self._burst.began_s > _BURST_S:
            self._burst = Burst(now_s, self._total, self._total)
        self._total = self._burst.after = RequestCost(*map(add, self._total, cost))
        self._number += 1
        self._sent_s = now_s
        if now_s < self._asked_until_s:
            self._rest_until_s = now_s + MAX_WAIT_S  # the others wait for the response to this one
        is_probe, self._is_probe = self._is_probe, False
        return Reservation(self._number, now_s, cost, self._burst, is_probe)

    def answered(self, now_ns: int, sent: Reservation, status: int, headers: Mapping[str, str]) -> float:
        """Take note of a response's status and headers. Returns the seconds of a rest that it asks for, or 0."""
        now_s = now_ns / _NS
        sent.is_answered = True
        if status < 500 and status != _REFUSED:
            if sent.number > self._rested:
                if self._is_others_rest and now_s < self._rest_until_s:
                    self._doubted_until_s = now_s + _DOUBTED_S
                self._rest_until_s = self._asked_until_s = 0.0
                self._is_others_rest = False
            if sent.is_probe:  # what held it back was wrong
                self._announced.clear()
                self._learned = LearnedRate()
                self._rest_until_s = self._asked_until_s = 0.0
            self._in_vain = 0
        if status < 400 and 0 <= now_s - self._read_s < _READ_EVERY_S:
            return 0.0
        self._read_s = now_s
        announced, retry_after_s = self._reader.read(headers)
        is_explained = False
        for name, said in announced.items():
            bucket = self._announced.get(name)
            if bucket is None:
                facts = self._reader.limits[name]
                bucket = self._announced[name] = AnnouncedBucket(facts, said, now_s)
                if facts.enforced_s is not None and facts.counts == "requests":
                    self._learned.refused(now_s, 0, 0, bucket.per_s)
            part = bucket.part
            total, own = self._total[part], sent.cost[part]
            spent_since = total - sent.burst.after[part], total - sent.burst.before[part] - own
            bucket.announced(said, number=sent.number, sent_s=sent.sent_s, spent_since=spent_since, now_s=now_s)
            is_explained = is_explained or said.remaining < own
        if status not in _RESTING:
            return 0.0
        if status == _REFUSED:
            self.refused += 1
            self.settled(now_ns, sent, RequestCost())  # no provider counts the tokens of a request that it refuses
            if not is_explained:
                # The provider enforces a limit that it does not announce, or over shorter times than it says.
                self._learned.refused(now_s, sent.number, self._number, self._announced_per_s())
        return self._rest_after(now_s, sent, status, retry_after_s(), is_explained=is_explained)

    def settled(self, now_ns: int, sent: Reservation, cost: RequestCost | None) -> None:
        """A call is over; `cost` is what the provider counted, None if that is not known."""
        now_s = now_ns / _NS
        if not sent.is_answered and sent.number == self._number and now_s < self._asked_until_s:
            self._rest_until_s = now_s  # the probe ended without a response
        if sent.is_settled or cost is None:
            return
        sent.is_settled = True
        for bucket, _ in self._stated.values():
            bucket.give_back(sent.cost[bucket.part] - cost[bucket.part])
        if self._is_refunded:  # else the next response says so
            unused = RequestCost(*map(sub, sent.cost, cost))
            self._total = RequestCost(*map(sub, self._total, unused))
            for announced in self._announced.values():
                announced.give_back(unused[announced.part])

    def others_rest(self, now_ns: int, rest_s: float) -> None:
        """Another replica was asked to rest. Anybody who can write into the store may have written that."""
        rest_s = min(rest_s, MAX_WAIT_S)
        until_s = now_ns / _NS + rest_s + self._jitter_s(rest_s)
        if now_ns / _NS >= self._doubted_until_s and until_s > self._rest_until_s:
            self._rest_until_s, self._rested, self._is_others_rest = until_s, self._number, True

    def others_spent(self, now_ns: int, cost: RequestCost) -> None:
        """Count what other replicas have spent of the limits that the application states, all but a twentieth."""
        now_s = now_ns / _NS
        if now_s < self._doubted_until_s:
            return
        for bucket, others in self._stated.values():
            others.advance(now_s)
            spent = min(cost[bucket.part], max(0.0, others.level))
            others.spend(now_s, spent)
            bucket.advance(now_s)
            bucket.give_back(-spent)

    def _state(self, counts: Counts, per_minute: float, now_s: float) -> TokenBucket:
        """Return the bucket of a limit that the application states."""
        if (counts, per_minute) not in self._stated:
            while len(self._stated) >= _MAX_STATED:
                del self._stated[next(iter(self._stated))]
            holds = max(1.0, per_minute * _STATED_BURST)
            self._stated[counts, per_minute] = (
                TokenBucket(counts, per_minute, 60.0, now_s, holds=holds),
                TokenBucket(counts, _TO_OTHERS * per_minute, 60.0, now_s, holds=holds),
            )
        return self._stated[counts, per_minute][0]

    def _announced_per_s(self) -> float:
        """Return the requests per second of the announced limits; infinite where none is announced."""
        known = [one.per_s for one in self._announced.values() if one.counts == "requests" and one.window_s <= _EVEN_S]
        return min(known, default=math.inf)

    def _jitter_s(self, rest_s: float) -> float:
        return self._random() * min(_MAX_REST_JITTER_S, _REST_JITTER * rest_s)

    def _rest_after(
        self, now_s: float, sent: Reservation, status: int, asked_s: float | None, *, is_explained: bool
    ) -> float:
        rest_s = 0.0
        if asked_s is not None:
            self._asked_until_s = max(self._asked_until_s, now_s + asked_s)
            rest_s = min(MAX_WAIT_S, asked_s)
            rest_s += self._jitter_s(rest_s)
        elif status == _REFUSED and not is_explained:
            rest_s = min(_MAX_REST_S, _FIRST_REST_S * 2.0 ** min(self._in_vain, 16)) * (1 + 0.5 * self._random())
        self._rest_until_s = max(self._rest_until_s, now_s + rest_s)
        self._rested = max(self._rested, sent.number)
        self._sent_s = now_s
        if sent.sent_s >= self._in_vain_s:
            self._in_vain += 1
            self._in_vain_s = now_s
        return rest_s


# Additive increase and multiplicative decrease (Chiu and Jain, 1989).
_LESS, _MORE_PER_S = 0.9, 0.001
_OBSERVED_S = 10.0
# The rate of an announced limit over a longer time says nothing of shorter ones.
_EVEN_S = 600.0
_FORGOTTEN_S = 600.0


class LearnedRate:
    """Requests per second that refusals have taught, which are then sent evenly.

    Where no limit is announced, there is none until two refusals came within ten seconds.
    """

    __slots__ = ("_began_s", "_cut_number", "_next_s", "_raised_s", "_refused_s", "_seen", "_seen_s", "per_s")

    def __init__(self) -> None:
        self.per_s: float | None = None
        self._began_s: float | None = None
        self._seen, self._seen_s = 0.0, 0.0
        self._cut_number = -1
        self._next_s = self._raised_s = 0.0
        self._refused_s = -math.inf

    def ready_s(self, now_s: float) -> float:
        """Return when the next request may be sent."""
        if self.per_s is None:
            return now_s
        if now_s - self._refused_s > _FORGOTTEN_S:
            self.per_s = None
            return now_s
        self.per_s *= math.exp(_MORE_PER_S * max(0.0, now_s - self._raised_s))
        self._raised_s = now_s
        return max(now_s, self._next_s)

    def spend(self, now_s: float) -> None:
        """Count a request that is sent now."""
        if self._began_s is None:
            self._began_s = self._seen_s = now_s
        self._seen = self._seen * math.exp((self._seen_s - now_s) / _OBSERVED_S) + 1.0
        self._seen_s = now_s
        if self.per_s is not None:
            self._next_s = min(now_s + MAX_WAIT_S, max(self._next_s, now_s) + 1.0 / self.per_s)

    def refused(self, now_s: float, number: int, newest: int, announced_per_s: float) -> None:
        """The request of that number was refused; `newest` was sent last."""
        is_alone = self.per_s is None and announced_per_s == math.inf and now_s - self._refused_s > _OBSERVED_S
        self._refused_s = self._raised_s = now_s
        if is_alone or number <= self._cut_number:
            return  # the few requests before a single one teach nothing, and those sent before a cut belong to it
        self._cut_number = newest
        if self.per_s is None and announced_per_s < math.inf:
            self.per_s = announced_per_s
        elif self.per_s is None:
            elapsed_s = max(1.0, now_s - self._began_s) if self._began_s is not None else 1.0
            self.per_s = self._seen / (_OBSERVED_S * (1 - math.exp(-elapsed_s / _OBSERVED_S)))
        self.per_s = max(0.05, self.per_s * _LESS)
