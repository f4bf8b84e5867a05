"""The turns of requests within the rate limits of one origin, account and model: one queue for the whole process."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from fastlane._clock import now_ns
from fastlane.engine.request_queue import QueueTicket, RequestQueue
from fastlane.knowledge.call_sizes import CallSizes
from fastlane.knowledge.redis import Counters, Redis
from fastlane.knowledge.table import Table
from fastlane.providers.facts import Counts, RateLimitFacts

from .bucket import RequestCost
from .limiter import RateLimiter, Reservation

# What was spent longer ago has come back to its limit.
_WINDOW_S = 60
_numbers = itertools.count()


class SharedLimits:
    """The part of one process in the limits of one model and account."""

    def __init__(self, redis: Redis, key: str, limiter: RateLimiter, lock: Lock) -> None:
        """`key` names what is limited, the same in all processes. `lock` guards the limiter."""
        self._redis = redis
        self._limiter = limiter
        self._lock = lock
        self._name = secrets.token_hex(8)
        self._spent = Counters(f"fastlane:rate_limits:spent:{key}", _WINDOW_S)
        self._rest_key = f"fastlane:rate_limits:rest:{key}"
        self._last_rest = b""
        redis.watch_counters(self._spent, self._read_spent)
        redis.watch_value(self._rest_key, self._read_rest)

    def spent(self, cost: RequestCost) -> None:
        """Share what a request takes. Neither waits nor raises."""
        self._redis.add(self._spent, {"requests": cost.requests, "tokens": cost.tokens})

    def rests(self, rest_s: float) -> None:
        """Share that the provider asked for a rest."""
        self._redis.put(self._rest_key, self._own() + b"%d" % next(_numbers), expires_s=rest_s)

    def _read_spent(self, counts: Mapping[str, float]) -> None:
        cost = RequestCost(*[max(0.0, counts.get(name, 0.0)) for name in ("requests", "tokens")])
        with self._lock:
            self._limiter.others_spent(now_ns(), cost)

    def _read_rest(self, value: bytes, left_s: float) -> None:
        # Only what is new: a response may have ended an earlier rest.
        before, self._last_rest = self._last_rest, value
        if value != before and not value.startswith(self._own()):
            with self._lock:
                self._limiter.others_rest(now_ns(), left_s)

    def _own(self) -> bytes:
        """Return what this process's values begin with. A forked child is another process."""
        return f"{self._name}-{os.getpid()} ".encode()


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
        """`stated`: the application's own limits of a minute. `settings`: see `QueueTicket`."""
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
        self._shared: SharedLimits | None = None
        super().__init__(**settings)

    def share(self, redis: Redis, key: str) -> None:
        """Share the limits with other processes that have the same store."""
        if self._shared is None:
            self._shared = SharedLimits(redis, key, self.limiter, self.lock)

    def ready_ns(self, ticket: RateLimitTicket, level: int, now: int) -> int:
        """See `RequestQueue`."""
        ready_ns = self.limiter.ready_ns(now, ticket.cost, patient=bool(ticket.level), stated=ticket.stated)
        if ready_ns > now:
            ticket.waited_for = self.limiter.waits_for
        return ready_ns

    def on_granted(self, ticket: RateLimitTicket, now: int) -> None:
        """See `RequestQueue`."""
        ticket.sent = self.limiter.spend(now, ticket.cost)
        if self._shared is not None:
            self._shared.spent(ticket.cost)

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
            if rest_s and self._shared is not None:
                self._shared.rests(rest_s)
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
