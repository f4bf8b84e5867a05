"""What processes share of one model's limits: what they spend, what they know of the limits, and when they rest."""

from __future__ import annotations

import itertools
import math
import os
import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from fastlane._clock import now_ns
from fastlane.knowledge.redis import Counters, Redis

from ._limit import Limit
from ._reading import MOST_LIMIT, MOST_WAIT_S

# What was spent longer ago has come back to its limit.
_WINDOW_S = 60
_LIMITS_EVERY_S, _LIMITS_EXPIRE_S = 5.0, 60.0
# No process spends more between two readings, and no limit is larger, or counts over a longer time.
_MOST_REQUESTS, _MOST_TOKENS = 1e5, 1e9
_MOST_WINDOW_S = 32 * 86_400.0
_MOST_REST_S = 86_400.0
_numbers = itertools.count()


class News(NamedTuple):
    """What other processes have shared."""

    at_s: float
    requests: float = 0.0
    tokens: float = 0.0
    rest_until_s: float = 0.0
    limits: tuple[tuple[str, float, float, float], ...] = ()
    """Name, limit, window in seconds and what was left."""


class SharedPace:
    """The part of one process."""

    def __init__(self, redis: Redis, key: str) -> None:
        """`key` names what is limited, the same in all processes: origin, model, and a digest of the account."""
        self._redis = redis
        self._name = secrets.token_hex(8)
        self._spent = Counters(f"fastlane:pacing:spent:{key}", _WINDOW_S)
        self._rest_key, self._limits_key = f"fastlane:pacing:rest:{key}", f"fastlane:pacing:limits:{key}"
        self._limits_shared_s = -math.inf
        self._last: dict[str, bytes] = {}
        self.heard: deque[tuple[str, Any, int]] = deque(maxlen=256)
        """What was read and is to be looked at by `news`: any thread may append to it."""
        redis.watch_counters(self._spent, self._read_spent)
        redis.watch_value(self._rest_key, self._read_rest)
        redis.watch_value(self._limits_key, self._read_limits)

    def spent(self, requests: float, tokens: float) -> None:
        """Share what leaves now."""
        self._redis.add(self._spent, {"requests": requests, "tokens": tokens})

    def rests(self, rest_s: float) -> None:
        """Share that the provider asked for a rest."""
        self._redis.put(self._rest_key, self._own() + b"%d" % next(_numbers), expires_s=rest_s)

    def knows(self, now_s: float, limits: Iterable[Limit]) -> None:
        """Share what is known of the limits, now and then."""
        if now_s - self._limits_shared_s >= _LIMITS_EVERY_S:
            known = [[one.name, one.limit, one.window_s, one.level] for one in limits]
            if known:
                self._limits_shared_s = now_s
                self._redis.put(self._limits_key, self._own() + orjson.dumps(known), expires_s=_LIMITS_EXPIRE_S)

    def _read_spent(self, counts: Mapping[str, float]) -> None:
        self.heard.append(("spent", counts, now_ns()))

    def _read_rest(self, value: bytes, left_s: float) -> None:
        if self._is_new("rest", value):
            self.heard.append(("rest", left_s, now_ns()))

    def _read_limits(self, value: bytes, left_s: float) -> None:
        if self._is_new("limits", value):
            age_s = min(max(0.0, _LIMITS_EXPIRE_S - left_s), _LIMITS_EXPIRE_S)
            self.heard.append(("limits", value.partition(b" ")[2], now_ns() - int(age_s * 1e9)))

    def _is_new(self, kind: str, value: bytes) -> bool:
        """Whether another process has set a value since the last time: a response may have ended an earlier rest."""
        before, self._last[kind] = self._last.get(kind), value
        return value != before and not value.startswith(self._own())

    def _own(self) -> bytes:
        """Return what this process's values begin with. A child is another process."""
        return f"{self._name}-{os.getpid()} ".encode()


def news_of(kind: str, what: Any, at_s: float) -> News:
    """Return what was read, checked; a rest lasts a minute at most.

    Anybody may have written it: raises LookupError, TypeError or ValueError for what no process of ours writes.
    """
    if kind == "spent":
        requests = _amount(what.get("requests", 0.0), _MOST_REQUESTS)
        return News(at_s, requests=requests, tokens=_amount(what.get("tokens", 0.0), _MOST_TOKENS))
    if kind == "rest":
        return News(at_s, rest_until_s=at_s + min(MOST_WAIT_S, _amount(what, _MOST_REST_S)))
    limits = tuple(
        (
            str(name),
            _amount(limit, MOST_LIMIT, least=1.0),
            _amount(window_s, _MOST_WINDOW_S, least=1.0),
            min(max(0.0, _number(level)), limit),
        )
        for name, limit, window_s, level in orjson.loads(what)
    )
    return News(at_s, limits=limits)


def _amount(value: Any, most: float, *, least: float = 0.0) -> float:
    amount = _number(value)
    if not least <= amount <= most:
        raise ValueError(f"expected a number from {least:g} to {most:g}")
    return amount


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("expected a finite number")
    return float(value)
