"""What several upstreams, or a second attempt, are worth: `Routing` and `Hedging` over emulated providers.

The providers have processes of their own, on loopback, over TLS and HTTP/2.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._client import chunks, first_content_ms, has_content, in_mode, ours, run, settled, wishes
from benchmarks._lives import MortalProvider
from benchmarks._paired import middle, percentile
from benchmarks._provider import ASKED, by_tag, entry, providers
from benchmarks._report import Figure, Report
from benchmarks._servers import trusted
from fastlane._clock import now_ns
from fastlane.catalog import Catalog, Route
from fastlane.emulator import Emulator, ProviderModel, Quantiles, RequestLog
from fastlane.plays.hedging.play import Hedging


def _routed(base_url: str, play: fastlane.Routing, **options: Any) -> fastlane.AsyncOpenAI:
    plays = [fastlane.Connection(), play]
    return fastlane.AsyncOpenAI(base_url=base_url, api_key="none", only_plays=plays, raise_play_errors=True, **options)


# Calls of two sizes over three upstreams


class _Upstream(NamedTuple):
    """What an upstream does, and what the catalog says of it."""

    base_s: float
    s_per_token: float
    tokens_per_s: float
    catalog_first_s: float
    """At 1,000 tokens."""
    catalog_tokens_per_s: float

    def model(self) -> ProviderModel:
        base = self.base_s
        return ProviderModel(
            prefill_base_s=Quantiles(((0.0, 0.85 * base), (0.5, base), (0.9, 1.25 * base), (1.0, 1.8 * base))),
            prefill_s_per_token=self.s_per_token,
            inter_token_s=1 / self.tokens_per_s,
            inter_token_jitter=0.2,
            prompt_cache=False,
        )


_UPSTREAMS: Mapping[str, _Upstream] = {
    "near": _Upstream(0.06, 60e-6, 200, 0.15, 220),
    "reader": _Upstream(0.25, 5e-6, 150, 0.20, 200),
    "writer": _Upstream(0.40, 20e-6, 800, 0.60, 550),
}
_SIZES: Mapping[str, tuple[int, int, int]] = {"short": (200, 10, 30), "long": (8_000, 150, 250)}
"""Tokens in, and the least and the most tokens out."""
_LANES = 12
_ARMS = ("routed", "by_catalog", "in_turns")


class _Call(NamedTuple):
    size: str
    arm: str
    upstream: str
    """Which answered."""
    taken_s: float


def _by_catalog() -> str:
    def total_s(name: str) -> float:
        one = _UPSTREAMS[name]
        return sum(
            one.catalog_first_s + (least + most) / 2 / one.catalog_tokens_per_s for _, least, most in _SIZES.values()
        )

    return min(_UPSTREAMS, key=total_s)


async def _taken(client: openai.AsyncOpenAI, size: str, number: int, upstream: str | None) -> tuple[str, float]:
    """Return which upstream answered, and the seconds to the end of its stream."""
    tokens_in, least, most = _SIZES[size]
    tokens_out = random.Random(number).randint(least, most)
    text = f"{number}: {size}. " + "Is it late? " * (tokens_in // 3)
    started = now_ns()
    stream = await client.chat.completions.create(
        model=upstream or Route(task=size),
        messages=[{"role": "user", "content": text}],
        stream=True,
        extra_headers=wishes(tag=f"{size}:{number}", draw=number, output_tokens=tokens_out),
    )
    tokens, answered = 0, ""
    async for chunk in stream:
        tokens += has_content(chunk)
        answered = chunk.model or answered
    if tokens != tokens_out:
        raise RuntimeError(f"a call was to bring {tokens_out} tokens, and brought {tokens}")
    return answered, (now_ns() - started) / 1e9


async def _route_all(started: Mapping[str, Emulator], calls: int) -> list[_Call]:
    catalog = Catalog(
        models=tuple(
            entry(
                name,
                started[name].base_url,
                first_token_s=[(1_000, one.catalog_first_s)],
                tokens_per_s=one.catalog_tokens_per_s,
            )
            for name, one in _UPSTREAMS.items()
        )
    )
    async with AsyncExitStack() as stack:
        plain: dict[str, Any] = {}
        for name, emulator in started.items():
            plain[name] = await stack.enter_async_context(ours("async", emulator.base_url))
            await plain[name].models.list()
        play = fastlane.Routing(catalog, forward_headers=ASKED)
        routed = await stack.enter_async_context(_routed(started["near"].base_url, play))

        async def lane(seed: int) -> list[_Call]:
            order, found = random.Random(seed), []
            # Pairs of both sizes, so that every lane has calls of each.
            for number in (number for first in range(2 * seed, calls, 2 * _LANES) for number in (first, first + 1)):
                size = ("short", "long")[number % 2]
                # Each size goes round on its own, or one size would always meet the same upstreams.
                turn = list(_UPSTREAMS)[number // 2 % len(_UPSTREAMS)]
                for arm in order.sample(_ARMS, len(_ARMS)):
                    upstream = {"routed": None, "by_catalog": _by_catalog(), "in_turns": turn}[arm]
                    client = routed if upstream is None else plain[upstream]
                    found.append(_Call(size, arm, *await _taken(client, size, number, upstream)))
            return found

        return [call for found in await asyncio.gather(*map(lane, range(_LANES))) for call in found]


def _mean_s(calls: Sequence[_Call]) -> float:
    return sum(call.taken_s for call in calls) / len(calls)


def routing(quick: bool) -> Report:
    """Compare `Routing` with the best upstream by the catalog, and with taking turns, for calls of two sizes.

    Every other call is short (200 tokens in, 10 to 30 out), the others long (8,000 in, 150 to 250 out). One upstream
    begins soonest, one reads fastest, one writes fastest; the catalog's figures are some a third off. All arms make the
    same calls in random order. Best one, and best each (for each size): with hindsight, by the means that the turns
    measured. Inside: from the call to the end of the stream. Outside: opening connections, but those that a routed call
    opens.
    """
    with providers(models=[one.model() for one in _UPSTREAMS.values()]) as started:
        calls = asyncio.run(_route_all(dict(zip(_UPSTREAMS, started, strict=True)), 72 if quick else 480))
        for one in (one for emulator in started for one in emulator.log()):
            if one.method == "POST" and one.finished_ns is None and one.reset_ns is None:
                raise RuntimeError(f"a provider still sends the answer {one.tag}")
    arms = {arm: [call for call in calls if call.arm == arm] for arm in _ARMS}
    figures: dict[str, Figure] = {}
    for arm, made in arms.items():
        p95_ms = percentile([1e3 * call.taken_s for call in made], 0.95)
        figures |= {f"usual_{arm}_mean_ms": 1e3 * _mean_s(made), f"usual_{arm}_p95_ms": p95_ms}
    means = {
        size: {
            name: _mean_s([call for call in arms["in_turns"] if (call.size, call.upstream) == (size, name)])
            for name in _UPSTREAMS
        }
        for size in _SIZES
    }
    best_one = min(sum(means[size][name] for size in _SIZES) for name in _UPSTREAMS) / len(_SIZES)
    best_each = sum(min(of_size.values()) for of_size in means.values()) / len(_SIZES)
    routed = _mean_s(arms["routed"])
    figures |= {
        "usual_best_each_mean_ms": 1e3 * best_each,
        "usual_by_catalog_to_routed_ratio": _mean_s(arms["by_catalog"]) / routed,
        "usual_in_turns_to_routed_ratio": _mean_s(arms["in_turns"]) / routed,
        "usual_best_one_to_routed_ratio": best_one / routed,
        "usual_routed_to_best_each_ratio": routed / best_each,
    }
    for size, of_size in means.items():
        sent = [call.upstream for call in arms["routed"] if call.size == size]
        figures[f"usual_{size}_at_its_best_share"] = sent.count(min(of_size, key=of_size.__getitem__)) / len(sent)
    return Report(
        figures={**figures, "calls_of_an_arm": len(arms["routed"])},
        reach={
            "usual_by_catalog_to_routed_ratio": ">= 1.3",
            "usual_in_turns_to_routed_ratio": ">= 1.3",
            "usual_best_one_to_routed_ratio": ">= 1",
        },
    )


# An upstream that is killed, or falls silent

_CALLS_PER_S = 50
_DOWN_S = 12.0
_LOOKED_AT_S = 10.0
_FIRST_S = {"first": 0.15, "second": 0.25}
_TOKENS_PER_S = 100.0


@dataclass
class _Due:
    """One call, as its application saw it."""

    due_ns: int
    stream: bool
    issued_ns: int = 0
    first_ns: int | None = None
    failed: bool = False
    record: fastlane.CallRecord | None = None

    @property
    def answered_by(self) -> str | None:
        routing = self.record.routing if self.record is not None else None
        return routing.model if routing is not None else None


_own: contextvars.ContextVar[_Due] = contextvars.ContextVar("own")


def _keep(record: fastlane.CallRecord) -> None:
    _own.get().record = record


async def _make(client: openai.AsyncOpenAI, call: _Due, number: int) -> None:
    _own.set(call)
    call.issued_ns = now_ns()
    asked: dict[str, Any] = {
        "model": "fastlane/auto",
        "messages": [{"role": "user", "content": f"Ticket {number}. " + "It is late. " * 200}],
        "max_tokens": 20,
        "extra_headers": wishes(output_tokens=20),
    }
    try:
        answer = await client.chat.completions.create(stream=call.stream, **asked)
        if call.stream:
            async for chunk in chunks(answer):
                if call.first_ns is None and has_content(chunk):
                    call.first_ns = now_ns()
    except Exception:  # noqa: BLE001 - whatever it is, the call has failed
        call.failed = True
    if not call.stream and call.record is not None:
        call.first_ns = call.record.timeline.first_token_ns


async def _load(client: openai.AsyncOpenAI, started_ns: int, seconds: float) -> list[_Due]:
    """Make calls at a steady pace, whatever becomes of those before."""
    calls, tasks = [], []
    for number in range(round(seconds * _CALLS_PER_S)):
        due_ns = started_ns + number * 1_000_000_000 // _CALLS_PER_S
        await asyncio.sleep(max(0.0, (due_ns - now_ns()) / 1e9))
        calls.append(_Due(due_ns, stream=number % 2 == 0))
        tasks.append(asyncio.create_task(_make(client, calls[-1], number)))
    await asyncio.gather(*tasks)
    return calls


async def _fail_over(
    variant: str, first: MortalProvider, second: MortalProvider, settle_s: float, before_s: float, watch_s: float
) -> dict[str, Figure]:
    models = [
        entry(name, one.base_url, first_token_s=[(1_000, _FIRST_S[name])], tokens_per_s=_TOKENS_PER_S)
        for name, one in (("first", first), ("second", second))
    ]
    catalog = Catalog(models=tuple(models))
    play = fastlane.Routing(catalog, forward_headers=ASKED)
    async with _routed(first.base_url, play, on_call_end=[_keep]) as client:
        for number in range(3):  # one after the other, so that Python has loaded what it needs
            await _make(client, _Due(now_ns(), stream=number % 2 == 0), -number)
        started_ns = now_ns() + 100_000_000
        load = asyncio.create_task(_load(client, started_ns, settle_s + before_s + _DOWN_S + watch_s))
        await asyncio.sleep(settle_s + before_s + (started_ns - now_ns()) / 1e9)
        timeout_s = play.knowledge.router.first_token_timeout(catalog.named("first"), 620, now_ns())
        gone_ns = now_ns()
        first.kill() if variant == "killed" else first.signal(signal.SIGSTOP)
        await asyncio.sleep(_DOWN_S)
        # It takes a moment to be there again; the calls go on meanwhile.
        if variant == "killed":
            await asyncio.to_thread(first.start)
        else:
            first.signal(signal.SIGCONT)
        back_ns = now_ns()
        calls = await load
    if any(one.record is None for one in calls):
        raise RuntimeError("a call left no record")
    had = sum(one.answered_by == "second" and not one.failed for one in calls)
    log = [one for one in second.log() if one.method == "POST"]
    sent = sum(one.finished_ns is not None and one.reset_ns is None for one in log)
    if sent < had or any(one.finished_ns is None and one.reset_ns is None for one in log):
        raise RuntimeError(f"the second upstream sent {sent} whole answers, and {had} were had from it")
    before: list[float] = []
    after: list[float] = []
    for one in calls:
        if one.first_ns is not None and -before_s <= (one.due_ns - gone_ns) / 1e9 < _LOOKED_AT_S:
            # A call that waited for a first token when it happened is hit by it.
            (before if one.first_ns < gone_ns else after).append((one.first_ns - one.due_ns) / 1e6)
    added_ms = percentile(after, 0.95) - percentile(before, 0.95)
    failed = [one for one in calls if one.failed]
    again = next((one for one in calls if one.due_ns >= back_ns and one.answered_by == "first"), None)
    return {
        "failed_before_first_token": sum(one.first_ns is None for one in failed),
        "failed_after_first_token": sum(one.first_ns is not None for one in failed),
        "p95_before_ms": percentile(before, 0.95),
        "p95_after_ms": percentile(after, 0.95),
        "added_p95_ms": added_ms,
        "first_token_timeout_ms": 1e3 * timeout_s,
        "added_p95_to_timeout_ratio": added_ms / 1e3 / timeout_s,
        "slowest_after_ms": max(after),
        "used_again_after_s": None if again is None else (again.due_ns - back_ns) / 1e9,
        "calls": len(calls),
        "p99_issued_late_ms": percentile([(one.issued_ns - one.due_ns) / 1e6 for one in calls], 0.99),
    }


def _over(runs: Sequence[dict[str, Figure]]) -> Iterator[tuple[str, Figure]]:
    """Yield the median of the runs; of failures all, and of what may not be longer than something the worst."""
    for name in runs[0]:
        known = [value for one in runs if (value := one[name]) is not None]
        if name.startswith("failed") or name == "calls":
            yield name, sum(known)
        elif name == "added_p95_to_timeout_ratio":
            yield name, max(known)
        else:
            yield name, middle(known) if len(known) == len(runs) else None


def failover(quick: bool) -> Report:
    """Measure what calls notice when an upstream is killed or falls silent, and when it is used again.

    50 calls a second, every other one streamed, ask for "fastlane/auto" with `Routing` over two providers. The faster
    one is killed (SIGKILL) or stopped (SIGSTOP), and is back on the same port 12 s later. A stream that breaks behind
    its first token cannot be tried again, and counts apart. Inside: from when a call was due to its first content, or,
    if it is not streamed, to the first token as recorded. Added p95: of the calls that were waiting or due in the 10 s
    after, less that of the calls before; its bar is the first-token timeout that `Routing` had learned, at least a
    second.
    """
    times, rounds = ((1.5, 3.0, 3.0), 1) if quick else ((5.0, 10.0, 20.0), 2)
    models = {
        name: ProviderModel(
            prefill_base_s=base_s, prefill_s_per_token=10e-6, inter_token_s=1 / _TOKENS_PER_S, inter_token_jitter=0.2
        )
        for name, base_s in _FIRST_S.items()
    }
    variants = ("killed", "silent")
    figures: dict[str, Figure] = {}
    for variant in variants:
        runs = []
        for _ in range(rounds):
            with (
                MortalProvider(models["first"]) as first,
                MortalProvider(models["second"]) as second,
                trusted((first.authority_pem, second.authority_pem)),
            ):
                runs.append(asyncio.run(_fail_over(variant, first, second, *times)))
        figures |= {f"{variant}_{name}": value for name, value in _over(runs)}
    return Report(
        figures={**figures, "rounds": rounds},
        reach={
            **{f"{variant}_failed_before_first_token": "== 0" for variant in variants},
            **{f"{variant}_added_p95_to_timeout_ratio": "<= 1" for variant in variants},
        },
        conditions={"before_s": times[1], "watched_after_s": times[2]},
    )


# A second attempt

_LATE: dict[str, tuple[float, int, int]] = {"1": (0.0125, 3_200, 512), "8": (0.08, 800, 96), "30": (0.3, 320, 128)}
"""By name: the share that is late, and pairs in a whole and in a quick run."""
_SIDES = ("without", "with")
_AT_ONCE = 32
_LEARNING = 64
_RESAMPLES = 1_000
_ANSWER = ("Yes, it is. " * 10).strip()
_QUESTION: list[Any] = [{"role": "user", "content": "Is water wet, or only what it touches? " * 100}]
_Lanes = Sequence[Sequence[int]]


class _Hedged(NamedTuple):
    """What came of one share of late ones."""

    ttft_ms: dict[tuple[str, int], float]
    ended_ns: dict[tuple[str, int], int]
    records: list[fastlane.CallRecord]
    """Of the arm with the play, in the order in which the calls ended."""


async def _hedge(mode: str, base_url: str, play: Hedging, stages: Sequence[_Lanes], found: _Hedged) -> None:
    clients = {
        "without": ours(mode, base_url, raise_play_errors=True),
        "with": ours(mode, base_url, play, raise_play_errors=True, on_call_end=[found.records.append]),
    }

    async def timed(client: Any, arm: str, number: int) -> None:
        ms = await first_content_ms(client, _ANSWER, _QUESTION, tag=f"{arm}:{number}", draw=number)
        found.ttft_ms[arm, number], found.ended_ns[arm, number] = ms, now_ns()

    async def lane(numbers: Sequence[int]) -> None:
        for number in numbers:
            for arm in reversed(_SIDES) if number % 2 else _SIDES:
                await in_mode(clients[arm], timed, arm, number)

    for lanes in stages:
        await asyncio.gather(*map(lane, lanes))
    for client in clients.values():
        await settled(client.close())


def _hedge_all(emulator: Emulator, pairs: int) -> _Hedged:
    found, play = _Hedged({}, {}, []), Hedging()
    learning = [range(lane, _LEARNING, _AT_ONCE) for lane in range(_AT_ONCE)]
    lanes = [range(_LEARNING + lane, _LEARNING + pairs, _AT_ONCE) for lane in range(_AT_ONCE)]
    first_half = [numbers[: len(numbers) // 2] for numbers in lanes]
    second_half = [numbers[len(numbers) // 2 :] for numbers in lanes]
    run(_hedge("sync", emulator.base_url, play, [learning, first_half], found))
    run(_hedge("async", emulator.base_url, play, [second_half], found))
    return found


def _tokens(request: RequestLog) -> int:
    return request.prompt_tokens + request.output_tokens


def _late_figures(found: _Hedged, log: Sequence[RequestLog]) -> dict[str, Figure]:
    everything = sorted({number for _, number in found.ttft_ms})
    # The play learns from the first ones what is usual; what they and their second attempts cost counts all the same.
    numbers = everything[_LEARNING:]
    sent = by_tag(log)
    tokens = extra = generating = not_reset = 0
    for number in everything:
        requests = sent[f"with:{number}"]
        answered = [request for request in requests if request.finished_ns is not None and request.reset_ns is None]
        if not answered:
            raise RuntimeError("a call was to be answered")
        answer = min(answered, key=lambda request: request.finished_ns or 0)
        tokens += _tokens(answer)
        for loser in (request for request in requests if request is not answer):
            extra += _tokens(loser)
            not_reset += loser.reset_ns is None
            generating += any(token_ns > found.ended_ns["with", number] for token_ns in loser.token_ns)
    hedged = [
        record.hedging if record.hedging is not None and record.hedging.hedged else None for record in found.records
    ]
    second = [one for one in hedged if one is not None]
    second_half = hedged[len(hedged) // 2 :]

    def values(arm: str, of: Sequence[int]) -> list[float]:
        return [found.ttft_ms[arm, number] for number in of]

    def ratio(of: Sequence[int]) -> float:
        return percentile(values("without", of), 0.99) / percentile(values("with", of), 0.99)

    # The 95 % interval of the ratio: the pairs drawn again, with replacement.
    drawing = random.Random(0)
    drawn = sorted(ratio(drawing.choices(numbers, k=len(numbers))) for _ in range(_RESAMPLES))
    figures: dict[str, Figure] = {
        "late_share": sum(sent[f"without:{number}"][0].late for number in numbers) / len(numbers)
    }
    for arm in _SIDES:
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            figures[f"{arm}_ttft_{name}_ms"] = percentile(values(arm, numbers), share)
    return figures | {
        "ttft_p99_ratio": ratio(numbers),
        "ttft_p99_low_ratio": drawn[round(0.025 * _RESAMPLES)],
        "ttft_p99_high_ratio": drawn[round(0.975 * _RESAMPLES) - 1],
        "second_attempts": len(second),
        "second_attempts_won": sum(bool(one.won) for one in second),
        "extra_tokens_share": extra / tokens,
        "told_extra_tokens_share": sum(one.extra_input_tokens or 0 for one in second) / tokens,
        "losers_still_generating": generating,
        "losers_not_reset": not_reset,
        "second_half_hedged_share": sum(one is not None for one in second_half) / len(second_half),
    }


def hedging(quick: bool) -> Report:
    """Measure what a second attempt is worth where first tokens are late: the slow end, and the price.

    A provider is 20 times as late with 1.25 %, 8 % and 30 % of its first tokens. Two of our clients ask it the same in
    pairs, with and without `Hedging()`, half in threads and half in tasks, 32 at a time; both draw the same luck for
    their first attempt. Inside: from the call to its first content. Outside: connections, and the first calls, of which
    the play learns. Tokens are by the provider's log: of requests that did not become the answer, against those that
    did. A loser still generates if it was sent a token after the application had its whole answer.
    """
    figures: dict[str, Figure] = {}
    for name, (share, pairs, few) in _LATE.items():
        model = ProviderModel(
            prefill_base_s=Quantiles.from_quartiles(0.072, 0.08, 0.092),
            inter_token_s=0.002,
            late_share=share,
            late_factor=20,
        )
        with providers(model=model) as (emulator,):
            found = _hedge_all(emulator, few if quick else pairs)
            late = _late_figures(found, emulator.log())
        figures |= {f"late_{name}_{figure}": value for figure, value in late.items()}
    return Report(
        figures=figures,
        reach={
            "late_1_ttft_p99_ratio": ">= 4",
            **{f"late_{name}_extra_tokens_share": f"<= {Hedging().budget}" for name in _LATE},
            **{f"late_{name}_losers_still_generating": "== 0" for name in _LATE},
            **{f"late_{name}_losers_not_reset": "== 0" for name in _LATE},
            "late_30_second_half_hedged_share": "<= 0.02",
        },
    )
