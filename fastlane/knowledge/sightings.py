"""Measurements of attempts at upstreams, and their exchange between processes through Redis."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson

from .._clock import now_ns
from .redis import Counters, Redis
from .table import Table


class Upstream(NamedTuple):
    """A model at a provider's origin."""

    model: str
    """The name of the model at the provider."""
    origin: str
    """scheme://host:port."""


Failure = Literal["connection", "rate_limit", "server", "timeout", "empty", "denied", "too_long"]
"""Why an attempt gave no answer.

- connection: no connection could be opened, or it broke
- rate_limit: the provider's limit is reached (429), or the tier has no capacity (498)
- server: the provider failed (5xx, 409)
- timeout: no first token in time
- empty: an answer without any content
- denied: the provider refuses this key or this model (401, 402, 403, 404)
- too_long: the prompt is longer than the model's context, against expectation
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The measurements of one attempt at one upstream. Contains no text and no key."""

    model: str
    """The name of the model at the upstream."""
    origin: str
    """scheme://host:port."""
    task: str | None = None
    uncached_tokens: float | None = None
    """Tokens of the prompt that were not read from the provider's cache."""
    expected_cached_tokens: float | None = None
    """Tokens of the prompt that were expected in the cache."""
    cached_tokens: int | None = None
    """Cached tokens that the provider reports; None if it reports none."""
    body_bytes: int | None = None
    """Bytes of the request as JSON."""
    input_tokens: int | None = None
    """All tokens of the prompt, as the provider reports."""
    first_token_s: float | None = None
    """Seconds from the request's predicted arrival to the first token; None if not observed."""
    late_s: float | None = None
    """Seconds after which it was given up without a first token; None if it was not."""
    output_tokens: int | None = None
    """Tokens received in the stream."""
    decode_s: float | None = None
    """Seconds from the first token to the last."""
    whole_s: float | None = None
    """Seconds from the request's arrival to the whole answer, if no first token was observed."""
    failure: Failure | None = None
    """Why it gave no answer; None if it did, or if another attempt was faster."""
    rest_s: float | None = None
    """Seconds of the provider's retry-after; None without one."""


# A new process reads this hour and the last.
_WINDOW_S = 3_600
# The most sightings of other processes to learn from at one read.
_MOST_AT_ONCE = 200
# Sightings are rounded to a few hundred recurring values, so that counting them is enough: the size of a read depends
# on the number of upstreams, not on the number of processes and calls.
_FINE, _COARSE, _FINEST = math.log(1.1), math.log(1.25), math.log(1.02)
_BODY_BYTES = 10_000
_NUMBERS = (
    "uncached_tokens", "first_token_s", "late_s", "output_tokens", "decode_s", "whole_s", "body_bytes", "input_tokens",
)  # fmt: skip

LearnSighting: TypeAlias = Callable[[Sighting, int], None]
"""Called with a sighting of another process, and the time in monotonic nanoseconds."""
LearnRest: TypeAlias = Callable[[Upstream, float, int], None]
"""Called with an upstream, the seconds of its cooldown in another process, and the time in monotonic nanoseconds."""


