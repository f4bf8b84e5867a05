"""Token buckets: what is left of a rate limit, and when the next request may be sent."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastlane.providers.facts import Counts, RateLimit

from .headers import Announcement

# The last seconds of a limit are spread: the less is left, the slower requests are sent. So replicas share what is left
# of a limit without knowing each other. A bucket that holds less is spread over so much of it.
_SPREAD_S, _MAX_SPREAD_SHARE = 6.0, 0.9
# What patient requests leave to urgent ones.
_LEFT_TO_URGENT = 0.1
# For so long after a request had to wait, others are sent at this multiple of the rate at most, so that responses can
# tell in time what other replicas have sent.
_HELD_S, _AFTER_HELD = 5.0, 2.0
# The share of the flow that this process counts on at the very end of a limit.
_LEAST_SHARE = 1 / 16
# The end of a window is the provider's, on another clock.
_WINDOW_GUARD_S = 0.05


class RequestCost(NamedTuple):
    """What one request takes of limits, by what they count."""

    requests: float = 1.0
    tokens: float = 0.0
    """Of prompt and answer together, as the provider adds them up before it answers."""
    input_tokens: float = 0.0
    output_tokens: float = 0.0


PARTS: dict[Counts, int] = {"requests": 0, "tokens": 1, "input_tokens": 2, "output_tokens": 3}
"""The part of a `RequestCost` that a limit counts."""


class TokenBucket:
    """A token bucket. Times are seconds of the monotonic clock."""

    def __init__(self, counts: Counts, limit: float, window_s: float, now_s: float, *, holds: float) -> None:
        self.counts = counts
        self.part = PARTS[counts]
        self.resize(limit, limit / window_s, holds)
        self.level = holds
        self._at_s = now_s
        self._spent_s = now_s
        """When a request was sent last."""
        self._held_s = [-math.inf, -math.inf]
        """When an urgent and a patient request had to wait last."""

    def resize(self, limit: float, per_s: float, holds: float) -> None:
        """Change the limit, what it allows each second in the long run, and how much there is at most at one time."""
        self.limit, self.per_s, self.holds = limit, per_s, holds
        self.flow = per_s
        """What flows in each second: nothing within a window."""
        self._spread = min(_SPREAD_S * per_s, _MAX_SPREAD_SHARE * holds)

    def advance(self, now_s: float) -> None:
        """Let time pass until now."""
        if now_s > self._at_s:
            self.level, self._at_s = self.refilled(self.level, now_s - self._at_s), now_s

    def refilled(self, level: float, passed_s: float) -> float:
        """Return a level after a time."""
        return min(self.holds, level + self.flow * passed_s)

    def growth(self) -> float:
        """Return how fast the level grows at least, in a second."""
        return self.flow

    def ready_s(self, now_s: float, cost: float, *, patient: bool) -> float:
        """Return when so much may be spent: now or later."""
        cost = min(cost, self.holds)
        spread = self._spread
        need = cost + spread + (min(spread, _LEFT_TO_URGENT * self.holds) if patient else 0.0)
        ready_s = now_s
        if self.level < need:
            self.advance(now_s)
            if self.level < min(need, self.holds):
                ready_s += self._slow_s(self.level - need + spread, cost * spread / self.per_s, now_s - self._spent_s)
        if now_s - self._held_s[patient] < _HELD_S:
            ready_s = max(ready_s, self._spent_s + cost / (_AFTER_HELD * self.per_s))
        if ready_s > now_s:
            self._held_s[patient] = now_s
        return ready_s

    def _slow_s(self, after: float, product: float, since_s: float) -> float:
        """Return the seconds until `after`, what would be left, times the time since the last request is `product`.

        A request that leaves all of the spread waits as long as its cost takes to flow in, one that leaves half of it
        twice as long.
        """
        growth = self.growth()
        if growth <= 0.0:
            return max(0.0, product / after - since_s) if after > 0 else math.inf
        # The larger root of growth * x^2 + (after + growth * since) * x + after * since - product.
        half = (after + growth * since_s) / 2.0
        return max(0.0, (math.sqrt(max(0.0, half * half + growth * (product - after * since_s))) - half) / growth)

    def spend(self, now_s: float, cost: float) -> None:
        """Count a request that is sent now."""
        self.advance(now_s)
        # Of what was spent before the limit was known, no more than one limit is owed.
        self.level = max(self.level - cost, -self.limit)
        self._spent_s = now_s

    def give_back(self, cost: float) -> None:
        """Count less, or more for a negative cost, than was spent."""
        self.level = min(self.holds, self.level + cost)


class AnnouncedBucket(TokenBucket):
    """The bucket of a limit that responses announce: each says what is left of it."""

    def __init__(self, facts: RateLimit, said: Announcement, now_s: float) -> None:
        limit = said.limit if said.limit is not None else max(said.remaining, 1.0)
        self._facts = facts
        self.window_s = facts.window_s or 60.0
        super().__init__(facts.counts, limit, self.window_s, now_s, holds=limit)
        self.level = -limit  # what was sent before counts, until responses say otherwise
        self._newest = -1
        self._whole_s = math.inf
        """When a window ends; infinite for a bucket, and while the end of a window is not known."""

    def advance(self, now_s: float) -> None:
        """Let time pass until now."""
        if self._whole_s <= now_s:
            # By our clock. Until a response confirms it, only what is spread may be spent.
            self._at_s, self._whole_s = max(self._at_s, self._whole_s), math.inf
            self.flow = self.per_s
            self.level = max(self.level, self._spread)
        super().advance(now_s)

    def refilled(self, level: float, passed_s: float) -> float:
        """Return a level after a time without a response: no more than twice what is spread, or as much as it was.

        Only responses tell of more, and near the end of a limit a part of what flows in is what other replicas take.
        """
        most = min(2.0 * self._spread, self.holds)
        return level if level >= most else min(most, level + self._growth_at(level) * passed_s)

    def growth(self) -> float:
        """See `TokenBucket`."""
        return self._growth_at(self.level)

    def _growth_at(self, level: float) -> float:
        return self.flow * min(1.0, max(level / self._spread, _LEAST_SHARE))

    def ready_s(self, now_s: float, cost: float, *, patient: bool) -> float:
        """See `TokenBucket`."""
        return min(super().ready_s(now_s, cost, patient=patient), max(now_s, self._whole_s))

    def announced(
        self, said: Announcement, *, number: int, sent_s: float, spent_since: tuple[float, float], now_s: float
    ) -> None:
        """Correct the level by the response to a request that was sent as the `number`-th, at `sent_s`.

        `spent_since`: the least and the most that was counted after that request: requests of one moment may be counted
        in any order. Older responses than the newest are ignored.
        """
        if number <= self._newest:
            return
        self._newest = number
        limit = said.limit if said.limit is not None else max(self.limit, said.remaining)
        per_s, holds, whole_s = limit / self.window_s, limit, math.inf
        if said.reset_s is not None and said.reset_s > 0:
            if self._facts.kind == "window":
                whole_s = sent_s + said.reset_s + _WINDOW_GUARD_S + (1.0 if said.reset_step_s == 1.0 else 0.0)
                if whole_s <= now_s:
                    return  # the window has ended since
            elif said.reset_s > 1.05 * self.window_s:
                # The limit counts over a longer time than the facts say.
                per_s = max(limit - said.remaining, 1.0) / said.reset_s
            else:
                # A bucket that holds less than the limit is full sooner.
                holds = min(limit, max(said.remaining + said.reset_s * per_s, 1.0))
        self.advance(now_s)
        self.resize(limit, per_s, holds)
        self._whole_s = whole_s
        if whole_s < math.inf:
            self.flow = 0.0
        left = self.refilled(said.remaining, now_s - sent_s)
        least, most = spent_since
        self.level = max(-limit, left - most, min(self.level, left - least))
