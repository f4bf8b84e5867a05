"""Ways to choose a model for every call of a simulated fleet: ours, the oracle, and those that it is compared with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from benchmarks._fleet import MODELS, Fleet, Outcome
from fastlane.knowledge.sightings import Sighting
from fastlane.plays.routing.router import RouteQuery, Router as RoutingRouter

_NS = 1e9
_LEAST_TIMEOUT_S = 3.0
_FAILED_S = 30.0
"""What a call costs beyond its attempts where every model has failed."""


class Seen(NamedTuple):
    """What one attempt has come to, and when that was known."""

    number: int
    model: int
    outcome: Outcome
    timeout_s: float

    @property
    def late(self) -> bool:
        """Whether it was given up for want of a first token."""
        return self.outcome.failure == "timeout" or (
            self.outcome.failure is None and self.outcome.first_token_s > self.timeout_s
        )

    @property
    def answered(self) -> bool:
        """Whether it brought an answer."""
        return not self.late and self.outcome.failure is None

    @property
    def taken_s(self) -> float:
        """Seconds until its end."""
        if self.late:
            return self.timeout_s
        if self.outcome.failure is not None:
            return self.outcome.failed_s
        return self.outcome.first_token_s + self.outcome.decode_s


class Router:
    """A way to choose: one that learns nothing, until it is told otherwise."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def rank(self, number: int, at_s: float) -> list[int]:
        """All models that may be tried for a call, the first of them first."""
        raise NotImplementedError

    def timeout_s(self, index: int, number: int, at_s: float) -> float:
        """Seconds to wait for a first token: four times what the catalog says, as people set it."""
        model = self.fleet.catalog.models[index]
        (small, low), (large, high) = model.first_token_s
        size = self.fleet.requests[number].input_tokens
        return max(_LEAST_TIMEOUT_S, 4 * (low + (high - low) * (size - small) / (large - small)))

    def begin(self, seen: Seen, at_s: float) -> None:
        """An attempt begins: what it will come to is not to be looked at."""

    def first(self, seen: Seen, at_s: float) -> None:
        """It has its first token."""

    def note(self, seen: Seen, at_s: float) -> None:
        """It has ended: learn."""


class Oracle(Router):
    """Knows the true distributions of this moment: the least mean time, what failures cost included."""

    def rank(self, number: int, at_s: float) -> list[int]:
        expected = sorted((self.fleet.expected_s(index, number, at_s), index) for index in range(len(MODELS)))
        return [
            index for _, index in sorted((self._with_failures(*one, expected[0][0], at_s), one[1]) for one in expected)
        ]

    def _with_failures(self, seconds: float, index: int, best: float, at_s: float) -> float:
        share = self.fleet.failing_at(index, at_s)
        return (1 - share) * seconds + share * (1.0 + 2 * best)


