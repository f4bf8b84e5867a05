"""Token buckets: what is left of one rate limit, and when the next request may be sent."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastlane.providers.facts import Counts, RateLimit

from .headers import Announcement

# The last seconds of a limit are spread: the less is left, the slower requests are sent. Replicas that share a limit
# then share what is left of it, without knowing each other.
_SPREAD_S = 6.0
# For so long after a request had to wait, others are sent at this multiple of the rate at most, so that responses can
# tell in time what other replicas have sent.
_HELD_S, _AFTER_HELD = 5.0, 2.0
_LONG_S = 600.0
# A short bucket is spread too, over so much of what it holds.
_MAX_SPREAD_SHARE = 0.9
# What patient requests leave to others, at most.
_LEFT_TO_OTHERS = 0.1
_LEAST_SHARE = 1 / 16
# How long a refusal with enough left makes a limit one that each second has its share of.
_EVEN_S = 600.0
# Of a limit that each second has its share of: the share of the rate that is used, and how late a request may catch up.
_EVEN_SHARE, _CATCH_UP_S = 0.97, 0.1
# The end of a window is the provider's, on another clock.
_WINDOW_GUARD_S = 0.05


class RequestCost(NamedTuple):
    """What one request takes of limits, by what they count."""

    requests: float = 1.0
    tokens: float = 0.0
    """Of prompt and answer together, as the provider adds them up before it answers."""
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def __add__(self, other: tuple[float, ...]) -> RequestCost:  # type: ignore[override]
        return RequestCost(*[one + more for one, more in zip(self, other, strict=True)])

    def __sub__(self, other: tuple[float, ...]) -> RequestCost:
        return RequestCost(*[one - less for one, less in zip(self, other, strict=True)])

    def of(self, counts: Counts) -> float:
        """The part that a limit counts."""
        value: float = getattr(self, counts)
        return value


class TokenBucket:
    """A token bucket. Times are seconds of the monotonic clock."""

    __slots__ = (
        "_even_share",
        "_even_until_s",
        "_held_s",
        "_next_even_s",
        "_spent_s",
        "at_s",
        "counts",
        "holds",
        "level",
        "limit",
        "per_s",
        "rate",
    )

    def __init__(self, counts: Counts, limit: float, window_s: float, now_s: float, *, holds: float) -> None:
        self.counts = counts
        self.limit = limit
        self.holds = holds
        """How much there is at most at one time."""
        self.per_s = limit / window_s
        """What it allows each second in the long run."""
        self.rate = self.per_s
        """What flows in each second: nothing within a window."""
        self.level = holds
        self.at_s = now_s
        self._spent_s = now_s
        self._next_even_s = now_s
        self._even_until_s = -math.inf
        self._even_share = _EVEN_SHARE
        self._held_s = [-math.inf, -math.inf]
        """When an urgent and a patient request was held back last."""

    def advance(self, now_s: float) -> None:
        """Let time pass until now."""
        if now_s > self.at_s:
            passed_s, self.at_s = now_s - self.at_s, now_s
            self.level = self._refilled(self.level, passed_s)

    def _refilled(self, level: float, passed_s: float) -> float:
        """Return the level after a time."""
        return min(self.holds, level + self.rate * passed_s)

    @property
    def _growth(self) -> float:
        """How fast the level grows at least, in a second."""
        return self.rate

    def ready_s(self, now_s: float, cost: float, *, patient: bool) -> float:
        """Return when so much may be spent: now or later. Patient requests leave a part to others."""
        self.advance(now_s)
        cost = min(cost, self.holds)
        spread = self._spread
        after = self.level - cost - (min(spread, _LEFT_TO_OTHERS * self.holds) if patient else 0.0)
        ready_s = now_s
        if after < spread and self.level < self.holds:
            ready_s += self._slow_s(after, cost * spread / self.per_s, min(now_s - self._spent_s, _LONG_S))
        if now_s < self._even_until_s:
            ready_s = max(ready_s, self._next_even_s)
        if now_s - self._held_s[patient] < _HELD_S:
            ready_s = max(ready_s, self._spent_s + cost / (_AFTER_HELD * self.per_s))
        if ready_s > now_s:
            self._held_s[patient] = now_s
        return ready_s

    def _slow_s(self, after: float, product: float, since_s: float) -> float:
        """Return the seconds until the time since the last request, times what would be left, is `product`.

        `after`: what would be left now. A request for the whole rest waits as long as the limit takes to bring as much.
        """
        growth = self._growth
        if growth <= 0.0:
            return max(0.0, product / after - since_s) if after > 0 else math.inf
        # The larger root of growth * x^2 + (after + growth * since) * x + after * since - product.
        half = (after + growth * since_s) / 2.0
        return max(0.0, (math.sqrt(max(0.0, half * half + growth * (product - after * since_s))) - half) / growth)

    def spend(self, now_s: float, cost: float) -> None:
        """Count a request that leaves now."""
        self.advance(now_s)
        # Of what was spent before the limit was known, no more than one limit is owed.
        self.level = max(self.level - cost, -self.limit)
        self._spent_s = now_s
        if now_s < self._even_until_s:
            self._even_share = min(_EVEN_SHARE, self._even_share * 1.0005)
            paced = min(cost, self.limit) / (self.per_s * self._even_share)
            self._next_even_s = max(self._next_even_s, now_s - _CATCH_UP_S) + paced

    def give_back(self, cost: float) -> None:
        """Count less, or more for a negative cost, than was spent."""
        self.level = min(self.holds, self.level + cost)

    def spread_evenly(self, now_s: float, until_s: float) -> None:
        """Let each second have its share: the provider enforces the limit over shorter times than it says."""
        if now_s < self._even_until_s:
            self._even_share = max(0.02, 0.9 * self._even_share)
        self._even_until_s = max(self._even_until_s, until_s)
        self._next_even_s = max(self._next_even_s, now_s)

    @property
    def _spread(self) -> float:
        return min(_SPREAD_S * self.per_s, _MAX_SPREAD_SHARE * self.holds)


class AnnouncedBucket(TokenBucket):
    """The bucket of a limit that responses announce: each response says what is left of it."""

    __slots__ = ("_facts", "_newest", "_whole_s")

    def __init__(self, facts: RateLimit, said: Announcement, now_s: float) -> None:
        limit = said.limit if said.limit is not None else max(said.remaining, 1.0)
        super().__init__(facts.counts, limit, facts.window_s or 60.0, now_s, holds=limit)
        self.level = -limit  # what was sent before counts, until responses say otherwise
        self._facts = facts
        self._newest = -1
        self._whole_s: float | None = None
        """When a window ends; None for a bucket, and while the end of a window is not known."""
        if facts.enforced_s is not None:
            self.spread_evenly(now_s, math.inf)

    @property
    def window_s(self) -> float:
        """Over how many seconds the limit counts, by the provider's facts; a minute where they do not say."""
        return self._facts.window_s or 60.0

    def advance(self, now_s: float) -> None:
        """Let time pass until now."""
        whole_s = self._whole_s
        if whole_s is not None and whole_s <= now_s:
            # By our clock. Until a response confirms it, only the last seconds' share may be spent.
            self._whole_s = None
            self.rate = self.per_s
            self.at_s = max(self.at_s, whole_s)
            self.level = max(self.level, self._spread)
        super().advance(now_s)

    def _refilled(self, level: float, passed_s: float) -> float:
        """Return the level after a time without a response.

        Only responses tell of much more, and near the end of a limit a part of what flows in is other replicas'.
        """
        most = max(level, min(2.0 * self._spread, self.holds))
        return min(most, level + self._growth_at(level) * passed_s)

    def _growth_at(self, level: float) -> float:
        return self.rate * min(1.0, max(level / self._spread, _LEAST_SHARE))

    @property
    def _growth(self) -> float:
        """See `TokenBucket`."""
        return self._growth_at(self.level)

    def ready_s(self, now_s: float, cost: float, *, patient: bool) -> float:
        """See `TokenBucket.ready_s`."""
        ready_s = super().ready_s(now_s, cost, patient=patient)
        return ready_s if self._whole_s is None else min(ready_s, self._whole_s)

    def announced(
        self, said: Announcement, *, number: int, sent_s: float, spent_since: tuple[float, float], now_s: float
    ) -> None:
        """Correct the level by the response to a request that was sent as the `number`-th, at `sent_s`.

        `spent_since`: the least and the most that was counted after that request: those of one moment may be counted
        in any order. Older responses than the newest are ignored.
        """
        if number <= self._newest:
            return
        self._newest = number
        if said.limit is not None:
            self.limit = said.limit
        else:
            self.limit = max(self.limit, said.remaining)
        self.holds = self.limit
        self.rate = self.per_s = self.limit / self.window_s
        self._whole_s = None
        if said.reset_s is not None and said.reset_s > 0:
            if self._facts.kind == "window":
                whole_s = sent_s + said.reset_s + _WINDOW_GUARD_S + (1.0 if said.reset_step_s == 1.0 else 0.0)
                if whole_s <= now_s:
                    return  # the window has ended since
                self._whole_s, self.rate = whole_s, 0.0
            elif said.reset_s > 1.05 * self.window_s:
                # The limit counts over a longer time than the facts say.
                self.rate = self.per_s = max(self.limit - said.remaining, 1.0) / said.reset_s
            else:
                # A bucket that holds less than the limit is full sooner.
                self.holds = min(self.limit, max(said.remaining + said.reset_s * self.per_s, 1.0))
        self.advance(now_s)
        refilled = self._refilled(said.remaining, now_s - sent_s)
        least, most = spent_since
        self.level = max(-self.limit, refilled - most, min(self.level, refilled - least))

    def refused(self, cost: float, now_s: float) -> None:
        """A request of this cost was refused although enough was left."""
        if self.window_s <= 600.0 and self.limit / self.window_s >= 2 * cost:
            self.spread_evenly(now_s, now_s + _EVEN_S)
