"""A provider whose times sway as real ones do, in numbers and in the emulator, with effects that are known.

The logarithm of a request's time is a drift that all requests share (AR(1), standard deviation 0.12, correlation 60
requests), noise of its own (standard deviation 0.2) and, in 3 % of requests, a tail (exponential, mean 0.7). The noise
is what the quartiles of time to first token in a published load report of gpt-4.1-nano give (0.196 and 0.214).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import openai
from numpy.typing import NDArray
from scipy.stats import binomtest

from fastlane._clock import now_ns
from fastlane.bench import Arm, Benchmark
from fastlane.bench.load import Closed, RunBudget
from fastlane.bench.progress import MeanSequence
from fastlane.bench.recorded import RecordedRun
from fastlane.bench.workloads import Conversation, Workload

Floats = NDArray[np.float64]

METRIC: Final = "time_to_first_token"
NOISE: Final = 0.2
DRIFT: Final = 0.12
CORRELATION: Final = 60
TAIL_SHARE: Final = 0.03
TAIL: Final = 0.7
LANES: Final = 6
PREFILL_MS: Final = 40.0
# What a request takes here beside the prefill, on a loopback without delay: it has to grow with the arm as well.
OVERHEAD_MS: Final = 2.5
# Requests a second of one arm, roughly: how fast the drift goes by the clock.
_REQUESTS_PER_S: Final = 40.0


def simulated(effect: float, pairs: int, seed: int | tuple[int, int]) -> Floats:
    """Return paired log-ratios of an arm that takes `effect` times as long, each pair in an order drawn at random."""
    random_ = np.random.default_rng(seed)
    requests = 2 * pairs
    logs = drift(requests, random_) + random_.normal(0, NOISE, requests)
    logs += (random_.random(requests) < TAIL_SHARE) * random_.exponential(TAIL, requests)
    first, second = logs[::2], logs[1::2]
    ours_first = random_.random(pairs) < 0.5
    differences: Floats = np.where(ours_first, first - second, second - first) + math.log(effect)
    return differences


def drift(requests: int, random_: np.random.Generator) -> Floats:
    """Return an AR(1) path in its stationary state."""
    keeps = math.exp(-1 / CORRELATION)
    steps = random_.normal(0, DRIFT * math.sqrt(1 - keeps * keeps), requests)
    path = np.empty(requests)
    value = random_.normal(0, DRIFT)
    for at, step in enumerate(steps):
        value = keeps * value + step
        path[at] = value
    return path


class Swaying:
    """Says to the emulator, request by request, how long its prefill is to take.

    The drift is a function of the machine's clock and a seed, so that arms in processes of their own share it.
    """

    def __init__(self, effect: float, seed: int = 1) -> None:
        self._effect = effect
        self._random = random.Random()
        path = np.random.default_rng(seed)
        self._path = drift(20_000, path).tolist()

    def __call__(self, request: Any) -> None:
        """Set the header: what httpx calls before it sends."""
        at = int(now_ns() / 1e9 * _REQUESTS_PER_S) % len(self._path)
        size = self._path[at] + self._random.gauss(0, NOISE)
        if self._random.random() < TAIL_SHARE:
            size += self._random.expovariate(1 / TAIL)
        # The whole time is to be `effect` times as long, of which the prefill is not all.
        whole = PREFILL_MS * math.exp(size) * self._effect
        request.headers["x-emulator-prefill-ms"] = f"{whole + OVERHEAD_MS * (self._effect - 1):.3f}"
        request.headers["x-emulator-token-ms"] = "0.5"


def plain(base_url: str, api_key: str, effect: float = 1.0) -> openai.OpenAI:
    """Make a client whose requests take as long as they take."""
    http_client = openai.DefaultHttpxClient(event_hooks={"request": [Swaying(effect)]})
    return openai.OpenAI(base_url=base_url, api_key=api_key, http_client=http_client)


def slower_by_5(base_url: str, api_key: str) -> openai.OpenAI:
    """Make a client whose requests take 5 % longer."""
    return plain(base_url, api_key, 1.05)


def slower_by_10(base_url: str, api_key: str) -> openai.OpenAI:
    """Make a client whose requests take 10 % longer."""
    return plain(base_url, api_key, 1.1)


def run(arms: Sequence[Arm], pairs: int, *, again: bool, seed: int) -> RecordedRun:
    """Run an experiment of short requests to the embedded provider; the first arm is the reference."""
    from fastlane.bench import Embedded

    messages = (
        {"role": "user", "content": "How long does it take?"},
        {"role": "assistant", "content": "As long as it takes, and not the same each time."},
    )
    return Benchmark(
        arms=tuple(arms),
        reference=arms[0].name,
        workload=Workload(name="one question", conversations=(Conversation(name="one", messages=messages),)),
        load=Closed(users=(LANES,), think_s=0.0),
        metrics=(METRIC,),
        provider=Embedded(round_trip_time_s=0.0),
        # Each arm's first request and the one that warms it up are of the budget.
        budget=RunBudget(seconds=None, calls=(len(arms) + again) * (pairs + 2)),
        again=again,
        max_output_tokens=2,
        seed=seed,
    ).run()


def log_ratios_of(recorded: RecordedRun, arm: str, reference: str) -> list[float]:
    """Return the log-ratios of a run's pairs in the order in which their blocks ended."""
    samples = {(sample.key, sample.arm): sample for sample in recorded.measured() if sample.error is None}
    found = []
    for (key, name), sample in samples.items():
        other = samples.get((key, reference))
        if name == arm and other is not None and sample.time_to_first_token_s and other.time_to_first_token_s:
            ended_ns = max(sample.ended_ns, other.ended_ns)
            found.append((ended_ns, math.log(sample.time_to_first_token_s / other.time_to_first_token_s)))
    return [ratio for _, ratio in sorted(found)]


