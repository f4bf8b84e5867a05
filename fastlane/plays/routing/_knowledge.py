"""What routing knows: what it has learned here, and what other processes have told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from fastlane.knowledge.prediction._sighting import Sighting
from fastlane.knowledge.prediction._upstream import Upstream

from ._asking import Asking
from ._memory import Memory
from .catalog._scores import scoreboard

if TYPE_CHECKING:
    from fastlane.engine.call import CallRecord
    from fastlane.providers import ProviderFacts

    from .catalog._models import Catalog, CatalogModel


class Shares(Protocol):
    """Where what is learned is told to other processes."""

    def publish(self, event: Mapping[str, Any]) -> None:
        """Tell it. Waits for nothing, and raises nothing."""

    def start(self) -> None:
        """Begin to tell and to hear; where that has begun, this does nothing."""


class Knowledge:
    """Everything that routing has learned for one catalog. Threads may share it."""

    def __init__(self, catalog: Catalog, *, seed: int, exploration: float) -> None:
        self.catalog = catalog
        self.memory = Memory(catalog, seed=seed, exploration=exploration)
        self.asking = Asking()
        self.shares: Shares | None = None
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
        if self.shares is not None:
            self.shares.start()  # in a child process it is yet to begin

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt, and tell the others."""
        self._latest_ns = now_ns
        self.memory.note(sighting, now_ns)
        self.asking.note(sighting)
        if self.shares is not None:
            self.shares.publish({"kind": "sighting", **sighting.to_json()})

    def told(self, event: Mapping[str, Any], at_ns: int) -> None:
        """Another process has told something that was so at `at_ns`. What is not understood is left out."""
        try:
            if event.get("kind") == "score":
                scoreboard.receive(event["task"], event["model"], event["passed"])
                return
            if event.get("kind") != "sighting":
                return
            sighting = Sighting.from_json(event)
            if sighting.failure == "connection":
                return  # it may be its own network that failed
            self._latest_ns = max(self._latest_ns, at_ns)
            self.memory.note(sighting, at_ns)
            # What it expected of a cache had its own share of that in it already, which is not ours.
            self.asking.note(replace(sighting, expected_cached_tokens=None))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            pass  # of another version, or of nobody that we know

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
