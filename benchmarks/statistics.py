"""Whether the bench's verdicts are right: where there is no difference, where it is known, and who brought it.

The provider's times sway as real ones do, with effects that are known. The logarithm of a request's time is a drift
that all requests share (AR(1), standard deviation 0.12, correlation 60 requests), noise of its own (standard deviation
0.2) and, in 3 % of requests, a tail (exponential, mean 0.7). The noise is what the quartiles of time to first token in
a published load report of gpt-4.1-nano give (0.196 and 0.214).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import openai
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import binomtest, mannwhitneyu

from benchmarks._report import Figure, Report
from fastlane import Play, PromptCache, RequestEncoding
from fastlane._clock import now_ns
from fastlane.bench import Arm, Benchmark, Embedded
from fastlane.bench._experiment import RunningProvider
from fastlane.bench.findings import find
from fastlane.bench.load import Closed, RunBudget
from fastlane.bench.progress import MeanSequence
from fastlane.bench.recorded import RecordedRun
from fastlane.bench.statistics import hodges_lehmann, pairs_for_effect, signed_rank_p
from fastlane.bench.workloads import Conversation, Workload
from fastlane.emulator import Emulator, ProviderModel
from fastlane.emulator.wire import Wire
from fastlane.engine.call import Call
from fastlane.engine.session import Session

Floats = NDArray[np.float64]

_METRIC: Final = "time_to_first_token"
_MOST_PAIRS: Final = 1_000

# A provider whose times sway

_NOISE: Final = 0.2
_DRIFT: Final = 0.12
_CORRELATION: Final = 60
_TAIL_SHARE: Final = 0.03
_TAIL: Final = 0.7
_PREFILL_MS: Final = 40.0
# What a request takes here beside the prefill, on a loopback without delay: it has to grow with the arm as well.
_OVERHEAD_MS: Final = 2.5
# Requests a second of one arm, roughly: how fast the drift goes by the clock.
_REQUESTS_PER_S: Final = 40.0


def _drift(requests: int, rng: np.random.Generator) -> Floats:
    """Return an AR(1) path in its stationary state."""
    keeps = math.exp(-1 / _CORRELATION)
    steps = rng.normal(0, _DRIFT * math.sqrt(1 - keeps * keeps), requests)
    path: Floats = lfilter([1.0], [1.0, -keeps], steps, zi=[keeps * rng.normal(0, _DRIFT)])[0]
    return path


def _log_times(requests: int, rng: np.random.Generator) -> Floats:
    logs = _drift(requests, rng) + rng.normal(0, _NOISE, requests)
    found: Floats = logs + (rng.random(requests) < _TAIL_SHARE) * rng.exponential(_TAIL, requests)
    return found


def _simulated(effect: float, pairs: int, seed: int | tuple[int, int]) -> Floats:
    """Return paired log-ratios of an arm that takes `effect` times as long, each pair in an order drawn at random."""
    rng = np.random.default_rng(seed)
    logs = _log_times(2 * pairs, rng)
    first, second = logs[::2], logs[1::2]
    differences: Floats = np.where(rng.random(pairs) < 0.5, first - second, second - first) + math.log(effect)
    return differences


class _Swaying:
    """Says to the emulator, request by request, how long its prefill is to take.

    The drift is a function of the machine's clock and a seed, so that arms in processes of their own share it.
    """

    def __init__(self, effect: float, seed: int = 1) -> None:
        self._effect = effect
        self._random = random.Random()
        self._path = _drift(20_000, np.random.default_rng(seed)).tolist()

    def __call__(self, request: Any) -> None:
        """Set the header: what httpx calls before it sends."""
        at = int(now_ns() / 1e9 * _REQUESTS_PER_S) % len(self._path)
        size = self._path[at] + self._random.gauss(0, _NOISE)
        if self._random.random() < _TAIL_SHARE:
            size += self._random.expovariate(1 / _TAIL)
        # The whole time is to be `effect` times as long, of which the prefill is not all.
        whole = _PREFILL_MS * math.exp(size) * self._effect
        request.headers["x-emulator-prefill-ms"] = f"{whole + _OVERHEAD_MS * (self._effect - 1):.3f}"
        request.headers["x-emulator-token-ms"] = "0.5"


def plain(base_url: str, api_key: str, effect: float = 1.0) -> openai.OpenAI:
    """Make a client whose requests take as long as they take."""
    http_client = openai.DefaultHttpxClient(event_hooks={"request": [_Swaying(effect)]})
    return openai.OpenAI(base_url=base_url, api_key=api_key, http_client=http_client)


def slower_by_5(base_url: str, api_key: str) -> openai.OpenAI:
    """Make a client whose requests take 5 % longer."""
    return plain(base_url, api_key, 1.05)


def slower_by_10(base_url: str, api_key: str) -> openai.OpenAI:
    """Make a client whose requests take 10 % longer."""
    return plain(base_url, api_key, 1.1)


def _one_talk(name: str, *messages: Mapping[str, Any], **more: Any) -> Workload:
    return Workload(name=name, conversations=(Conversation(name="one", messages=messages),), **more)


def _run(arms: Sequence[Arm], pairs: int, *, again: bool, seed: int) -> RecordedRun:
    """Run an experiment of short requests to the embedded provider; the first arm is the reference."""
    return Benchmark(
        arms=tuple(arms),
        reference=arms[0].name,
        workload=_one_talk(
            "one question",
            {"role": "user", "content": "How long does it take?"},
            {"role": "assistant", "content": "As long as it takes, and not the same each time."},
        ),
        load=Closed(users=(6,), think_s=0.0),
        metrics=(_METRIC,),
        provider=Embedded(round_trip_time_s=0.0),
        # Each arm's first request and the one that warms it up are of the budget.
        budget=RunBudget(seconds=None, calls=(len(arms) + again) * (pairs + 2)),
        again=again,
        max_output_tokens=2,
        seed=seed,
    ).run()


def _log_ratios_of(recorded: RecordedRun, arm: str, reference: str) -> list[float]:
    """Return the log-ratios of a run's pairs in the order in which their blocks ended."""
    samples = {(sample.key, sample.arm): sample for sample in recorded.measured() if sample.error is None}
    found = []
    for (key, name), sample in samples.items():
        other = samples.get((key, reference))
        if name == arm and other is not None and sample.time_to_first_token_s and other.time_to_first_token_s:
            ended_ns = max(sample.ended_ns, other.ended_ns)
            found.append((ended_ns, math.log(sample.time_to_first_token_s / other.time_to_first_token_s)))
    return [ratio for _, ratio in sorted(found)]


