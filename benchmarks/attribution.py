"""Whether the gain of several plays is attributed to the play that brought it: against costs that are known.

Two runs of the engine with arms for no play, each play alone, all but each, and all. `known_…`: three plays made for
this leave known parts of a prompt out, for which the emulator takes 20 us a token, one part being left out by two of
them: the truth is arithmetic, half of a shared part for each. `real_…`: `RequestEncoding()` and `PromptCache()` on a
wire of 10 Mbit/s to a provider of eight machines that keep prompts each for themselves. Their truth is by the
provider's own log of the same run: what becomes shorter from a request's head to the end of its body is the upload,
which is what `RequestEncoding()` is for, and from there to the first token the prefill, which is what `PromptCache()`
is for. `…_error_share` is by how much an attributed part misses its truth, as a share of the whole change; `…_ms` are
the parts themselves and the truth of each.

Inside: the time to the first token as the caller sees it, its mean over all blocks. Outside: each arm process's first
request and its warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Final

from benchmarks._report import Figure, Report
from fastlane import Play, PromptCache, RequestEncoding
from fastlane.bench import Benchmark, Embedded
from fastlane.bench._provider import RunningProvider
from fastlane.bench.findings import Attribution, find
from fastlane.bench.load import Closed, RunBudget
from fastlane.bench.recorded import RecordedRun
from fastlane.bench.workloads import Conversation, Workload
from fastlane.emulator import Emulator, ProviderModel
from fastlane.emulator.wire import Wire
from fastlane.engine.call import Call
from fastlane.engine.session import Session

_METRIC = "time_to_first_token"
_RATE_BITS_PER_S = 10e6
_LANES = 4
_TURNS = 6
_MACHINES = 8
_PLAYS = (RequestEncoding(forms=("json+gzip",)), PromptCache())


# Plays whose effect is known to the token: each leaves out known parts of a prompt

_PART_TOKENS: Final = 1_500
_PARTS: Final = 5
_SECONDS_PER_TOKEN: Final = 20e-6
_SENTENCE: Final = "What was left out is not read again. "


def _mark(part: int) -> str:
    return f"Part {part}. "


def _part(part: int) -> str:
    characters = 4 * _PART_TOKENS
    return (_mark(part) + _SENTENCE * (characters // len(_SENTENCE) + 1))[:characters]


def _five_parts() -> Workload:
    """Return one request whose prompt has five parts of the same length."""
    messages: tuple[Mapping[str, Any], ...] = (
        *({"role": "user", "content": _part(part)} for part in range(_PARTS)),
        {"role": "assistant", "content": "Read, as far as it was there."},
    )
    return Workload(
        name="five parts",
        conversations=(Conversation(name="one", messages=messages),),
        caching_forbidden=True,
    )


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


def _true_parts_ms() -> dict[str, float]:
    """Return what each play saves of the time to the first token; a part that two leave out is saved by both half."""
    each_ms = _PART_TOKENS * _SECONDS_PER_TOKEN * 1e3
    takers = {part: sum(part in play.parts for play in _TRIMMING) for part in range(_PARTS)}
    return {repr(play): -sum(each_ms / takers[part] for part in play.parts) for play in _TRIMMING}


# Plays whose effect the provider's log shows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Narrow(Embedded):
    """The embedded provider with eight machines that keep prompts, behind a wire of a finite rate."""

    def describe(self) -> str:
        return f"embedded provider, {_MACHINES} machines, round trip {self.round_trip_time_s * 1e3:g} ms, 10 Mbit/s"

    @contextmanager
    def running(self) -> Iterator[RunningProvider]:
        wire = Wire(round_trip_time_s=self.round_trip_time_s, rate_bits_per_s=_RATE_BITS_PER_S)
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


def _long_conversation() -> Workload:
    lines = (
        f"def step_{at}(value: int) -> int:\n    return value * {at % 97} + {at * 7919 % 9973}\n" for at in range(900)
    )
    messages: list[Mapping[str, str]] = [{"role": "system", "content": "\n".join(lines)}]
    for turn in range(_TURNS):
        messages.append({"role": "user", "content": f"What does step_{turn * 41} return for {turn}?"})
        messages.append({"role": "assistant", "content": "The value that its last line says."})
    return Workload(name="long prompt", conversations=(Conversation(name="steps", messages=tuple(messages)),))


def _attributed(recorded: RecordedRun) -> Attribution:
    (attribution,) = find(recorded).attributions
    return attribution


def _figures(kind: str, attribution: Attribution, truth: Mapping[str, float]) -> dict[str, Figure]:
    total = attribution.total.value
    figures: dict[str, Figure] = {f"{kind}_total_ms": total}
    errors = []
    for each in attribution.shares:
        name = each.play.partition("(")[0].lower()
        true_ms = truth[each.play]
        errors.append(abs(each.share.value - true_ms) / abs(total))
        figures |= {
            f"{kind}_{name}_ms": each.share.value,
            f"{kind}_{name}_low_ms": each.share.low,
            f"{kind}_{name}_high_ms": each.share.high,
            f"{kind}_{name}_true_ms": true_ms,
            f"{kind}_{name}_error_share": errors[-1],
        }
    figures |= {
        f"{kind}_interaction_ms": attribution.interaction.value,
        f"{kind}_true_total_ms": sum(truth.values()),
        f"{kind}_worst_error_share": max(errors),
    }
    return figures


def _run(plays: Sequence[Play], workload: Workload, provider: Embedded, *, users: int, calls: int) -> RecordedRun:
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


def _known(blocks: int) -> dict[str, Figure]:
    calls = (2 * len(_TRIMMING) + 2) * (blocks + 2)
    recorded = _run(_TRIMMING, _five_parts(), Embedded(round_trip_time_s=0.02), users=_LANES, calls=calls)
    return _figures("known", _attributed(recorded), _true_parts_ms())


def _real(blocks: int) -> dict[str, Figure]:
    calls = (2 + len(_PLAYS)) * (blocks + 2)
    recorded = _run(_PLAYS, _long_conversation(), _Narrow(round_trip_time_s=0.04), users=1, calls=calls)
    none, every = (_phases_ms(recorded, name) for name in ("none", "every play"))
    truth = dict(
        zip(map(repr, _PLAYS), (after - before for before, after in zip(none, every, strict=True)), strict=True)
    )
    return _figures("real", _attributed(recorded), truth)


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


def measure(quick: bool) -> Report:
    """Run both, and compare."""
    known, real = (16, 10) if quick else (200, 200)
    return Report(
        figures={**_known(known), **_real(real)},
        reach={"known_worst_error_share": "<= 0.1", "real_worst_error_share": "<= 0.1"},
        conditions={"known_blocks": known, "real_blocks": real},
    )
