"""Simulated: a fleet of eight models whose pace depends on the prompt, drifts, jumps and fails, by a seed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.signal import lfilter

from benchmarks._paired import middle
from benchmarks._report import Figure, Report
from fastlane._clock import thread_cpu_ns
from fastlane.knowledge.sightings import Failure, Sighting
from fastlane.plays.routing.catalog.models import Catalog, CatalogModel, Task
from fastlane.plays.routing.router import RouteQuery, Router as RoutingRouter

# The fleet

SECONDS = 1_200
# Production requests of a chat service, Mooncake (FAST'25), Apache-2.0; an optional input.
_RECORDED = Path(__file__).parents[2] / "shared" / "data" / "mooncake_conversation_20min.jsonl"


class Base(NamedTuple):
    """What one model does on a usual day."""

    base_s: float
    per_1k_s: float
    """Seconds that 1,000 tokens of a prompt add to the first token."""
    tokens_per_s: float
    noise: float
    """Standard deviation of the first token's logarithm."""
    pace_noise: float
    tail: float
    """Share of first tokens that take five times as long."""
    factor: float
    """How many times the tokens of the others its answers have."""


# No model is the best for all calls: short prompts, long prompts and long answers each have another one.
MODELS = (
    Base(0.35, 0.045, 150, 0.25, 0.10, 0.015, 1.0),
    Base(1.10, 0.008, 160, 0.20, 0.10, 0.015, 1.0),
    Base(1.80, 0.030, 400, 0.30, 0.15, 0.015, 1.0),
    Base(0.50, 0.020, 110, 0.35, 0.12, 0.015, 1.0),
    Base(0.30, 0.060, 190, 0.40, 0.20, 0.060, 1.0),
    Base(0.90, 0.030, 450, 0.25, 0.15, 0.015, 3.0),
    Base(0.60, 0.015, 75, 0.15, 0.08, 0.015, 1.0),
    Base(0.40, 0.020, 240, 0.25, 0.12, 0.015, 1.0),
)
RETURNED = 7
"""By its prior the fastest; it is four times as slow when the run begins, and well again after some seven minutes."""

# Median seconds to the first token and median tokens per second at 1, 10, ... 50 concurrent users: three tables
# (retrieval, generation, conversation) of a report on a hosted model.
_FIRST = (
    (0.6508, 0.4835, 0.4962, 1.3677, 0.5300, 0.5803),
    (0.4690, 0.5177, 0.5528, 0.5884, 0.4832, 0.8468),
    (0.5092, 0.4469, 0.4914, 0.4386, 0.5461, 0.7176),
)
_PACE = (
    (115.1, 114.3, 119.0, 88.7, 116.9, 112.1),
    (93.4, 86.8, 82.2, 90.0, 99.6, 58.2),
    (78.3, 87.9, 77.6, 77.6, 71.4, 64.7),
)
REGIMES = tuple(
    (float(first / np.median(firsts)), float(pace / np.median(paces)))
    for firsts, paces in zip(_FIRST, _PACE, strict=True)
    for first, pace in zip(firsts, paces, strict=True)
)

_REGIME_S, _HARSH = 300.0, 1 / 3
_BURST_EVERY_S, _BURST_S = 240.0, 15.0
_OUTAGE_EVERY_S = 720.0
_DRIFT, _DRIFT_S = 0.2, 300.0
_TRANSIENT = 0.003
_TAIL = 5.0
_OUTAGES: tuple[tuple[Failure, float], ...] = (
    ("server", 0.3), ("rate_limit", 0.1), ("connection", 0.05), ("timeout", 0.0),
)  # fmt: skip

# Quantiles of the recorded requests, for where these are not: Mooncake (FAST'25), a chat service, 20 minutes.
_AT = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
_IN = (891, 894, 900, 979, 1819, 3920, 5722, 7889, 10704, 14405, 19697, 29104, 44083, 94991, 121924)
_OUT = (1, 3, 9, 24, 98, 217, 302, 359, 405, 455, 514, 606, 702, 1166, 2000)
_COUNT = 3_658


class Request(NamedTuple):
    """One call."""

    at_s: float
    input_tokens: int
    output_tokens: int
    """Of a model with the factor 1."""
    task: str


