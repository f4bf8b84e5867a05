"""The governor: spread the calls of one cache key over as many keys as the provider's limit per key makes necessary."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import NamedTuple

from fastlane._fork import new_lock
from fastlane.errors import ConfigurationError

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
_MOST_SESSIONS = 16_384
# Other numbers for the same session: the first leaves it as it is. Any bits will do.
_SALTS = (0, 0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F)


class Shard(NamedTuple):
    """Where one call goes."""

    key: str
    """The key to send: the family's own for the first shard, else with the shard's number behind it."""
    shards: int
    """Among how many keys the family's calls are spread."""


class _Window:
    """How many calls came in the last minute, to 5 s."""

    __slots__ = ("_counts", "_slot", "_total")

    def __init__(self, now_ns: int) -> None:
        self._counts = [0] * _SLOTS
        self._slot = now_ns // _SLOT_NS
        self._total = 0

    def calls(self, now_ns: int) -> int:
        """The calls of the last minute."""
        # Threads may come in another order than that in which they read the clock.
        passed = now_ns // _SLOT_NS - self._slot
        if passed > 0:
            for behind in range(1, min(passed, _SLOTS) + 1):
                place = (self._slot + behind) % _SLOTS
                self._total -= self._counts[place]
                self._counts[place] = 0
            self._slot += passed
        return self._total

    def add(self, now_ns: int) -> int:
        """Count a call, and return how many the last minute has had with it."""
        total = self._total = self.calls(now_ns) + 1
        self._counts[self._slot % _SLOTS] += 1
        return total


class _Place:
    """One shard: how many calls it had in the last minute, and when it was last another session's."""

    __slots__ = ("changed_ns", "session", "window")

    def __init__(self, now_ns: int, session: int) -> None:
        self.window = _Window(now_ns)
        self.session = session
        self.changed_ns = now_ns - _MINUTE_NS


class _Family:
    """How often one key was called in the last minute, and how many shards it had of late."""

    __slots__ = ("_begun_ns", "_epoch", "_peak", "_peak_before", "_places", "_window")

    def __init__(self, now_ns: int) -> None:
        self._window = _Window(now_ns)
        self._places: dict[int, _Place] = {}
        self._begun_ns = now_ns
        self._epoch = now_ns // _EPOCH_NS
        self._peak = self._peak_before = 1

    def per_minute(self, now_ns: int, limit: float) -> float:
        """Count a call, and return the calls per minute: as many as they will be where a burst has just begun."""
        total = self._window.add(now_ns)
        if total == 1:
            self._begun_ns = now_ns
        since_ns = now_ns - self._begun_ns
        if total <= limit or since_ns >= _MINUTE_NS:
            return total
        return (total - 1) * _MINUTE_NS / max(since_ns, _SHORTEST_NS)

    def shards(self, needed: int, now_ns: int) -> int:
        """How many shards there are: as many as are needed now, or were since the beginning of the last epoch."""
        epoch = now_ns // _EPOCH_NS
        if epoch > self._epoch:
            self._peak_before = self._peak if epoch == self._epoch + 1 else 1
            self._peak = 1
            self._epoch = epoch
            self._places = {number: place for number, place in self._places.items() if place.window.calls(now_ns)}
        self._peak = min(_MOST_SHARDS, max(self._peak, needed))
        return max(self._peak, self._peak_before)

    def place(self, number: int, place: int | None, shards: int, limit: float, now_ns: int) -> int:
        """Count a call of a session that was at `place`, and return the shard to which it goes.

        It stays while its shard takes more calls, or is full of its own; else it goes where it would be now, or to the
        emptier of two others.
        """
        if place is None or place >= shards:
            place = jump(number, shards)
        if shards > 1 and self._calls(place, now_ns) >= limit and self._is_shared(place, number, now_ns):
            own, *others = (jump(number ^ salt, shards) for salt in _SALTS)
            if self._calls(own, now_ns) >= limit:
                own = min(others, key=lambda other: self._calls(other, now_ns))
            if self._calls(own, now_ns) < limit:
                place = own
        taken = self._places.get(place)
        if taken is None:
            taken = self._places[place] = _Place(now_ns, number)
        elif taken.session != number:
            taken.session, taken.changed_ns = number, now_ns
        taken.window.add(now_ns)
        return place

    def _calls(self, place: int, now_ns: int) -> int:
        taken = self._places.get(place)
        return taken.window.calls(now_ns) if taken is not None else 0

    def _is_shared(self, place: int, number: int, now_ns: int) -> bool:
        taken = self._places.get(place)
        return taken is not None and (taken.session != number or now_ns - taken.changed_ns < _MINUTE_NS)


class Governor:
    """Measures how often each cache key is used, and names the key for a call. Thread-safe; time comes in as `now_ns`.

    `limit_per_minute` is how many requests a provider sends to one machine for one key and prefix, None where it has no
    limit; `replicas` how many processes like this one share the traffic evenly. A key has one shard until its rate
    passes the limit, grows at once and shrinks after 5 to 10 minutes. Where a session goes follows from its number and
    the count of shards: jump consistent hashing, Lamping and Veach 2014, https://arxiv.org/abs/1406.2294. From then on
    it stays there, even if shards are added, until it finds the shard full. With replicas it always goes where its
    number leads, so that they agree; growing from n to m shards then moves the share 1 - n/m of the sessions.
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
        self._lock = new_lock()
        self._families: dict[str, _Family] = {}
        self._places: dict[tuple[str, int], int] = {}

    def shard(self, key: str, session: int | str, now_ns: int, limit_per_minute: float | None = None) -> Shard:
        """Count a call of this key and return where it goes; `limit_per_minute` is this call's own limit, if any."""
        limit = self._limit if limit_per_minute is None else limit_per_minute
        number = _number(session)
        with self._lock:
            # Taken out and put at the end: they stand in the order of their last use.
            family = self._families.pop(key, None) or _Family(now_ns)
            self._families[key] = family
            per_minute = family.per_minute(now_ns, limit / self._replicas) * self._replicas
            needed = 1 if per_minute <= limit else math.ceil(per_minute / (limit * _FILL))
            shards = family.shards(needed, now_ns)
            if self._replicas == 1:
                place = family.place(number, self._places.pop((key, number), None), shards, limit, now_ns)
                self._places[key, number] = place
            else:
                place = jump(number, shards)
            if len(self._families) > _MOST_KEYS:
                del self._families[next(iter(self._families))]
            if len(self._places) > _MOST_SESSIONS:
                del self._places[next(iter(self._places))]
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