def _share(name: str, outcomes: Iterable[bool]) -> dict[str, float]:
    """Return the share of outcomes that are true, with its 95 % interval by Wilson, as figures."""
    seen = list(outcomes)
    found = binomtest(sum(seen), len(seen))
    low, high = found.proportion_ci(method="wilson")
    return {f"{name}_share": found.statistic, f"{name}_low_share": float(low), f"{name}_high_share": float(high)}


# Looking at a result again and again

_EVERY: Final = 10
_FIRST_LOOK: Final = 20


class _Looked(NamedTuple):
    """At which number of pairs each rule first reported a difference; None: at none."""

    sequence: int | None
    """The confidence sequence excludes no change."""
    naive: int | None
    """An interval made for a single look excludes no change."""
    bounds: tuple[float, float] | None
    """Of the confidence sequence where it was stopped, in logarithms."""


def _look(log_ratios: Sequence[float]) -> _Looked:
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
        if count % _EVERY or count < _FIRST_LOOK:
            continue
        if "sequence" not in found:
            stopped = sequence.interval()
            if stopped is not None and not stopped[0] <= 0 <= stopped[1]:
                found["sequence"] = count
        if abs(mean) > 1.959964 * math.sqrt(squares / (count - 1) / count):
            found.setdefault("naive", count)
    return _Looked(found.get("sequence"), found.get("naive"), stopped)


def _one_after_the_other(log_ratios: Sequence[float]) -> Iterator[_Looked]:
    """Cut a long series into experiments: each ends with the sequence's verdict, or after 1,000 pairs without one.

    What is left at the end and led to no verdict was no whole experiment, and is left out.
    """
    start = 0
    while start < len(log_ratios):
        series = log_ratios[start : start + _MOST_PAIRS]
        looked = _look(series)
        if looked.sequence is not None:
            yield _look(series[: looked.sequence])
        elif len(series) == _MOST_PAIRS:
            yield looked
        start += looked.sequence or _MOST_PAIRS


