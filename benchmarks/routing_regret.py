"""Simulated: a fleet of eight models that drift, jump, have fits and fail (`benchmarks/_fleet.py` says all of it)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

import numpy as np

from benchmarks._fleet import MODELS, Fleet, Outcome, Request, requests
from benchmarks._report import Figure, Report
from fastlane.knowledge.sightings import Sighting
from fastlane.plays.routing.router import RouteQuery, Router as RoutingRouter

_LEAST_TIMEOUT_S = 3.0
_FAILED_S = 30.0
"""What a call costs beyond its attempts where every model has failed."""

# Other seeds than those which it was looked at with while it was made.
_FIRST_SEED = 1_000
_WARM_CALLS, _WATCHED_CALLS = 200, 500
_WINDOW, _ENOUGH = 10, 0.1


class _Seen(NamedTuple):
    number: int
    model: int
    outcome: Outcome
    timeout_s: float

    @property
    def late(self) -> bool:
        """Whether it was given up for want of a first token."""
        failure = self.outcome.failure
        return failure == "timeout" or (failure is None and self.outcome.first_token_s > self.timeout_s)

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


class _Router:
    """A way to choose a model for every call, which learns nothing."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def rank(self, number: int, at_s: float) -> list[int]:
        """Return all models that may be tried for a call, the first of them first."""
        raise NotImplementedError

    def timeout_s(self, index: int, number: int, at_s: float) -> float:
        """Return the seconds to wait for a first token: four times what the catalog says, as people set it."""
        (small, low), (large, high) = self.fleet.catalog.models[index].first_token_s
        size = self.fleet.requests[number].input_tokens
        return max(_LEAST_TIMEOUT_S, 4 * (low + (high - low) * (size - small) / (large - small)))

    def begin(self, seen: _Seen, at_s: float) -> None:
        """An attempt begins: what it will come to is not to be looked at."""

    def first(self, seen: _Seen, at_s: float) -> None:
        """It has its first token."""

    def note(self, seen: _Seen, at_s: float) -> None:
        """It has ended."""


class _Oracle(_Router):
    """Knows the true distributions of this moment: the least mean time, what failures cost included."""

    def rank(self, number: int, at_s: float) -> list[int]:
        expected = {index: self.fleet.expected_s(index, number, at_s) for index in range(len(MODELS))}
        best = min(expected.values())

        def with_failures(index: int) -> float:
            share = self.fleet.failing_at(index, at_s)
            return (1 - share) * expected[index] + share * (1.0 + 2 * best)

        return sorted(expected, key=with_failures)


class _ByPrior(_Router):
    """Always the one that the catalog's figures say is the fastest for a usual call."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        ranked = RoutingRouter(fleet.catalog, exploration=0.0).decide(RouteQuery(input_tokens=8_000), 0).ranked
        self._ranked = [int(candidate.name[-1]) for candidate in ranked]

    def rank(self, number: int, at_s: float) -> list[int]:
        return self._ranked


class _LastTen(_Router):
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

    def note(self, seen: _Seen, at_s: float) -> None:
        if seen.answered:
            self._times[seen.model].append(seen.taken_s)
        else:
            self._rests_s[seen.model] = at_s + 5.0


class _Ours(_Router):
    """fastlane's own router, which is told when an attempt begins and when its first token is there."""

    def __init__(self, fleet: Fleet, seed: int = 0) -> None:
        super().__init__(fleet)
        self._router = RoutingRouter(fleet.catalog, random=Random(seed))
        self._end: dict[_Seen, Callable[[bool], None]] = {}

    def rank(self, number: int, at_s: float) -> list[int]:
        request = self.fleet.requests[number]
        query = RouteQuery(task=request.task, kind=request.task, input_tokens=request.input_tokens)
        return [int(candidate.name[-1]) for candidate in self._router.decide(query, round(at_s * 1e9)).ranked]

    def timeout_s(self, index: int, number: int, at_s: float) -> float:
        model, size = self.fleet.catalog.models[index], self.fleet.requests[number].input_tokens
        return self._router.first_token_timeout(model, size, round(at_s * 1e9))

    def begin(self, seen: _Seen, at_s: float) -> None:
        model, size = self.fleet.catalog.models[seen.model], self.fleet.requests[seen.number].input_tokens
        self._end[seen] = self._router.began(model, size, round(at_s * 1e9))

    def first(self, seen: _Seen, at_s: float) -> None:
        self._end[seen](True)

    def note(self, seen: _Seen, at_s: float) -> None:
        outcome, request = seen.outcome, self.fleet.requests[seen.number]
        model = self.fleet.catalog.models[seen.model]
        self._end.pop(seen)(seen.answered)
        shown: dict[str, Any] = {"failure": outcome.failure, "rest_s": outcome.rest_s}
        if seen.late:
            shown = {"late_s": seen.timeout_s, "failure": "timeout"}
        elif seen.answered:
            shown = {
                "first_token_s": outcome.first_token_s,
                "output_tokens": outcome.output_tokens,
                "decode_s": outcome.decode_s,
            }
        sighting = Sighting(
            model=model.model,
            origin=self.fleet.catalog.origin_of(model),
            task=request.task,
            uncached_tokens=float(request.input_tokens),
            **shown,
        )
        self._router.note(sighting, round(at_s * 1e9))


