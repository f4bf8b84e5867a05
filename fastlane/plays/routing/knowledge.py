"""What routing has learned for one catalog, and what it shares with other processes."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from fastlane.knowledge.redis import shared
from fastlane.knowledge.sightings import SharedSightings, Sighting, Upstream

from .catalog.scores import scoreboard
from .queries import RouteQueries
from .router import RouteQuery, Router

if TYPE_CHECKING:
    from fastlane.records.record import CallRecord

    from .catalog.models import Catalog
    from .section import RoutingSection


class RoutingKnowledge:
    """Everything that routing has learned for one catalog. Thread-safe."""

    def __init__(self, catalog: Catalog, *, seed: int, exploration: float) -> None:
        self.catalog = catalog
        self.router = Router(catalog, seed=seed, exploration=exploration)
        self.queries = RouteQueries(catalog, self.router)
        self.latest_ns = 0
        """The latest moment at which anything was learned or asked: monotonic nanoseconds."""
        self._shared: SharedSightings | None = None

    def begin(self, now_ns: int) -> None:
        """A call begins: see to it that others' knowledge is read, in a forked child too."""
        self.latest_ns = now_ns
        if self._shared is not None:
            self._shared.start()

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt, and share it."""
        self.latest_ns = now_ns
        rest_s = self.router.note(sighting, now_ns)
        self.queries.note(sighting)
        if self._shared is not None:
            self._shared.add(sighting)
            # A connection that could not be opened may be due to this process's own network.
            if rest_s > 0:
                self._shared.add_rest(Upstream(sighting.model, sighting.origin), rest_s)

    def learn(self, record: CallRecord, section: RoutingSection, query: RouteQuery) -> None:
        """Learn from a call that is over; what its failed attempts have shown was learned when they failed."""
        last, state = record.last_attempt, self.router.states.get(section.model or "")
        if state is None or last is None or last.origin is None or last.model is None:
            return
        upstream, timeline, usage = state.upstream, record.timeline, record.usage
        if record.response_id is not None and record.endpoint == "/responses":
            self.queries.note_response(record.response_id, upstream)
        # Estimates of a stream that was stopped are good enough for lengths and rates, and wrong for the prompt.
        input_tokens = None if usage.estimated else usage.input_tokens
        expected = query.cached_tokens.get(upstream, 0.0)
        cached = expected if usage.cached_tokens is None else usage.cached_tokens
        path = query.paths.get(upstream.origin)
        arrived_ns = (last.wire.send_started_ns or last.wire.started_ns) + int(path.upload_s * 1e9 if path else 0)
        first_s = whole_s = decode_s = None
        output = usage.output_tokens if usage.estimated else record.streamed_output_tokens
        if timeline.first_token_ns is not None:
            first_s = max((timeline.first_token_ns - arrived_ns) / 1e9, 1e-4)
            if output is None:
                # Nobody has counted them. An event is about a token, and length and rate are then off by the same.
                output = len(timeline.token_ns)
            if len(timeline.token_ns) > 1:
                decode_s = (timeline.token_ns[-1] - timeline.first_token_ns) / 1e9
        elif record.outcome == "completed":
            whole_s = max(((timeline.answer_ended_ns or timeline.ended_ns) - arrived_ns) / 1e9, 1e-4)
        is_complete = record.outcome == "completed"
        sighting = Sighting(
            model=upstream.model,
            origin=upstream.origin,
            task=query.kind,
            uncached_tokens=max(0.0, (query.input_tokens if input_tokens is None else input_tokens) - cached),
            expected_cached_tokens=float(round(expected)),
            cached_tokens=usage.cached_tokens,
            body_bytes=query.body_bytes,
            input_tokens=input_tokens,
            first_token_s=first_s,
            output_tokens=output if is_complete else None,
            decode_s=decode_s if is_complete else None,
            whole_s=whole_s,
        )
        self.note(sighting, timeline.ended_ns)

    # Other processes

    def share(self, url: str) -> None:
        """Share what is learned with other processes, through the Redis server at an address.

        Raises ConfigurationError for an address that cannot work, and MissingExtraError.
        """
        redis = shared(url, setting="Routing(store=...)")
        namespace = f"fastlane:routing:{digest_of(self.catalog)}"
        self._shared = SharedSightings(redis, namespace, self._learn_shared, self.router.rest)
        for state in self.router.states.values():
            self._shared.watch(state.upstream)
        scoreboard.share(redis)

    def _learn_shared(self, sighting: Sighting, now_ns: int) -> None:
        self.latest_ns = max(self.latest_ns, now_ns)
        self.router.learn(sighting, now_ns)
        self.queries.note(sighting)


def digest_of(catalog: Catalog) -> str:
    """Return eight hexadecimal digits that differ where catalogs have other models: these share nothing.

    A price or a quality that is put right leaves what was learned as it is.
    """
    models = sorted([model.name, model.model, catalog.origin_of(model)] for model in catalog.models)
    return hashlib.sha256(json.dumps(models).encode()).hexdigest()[:8]
