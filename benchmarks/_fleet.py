"""A simulated fleet of eight models whose pace depends on the prompt, drifts, jumps, has fits and fails, by a seed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastlane.knowledge.sightings import Failure
from fastlane.plays.routing.catalog.models import Catalog, CatalogModel, Task

Floats = NDArray[np.float64]

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
    if _RECORDED.exists():
        rows = [json.loads(line) for line in _RECORDED.read_text(encoding="utf-8").splitlines()]
        sizes = [(row["input_length"], row["output_length"]) for row in rows]
        found = zip(_spread(rows), sizes, strict=True)
        return [Request(at, size, tokens, _task(tokens)) for at, (size, tokens) in found], _RECORDED.stem
    rng = np.random.default_rng(0)
    at = np.sort(rng.uniform(0, SECONDS, _COUNT))
    inputs, outputs = (np.interp(rng.uniform(size=_COUNT), _AT, values) for values in (_IN, _OUT))
    made = [Request(float(a), int(i), int(o), _task(int(o))) for a, i, o in zip(at, inputs, outputs, strict=True)]
    return made, "made up, with the quantiles of the recorded ones"


def _spread(rows: list[dict[str, int]]) -> list[float]:
    """When they came, in seconds: the record says it in steps of three, and those of one step did not come at once."""
    at_once = Counter(row["timestamp"] for row in rows)
    steps = sorted(at_once)
    ends = dict(zip(steps, [*steps[1:], steps[-1] + 1], strict=True))
    before: Counter[int] = Counter()
    made = []
    for row in rows:
        at_ms = row["timestamp"]
        made.append((at_ms + (ends[at_ms] - at_ms) * before[at_ms] / at_once[at_ms]) / 1e3)
        before[at_ms] += 1
    return made


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
    """Eight models over twenty minutes; the numbers of call n are the same, whoever asks and whatever was asked before.

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
            drift = np.empty(SECONDS)
            drift[0] = rng.standard_normal()
            for second in range(1, SECONDS):
                drift[second] = left * drift[second - 1] + step[second]
            factor *= np.exp(size * drift)
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