# Two arms that are the same


def _rules(name: str, looked: Sequence[_Looked]) -> dict[str, float]:
    return {
        **_share(f"{name}_sequence_false", (each.sequence is not None for each in looked)),
        **_share(f"{name}_naive_false", (each.naive is not None for each in looked)),
    }


def _block_after_block(seed: int, requests: int = 200) -> bool:
    """Return whether a rank test finds a difference between 200 requests and the 200 after them."""
    logs = _log_times(2 * requests, np.random.default_rng((1, seed)))
    return bool(mannwhitneyu(logs[:requests], logs[requests:]).pvalue <= 0.05)


def aa(quick: bool) -> Report:
    """Count differences that are reported between two equal arms, looked at every ten pairs.

    Simulated: 1,000 experiments of 1,000 pairs in random order. Really run: 30 experiments of an arm and its copy. Each
    rule is asked after 20, 30, 40 … pairs; any difference is a false verdict: of the confidence sequence
    (`sequence_…`), and of an interval made for a single look (`naive_…`). The report's interval is asked once, at the
    end (`report_…`). `block_false_share` is the result with one arm after the other, by a rank test.

    Inside: the time to the first token as the caller sees it. Outside: each arm process's first request and warm-up.
    """
    simulations, runs, pairs_each = (200, 2, 60) if quick else (1_000, 30, 300)
    series = [_simulated(1.0, _MOST_PAIRS, seed) for seed in range(simulations)]
    looked, found, pairs, failed = [], [], [], 0
    for seed in range(runs):
        recorded = _run([Arm(name="baseline", client=plain)], pairs_each, again=True, seed=seed)
        again = recorded.header.copies[0].name
        looked.append(_look(_log_ratios_of(recorded, again, "baseline")))
        comparison = find(recorded, seed=seed).cells[0].comparison(again, _METRIC)
        typical = None if comparison is None else comparison.typical
        if comparison is None or typical is None or typical.low is None or typical.high is None:
            raise RuntimeError("as many pairs were to have an interval")
        found.append(typical.low > 1 or typical.high < 1)
        pairs.append(comparison.pairs)
        failed += sum(sample.error is not None for sample in recorded.measured())
    return Report(
        figures={
            **_rules("simulated", [_look(each.tolist()) for each in series]),
            **_share("simulated_report_false", (signed_rank_p(each) <= 0.05 for each in series)),
            **_share("simulated_block_false", map(_block_after_block, range(simulations))),
            **_rules("run", looked),
            **_share("run_report_false", found),
            "run_pairs_each": float(np.median(pairs)),
            "run_failed_requests": failed,
        },
        reach={"simulated_sequence_false_share": "<= 0.05", "run_sequence_false_share": "<= 0.05"},
        conditions={"simulated": simulations, "run": runs, "run_pairs_each_meant": pairs_each},
    )


# Effects that are known

_INTERVAL_PAIRS: Final = 100
_EFFECTS: Final[Mapping[str, tuple[float, Callable[[str, str], openai.OpenAI]]]] = {
    "5": (1.05, slower_by_5), "10": (1.1, slower_by_10)
}  # fmt: skip


def _covered(series: Sequence[float], truth: float) -> list[bool]:
    """Return whether the report's interval holds the truth, for each part of a series."""
    held = []
    for start in range(0, len(series) - _INTERVAL_PAIRS + 1, _INTERVAL_PAIRS):
        interval = hodges_lehmann(series[start : start + _INTERVAL_PAIRS])
        if interval is None or interval.low is None or interval.high is None:
            raise RuntimeError("as many pairs were to have an interval")
        held.append(interval.low <= truth <= interval.high)
    return held


