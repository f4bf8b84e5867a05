"""Calls of two sizes over three upstreams: `Routing` against the best one by its catalog, and against taking turns.

Every other call is short (200 tokens in, 10 to 30 out), the others long (8,000 in, 150 to 250 out), a task each. One
upstream begins soonest and reads slowly, one reads fastest, one writes fastest: none is the best for both sizes. The
catalog has one figure of each for 1,000 tokens, some of them a third off, and does not say how fast they read. All arms
make the same calls, in random order one after the other, in several lanes at once; equal draws give equal delays. By
the catalog: all calls at the upstream whose figures give the least mean over both sizes. In turns: at one after the
other. Best one, and best each (for each size): with hindsight, by the means that the turns have measured; what is
routed also pays for finding out. Inside: from the application's call to the end of the stream. Outside: opening
connections, but those that a routed call opens. The streams are as most applications ask for them, without usage.
Providers in processes of their own, on loopback.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._provider import ASKED, entry, upstreams
from benchmarks._report import Figure, Report
from benchmarks._transport import ours, percentile, wishes
from fastlane._clock import now_ns
from fastlane.catalog import Catalog, Route
from fastlane.emulator import Emulator, ProviderModel
from fastlane.emulator.settings import Quantiles


class _Upstream(NamedTuple):
    """What an upstream does, and what the catalog says of it."""

    base_s: float
    s_per_token: float
    tokens_per_s: float
    said_first_s: float
    """At 1,000 tokens."""
    said_tokens_per_s: float


class _Size(NamedTuple):
    tokens_in: int
    least_out: int
    most_out: int


_UPSTREAMS: Mapping[str, _Upstream] = {
    "near": _Upstream(0.06, 60e-6, 200, 0.15, 220),
    "reader": _Upstream(0.25, 5e-6, 150, 0.20, 200),
    "writer": _Upstream(0.40, 20e-6, 800, 0.60, 550),
}
_SIZES: Mapping[str, _Size] = {"short": _Size(200, 10, 30), "long": _Size(8_000, 150, 250)}
_LANES = 12
_ARMS = ("routed", "by_catalog", "in_turns")


class _Call(NamedTuple):
    size: str
    arm: str
    upstream: str
    """Which answered."""
    taken_s: float


def _provider(one: _Upstream) -> ProviderModel:
    base = Quantiles(((0.0, 0.85 * one.base_s), (0.5, one.base_s), (0.9, 1.25 * one.base_s), (1.0, 1.8 * one.base_s)))
    return ProviderModel(
        prefill_base_s=base,
        prefill_s_per_token=one.s_per_token,
        inter_token_s=1 / one.tokens_per_s,
        inter_token_jitter=0.2,
        prompt_cache=False,
    )


def _by_catalog() -> str:
    """The upstream that one would choose by the catalog alone."""

    def mean_s(one: _Upstream) -> float:
        return sum(
            one.said_first_s + (size.least_out + size.most_out) / 2 / one.said_tokens_per_s for size in _SIZES.values()
        )

    return min(_UPSTREAMS, key=lambda name: mean_s(_UPSTREAMS[name]))


class _Clients(NamedTuple):
    routed: openai.AsyncOpenAI
    plain: Mapping[str, openai.AsyncOpenAI]


async def _lane(clients: _Clients, numbers: Sequence[int], seed: int) -> list[_Call]:
    order, found = random.Random(seed), []
    for number in numbers:
        size = ("short", "long")[number % 2]
        # Each size goes round on its own, or one size would always meet the same upstreams.
        turn = list(_UPSTREAMS)[number // 2 % len(_UPSTREAMS)]
        for arm in order.sample(_ARMS, len(_ARMS)):
            upstream = {"routed": None, "by_catalog": _by_catalog(), "in_turns": turn}[arm]
            client = clients.routed if upstream is None else clients.plain[upstream]
            answered, taken_s = await _taken(client, size, number, upstream)
            found.append(_Call(size, arm, answered, taken_s))
    return found


async def _taken(client: openai.AsyncOpenAI, size: str, number: int, upstream: str | None) -> tuple[str, float]:
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
        tokens += bool(chunk.choices and chunk.choices[0].delta.content)
        answered = chunk.model or answered
    if tokens != tokens_out:
        raise RuntimeError(f"a call was to bring {tokens_out} tokens, and brought {tokens}")
    return answered, (now_ns() - started) / 1e9


async def _run(started: Mapping[str, Emulator], calls: int) -> list[_Call]:
    """Make all calls, in lanes."""
    catalog = Catalog(
        models=tuple(
            entry(
                name,
                started[name].base_url,
                first_token_s=[(1_000, one.said_first_s)],
                tokens_per_s=one.said_tokens_per_s,
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
        routed = fastlane.AsyncOpenAI(
            base_url=started["near"].base_url,
            api_key="none",
            only_plays=[fastlane.Connection(), play],
            raise_play_errors=True,
        )
        clients = _Clients(await stack.enter_async_context(routed), plain)
        # Pairs of both sizes, so that every lane has calls of each.
        pairs = [range(first, first + 2) for first in range(0, calls, 2)]
        lanes = [[number for pair in pairs[lane::_LANES] for number in pair] for lane in range(_LANES)]
        done = await asyncio.gather(*(_lane(clients, lane, seed) for seed, lane in enumerate(lanes)))
        return [call for lane in done for call in lane]


def _mean(calls: Sequence[_Call]) -> float:
    return sum(call.taken_s for call in calls) / len(calls)


def _figures(calls: Sequence[_Call]) -> dict[str, Figure]:
    arms = {arm: [call for call in calls if call.arm == arm] for arm in _ARMS}
    figures: dict[str, Figure] = {}
    for arm, made in arms.items():
        taken = [1e3 * call.taken_s for call in made]
        figures |= {f"usual_{arm}_mean_ms": 1e3 * _mean(made), f"usual_{arm}_p95_ms": percentile(taken, 0.95)}
    means = {
        (size, name): _mean([call for call in arms["in_turns"] if (call.size, call.upstream) == (size, name)])
        for size in _SIZES
        for name in _UPSTREAMS
    }
    best_one = min(sum(means[size, name] for size in _SIZES) for name in _UPSTREAMS) / len(_SIZES)
    best_each = sum(min(means[size, name] for name in _UPSTREAMS) for size in _SIZES) / len(_SIZES)
    routed = _mean(arms["routed"])
    figures |= {
        "usual_best_each_mean_ms": 1e3 * best_each,
        "usual_by_catalog_to_routed_ratio": _mean(arms["by_catalog"]) / routed,
        "usual_in_turns_to_routed_ratio": _mean(arms["in_turns"]) / routed,
        "usual_best_one_to_routed_ratio": best_one / routed,
        "usual_routed_to_best_each_ratio": routed / best_each,
    }
    for size in _SIZES:
        best = min(_UPSTREAMS, key=lambda name: means[size, name])
        sent = [call.upstream for call in arms["routed"] if call.size == size]
        figures[f"usual_{size}_at_its_best_share"] = sent.count(best) / len(sent)
    return figures


def measure(quick: bool) -> Report:
    """Run all arms."""
    calls = 72 if quick else 480
    with upstreams([_provider(one) for one in _UPSTREAMS.values()]) as started:
        found = asyncio.run(_run(dict(zip(_UPSTREAMS, started, strict=True)), calls))
        for one in (one for emulator in started for one in emulator.log()):
            if one.method == "POST" and one.finished_ns is None and one.reset_ns is None:
                raise RuntimeError(f"a provider still sends the answer {one.tag}")
    figures = _figures(found)
    figures["calls_of_an_arm"] = calls
    return Report(
        figures=figures,
        reach={
            "usual_by_catalog_to_routed_ratio": ">= 1.3",
            "usual_in_turns_to_routed_ratio": ">= 1.3",
            "usual_best_one_to_routed_ratio": ">= 1",
        },
    )
