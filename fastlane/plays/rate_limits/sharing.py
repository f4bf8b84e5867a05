"""What replicas share of one model's limits through Redis: what they spend, and when the provider asked for a rest."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Mapping
from threading import Lock

from fastlane._clock import now_ns
from fastlane.knowledge.redis import Counters, Redis

from .bucket import RequestCost
from .limiter import RateLimiter

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