def _found(name: str, looked: Sequence[_Looked], covered: Sequence[bool], truth: float) -> dict[str, Figure]:
    found = [each for each in looked if each.sequence is not None]
    right = [each for each in found if each.bounds is not None and each.bounds[0] > 0]
    calls = [2 * each.sequence for each in right if each.sequence is not None]
    return {
        **_share(f"{name}_found", (each in right for each in looked)),
        f"{name}_experiments": len(looked),
        f"{name}_wrong_way": len(found) - len(right),
        f"{name}_calls_mean": float(np.mean(calls)) if calls else None,
        f"{name}_calls_p90": float(np.quantile(calls, 0.9)) if calls else None,
        **_share(f"{name}_interval_covers", covered),
        **_share(
            f"{name}_sequence_covers",
            (each.bounds is None or each.bounds[0] <= truth <= each.bounds[1] for each in looked),
        ),
    }


def _truth(recorded: RecordedRun, effect: float) -> float:
    """Return the logarithm of what an arm's whole time is of the reference's, for a request of the usual size.

    The emulator was set to take `effect` times the prefill, and the usual overhead once more for what it is of the
    effect; what the rest of a request's time really was is known from the provider's own stamps.
    """
    log = {entry.tag: entry for entry in recorded.log or ()}
    prefills, others = [], []
    for sample in recorded.measured(arm="plain"):
        entry = log.get(sample.tag)
        if entry is None or entry.first_token_ns is None or entry.body_complete_ns is None or not sample.token_ns:
            continue
        prefills.append((entry.first_token_ns - entry.body_complete_ns) / 1e6)
        others.append((sample.token_ns[0] - sample.issued_ns) / 1e6 - prefills[-1])
    prefill, other = median(prefills), median(others)
    return math.log((effect * prefill + (effect - 1) * _OVERHEAD_MS + other) / (prefill + other))


def _really_run(pairs: int) -> dict[str, Figure]:
    arms = [Arm(name=f"{name} percent slower", client=client) for name, (_, client) in _EFFECTS.items()]
    recorded = _run([Arm(name="plain", client=plain), *arms], pairs, again=False, seed=1)
    figures: dict[str, Figure] = {}
    for name, (effect, _) in _EFFECTS.items():
        series = _log_ratios_of(recorded, f"{name} percent slower", "plain")
        truth = _truth(recorded, effect)
        looked, covered, interval = list(_one_after_the_other(series)), _covered(series, truth), hodges_lehmann(series)
        if looked:
            figures |= _found(f"run_{name}", looked, covered, truth)
        else:
            # The noise is so high that no experiment came to its end: say what one would take.
            figures |= {f"run_{name}_found_share": None, f"run_{name}_interval_covers_share": None}
            figures |= _share(f"run_{name}_interval_covers", covered) if covered else {}
            needed = None if interval is None else pairs_for_effect(replace(interval, value=truth), len(series))
            figures[f"run_{name}_pairs_needed"] = needed
        figures[f"run_{name}_truth_ratio"] = math.exp(truth)
        figures[f"run_{name}_seen_ratio"] = None if interval is None else math.exp(interval.value)
    figures["run_failed_requests"] = sum(sample.error is not None for sample in recorded.measured())
    return figures


def power(quick: bool) -> Report:
    """Count how often known effects of 5 % and 10 % are found, after how many calls, and what intervals hold.

    Simulated: 1,000 experiments for each effect, looked at every ten pairs until the confidence sequence excludes no
    change, 1,000 pairs at most. Really run: a plain arm and two whose prefill is 5 % or 10 % longer; the long series of
    pairs is cut into experiments. `found_share` had the right verdict, `wrong_way` the opposite, `calls_…` are the
    calls of an experiment that found it. `interval_covers_share` is the report's interval after each 100 pairs,
    `sequence_covers_share` the sequence where it stopped. The truth is what was injected, by the provider's own log.

    Inside: the time to the first token as the caller sees it. Outside: each arm process's first request and its
    warm-up.
    """
    experiments, pairs = (100, 600) if quick else (1_000, 8_000)
    figures: dict[str, Figure] = {}
    for name, (effect, _) in _EFFECTS.items():
        truth = math.log(effect)
        series = [_simulated(effect, _MOST_PAIRS, (round(100 * effect), seed)).tolist() for seed in range(experiments)]
        covered = [held for each in series for held in _covered(each[:_INTERVAL_PAIRS], truth)]
        figures |= _found(f"simulated_{name}", list(map(_look, series)), covered, truth)
    return Report(
        figures={**figures, **_really_run(pairs)},
        reach={
            "simulated_10_found_share": ">= 0.9",
            "run_10_found_share": ">= 0.9",
            **{f"{kind}_{name}_interval_covers_share": ">= 0.93" for kind in ("simulated", "run") for name in _EFFECTS},
        },
        conditions={"simulated": experiments, "run_pairs_each": pairs},
    )


