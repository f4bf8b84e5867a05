"""The governor: spread the calls of one cache key over as many keys as the provider's limit per key makes necessary."""

from __future__ import annotations

import math
import threading
from hashlib import blake2b
from typing import NamedTuple

from .._exceptions import ConfigurationError

_NS = 1_000_000_000
_MINUTE_NS = 60 * _NS
_SLOT_NS = 5 * _NS
_SLOTS = 12
# Sessions differ in how often they call, and calls come in bursts: where the mean of the shards is half the limit, few
# shards pass it at any moment. A shard that is not needed costs one reading of the stable prefix, since each is called
# often enough to stay in the cache.
_FILL = 0.5
# A burst is believed before a minute is over, but not before it has lasted this long.
_SHORTEST_NS = 10 * _NS
# How long more shards are kept than are needed: providers forget a prefix after 5 to 10 minutes without use
# (https://developers.openai.com/api/docs/guides/prompt-caching), and until then a session finds it where it was.
_EPOCH_NS = 300 * _NS
_MOST_SHARDS = 4_096
_MOST_KEYS = 1_024


class Shard(NamedTuple):
    """Where one call goes."""

    key: str
    """The key to send: the family's own for the first shard, else with the shard's number behind it."""
    shards: int
    """Among how many keys the family's calls are spread."""


class _Rate:
    """How often one key was called in the last minute, and how many shards it had of late."""

    __slots__ = ("_counts", "_epoch", "_first_ns", "_slot", "_total", "peak", "peak_before")

    def __init__(self, now_ns: int) -> None:
        self._counts = [0] * _SLOTS
        self._slot = now_ns // _SLOT_NS
        self._epoch = now_ns // _EPOCH_NS
        self._first_ns = now_ns
        self._total = 0
        self.peak = 1
        self.peak_before = 1

    def count(self, now_ns: int) -> None:
        """Take note of a call."""
        # Threads may come in another order than that in which they read the clock.
        slot = max(self._slot, now_ns // _SLOT_NS)
        passed = slot - self._slot
        if passed:
            for behind in range(1, min(passed, _SLOTS) + 1):
                place = (self._slot + behind) % _SLOTS
                self._total -= self._counts[place]
                self._counts[place] = 0
            self._slot = slot
            epoch = now_ns // _EPOCH_NS
            if epoch > self._epoch:
                self.peak_before = self.peak if epoch == self._epoch + 1 else 1
                self.peak = 1
                self._epoch = epoch
        if not self._total:
            self._first_ns = now_ns
        self._counts[slot % _SLOTS] += 1
        self._total += 1

    def per_minute(self, now_ns: int, limit: float) -> float:
        """Calls per minute: those of the last minute, or as many as they will be where a burst has just begun."""
        if self._total <= limit:
            return self._total
        since_ns = now_ns - self._first_ns
        if since_ns >= _MINUTE_NS:
            return self._total
        return (self._total - 1) * _MINUTE_NS / max(since_ns, _SHORTEST_NS)


class Governor:
    """Measures how often each cache key is used, and names the key for a call. Thread-safe; time comes in as `now_ns`.

    `limit_per_minute` is how many requests a provider sends to one machine for one key and prefix, None where it has no
    limit; `replicas` how many processes like this one share the traffic evenly. A key has one shard until its rate
    passes the limit, grows at once and shrinks after 5 to 10 minutes. A session's shard follows from its number and the
    count of shards alone, so that replicas agree, and growing from n to m shards moves the share 1 - n/m of the
    sessions: jump consistent hashing, Lamping and Veach 2014, https://arxiv.org/abs/1406.2294.
    """

    def __init__(self, limit_per_minute: float | None = None, replicas: int = 1) -> None:
        if limit_per_minute is not None and not (isinstance(limit_per_minute, int | float) and limit_per_minute > 0):
            raise ConfigurationError(
                f"limit_per_minute must be above 0 requests a minute, got {limit_per_minute!r}: 15 is what is "
                f"documented of one key"
            )
        if not (isinstance(replicas, int) and replicas >= 1):
            raise ConfigurationError(
                f"replicas must be 1 or more processes, got {replicas!r}: the number that share the traffic"
            )
        self._limit = math.inf if limit_per_minute is None else limit_per_minute
        self._replicas = replicas
        self._lock = threading.Lock()
        self._rates: dict[str, _Rate] = {}

    def shard(self, key: str, session: int | str, now_ns: int, limit_per_minute: float | None = None) -> Shard:
        """Count a call of this key and return where it goes; `limit_per_minute` is this call's own limit, if any."""
        limit = self._limit if limit_per_minute is None else limit_per_minute
        with self._lock:
            rate = self._rates.pop(key, None) or _Rate(now_ns)
            # Put at the end: the keys stand in the order of their last use.
            self._rates[key] = rate
            if len(self._rates) > _MOST_KEYS:
                del self._rates[next(iter(self._rates))]
            rate.count(now_ns)
            per_minute = rate.per_minute(now_ns, limit / self._replicas) * self._replicas
            needed = 1 if per_minute <= limit else math.ceil(per_minute / (limit * _FILL))
            rate.peak = min(_MOST_SHARDS, max(rate.peak, needed))
            shards = max(rate.peak, rate.peak_before)
        place = jump(_number(session), shards) if shards > 1 else 0
        return Shard(f"{key}-{place}" if place else key, shards)


def jump(number: int, shards: int) -> int:
    """Return the shard, from 0, of a 64-bit number: jump consistent hashing, Lamping and Veach 2014."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    chosen, candidate = 0, 0
    while candidate < shards:
        chosen = candidate
        number = (number * 2_862_933_555_777_941_757 + 1) & 0xFFFF_FFFF_FFFF_FFFF
        candidate = int((chosen + 1) * ((1 << 31) / ((number >> 33) + 1)))
    return chosen


def _number(session: int | str) -> int:
    if isinstance(session, int):
        return session
    return int.from_bytes(blake2b(session.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
