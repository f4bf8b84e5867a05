"""What one attempt at an upstream has shown, in numbers, and how processes share it."""

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
    """A model at an origin."""

    model: str
    """As the provider knows it."""
    origin: str
    """scheme://host:port."""


Failure = Literal["connection", "rate_limit", "server", "timeout", "empty", "denied", "too_long"]
"""Why an attempt brought no answer.

- connection: none could be opened, or it broke
- rate_limit: the provider takes no more for now (429), or has no room in the tier (498)
- server: the provider failed (5xx, 409)
- timeout: the first token did not come in time
- empty: an answer without any content
- denied: the provider refuses this key or this model (401, 402, 403, 404)
- too_long: the prompt is longer than the model takes, other than was expected
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One attempt at one upstream: no text, no key."""

    model: str
    """As the upstream knows it."""
    origin: str
    """scheme://host:port."""
    task: str | None = None
    uncached_tokens: float | None = None
    """Tokens of the prompt that were not read from the provider's cache."""
    expected_cached_tokens: float | None = None
    """Tokens of the prompt that should have been."""
    cached_tokens: int | None = None
    """Tokens that were, as the provider reports; None where it does not say."""
    body_bytes: int | None = None
    """Of the request as JSON."""
    input_tokens: int | None = None
    """All tokens of the prompt, as the provider reports."""
    first_token_s: float | None = None
    """Seconds from the request's predicted arrival to its first token; None where that was not seen."""
    late_s: float | None = None
    """Seconds after which it was given up without a first token."""
    output_tokens: int | None = None
    """Tokens that came in the stream."""
    decode_s: float | None = None
    """Seconds from the first of them to the last."""
    whole_s: float | None = None
    """Seconds from the request's arrival to the whole answer, where no first token was seen."""
    failure: Failure | None = None
    """Why it brought no answer; None where it did, or was given up for another that was faster."""
    rest_s: float | None = None
    """Seconds for which the provider asked not to be called."""


# A process that has just started learns from this hour and the last.
_WINDOW_S = 3_600
# Of many sightings that others have added since the last reading, so many are learned from.
_MOST_AT_ONCE = 200
# Rounded, a sighting is one of a few hundred that recur, so that counting them is enough: what a process reads depends
# on how many upstreams it uses, and not on how many processes and calls there are.
_FINE, _COARSE, _FINEST = math.log(1.1), math.log(1.25), math.log(1.02)
_BODY_BYTES = 10_000
_NUMBERS = (
    "uncached_tokens", "first_token_s", "late_s", "output_tokens", "decode_s", "whole_s", "body_bytes", "input_tokens",
)  # fmt: skip

LearnSighting: TypeAlias = Callable[[Sighting, int], None]
"""Takes a sighting of another process, and the time in monotonic nanoseconds."""
LearnRest: TypeAlias = Callable[[Upstream, float, int], None]
"""Takes an upstream, for how many seconds another process leaves it alone, and the time in monotonic nanoseconds."""


class SharedSightings:
    """The times and sizes that the processes of one play have seen, through Redis. Thread-safe."""

    def __init__(self, redis: Redis, namespace: str, learn: LearnSighting, rest: LearnRest | None = None) -> None:
        """`learn` and `rest` are called in another thread."""
        self._redis = redis
        self._namespace = namespace
        self.learn = learn
        self.rest = rest
        self._random = Random()
        # The receivers, which the server's side does not keep alive.
        self._watched: Table[Upstream, _Receiver] = Table("shared upstreams", max_entries=256)

    def watch(self, upstream: Upstream) -> None:
        """Learn from what others see of an upstream, from now on."""
        if self._watched.get(upstream) is None:
            receiver = _Receiver(self, upstream)
            if self._watched.fetch(upstream, lambda: receiver) is receiver:
                self._redis.watch_counters(self.counters(upstream), receiver.receive)
                if self.rest is not None:
                    self._redis.watch_value(self._rest_key(upstream), receiver.receive_rest)

    def start(self) -> None:
        """Exchange what is shared: a forked child has yet to begin. Neither waits nor raises."""
        self._redis.start()

    def add(self, sighting: Sighting) -> None:
        """Share what an attempt has shown. Neither waits nor raises."""
        upstream = Upstream(sighting.model, sighting.origin)
        self.watch(upstream)
        if fields := list(_fields(sighting)):
            self._redis.add(self.counters(upstream), dict.fromkeys(fields, 1))

    def add_rest(self, upstream: Upstream, seconds: float) -> None:
        """Share for how long an upstream is left alone. Neither waits nor raises."""
        value = secrets.token_bytes(8)
        if (receiver := self._watched.get(upstream)) is not None:
            receiver.last_rest = value
        self._redis.put(self._rest_key(upstream), value, expires_s=seconds)

    def _rest_key(self, upstream: Upstream) -> str:
        return f"{self._namespace}:rest:{upstream.origin} {upstream.model}"

    def counters(self, upstream: Upstream) -> Counters:
        """Return what an upstream's sightings are counted in."""
        return Counters(f"{self._namespace}:times:{upstream.origin} {upstream.model}", _WINDOW_S)

    def receive(self, upstream: Upstream, counts: Mapping[str, float]) -> None:
        """Learn from what others have counted; where that is very much, from an even share of it."""
        share = min(1.0, _MOST_AT_ONCE / max(1.0, sum(counts.values())))
        found: list[Sighting] = []
        for field, count in counts.items():
            # Rounded up or down at random, so that rare ones count as they should.
            times = int(count * share + self._random.random())
            if times > 0 and (sighting := _read(upstream, field)) is not None:
                found += [sighting] * min(times, _MOST_AT_ONCE)
        self._random.shuffle(found)
        for sighting in found[:_MOST_AT_ONCE]:
            self.learn(sighting, now_ns())


class _Receiver:
    """Receives what others have seen of one upstream."""

    def __init__(self, shared: SharedSightings, upstream: Upstream) -> None:
        self._shared = shared
        self._upstream = upstream
        self.last_rest = b""
        """The last one that was read or written: a value is read several times."""

    def receive(self, counts: Mapping[str, float]) -> None:
        """Learn from what others have counted."""
        self._shared.receive(self._upstream, counts)

    def receive_rest(self, value: bytes, left_s: float) -> None:
        """Learn that another process leaves the upstream alone."""
        if value != self.last_rest and self._shared.rest is not None:
            self.last_rest = value
            self._shared.rest(self._upstream, left_s, now_ns())


def _fields(sighting: Sighting) -> Iterator[str]:
    """Return the parts of a sighting that others learn from, each by itself and rounded, as JSON."""
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
    """Return the nearest of few values; None for what is not known, or not above 0."""
    return float(f"{math.exp(round(math.log(value) / step) * step):.3g}") if value and 0 < value < 1e9 else None


def _json(**values: Any) -> str:
    return orjson.dumps({name: value for name, value in values.items() if value is not None}).decode()


def _read(upstream: Upstream, field: str) -> Sighting | None:
    """Return what `_json` has written; None for anything else."""
    try:
        values = orjson.loads(field)
        for name, value in values.items():
            is_number = type(value) in (int, float) and 0 <= value < math.inf
            if not is_number if name in _NUMBERS else name != "task" or not isinstance(value, str):
                return None
        return Sighting(model=upstream.model, origin=upstream.origin, **values)
    except (AttributeError, ValueError):
        return None