# Which play brought what: plays that each leave out known parts of a prompt

_PART_TOKENS: Final = 1_500
_PARTS: Final = 5
_SECONDS_PER_TOKEN: Final = 20e-6


def _mark(part: int) -> str:
    return f"Part {part}. "


def _part(part: int) -> str:
    characters = 4 * _PART_TOKENS
    return (_mark(part) + "What was left out is not read again. " * characters)[:characters]


@dataclass(frozen=True, slots=True)
class _Trimming(Play):
    parts: ClassVar[frozenset[int]] = frozenset()

    def open(self, call: Call) -> Session:
        return _LeavingOut(self.parts)


class _LeavingOut(Session):
    def __init__(self, parts: frozenset[int]) -> None:
        self._parts = parts

    def plan(self, call: Call) -> Call:
        messages = call.body.get("messages", [])
        kept = [message for message in messages if not self._trims(message)]
        return call.with_body("left parts of the prompt out", messages=kept) if len(kept) < len(messages) else call

    def _trims(self, message: Any) -> bool:
        text = message.get("content") if isinstance(message, Mapping) else None
        # The first message has the engine's salt before its part.
        return isinstance(text, str) and any(_mark(part) in text[:200] for part in self._parts)


@dataclass(frozen=True, slots=True)
class Beginning(_Trimming):
    """Leaves out the second and the third part."""

    parts: ClassVar[frozenset[int]] = frozenset({1, 2})


@dataclass(frozen=True, slots=True)
class Middle(_Trimming):
    """Leaves out the third and the fourth part, the third of which `Beginning` leaves out as well."""

    parts: ClassVar[frozenset[int]] = frozenset({2, 3})


@dataclass(frozen=True, slots=True)
class End(_Trimming):
    """Leaves out the last part."""

    parts: ClassVar[frozenset[int]] = frozenset({4})


_TRIMMING: Final = (Beginning(), Middle(), End())


def _known(blocks: int) -> dict[str, Figure]:
    parts = ({"role": "user", "content": _part(part)} for part in range(_PARTS))
    answer = {"role": "assistant", "content": "Read, as far as it was there."}
    recorded = _attribute(
        _TRIMMING,
        _one_talk("five parts", *parts, answer, caching_forbidden=True),
        Embedded(round_trip_time_s=0.02),
        users=4,
        calls=(2 * len(_TRIMMING) + 2) * (blocks + 2),
    )
    # A part that two leave out is saved by both half.
    each_ms = _PART_TOKENS * _SECONDS_PER_TOKEN * 1e3
    takers = {part: sum(part in play.parts for play in _TRIMMING) for part in range(_PARTS)}
    truth = {repr(play): -sum(each_ms / takers[part] for part in play.parts) for play in _TRIMMING}
    return _attributed("known", recorded, truth)


# Plays whose effect the provider's log shows

_PLAYS: Final = (RequestEncoding(forms=("json+gzip",)), PromptCache())
_MACHINES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Narrow(Embedded):
    """The embedded provider with eight machines that keep prompts, behind a wire of a finite rate."""

    def describe(self) -> str:
        return f"embedded provider, {_MACHINES} machines, round trip {self.round_trip_time_s * 1e3:g} ms, 10 Mbit/s"

    @contextmanager
    def running(self) -> Iterator[RunningProvider]:
        wire = Wire(round_trip_time_s=self.round_trip_time_s, rate_bits_per_s=10e6)
        model = ProviderModel(
            prefill_base_s=0.05, prefill_s_per_token=10e-6, inter_token_s=0.001, cache_machines=_MACHINES
        )
        with Emulator(model=model, seed=self.seed, wire=wire) as emulator:
            yield RunningProvider(
                base_url=emulator.base_url,
                api_key="none",
                model=self.model,
                environment=dict(emulator.environment),
                one_way_s=self.round_trip_time_s / 2,
                read_log=emulator.log,
            )