class SharedSightings:
    """Shares the sightings of one play between processes through Redis. Thread-safe."""

    def __init__(self, redis: Redis, namespace: str, learn: LearnSighting, rest: LearnRest | None = None) -> None:
        """`learn` and `rest` are called in a background thread."""
        self._redis = redis
        self._namespace = namespace
        self.learn = learn
        self.rest = rest
        self._random = Random()
        # Keeps the receivers alive: `Redis` holds only weak references to them.
        self._watched: Table[Upstream, _Receiver] = Table("shared upstreams", max_entries=256)

    def watch(self, upstream: Upstream) -> None:
        """Receive the sightings of other processes for an upstream from now on."""
        if self._watched.get(upstream) is None:
            receiver = _Receiver(self, upstream)
            if self._watched.fetch(upstream, lambda: receiver) is receiver:
                self._redis.watch_counters(self.counters(upstream), receiver.receive)
                if self.rest is not None:
                    self._redis.watch_value(self._rest_key(upstream), receiver.receive_rest)

    def start(self) -> None:
        """Start the exchange, unless it runs, as after a fork. Never blocks or raises."""
        self._redis.start()

    def add(self, sighting: Sighting) -> None:
        """Share a sighting. Never blocks or raises."""
        upstream = Upstream(sighting.model, sighting.origin)
        self.watch(upstream)
        if fields := list(_fields(sighting)):
            self._redis.add(self.counters(upstream), dict.fromkeys(fields, 1))

    def add_rest(self, upstream: Upstream, seconds: float) -> None:
        """Share the cooldown of an upstream in seconds. Never blocks or raises."""
        value = secrets.token_bytes(8)
        if (receiver := self._watched.get(upstream)) is not None:
            receiver.last_rest = value
        self._redis.put(self._rest_key(upstream), value, expires_s=seconds)

    def _rest_key(self, upstream: Upstream) -> str:
        return f"{self._namespace}:rest:{upstream.origin} {upstream.model}"

    def counters(self, upstream: Upstream) -> Counters:
        """Return the counters of an upstream's sightings."""
        return Counters(f"{self._namespace}:times:{upstream.origin} {upstream.model}", _WINDOW_S)

    def receive(self, upstream: Upstream, counts: Mapping[str, float]) -> None:
        """Learn from the counts of other processes; from a random sample if there are many."""
        share = min(1.0, _MOST_AT_ONCE / max(1.0, sum(counts.values())))
        found: list[Sighting] = []
        for field, count in counts.items():
            # Random rounding, so that rare sightings keep their weight.
            times = int(count * share + self._random.random())
            if times > 0 and (sighting := _read(upstream, field)) is not None:
                found += [sighting] * min(times, _MOST_AT_ONCE)
        self._random.shuffle(found)
        for sighting in found[:_MOST_AT_ONCE]:
            self.learn(sighting, now_ns())


class _Receiver:
    """Receives what other processes share about one upstream."""

    def __init__(self, shared: SharedSightings, upstream: Upstream) -> None:
        self._shared = shared
        self._upstream = upstream
        self.last_rest = b""
        """The last value that was read or written, because a value is read several times."""

    def receive(self, counts: Mapping[str, float]) -> None:
        """Learn from the counts of other processes."""
        self._shared.receive(self._upstream, counts)

    def receive_rest(self, value: bytes, left_s: float) -> None:
        """Learn the cooldown of the upstream in another process."""
        if value != self.last_rest and self._shared.rest is not None:
            self.last_rest = value
            self._shared.rest(self._upstream, left_s, now_ns())


def _fields(sighting: Sighting) -> Iterator[str]:
    """Yield the rounded parts of a sighting as JSON; other processes learn from each part separately."""
    size = _rounded(sighting.uncached_tokens, _COARSE)
    if sighting.first_token_s or sighting.late_s:
        first_token_s, late_s = _rounded(sighting.first_token_s, _FINE), _rounded(sighting.late_s, _FINE)
        yield _json(uncached_tokens=size, first_token_s=first_token_s, late_s=late_s)
    if sighting.failure is not None or sighting.late_s is not None:
        return
    if sighting.output_tokens:
        whole_s = _rounded(sighting.whole_s, _FINE)
        yield _json(
            task=sighting.task,
            uncached_tokens=None if whole_s is None else size,
            output_tokens=round(_rounded(sighting.output_tokens, _FINE) or 0),
            decode_s=_rounded(sighting.decode_s, _FINE),
            whole_s=whole_s,
        )
    if sighting.body_bytes and sighting.input_tokens:
        per_byte = _rounded(sighting.input_tokens / sighting.body_bytes, _FINEST) or 0.0
        yield _json(task=sighting.task, body_bytes=_BODY_BYTES, input_tokens=round(_BODY_BYTES * per_byte))


def _rounded(value: float | None, step: float) -> float | None:
    """Round to the nearest power of exp(step); None for None and values not above 0."""
    return float(f"{math.exp(round(math.log(value) / step) * step):.3g}") if value and 0 < value < 1e9 else None


def _json(**values: Any) -> str:
    return orjson.dumps({name: value for name, value in values.items() if value is not None}).decode()


def _read(upstream: Upstream, field: str) -> Sighting | None:
    """Parse what `_json` wrote; None for anything else."""
    try:
        values = orjson.loads(field)
        for name, value in values.items():
            is_number = type(value) in (int, float) and 0 <= value < math.inf
            if not is_number if name in _NUMBERS else name != "task" or not isinstance(value, str):
                return None
        return Sighting(model=upstream.model, origin=upstream.origin, **values)
    except (AttributeError, ValueError):
        return None