def requests() -> tuple[list[Request], str]:
    """The recorded requests where they are, else as many of the same sizes, and which of both."""
    rng = np.random.default_rng(0)
    if _RECORDED.exists():
        rows = [json.loads(line) for line in _RECORDED.read_text(encoding="utf-8").splitlines()]
        # The record has times in steps of three seconds, and those of one step did not come at once.
        moments = np.sort([row["timestamp"] / 1e3 + rng.uniform(0, 3) for row in rows])
        found = ((float(at), row["input_length"], row["output_length"]) for at, row in zip(moments, rows, strict=True))
        return [Request(at, size, tokens, _task(tokens)) for at, size, tokens in found], _RECORDED.stem
    at = np.sort(rng.uniform(0, SECONDS, _COUNT))
    inputs, outputs = (np.interp(rng.uniform(size=_COUNT), _AT, values) for values in (_IN, _OUT))
    made = [Request(float(a), int(i), int(o), _task(int(o))) for a, i, o in zip(at, inputs, outputs, strict=True)]
    return made, "made up, with the quantiles of the recorded ones"


def _task(tokens: int) -> str:
    return "label" if tokens < 100 else "chat" if tokens < 600 else "report"


class Outcome(NamedTuple):
    """What one attempt would come to."""

    first_token_s: float
    decode_s: float
    output_tokens: int
    failure: Failure | None = None
    failed_s: float = 0.0
    """Seconds until the failure is known; without end for a "timeout"."""
    rest_s: float | None = None


class Fleet:
    """Eight models over twenty minutes; the numbers of call n are the same for every caller and every history.

    Each model for itself: first token = (base + slope x tokens) x factor, decoding = tokens / (pace x factor). Factors
    drift (an Ornstein-Uhlenbeck process of their logarithms), jump to another regime for some minutes (two of three
    from a report's tables, the third harsh), and have bursts; in outages nine of ten calls fail. One model is slow
    until it is well again. The catalog's figures are some half off.
    """

    def __init__(self, seed: int, requests: list[Request], *, steady: bool = False) -> None:
        rng = np.random.default_rng(seed)
        count, models = len(requests), len(MODELS)
        self.requests = requests
        self.bases = [
            base._replace(
                base_s=base.base_s * rng.lognormal(0, 0.1),
                per_1k_s=base.per_1k_s * rng.lognormal(0, 0.1),
                tokens_per_s=base.tokens_per_s * rng.lognormal(0, 0.1),
            )
            for base in MODELS
        ]
        self.catalog = self._catalog(rng)
        usual = {name: [one.output_tokens for one in requests if one.task == name] for name in self.catalog.tasks}
        self.mean_tokens = {name: float(np.mean(values)) for name, values in usual.items() if values}
        self.first, self.pace = np.ones((models, SECONDS)), np.ones((models, SECONDS))
        self.failing: list[list[tuple[Failure, float, float] | None]] = [[None] * SECONDS for _ in MODELS]
        for index in range(models):
            self._live(index, rng, steady)
        self._z = rng.standard_normal((count, models, 2))
        self._u = rng.uniform(size=(count, models, 3))

    def _catalog(self, rng: np.random.Generator) -> Catalog:
        """What the catalog says of them is some half off."""
        made = []
        for index, base in enumerate(self.bases):
            off, tilt, pace = rng.lognormal(0, 0.4), rng.lognormal(0, 0.3), rng.lognormal(0, 0.25)
            if index == RETURNED:
                off = tilt = pace = 1.0
            points = tuple((n, off * (base.base_s + tilt * base.per_1k_s * n / 1e3)) for n in (1_000, 10_000))
            made.append(
                CatalogModel(
                    name=f"model-{index}",
                    base_url=f"https://host-{index}.example.com/v1",
                    first_token_s=points,
                    tokens_per_s=pace * base.tokens_per_s,
                    output_factor=base.factor,
                )
            )
        return Catalog(models=tuple(made), tasks={"label": Task(), "chat": Task(), "report": Task()})

    def _live(self, index: int, rng: np.random.Generator, steady: bool) -> None:
        first, pace = self.first[index], self.pace[index]
        left = np.exp(-1 / _DRIFT_S)
        steps = rng.standard_normal((2, SECONDS)) * np.sqrt(1 - left**2)
        for factor, size, step in ((first, _DRIFT, steps[0]), (pace, _DRIFT / 2, steps[1])):
            step[0] = rng.standard_normal()
            factor *= np.exp(size * lfilter([1.0], [1.0, -left], step))
        if steady:
            return
        at = 0.0
        while index != RETURNED and (at := at + rng.exponential(_REGIME_S)) < SECONDS:
            until = min(SECONDS, at + rng.exponential(_REGIME_S))
            factors = REGIMES[rng.integers(len(REGIMES))]
            if rng.uniform() < _HARSH:
                factors = rng.uniform(2, 4), 1 / rng.uniform(1.3, 2.5)
            first[int(at) : int(until)] *= factors[0]
            pace[int(at) : int(until)] *= factors[1]
            at = until
        if index == RETURNED:
            back = int(rng.uniform(300, 540))
            first[:back] *= 4
            pace[:back] /= 2
        at = 0.0
        while (at := at + rng.exponential(_BURST_EVERY_S)) < SECONDS:
            until = at + rng.exponential(_BURST_S)
            first[int(at) : int(until) + 1] *= rng.uniform(2, 5)
            pace[int(at) : int(until) + 1] *= rng.uniform(0.6, 0.9)
        at = 0.0
        while (at := at + rng.exponential(_OUTAGE_EVERY_S)) < SECONDS:
            until = at + float(rng.uniform(20, 90))
            kind, failed_s = _OUTAGES[rng.integers(len(_OUTAGES))]
            for second in range(int(at), min(SECONDS, int(until))):
                self.failing[index][second] = kind, failed_s, until
            at = until

    def change(self, index: int, at_s: float, first: float, pace: float) -> None:
        """From a moment on, multiply what a model does."""
        self.first[index, int(at_s) :] *= first
        self.pace[index, int(at_s) :] *= pace

    def _at(self, at_s: float) -> int:
        return min(SECONDS - 1, int(at_s))

    def failing_at(self, index: int, at_s: float) -> float:
        """The share of calls that fail there now."""
        return 0.9 if self.failing[index][self._at(at_s)] is not None else _TRANSIENT

    def expected_s(self, index: int, number: int, at_s: float) -> float:
        """The mean end-to-end time of call `number` there now, where it does not fail: what the oracle knows."""
        base, now, request = self.bases[index], self._at(at_s), self.requests[number]
        first = (base.base_s + base.per_1k_s * request.input_tokens / 1e3) * self.first[index, now]
        first *= np.exp(base.noise**2 / 2) * (1 + (_TAIL - 1) * base.tail)
        tokens = self.mean_tokens[request.task] * base.factor
        return float(first + tokens / (base.tokens_per_s * self.pace[index, now]) * np.exp(base.pace_noise**2 / 2))

    def outcome(self, index: int, number: int, at_s: float) -> Outcome:
        """What an attempt of call `number` there comes to, begun now."""
        base, now, request = self.bases[index], self._at(at_s), self.requests[number]
        z, u = self._z[number, index], self._u[number, index]
        first = (base.base_s + base.per_1k_s * request.input_tokens / 1e3) * self.first[index, now]
        first *= np.exp(base.noise * z[0]) * (_TAIL if u[0] < base.tail else 1.0)
        tokens = max(1, round(request.output_tokens * base.factor))
        decode = max(0, tokens - 1) / (base.tokens_per_s * self.pace[index, now]) * np.exp(base.pace_noise * z[1])
        outage = self.failing[index][now]
        if outage is not None and u[1] < 0.9:
            kind, failed_s, until_s = outage
            rest_s = max(1.0, min(20.0, until_s - at_s)) if kind == "rate_limit" else None
            return Outcome(first, decode, tokens, kind, np.inf if kind == "timeout" else failed_s, rest_s)
        if u[2] < _TRANSIENT:
            return Outcome(first, decode, tokens, "server", 0.3)
        return Outcome(float(first), float(decode), tokens)