def share(name: str, outcomes: Iterable[bool]) -> dict[str, float]:
    """Return the share of outcomes that are true, with its 95 % interval by Wilson, as figures."""
    seen = list(outcomes)
    found = binomtest(sum(seen), len(seen))
    low, high = found.proportion_ci(method="wilson")
    return {f"{name}_share": found.statistic, f"{name}_low_share": float(low), f"{name}_high_share": float(high)}


# Looking at a result again and again

EVERY: Final = 10
_FIRST_LOOK: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """At which number of pairs each rule first said that there is a difference; None: at none."""

    pairs: int
    sequence: int | None
    """The confidence sequence excludes no change."""
    naive: int | None
    """An interval made for a single look excludes no change."""
    low: float | None = None
    """Bounds of the confidence sequence where it was stopped, in logarithms."""
    high: float | None = None

    def covers(self, truth: float) -> bool:
        """Whether the confidence sequence held the truth where it was stopped."""
        return self.low is None or self.high is None or self.low <= truth <= self.high


def look(log_ratios: Sequence[float]) -> Looked:
    """Let each rule look at a series every ten pairs."""
    sequence = MeanSequence()
    found: dict[str, int] = {}
    stopped: tuple[float, float] | None = None
    mean = squares = 0.0
    for count, value in enumerate(log_ratios, start=1):
        sequence.add(value)
        before = value - mean
        mean += before / count
        squares += before * (value - mean)
        if count % EVERY or count < _FIRST_LOOK:
            continue
        interval = sequence.interval()
        if "sequence" not in found:
            stopped = interval
            if interval is not None and not interval[0] <= 0 <= interval[1]:
                found["sequence"] = count
        if abs(mean) > 1.959964 * math.sqrt(squares / (count - 1) / count):
            found.setdefault("naive", count)
    low, high = stopped or (None, None)
    return Looked(
        pairs=len(log_ratios),
        sequence=found.get("sequence"),
        naive=found.get("naive"),
        low=low,
        high=high,
    )


def one_after_the_other(log_ratios: Sequence[float], most: int) -> Iterator[Looked]:
    """Cut a long series into experiments: each ends with the sequence's verdict, or after `most` pairs without one.

    What is left at the end and led to no verdict was no whole experiment, and is left out.
    """
    start = 0
    while start < len(log_ratios):
        series = log_ratios[start : start + most]
        looked = look(series)
        if looked.sequence is None:
            if len(series) == most:
                yield looked
            start += most
        else:
            yield look(series[: looked.sequence])
            start += looked.sequence
