"""What is known of all models of a catalog, and the decisions that are made of it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from random import Random
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from fastlane._fork import new_lock
from fastlane.knowledge.prediction._lengths import Lengths
from fastlane.knowledge.prediction._sighting import Sighting
from fastlane.knowledge.prediction._speed import Speed
from fastlane.knowledge.prediction._upstream import Upstream

from ._breaker import Breaker
from ._choosing import Entrant, judged, rejection, unsuited
from ._decision import Candidate, Decision, Reason
from ._exploration import Exploration
from ._question import Question

if TYPE_CHECKING:
    from .catalog.models import Catalog, CatalogModel
    from .catalog.scores import Scoreboard

# One first token of 200 takes longer than this, where nothing has changed.
_TIMEOUT_QUANTILE = 0.995
_LEAST_TIMEOUT_S = 1.0
_MOST_KINDS = 256
_deviations = lru_cache(64)(NormalDist().inv_cdf)


class Ticket(NamedTuple):
    """An attempt that waits for its first token."""

    entrant: Entrant
    number: int
    sees: bool
    """Whether it went to see if what had failed is back."""


class Memory:
    """Learn from every attempt, and decide. Thread-safe."""

    def __init__(
        self, catalog: Catalog, *, seed: int = 0, exploration: float = 0.02, scoreboard: Scoreboard | None = None
    ) -> None:
        """`exploration` is the greatest share of calls that go to a model which only may be the fastest, 0 to 1."""
        from .catalog.scores import scoreboard as own

        self._catalog = catalog
        self._scoreboard = scoreboard if scoreboard is not None else own
        self._random = Random(seed)
        self._exploration = Exploration(exploration)
        self._lock = new_lock()
        usual = {name: task.output_tokens for name, task in catalog.tasks.items() if task.output_tokens is not None}
        self._lengths = Lengths(usual)
        speeds: dict[Upstream, tuple[Speed, Breaker]] = {}
        places: dict[str, Breaker] = {}
        self._entrants: dict[str, Entrant] = {}
        self._by_upstream: dict[tuple[str, str], Entrant] = {}
        for model in catalog.models:
            upstream = Upstream(model.model, catalog.origin_of(model))
            if upstream not in speeds:
                speed = Speed(first_token_s=model.first_token_s, tokens_per_s=model.tokens_per_s)
                speeds[upstream] = speed, Breaker(self._random)
            place = places.setdefault(upstream.origin, Breaker(self._random))
            self._entrants[model.name] = Entrant(model, upstream, *speeds[upstream], place)
            self._by_upstream.setdefault(upstream, self._entrants[model.name])
        self._kinds: dict[Any, tuple[list[Entrant], list[Candidate]]] = {}
        self._scored = -1

    def decide(self, question: Question, now_ns: int) -> Decision:
        """Rank the models that can answer a call; where all that could are left alone for now, those."""
        # One lock over all of it: two threads that both found a breaker half-open would both probe.
        with self._lock:
            return self._decision(question, now_ns)

    def _decision(self, question: Question, now_ns: int) -> Decision:
        suited, unsuited_ones = self._suited(question)
        ranked, resting, rejected = judged(suited, question, self._lengths, _deviations(question.quantile), now_ns)
        reason: Reason | None = "fastest"
        last: tuple[Candidate, ...] = ()
        if ranked:
            if resting:
                last = tuple([one[2] for one in sorted(resting)])
            rejected += [replace(one[2], why_not=f"failed; left alone for another {one[0]:.1f} s") for one in resting]
            ranked.sort()
            if len(ranked) == 1:
                reason = "only"
            elif found := self._exploration.pick(ranked, question, now_ns):
                ranked.insert(0, ranked.pop(found))
                reason = "explored"
        else:
            # An error for sure would be no better than one more failure.
            ranked = sorted(resting)
            reason = "probed" if ranked else None
        if ranked:
            chosen = ranked[0][3]
            chosen.calls += 1
            if not chosen.well:
                chosen.probed(now_ns)
                reason = "probed"
        return Decision(
            ranked=tuple([one[2] for one in ranked]),
            rejected=(*unsuited_ones, *rejected),
            resting=last,
            reason=reason,
        )

    def _suited(self, question: Question) -> tuple[list[Entrant], list[Candidate]]:
        """Those that can answer calls of this kind, and why the others cannot; remembered, since kinds come again."""
        version = self._scoreboard.version
        if version != self._scored or len(self._kinds) >= _MOST_KINDS:
            self._kinds = {}
            self._scored = version
        kind = question.endpoint, question.needs, question.task, question.min_quality, question.min_pass_rate
        known = self._kinds.get(kind)
        if known is None:
            suited: list[Entrant] = []
            rejected: list[Candidate] = []
            for entrant in self._entrants.values():
                why = unsuited(entrant.model, question, self._catalog, self._scoreboard)
                if why is None:
                    suited.append(entrant)
                else:
                    rejected.append(rejection(entrant, why))
            known = self._kinds[kind] = suited, rejected
        return known

    def began(self, model: CatalogModel, uncached_tokens: float, now_ns: int) -> Ticket:
        """Say that an attempt begins; `over` is to be called once it has its first token, or never will have one.

        What waits in vain is known to be slow before it is over, which spares the calls that begin meanwhile.
        """
        entrant = self._entrants[model.name]
        expected_s = entrant.speed.first_token(uncached_tokens, now_ns)
        with self._lock:
            return Ticket(entrant, entrant.waiting.began(expected_s, now_ns), not entrant.well)

    def over(self, ticket: Ticket, *, answered: bool) -> None:
        """Say that an attempt has its first token (`answered`), or will have none any more. May be called again."""
        entrant = ticket.entrant
        with self._lock:
            entrant.waiting.over(ticket.number, answered=answered)
            if ticket.sees and not entrant.well:
                # Whoever went to see has a first token, or was called back: nobody has to wait for its end.
                entrant.returned()

    def note(self, sighting: Sighting, now_ns: int) -> None:
        """Learn from one attempt. What the catalog does not have is left out."""
        entrant = self._find(sighting.model, sighting.origin)
        if entrant is None:
            return
        with self._lock:
            was_well = entrant.well
            if sighting.failure == "connection":
                entrant.place.failed(sighting.rest_s, now_ns)
            elif sighting.failure is not None and sighting.failure != "too_long":
                entrant.breaker.failed(sighting.rest_s, now_ns)
            elif sighting.late_s is None:
                entrant.breaker.answered(now_ns)
                entrant.place.answered(now_ns)
            # What fails has its breaker; how slow it is when it is back is not told by how long it failed.
            if was_well or sighting.failure is None:
                self._learn(entrant, sighting, now_ns)

    def learn(self, sighting: Sighting, now_ns: int) -> None:
        """Learn times and lengths from an attempt of another process, and nothing of whether its upstream works."""
        entrant = self._find(sighting.model, sighting.origin)
        if entrant is not None:
            with self._lock:
                self._learn(entrant, sighting, now_ns)

    def _learn(self, entrant: Entrant, sighting: Sighting, now_ns: int) -> None:
        if entrant.looked_at:
            entrant.looked_at = False
            entrant.speed.doubt()
        entrant.speed.note(sighting, now_ns)
        if sighting.output_tokens is not None and sighting.failure is None and sighting.late_s is None:
            factor = entrant.model.output_factor
            self._lengths.note(sighting.task, entrant.upstream, factor, sighting.output_tokens)

    def first_token_timeout(self, model: CatalogModel, uncached_tokens: float, now_ns: int) -> float:
        """Seconds without a first token after which a model is given up for the next one; at least 1.

        The quantile 0.995 by what is known of this model at this size: some 2.5 times the usual where much is, and more
        than five times what the catalog says where little is.
        """
        speed = self._entrants[model.name].speed
        return max(_LEAST_TIMEOUT_S, speed.first_token(uncached_tokens, now_ns, _TIMEOUT_QUANTILE))

    def admit(self, model: CatalogModel, now_ns: int) -> bool:
        """Return whether a call may be sent to a model now; a half-open breaker admits one probe at a time."""
        entrant = self._entrants[model.name]
        with self._lock:
            if entrant.rests_s(now_ns) > 0.0:
                return False
            entrant.probed(now_ns)
            return True

    def withdraw(self, model: CatalogModel, *, answered: bool = False) -> None:
        """Let another call probe: an admitted one is not sent there. `answered` is as in `over`, and False."""
        with self._lock:
            self._entrants[model.name].returned()

    def is_well(self, model: CatalogModel) -> bool:
        """Return whether the breakers of a model and of its origin are closed."""
        return self._entrants[model.name].well

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
                "breaker": max((entrant.breaker.state(now_ns), entrant.place.state(now_ns)), key=_STATES.index),
                "share_of_calls": entrant.calls / calls if calls else 0.0,
            }
            for entrant in self._entrants.values()
        ]

    def _find(self, model: str, origin: str) -> Entrant | None:
        # A model at the application's own base URL has no origin in the catalog.
        return self._by_upstream.get((model, origin)) or self._by_upstream.get((model, ""))


_STATES = ("closed", "half-open", "open")