class ByPrior(Router):
    """Always the one that the catalog's figures say is the fastest for a usual call."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        router = RoutingRouter(fleet.catalog, exploration=0.0)
        ranked = router.decide(RouteQuery(input_tokens=8_000), 0).ranked
        self._ranked = [int(candidate.name[-1]) for candidate in ranked]

    def rank(self, number: int, at_s: float) -> list[int]:
        return self._ranked


class LastTen(Router):
    """The least mean of its last ten answers' times, whatever they were asked; those that were never asked first.

    One that fails is left alone for five seconds.
    """

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self._times: list[deque[float]] = [deque(maxlen=10) for _ in MODELS]
        self._rests_s = [0.0] * len(MODELS)

    def rank(self, number: int, at_s: float) -> list[int]:
        def mean(index: int) -> float:
            times = self._times[index]
            return sum(times) / len(times) if times else 0.0

        return sorted(range(len(MODELS)), key=lambda index: (self._rests_s[index] > at_s, mean(index)))

    def note(self, seen: Seen, at_s: float) -> None:
        if not seen.answered:
            self._rests_s[seen.model] = at_s + 5.0
            return
        self._times[seen.model].append(seen.taken_s)


class Ours(Router):
    """fastlane's own router, which is told when an attempt begins and when its first token is there."""

    def __init__(self, fleet: Fleet, seed: int = 0) -> None:
        super().__init__(fleet)
        self.router = RoutingRouter(fleet.catalog, random=Random(seed))
        self._end: dict[Seen, Callable[[bool], None]] = {}

    def rank(self, number: int, at_s: float) -> list[int]:
        request = self.fleet.requests[number]
        question = RouteQuery(task=request.task, kind=request.task, input_tokens=request.input_tokens)
        decision = self.router.decide(question, round(at_s * _NS))
        return [int(candidate.name[-1]) for candidate in decision.ranked]

    def timeout_s(self, index: int, number: int, at_s: float) -> float:
        model = self.fleet.catalog.models[index]
        return self.router.first_token_timeout(model, self.fleet.requests[number].input_tokens, round(at_s * _NS))

    def begin(self, seen: Seen, at_s: float) -> None:
        model = self.fleet.catalog.models[seen.model]
        size = self.fleet.requests[seen.number].input_tokens
        self._end[seen] = self.router.began(model, size, round(at_s * _NS))

    def first(self, seen: Seen, at_s: float) -> None:
        self._end[seen](True)

    def note(self, seen: Seen, at_s: float) -> None:
        outcome = seen.outcome
        self._end.pop(seen)(seen.answered)
        if seen.late:
            self._note(seen, at_s, late_s=seen.timeout_s, failure="timeout")
        elif outcome.failure is not None:
            self._note(seen, at_s, failure=outcome.failure, rest_s=outcome.rest_s)
        else:
            first_token_s, tokens = outcome.first_token_s, outcome.output_tokens
            self._note(seen, at_s, first_token_s=first_token_s, output_tokens=tokens, decode_s=outcome.decode_s)

    def _note(self, seen: Seen, at_s: float, **shown: Any) -> None:
        request, model = self.fleet.requests[seen.number], self.fleet.catalog.models[seen.model]
        sighting = Sighting(
            model=model.model,
            origin=self.fleet.catalog.origin_of(model),
            task=request.task,
            uncached_tokens=float(request.input_tokens),
            **shown,
        )
        self.router.note(sighting, round(at_s * _NS))


class Drive:
    """Sends calls of a fleet by a router; what an attempt comes to is learned when it has ended, and not before."""

    def __init__(self, fleet: Fleet, router: Router) -> None:
        self.fleet = fleet
        self.router = router
        self._pending: list[tuple[float, int, Callable[[Seen, float], None], Seen]] = []
        self._counter = 0
        self.first_choices: list[int] = []

    def call(self, number: int, at_s: float) -> float:
        """Make call `number` at a moment that is not before the last one's; seconds that it took."""
        self._learn(at_s)
        now = at_s
        tried: set[int] = set()
        # The next attempt goes where the first decision said: what was learned meanwhile by others is not asked again.
        for index in self.router.rank(number, at_s):
            if index in tried:
                continue
            if not tried:
                self.first_choices.append(index)
            tried.add(index)
            timeout_s = self.router.timeout_s(index, number, now)
            seen = Seen(number, index, self.fleet.outcome(index, number, now), timeout_s)
            self._push(now, self.router.begin, seen)
            if seen.answered:
                self._push(now + seen.outcome.first_token_s, self.router.first, seen)
            now += seen.taken_s
            self._push(now, self.router.note, seen)
            if seen.answered:
                return now - at_s
        return now - at_s + _FAILED_S

    def _push(self, at_s: float, learn: Callable[[Seen, float], None], seen: Seen) -> None:
        self._counter += 1
        heappush(self._pending, (at_s, self._counter, learn, seen))

    def _learn(self, until_s: float) -> None:
        while self._pending and self._pending[0][0] <= until_s:
            at_s, _, learn, seen = heappop(self._pending)
            learn(seen, at_s)