# Ways to choose

_LEAST_TIMEOUT_S = 3.0
_FAILED_S = 30.0
"""What a call costs beyond its attempts where every model has failed."""

# Other seeds than those which it was looked at with while it was made.
_FIRST_SEED = 1_000
_WARM_CALLS, _WATCHED_CALLS = 200, 500
_WINDOW, _ENOUGH = 10, 0.1


_Event = Literal["begin", "first", "end"]


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

    def learn(self, event: _Event, seen: _Seen, at_s: float) -> None:
        """Learn that an attempt has begun, has its first token, or has ended; only then what it came to."""


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

    def learn(self, event: _Event, seen: _Seen, at_s: float) -> None:
        if event != "end":
            return
        if seen.answered:
            self._times[seen.model].append(seen.taken_s)
        else:
            self._rests_s[seen.model] = at_s + 5.0


class _Ours(_Router):
    """fastlane's router, which learns when an attempt begins and when its first token is there."""

    def __init__(self, fleet: Fleet, seed: int = 0) -> None:
        super().__init__(fleet)
        self._router = RoutingRouter(fleet.catalog, random=Random(seed))
        self._end: dict[_Seen, Callable[[bool], None]] = {}
        self.decided_us: list[float] = []

    def rank(self, number: int, at_s: float) -> list[int]:
        request = self.fleet.requests[number]
        query = RouteQuery(task=request.task, kind=request.task, input_tokens=request.input_tokens)
        started = thread_cpu_ns()
        decision = self._router.decide(query, round(at_s * 1e9))
        self.decided_us.append((thread_cpu_ns() - started) / 1e3)
        return [int(candidate.name[-1]) for candidate in decision.ranked]

    def timeout_s(self, index: int, number: int, at_s: float) -> float:
        model, size = self.fleet.catalog.models[index], self.fleet.requests[number].input_tokens
        return self._router.first_token_timeout(model, size, round(at_s * 1e9))

    def learn(self, event: _Event, seen: _Seen, at_s: float) -> None:
        outcome, request = seen.outcome, self.fleet.requests[seen.number]
        model = self.fleet.catalog.models[seen.model]
        if event == "begin":
            self._end[seen] = self._router.began(model, request.input_tokens, round(at_s * 1e9))
            return
        if event == "first":
            self._end[seen](True)
            return
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
        self._pending: list[tuple[float, int, _Event, _Seen]] = []
        self._numbers = count()
        self.first_choices: list[int] = []

    def mean_s(self) -> float:
        """Make all calls, and return the mean of the seconds that they took."""
        return float(np.mean([self.call(number, one.at_s) for number, one in enumerate(self.fleet.requests)]))

    def call(self, number: int, at_s: float) -> float:
        """Make call `number` at a moment that is not before the last one's; return the seconds that it took."""
        while self._pending and self._pending[0][0] <= at_s:
            then_s, _, event, seen = heappop(self._pending)
            self._router.learn(event, seen, then_s)
        now = at_s
        # The next attempt follows the first decision: what other calls learned meanwhile is not used.
        ranked = list(dict.fromkeys(self._router.rank(number, at_s)))
        self.first_choices += ranked[:1]
        for index in ranked:
            timeout_s = self._router.timeout_s(index, number, now)
            seen = _Seen(number, index, self.fleet.outcome(index, number, now), timeout_s)
            self._push(now, "begin", seen)
            if seen.answered:
                self._push(now + seen.outcome.first_token_s, "first", seen)
            now += seen.taken_s
            self._push(now, "end", seen)
            if seen.answered:
                return now - at_s
        return now - at_s + _FAILED_S

    def _push(self, at_s: float, event: _Event, seen: _Seen) -> None:
        heappush(self._pending, (at_s, next(self._numbers), event, seen))


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
    """Compare `Routing` with an oracle in a simulated fleet of eight models that drift, jump and fail.

    The requests are those of a chat service, some three a second for twenty minutes. Each way to choose makes the same
    calls with the same random numbers; a failed or late attempt is followed by one at the next model of the ranking.
    Beside ours: an oracle that knows every distribution of the moment, the best by the catalog, and the least mean of
    the last ten answers. Regret: mean end-to-end time over the oracle's, less 1. Then, in a fleet that only drifts, the
    usual model becomes slow: `left_…_calls` are the calls until at most one of the next ten goes to it in vain.

    Inside: simulated seconds of the calls, failed attempts too. Outside: CPU time (`decide_cpu_us`), connections,
    uploads.
    """
    made, source = requests()
    seeds = range(_FIRST_SEED, _FIRST_SEED + (16 if quick else 40))
    trials = range(_FIRST_SEED, _FIRST_SEED + (60 if quick else 200))
    routers: dict[str, Callable[[Fleet], _Router]] = {"ours": _Ours, "best_by_prior": _ByPrior, "last_ten": _LastTen}
    regrets: dict[str, list[float]] = {name: [] for name in routers}
    decided_us: list[float] = []
    for seed in seeds:
        fleet = Fleet(seed, made)
        oracle_s = _Drive(fleet, _Oracle(fleet)).mean_s()
        for name, make in routers.items():
            router = make(fleet)
            regrets[name].append(_Drive(fleet, router).mean_s() / oracle_s - 1)
            if isinstance(router, _Ours):
                decided_us += router.decided_us
    left = [_left(seed, made) for seed in trials]
    low, high = _interval(regrets["ours"])
    figures: dict[str, Figure] = {
        **{f"{name}_regret_ratio": float(np.mean(values)) for name, values in regrets.items()},
        "ours_regret_low_ratio": low,
        "ours_regret_high_ratio": high,
        "ours_to_last_ten_regret_ratio": float(np.mean(regrets["ours"]) / np.mean(regrets["last_ten"])),
        "left_median_calls": float(np.quantile(left, 0.5, method="higher")),
        "left_p95_calls": float(np.quantile(left, 0.95, method="higher")),
        "decide_cpu_us": middle(decided_us),
    }
    return Report(
        figures=figures,
        reach={
            "ours_regret_ratio": "<= 0.1",
            "ours_to_last_ten_regret_ratio": f"<= {1 / 3}",
            "left_p95_calls": "<= 20",
            "decide_cpu_us": "<= 50",
        },
        conditions={
            "fleets": f"{len(seeds)} seeds from {_FIRST_SEED} on, 8 models, 20 minutes each",
            "requests": f"{len(made):,}, {source}",
            "changes": len(trials),
        },
    )
