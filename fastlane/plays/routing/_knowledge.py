"""What routing knows: what this process has learned, and what other processes share with it."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastlane.errors import FastlaneError
from fastlane.knowledge.prediction._sighting import Sighting
from fastlane.knowledge.prediction._upstream import Upstream
from fastlane.knowledge.redis import Counters, Redis, shared
from fastlane.knowledge.shared_sightings import SharedSightings

from ._asking import Asking
from ._memory import Memory
from .catalog.scores import scoreboard

if TYPE_CHECKING:
    from fastlane.providers import ProviderFacts
    from fastlane.records.record import CallRecord

    from .catalog.models import Catalog, CatalogModel


_SCORES = Counters("fastlane:scores", 86_400)
_MOST_SCORES_AT_ONCE = 1_000


def digest_of(catalog: Catalog) -> str:
    """Return eight hexadecimal digits that differ where catalogs have other models: these share nothing.

    A price or a bar that is put right leaves what was learned as it is.
    """
    models = sorted([model.name, model.model, catalog.origin_of(model)] for model in catalog.models)
    return hashlib.sha256(json.dumps(models).encode()).hexdigest()[:8]


class _SharedScores:
    """The scores of this process, shared through one server."""

    def __init__(self, redis: Redis) -> None:
        self._redis = weakref.ref(redis)
        redis.watch_counters(_SCORES, self.receive)
        scoreboard.subscribe(self.scored)

    def scored(self, task: str, model: str, passed: bool) -> None:
        """Share a score of this process."""
        redis = self._redis()
        if redis is not None:
            redis.add(_SCORES, {json.dumps([task, model, passed]): 1})

    def receive(self, counts: Mapping[str, float]) -> None:
        """Count the scores of others."""
        for field, count in counts.items():
            try:
                task, model, passed = json.loads(field)
                for _ in range(min(round(count), _MOST_SCORES_AT_ONCE)):
                    scoreboard.receive(task, model, passed)
            except (FastlaneError, TypeError, ValueError):
                continue  # of another version


# One for each server, however many plays share through it.
_shared_scores: weakref.WeakKeyDictionary[Redis, _SharedScores] = weakref.WeakKeyDictionary()


class Knowledge:
    """Everything that routing has learned for one catalog. Threads may share it."""

    def __init__(self, catalog: Catalog, *, seed: int, exploration: float) -> None:
        self.catalog = catalog
        self.memory = Memory(catalog, seed=seed, exploration=exploration)
        self.asking = Asking()
        self._shared: SharedSightings | None = None
        self._latest_ns = 0

    @property
    def latest_ns(self) -> int:
        """The latest moment that anything was noted at, or asked: monotonic nanoseconds."""
        return self._latest_ns

    def facts_of(self, model: CatalogModel, own: ProviderFacts) -> ProviderFacts:
        """What is known of a model's provider; `own` is what is known of the application's."""
        from fastlane.providers import facts_named, facts_of

        if model.facts is not None:
            return facts_named(model.facts)
        return own if model.base_url is None else facts_of(self.catalog.origin_of(model))

    def at(self, now_ns: int) -> None:
        """It is so late by now."""
        self._latest_ns = now_ns
        if self._shared is not None:
            self._shared.start()

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt, and tell the others."""
        self._latest_ns = now_ns
        self.memory.note(sighting, now_ns)
        self.asking.note(sighting)
        if self._shared is not None:
            self._shared.add(sighting)

    def share(self, url: str) -> None:
        """Share what is learned with other processes, through the Redis server at an address.

        Raises ConfigurationError for an address that cannot work, and MissingExtraError.
        """
        redis = shared(url, setting="Routing(store=...)")
        namespace = f"fastlane:routing:{digest_of(self.catalog)}"
        self._shared = SharedSightings(redis, namespace, self._learn_shared, self._note_shared)
        for model in self.catalog.models:
            self._shared.watch(Upstream(model.model, self.catalog.origin_of(model)))
        if redis not in _shared_scores:
            _shared_scores[redis] = _SharedScores(redis)

    def _learn_shared(self, sighting: Sighting, now_ns: int) -> None:
        self._latest_ns = max(self._latest_ns, now_ns)
        self.memory.learn(sighting, now_ns)
        self.asking.note(sighting)

    def _note_shared(self, sighting: Sighting, now_ns: int) -> None:
        self._latest_ns = max(self._latest_ns, now_ns)
        self.memory.note(sighting, now_ns)

    def learn(self, record: CallRecord) -> None:
        """Learn from a call that is over; what its failed attempts have shown was noted when they failed."""
        routing, last = record.routing, record.last_attempt
        if routing is None or last is None or last.origin is None or last.model is None:
            return
        by = next((one for one in self.catalog.models if one.name == routing.model), None)
        if by is None:
            return
        candidate = next((one for one in routing.candidates if one.model == by.name), None)
        upstream = Upstream(by.model, self.catalog.origin_of(by))
        timeline, usage = record.timeline, record.usage
        # Estimates of a stream that was stopped are good enough for lengths and rates, and wrong for the prompt.
        input_tokens = None if usage.estimated else usage.input_tokens
        cached = usage.cached_tokens
        sent_ns = last.wire.send_started_ns or last.wire.started_ns
        upload_s = candidate.upload_s if candidate is not None and candidate.upload_s is not None else 0.0
        first_s = None
        if timeline.first_token_ns is not None:
            first_s = max((timeline.first_token_ns - sent_ns) / 1e9 - upload_s, 1e-4)
        ended_ns = timeline.answer_ended_ns or timeline.ended_ns
        whole_s = None
        if first_s is None and record.outcome == "completed":
            whole_s = max((ended_ns - sent_ns) / 1e9 - upload_s, 1e-4)
        output = record.streamed_output_tokens if not usage.estimated else usage.output_tokens
        if output is None and timeline.first_token_ns is not None:
            # Nobody has counted them. An event is about a token, and length and rate are then off by the same.
            output = len(timeline.token_ns)
        expected = float(candidate.cached_tokens or 0) if candidate is not None else 0.0
        asked = float(input_tokens if input_tokens is not None else routing.input_tokens)
        decode_s = None
        if timeline.first_token_ns is not None and len(timeline.token_ns) > 1:
            decode_s = (timeline.token_ns[-1] - timeline.first_token_ns) / 1e9
        self.note(
            Sighting(
                model=upstream.model,
                origin=upstream.origin,
                task=routing.task,
                uncached_tokens=max(0.0, asked - (cached if cached is not None else expected)),
                expected_cached_tokens=expected,
                cached_tokens=cached,
                body_bytes=routing.body_bytes,
                input_tokens=input_tokens,
                first_token_s=first_s,
                output_tokens=output if record.outcome == "completed" else None,
                decode_s=decode_s if record.outcome == "completed" else None,
                whole_s=whole_s,
            ),
            record.timeline.ended_ns,
        )
        if record.response_id is not None and record.endpoint == "/responses":
            self.asking.note_response(record.response_id, upstream)

    def read(self, call_id: str, model: CatalogModel, facts: ProviderFacts, now_ns: int) -> None:
        """A model has begun to answer a call, and so has read its prompt."""
        self.asking.note_read(call_id, Upstream(model.model, self.catalog.origin_of(model)), facts, now_ns)
