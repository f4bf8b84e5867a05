"""What is known of all models of a catalog, and the decisions that are made of it."""

from __future__ import annotations

import threading
from functools import lru_cache
from math import exp, sqrt
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from ..prediction._lengths import Lengths
from ..prediction._sighting import Sighting
from ..prediction._speed import Speed
from ..prediction._upstream import Upstream
from ._breaker import Breaker
from ._choosing import Entrant, predict, unsuited
from ._decision import Candidate, Decision, Prediction, Reason
from ._exploration import Exploration
from ._question import Question

if TYPE_CHECKING:
    from ..catalog._models import Catalog, CatalogModel
    from ..catalog._scores import Scoreboard

_FEW = 10
_LEAST_TIMEOUT_S = 1.0
_OPTIMISM = 1.5
_deviations = lru_cache(64)(NormalDist().inv_cdf)


class Memory:
    """Learns from every attempt, and decides. Threads may share it: noting takes a lock, deciding does not wait."""

    def __init__(
        self, catalog: Catalog, *, seed: int = 0, exploration: float = 0.02, scoreboard: Scoreboard | None = None
    ) -> None:
        from ..catalog._scores import scoreboard as own

        self._catalog = catalog
        self._scoreboard = scoreboard if scoreboard is not None else own
        self._random = Random(seed)
        self._exploration = Exploration(exploration, self._random)
        self._lock = threading.Lock()
        usual = {name: task.output_tokens for name, task in catalog.tasks.items() if task.output_tokens is not None}
        self._lengths = Lengths(usual)
        speeds: dict[Upstream, tuple[Speed, Breaker]] = {}
        places: dict[str, Breaker] = {}
        self._entrants: dict[str, Entrant] = {}
        self._by_upstream: dict[Upstream, Entrant] = {}
        for model in catalog.models:
            upstream = Upstream(model.model, catalog.origin_of(model))
            if upstream not in speeds:
                speed = Speed(first_token_s=model.first_token_s, tokens_per_s=model.tokens_per_s)
                speeds[upstream] = speed, Breaker(self._random)
            place = places.setdefault(upstream.origin, Breaker(self._random))
            self._entrants[model.name] = Entrant(model, upstream, *speeds[upstream], place)
            self._by_upstream.setdefault(upstream, self._entrants[model.name])

    def speed_of(self, upstream: Upstream) -> Speed | None:
        """What is known of an upstream's pace; None where the catalog does not have it."""
        entrant = self._find(upstream.model, upstream.origin)
        return entrant.speed if entrant is not None else None

    def decide(self, question: Question, now_ns: int) -> Decision:
        """Rank the models that can answer a call."""
        deviations = _deviations(question.quantile)
        ranked: list[tuple[float, Candidate, Entrant]] = []
        rejected: list[Candidate] = []
        resting: list[tuple[float, Entrant]] = []
        for entrant in self._entrants.values():
            why = question.unfit.get(entrant.name) or unsuited(entrant.model, question, self._catalog, self._scoreboard)
            prediction: Prediction | None = None
            if why is None:
                prediction = predict(entrant, question, self._lengths, deviations, now_ns)
                limit = entrant.model.context_tokens
                if limit is not None and question.input_tokens + prediction.output_tokens > limit:
                    why = f"{limit} tokens of context are too few"
                else:
                    rest = max(entrant.breaker.rests_s(now_ns), entrant.place.rests_s(now_ns))
                    if rest:
                        resting.append((rest, entrant))
                        why = f"it failed: not before {rest:.1f} s"
            candidate = Candidate(
                name=entrant.name, upstream=entrant.upstream, prediction=None if why else prediction, why_not=why
            )
            if why is None and prediction is not None:
                ranked.append((prediction.total_s, candidate, entrant))
            else:
                rejected.append(candidate)
        if not ranked:
            return self._last_resort(question, deviations, resting, rejected, now_ns)
        ranked.sort(key=lambda one: one[0])
        reason: Reason = "only" if len(ranked) == 1 else "fastest"
        if self._exploration.may() and len(ranked) > 1:
            at = self._explored(ranked, question, now_ns)
            if at:
                self._exploration.spend()
                ranked.insert(0, ranked.pop(at))
                reason = "explored"
        chosen = ranked[0][2]
        for breaker in (chosen.breaker, chosen.place):
            if breaker.state(now_ns) == "half-open":
                breaker.probed(now_ns)
                reason = "probed"
        chosen.calls += 1
        return Decision(ranked=tuple(one[1] for one in ranked), rejected=tuple(rejected), reason=reason)

    def _last_resort(
        self,
        question: Question,
        deviations: float,
        resting: list[tuple[float, Entrant]],
        rejected: list[Candidate],
        now_ns: int,
    ) -> Decision:
        """All that could answer have failed lately: the one that rests the shortest is better than an error."""
        ranked: list[Candidate] = []
        for _, entrant in sorted(resting, key=lambda one: one[0]):
            prediction = predict(entrant, question, self._lengths, deviations, now_ns)
            ranked.append(Candidate(name=entrant.name, upstream=entrant.upstream, prediction=prediction))
        names = {candidate.name for candidate in ranked}
        return Decision(
            ranked=tuple(ranked),
            rejected=tuple(one for one in rejected if one.name not in names),
            reason="probed" if ranked else None,
        )

    def _explored(self, ranked: list[tuple[float, Candidate, Entrant]], question: Question, now_ns: int) -> int:
        """Which of them may well be faster than the first, at the least cost; 0 where none."""
        best = ranked[0][0]
        found, least = 0, 1.0
        for at in range(1, len(ranked)):
            total, _, entrant = ranked[at]
            spread = sqrt(entrant.speed.first.variance(0.3, now_ns))
            if total * exp(-_OPTIMISM * spread) < best and total / best - 1 < least:
                found, least = at, total / best - 1
        return found

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt, of this process or of another. What the catalog does not have is left out."""
        entrant = self._find(sighting.model, sighting.origin)
        if entrant is None:
            return
        with self._lock:
            if sighting.failure is not None:
                place = entrant.place if sighting.failure == "connection" else entrant.breaker
                place.failed(sighting.failure, sighting.rest_s, now_ns)
            elif sighting.late_s is None:
                entrant.breaker.answered(now_ns)
                entrant.place.answered(now_ns)
            entrant.speed.note(sighting, now_ns)
            if sighting.output_tokens is not None and sighting.failure is None and sighting.late_s is None:
                factor = entrant.model.output_factor
                self._lengths.note(sighting.task, entrant.upstream, factor, sighting.output_tokens)

    def first_token_timeout(self, model: CatalogModel, uncached_tokens: float, now_ns: int) -> float:
        """Seconds without a first token after which a model is given up for the next one."""
        speed = self._entrants[model.name].speed
        if speed.count < _FEW:
            return max(_LEAST_TIMEOUT_S, 4.0 * speed.first_token(uncached_tokens, now_ns))
        return max(_LEAST_TIMEOUT_S, 1.5 * speed.first_token(uncached_tokens, now_ns, 0.995))

    def is_open(self, model: CatalogModel, now_ns: int) -> bool:
        """Whether a call may be sent there now."""
        entrant = self._entrants[model.name]
        return not entrant.breaker.rests_s(now_ns) and not entrant.place.rests_s(now_ns)

    def report(self, now_ns: int) -> list[dict[str, Any]]:
        """What is known of each model, for people: one row each."""
        calls = sum(entrant.calls for entrant in self._entrants.values())
        return [
            {
                "name": entrant.name,
                "model": entrant.upstream.model,
                "origin": entrant.upstream.origin,
                "seen": entrant.speed.count,
                "first_token_s_at_1000": entrant.speed.first_token(1_000, now_ns),
                "first_token_s_at_10000": entrant.speed.first_token(10_000, now_ns),
                "tokens_per_s": entrant.speed.rate(now_ns),
                "breaker": entrant.breaker.state(now_ns),
                "share_of_calls": entrant.calls / calls if calls else 0.0,
            }
            for entrant in self._entrants.values()
        ]

    def _find(self, model: str, origin: str) -> Entrant | None:
        # A model at the application's own base URL has no origin in the catalog.
        return self._by_upstream.get(Upstream(model, origin)) or self._by_upstream.get(Upstream(model, ""))
