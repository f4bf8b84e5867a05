"""Send a seed that is derived from the request, and compare the backends that answer equal requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import openai

from fastlane.engine.call import Call
from fastlane.engine.play import Play, Stage
from fastlane.engine.session import CallOutcome, SendCall, Session
from fastlane.engine.settings import settings
from fastlane.knowledge.table import Table

from .section import ReproducibleSection

# What changes how an answer is delivered, accounted or cached, and not what the model samples.
_NOT_SAMPLED = frozenset(
    {
        "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "seed",
        "service_tier", "store", "stream", "stream_options", "user",
    }
)  # fmt: skip
_SEED_BITS = 31
"""Providers disagree on larger seeds: some take 32 bits with a sign, others 64."""

_fingerprints: Table[tuple[str, str | None, bytes], str] = Table(
    "system fingerprints", max_entries=10_000, expires_s=86_400
)


@settings
class Reproducible(Play):
    """Send equal chat completions with equal seeds, and report when the provider's backend changes between them.

    The seed is derived from the request, where the provider's facts say that it takes one; a seed of the caller stays.
    Providers promise a best effort: answers can differ even with equal seeds and an equal `system_fingerprint`.
    """

    stage: ClassVar[Stage] = Stage.SHAPE
    needs_facts: ClassVar[bool] = True
    keeps_bodies: ClassVar[bool] = True
    section = ReproducibleSection

    def open(self, call: Call) -> Session | None:
        """Begin the play's part in a chat completion; None for other calls."""
        return _ReproducibleSession(call) if call.endpoint == "/chat/completions" else None


class _ReproducibleSession(Session):
    def __init__(self, call: Call) -> None:
        self._request = _digest(call.body)
        self._origin = call.origin
        self._model = call.model
        self._seed: int | None = None
        self._is_refused = False
        self._fingerprint: str | None = None

    def plan(self, call: Call) -> Call:
        given = call.body.get("seed")
        self._origin, self._model = call.origin, call.model
        self._seed = given if isinstance(given, int) else None
        if "seed" in call.body or self._is_refused or "seed" in call.refused or not _takes_seed(call):
            return call
        self._seed = int.from_bytes(self._request[:4], "big") >> (32 - _SEED_BITS)
        return call.with_body("set a seed derived from the request", seed=self._seed)

    def on_refused(self, error: openai.APIStatusError) -> bool:
        self._is_refused = not self._is_refused and self._seed is not None and error.param == "seed"
        return self._is_refused

    def around_call(self, send: SendCall) -> SendCall:
        def look_at_result(call: Call) -> Any:
            reply = yield from send(call)
            self.on_event(reply.result)
            return reply

        return look_at_result

    def on_event(self, event: Any) -> None:
        fingerprint = getattr(event, "system_fingerprint", None)
        if isinstance(fingerprint, str):
            self._fingerprint = fingerprint

    def close(self, outcome: CallOutcome) -> ReproducibleSection | None:
        fingerprint, before = self._fingerprint, None
        if fingerprint is not None:
            key = self._origin, self._model, self._request
            before = _fingerprints.get(key)
            _fingerprints.put(key, fingerprint)
        return ReproducibleSection(
            seed=self._seed,
            system_fingerprint=fingerprint,
            previous_fingerprint=before,
        )


def _takes_seed(call: Call) -> bool:
    known = call.facts.parameters.get("seed") if call.facts is not None else None
    return known is not None and known.value is True


def _digest(body: Mapping[str, Any]) -> bytes:
    """Return 32 bytes that are equal for requests that a model samples alike."""
    sampled = {name: value for name, value in body.items() if name not in _NOT_SAMPLED}
    return hashlib.sha256(json.dumps(sampled, sort_keys=True, default=str).encode()).digest()
