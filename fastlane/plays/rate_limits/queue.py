"""The turns of requests within the rate limits of one origin, account and model: one queue for the whole process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastlane.engine.request_queue import QueueTicket, RequestQueue
from fastlane.knowledge.call_sizes import CallSizes
from fastlane.knowledge.redis import Redis
from fastlane.knowledge.table import Table
from fastlane.providers.facts import Counts, RateLimitFacts

from .bucket import RequestCost
from .limiter import RateLimiter, Reservation


class RateLimitTicket(QueueTicket):
    """One attempt's turn."""

    __slots__ = ("cost", "sent", "stated", "waited_for")

    def __init__(
        self,
        queue: RateLimitQueue,
        level: int,
        cost: RequestCost,
        stated: Sequence[tuple[Counts, float]] = (),
        **settings: Any,
    ) -> None:
        """`stated`: the limits per minute of the settings. `settings`: see `QueueTicket`."""
        super().__init__(queue, level, **settings)
        self.cost = cost
        self.stated = stated
        self.sent: Reservation | None = None
        self.waited_for: str | None = None
        """The limit that it waited for last."""


class RateLimitQueue(RequestQueue):
    """Grants a turn when no limit speaks against it."""

    def __init__(
        self, facts: RateLimitFacts | None = None, limiter: RateLimiter | None = None, **settings: Any
    ) -> None:
        """`settings`: see `RequestQueue`."""
        self.limiter = limiter or RateLimiter(facts)
        self.sizes = CallSizes()
        self._redis: Redis | None = None
        self._key = ""
        super().__init__(**settings)

    def share(self, redis: Redis, key: str) -> None:
        """Share the limits with other processes that have the same store. `key`: the same in all of them."""
        if self._redis is None:
            self._redis, self._key = redis, f"fastlane:rate_limits:{key}"
            redis.watch(self._key, counts=self._others_spent, pause=self._others_rest)

    def _others_spent(self, key: str, counts: Mapping[str, float]) -> None:
        cost = RequestCost(*[max(0.0, counts.get(name, 0.0)) for name in ("requests", "tokens")])
        with self.lock:
            self.limiter.others_spent(self.clock(), cost)

    def _others_rest(self, key: str, left_s: float, now: int) -> None:
        with self.lock:
            self.limiter.others_rest(now, left_s)

    def ready_ns(self, ticket: RateLimitTicket, level: int, now: int) -> int:
        """See `RequestQueue`."""
        ready_ns = self.limiter.ready_ns(now, ticket.cost, patient=bool(ticket.level), stated=ticket.stated)
        if ready_ns > now:
            ticket.waited_for = self.limiter.waits_for
        return ready_ns

    def on_granted(self, ticket: RateLimitTicket, now: int) -> None:
        """See `RequestQueue`."""
        ticket.sent = self.limiter.spend(now, ticket.cost)
        if self._redis is not None:
            self._redis.add(self._key, {"requests": ticket.cost.requests, "tokens": ticket.cost.tokens})

    def on_released(self, ticket: RateLimitTicket, now: int, *, failed: bool) -> None:
        """See `RequestQueue`."""
        if ticket.sent is not None and failed:
            self.limiter.settled(now, ticket.sent, None)

    def answered(self, turn: RateLimitTicket, status: int, headers: Mapping[str, str]) -> None:
        """Take note of the head of a response."""
        if turn.sent is None:
            return
        with self.lock:
            now = self.clock()
            rest_s = self.limiter.answered(now, turn.sent, status, headers)
            if rest_s and self._redis is not None:
                self._redis.pause(self._key, rest_s)
            self.grant_all(now)

    def settle(self, turn: RateLimitTicket, cost: RequestCost) -> None:
        """Take note of what the provider has counted."""
        if turn.sent is not None:
            with self.lock:
                now = self.clock()
                self.limiter.settled(now, turn.sent, cost)
                self.grant_all(now)


# A queue in which requests wait is kept, however many there are.
queues: Table[tuple[str, bytes, str | None], RateLimitQueue] = Table(
    "rate limits", max_entries=1_024, expires_s=1_800, in_use=lambda queue: any(queue.queued)
)