def _phases_ms(recorded: RecordedRun, arm: str) -> tuple[float, float]:
    """Return how long an arm's uploads and prefills took on average, by the provider's log."""
    log = {entry.tag: entry for entry in recorded.log or ()}
    uploads, prefills = [], []
    for sample in recorded.measured(arm=arm):
        entry = log[sample.tag]
        if entry.body_complete_ns is not None and entry.first_token_ns is not None:
            uploads.append((entry.body_complete_ns - entry.received_ns) / 1e6)
            prefills.append((entry.first_token_ns - entry.body_complete_ns) / 1e6)
    return fmean(uploads), fmean(prefills)


def _real(blocks: int) -> dict[str, Figure]:
    lines = (
        f"def step_{at}(value: int) -> int:\n    return value * {at % 97} + {at * 7919 % 9973}\n" for at in range(900)
    )
    messages: list[Mapping[str, str]] = [{"role": "system", "content": "\n".join(lines)}]
    for turn in range(6):
        messages.append({"role": "user", "content": f"What does step_{turn * 41} return for {turn}?"})
        messages.append({"role": "assistant", "content": "The value that its last line says."})
    workload, provider = _one_talk("long prompt", *messages), _Narrow(round_trip_time_s=0.04)
    recorded = _attribute(_PLAYS, workload, provider, users=1, calls=(2 + len(_PLAYS)) * (blocks + 2))
    without, having = (_phases_ms(recorded, name) for name in ("none", "every play"))
    truth = {repr(play): having[at] - without[at] for at, play in enumerate(_PLAYS)}
    return _attributed("real", recorded, truth)


def _attribute(plays: Sequence[Play], workload: Workload, provider: Embedded, *, users: int, calls: int) -> RecordedRun:
    return Benchmark(
        arms=(),
        attribute=tuple(plays),
        workload=workload,
        load=Closed(users=(users,), think_s=0.02),
        metrics=(_METRIC,),
        provider=provider,
        budget=RunBudget(seconds=None, calls=calls),
        again=False,
        max_output_tokens=2,
    ).run()


def _attributed(kind: str, recorded: RecordedRun, truth: Mapping[str, float]) -> dict[str, Figure]:
    (attribution,) = find(recorded).attributions
    total = attribution.total.value
    figures: dict[str, Figure] = {f"{kind}_total_ms": total}
    errors = []
    for each in attribution.shares:
        name = f"{kind}_{each.play.partition('(')[0].lower()}"
        errors.append(abs(each.share.value - truth[each.play]) / abs(total))
        figures |= {
            f"{name}_ms": each.share.value,
            f"{name}_low_ms": each.share.low,
            f"{name}_high_ms": each.share.high,
            f"{name}_true_ms": truth[each.play],
            f"{name}_error_share": errors[-1],
        }
    return figures | {
        f"{kind}_interaction_ms": attribution.interaction.value,
        f"{kind}_true_total_ms": sum(truth.values()),
        f"{kind}_worst_error_share": max(errors),
    }


def attribution(quick: bool) -> Report:
    """Compare what is attributed to each of several plays with its known share of the gain.

    Arms for no play, each play alone, all but each, and all. `known_…`: three plays leave known parts of a prompt out,
    one part being left out by two of them; the emulator takes 20 us a token. `real_…`: `RequestEncoding()` and
    `PromptCache()` over 10 Mbit/s to eight machines; by the provider's log, what becomes shorter of the upload is the
    former's, of the prefill the latter's. `…_error_share` is by how much a part misses its truth, of the whole change.
    Inside: the time to the first token as the caller sees it, its mean over all blocks. Outside: each arm process's
    first request and warm-up.
    """
    known, real = (16, 10) if quick else (200, 200)
    return Report(
        figures={**_known(known), **_real(real)},
        reach={"known_worst_error_share": "<= 0.1", "real_worst_error_share": "<= 0.1"},
        conditions={"known_blocks": known, "real_blocks": real},
    )
