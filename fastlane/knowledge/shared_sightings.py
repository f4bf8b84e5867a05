"""What processes share of the attempts that they have seen: counts of rounded sightings, by upstream.

Rounded, a sighting is one of a few hundred that come again and again. Only their counts are kept and read: what a
process reads depends on how many upstreams it uses, and not on how many processes and calls there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import exp, log
from random import Random
from typing import Any, TypeAlias

import orjson

from .._clock import now_ns
from .prediction._sighting import Sighting
from .prediction._upstream import Upstream
from .redis import Counters, Redis
from .table import Table

Receive: TypeAlias = Callable[[Sighting, int], None]
"""Takes a sighting of another process, and the time in monotonic nanoseconds."""

# A process that has just started learns from this hour and the last, and of failures from this minute and the last.
_WINDOW_S, _OUTCOMES_WINDOW_S = 3_600, 60
# Of many sightings that others have added since the last time, so many are learned from.
_MOST_AT_ONCE = 200
# Seconds and answers' lengths are rounded to a tenth, sizes of prompts to a quarter, tokens per byte to a fiftieth.
_FINE, _COARSE, _FINEST = log(1.1), log(1.25), log(1.02)
_BODY_BYTES = 10_000
_ANSWERED = "answered"


class SharedSightings:
    """The sightings of one play, shared with the plays of other processes. Thread-safe."""

    def __init__(self, redis: Redis, namespace: str, learn: Receive, outcome: Receive | None = None) -> None:
        """Both functions get what other processes have seen, in another thread.

        `learn` gets sightings of times and sizes. `outcome` gets failures, and a sighting without any figure for calls
        that were answered.
        """
        self._redis = redis
        self._namespace = namespace
        self._learn = learn
        self._outcome = outcome
        self._random = Random()
        self._watched: Table[Upstream, _Watched] = Table("shared upstreams", max_entries=256)

    def watch(self, upstream: Upstream) -> None:
        """Receive what others see of an upstream, from now on."""
        if self._watched.get(upstream) is None:
            mine = _Watched(self, upstream)
            if self._watched.fetch(upstream, lambda: mine) is mine:
                self._redis.watch_counters(self._times(upstream), mine.receive_times)
                if self._outcome is not None:
                    self._redis.watch_counters(self._outcomes(upstream), mine.receive_outcomes)

    def start(self) -> None:
        """Exchange what is shared: in a forked child that has yet to begin. Neither waits nor raises."""
        self._redis.start()

    def add(self, sighting: Sighting) -> None:
        """Share what an attempt has shown. Neither waits nor raises."""
        upstream = Upstream(sighting.model, sighting.origin)
        self.watch(upstream)
        fields = list(_fields(sighting))
        if fields:
            self._redis.add(self._times(upstream), dict.fromkeys(fields, 1))
        # A connection that could not be had may be due to this process's own network.
        if self._outcome is None or sighting.failure == "connection":
            return
        if sighting.failure is not None or sighting.late_s is None:
            self._redis.add(self._outcomes(upstream), {_outcome(sighting): 1})

    def _times(self, upstream: Upstream) -> Counters:
        return Counters(f"{self._namespace}:times:{upstream.origin} {upstream.model}", _WINDOW_S)

    def _outcomes(self, upstream: Upstream) -> Counters:
        return Counters(f"{self._namespace}:outcomes:{upstream.origin} {upstream.model}", _OUTCOMES_WINDOW_S)


class _Watched:
    """One upstream of which others' sightings are received."""

    def __init__(self, shared: SharedSightings, upstream: Upstream) -> None:
        self._shared = shared
        self._upstream = upstream

    def receive_times(self, counts: Mapping[str, float]) -> None:
        """Learn from what others have counted; where that is very much, from an even share of it."""
        shared = self._shared
        share = min(1.0, _MOST_AT_ONCE / max(1.0, sum(counts.values())))
        found: list[Sighting] = []
        for field, count in counts.items():
            # Rounded up or down by chance, so that rare ones count as they should.
            times = int(count * share + shared._random.random())
            if times > 0 and (sighting := _read(self._upstream, field)) is not None:
                found += [sighting] * min(times, _MOST_AT_ONCE)
        shared._random.shuffle(found)
        for sighting in found[:_MOST_AT_ONCE]:
            shared._learn(sighting, now_ns())

    def receive_outcomes(self, counts: Mapping[str, float]) -> None:
        """Hand on failures and answers. What there was more of has the last word: nobody knows their order."""
        outcome = self._shared._outcome
        assert outcome is not None
        answers = counts.get(_ANSWERED, 0.0)
        failures = [
            sighting
            for field, count in counts.items()
            if field != _ANSWERED and (sighting := _read(self._upstream, field)) is not None
            for _ in range(min(round(count), 2))  # two open a breaker
        ]
        answered = [Sighting(model=self._upstream.model, origin=self._upstream.origin)] if answers else []
        for sighting in (*failures, *answered) if answers > len(failures) else (*answered, *failures):
            outcome(sighting, now_ns())


def _fields(sighting: Sighting) -> Iterator[str]:
    """Return the parts of a sighting that others learn from, each by itself and rounded, as JSON."""
    size = _rounded(sighting.uncached_tokens, _COARSE)
    if sighting.first_token_s or sighting.late_s:
        yield _json(
            uncached_tokens=size,
            first_token_s=_rounded(sighting.first_token_s, _FINE),
            late_s=_rounded(sighting.late_s, _FINE),
        )
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


def _outcome(sighting: Sighting) -> str:
    if sighting.failure is None:
        return _ANSWERED
    return _json(failure=sighting.failure, rest_s=_rounded(sighting.rest_s, _FINE))


def _rounded(value: float | None, step: float) -> float | None:
    """Return the nearest of the values that are told apart; None for what is not known, or not above 0."""
    return float(f"{exp(round(log(value) / step) * step):.3g}") if value is not None and 0 < value < 1e9 else None


def _json(**values: Any) -> str:
    return orjson.dumps({name: value for name, value in values.items() if value is not None}).decode()


def _read(upstream: Upstream, field: str) -> Sighting | None:
    """Return what `_json` has written; None for anything else, and for what other versions write."""
    try:
        return Sighting.from_json({**orjson.loads(field), "model": upstream.model, "origin": upstream.origin})
    except (TypeError, ValueError):
        return None