class _Drive:
    """Sends calls of a fleet by a router; what an attempt comes to is learned when it has ended, and not before."""

    def __init__(self, fleet: Fleet, router: _Router) -> None:
        self.fleet = fleet
        self._router = router
        self._pending: list[tuple[float, int, Callable[[_Seen, float], None], _Seen]] = []
        self._counter = 0
        self.first_choices: list[int] = []

    def mean_s(self) -> float:
        """Make all calls, and return the mean of the seconds that they took."""
        return float(np.mean([self.call(number, one.at_s) for number, one in enumerate(self.fleet.requests)]))

    def call(self, number: int, at_s: float) -> float:
        """Make call `number` at a moment that is not before the last one's; return the seconds that it took."""
        while self._pending and self._pending[0][0] <= at_s:
            then_s, _, learn, seen = heappop(self._pending)
            learn(seen, then_s)
        now = at_s
        # The next attempt goes where the first decision said: what was learned meanwhile by others is not asked again.
        ranked = list(dict.fromkeys(self._router.rank(number, at_s)))
        self.first_choices += ranked[:1]
        for index in ranked:
            timeout_s = self._router.timeout_s(index, number, now)
            seen = _Seen(number, index, self.fleet.outcome(index, number, now), timeout_s)
            self._push(now, self._router.begin, seen)
            if seen.answered:
                self._push(now + seen.outcome.first_token_s, self._router.first, seen)
            now += seen.taken_s
            self._push(now, self._router.note, seen)
            if seen.answered:
                return now - at_s
        return now - at_s + _FAILED_S

    def _push(self, at_s: float, learn: Callable[[_Seen, float], None], seen: _Seen) -> None:
        self._counter += 1
        heappush(self._pending, (at_s, self._counter, learn, seen))


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean, from resampled seeds."""
    rng = np.random.default_rng(0)
    means = rng.choice(np.asarray(values), size=(2_000, len(values))).mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _left(seed: int, made: list[Request]) -> int:
    """Return calls until at most one of the next ten goes to a model that has become slow in vain.

    In vain: though another one is a tenth faster.
    """
    rng = np.random.default_rng(seed)
    picked = [made[index] for index in rng.integers(len(made), size=_WARM_CALLS + _WATCHED_CALLS)]
    fleet = Fleet(seed, picked, steady=True)
    drive = _Drive(fleet, _Ours(fleet, seed))
    at_s, slow = 0.0, None
    wrong: list[bool] = []
    for number in range(len(picked)):
        if number == _WARM_CALLS:
            # The model of most of the last fifty calls.
            slow = int(np.bincount(drive.first_choices[-50:]).argmax())
            fleet.change(slow, at_s, 3.0, 0.5)
        began_s, at_s = at_s, at_s + drive.call(number, at_s) + 0.1
        if slow is not None:
            expected = [fleet.expected_s(index, number, began_s) for index in range(len(MODELS))]
            chosen = drive.first_choices[-1]
            wrong.append(chosen == slow and expected[chosen] / min(expected) - 1 > _ENOUGH)
    starts = range(len(wrong) - _WINDOW)
    return next((start for start in starts if sum(wrong[start : start + _WINDOW]) <= 1), len(wrong))


def routing_regret(quick: bool) -> Report:
    """What `Routing` decides, against an oracle, in a simulated fleet of eight models that drift, jump and fail.

    The requests are those of a chat service, recorded where the record is, else made up with the same quantiles, some
    three a second for twenty minutes. Each way to choose drives the same calls with the same random numbers, and learns
    of an attempt when that has ended. An attempt that fails, or has no first token in time, is followed by one at the
    next model of the ranking. Beside ours: an oracle that knows every distribution of the moment; always the best by
    the catalog; the least mean of the last ten answers' times. Regret: mean end-to-end time over the oracle's, less 1.

    Then, in a fleet that only drifts, the model that is mostly chosen becomes slow. `left_median_calls`,
    `left_p95_calls`: the calls until at most one of the next ten goes to it in vain.

    Inside: simulated seconds of the calls, failed attempts too. Outside: CPU time (`routing_cost`), connections and
    uploads. Our constants were chosen by fleets of the seeds 0 to 149; these are of the seeds from 1,000 on.
    """
    made, source = requests()
    seeds = range(_FIRST_SEED, _FIRST_SEED + (16 if quick else 40))
    trials = range(_FIRST_SEED, _FIRST_SEED + (60 if quick else 200))
    routers: dict[str, Callable[[Fleet], _Router]] = {"ours": _Ours, "best_by_prior": _ByPrior, "last_ten": _LastTen}
    regrets: dict[str, list[float]] = {name: [] for name in routers}
    for seed in seeds:
        fleet = Fleet(seed, made)
        oracle_s = _Drive(fleet, _Oracle(fleet)).mean_s()
        for name, router in routers.items():
            regrets[name].append(_Drive(fleet, router(fleet)).mean_s() / oracle_s - 1)
    left = [_left(seed, made) for seed in trials]
    low, high = _interval(regrets["ours"])
    figures: dict[str, Figure] = {
        **{f"{name}_regret_ratio": float(np.mean(values)) for name, values in regrets.items()},
        "ours_regret_low_ratio": low,
        "ours_regret_high_ratio": high,
        "ours_to_last_ten_regret_ratio": float(np.mean(regrets["ours"]) / np.mean(regrets["last_ten"])),
        "left_median_calls": float(np.quantile(left, 0.5, method="higher")),
        "left_p95_calls": float(np.quantile(left, 0.95, method="higher")),
    }
    return Report(
        figures=figures,
        reach={
            "ours_regret_ratio": "<= 0.1",
            "ours_to_last_ten_regret_ratio": f"<= {1 / 3}",
            "left_p95_calls": "<= 20",
        },
        conditions={
            "fleets": f"{len(seeds)} seeds from {_FIRST_SEED} on, 8 models, 20 minutes each",
            "requests": f"{len(made):,}, {source}",
            "changes": len(trials),
        },
    )
