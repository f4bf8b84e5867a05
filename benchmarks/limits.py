"""What keeping to limits is worth: `RateLimits` at a provider's limits per minute, `Urgency` at its concurrent calls.

Emulated providers, over TLS and HTTP/2.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._client import MESSAGES, chunks, has_content, in_mode, ours, run, settled, wishes
from benchmarks._paired import percentile
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Report
from fastlane._clock import now_ns
from fastlane.emulator import Emulator, ProviderModel, Quantiles, RequestLog
from fastlane.emulator.settings import KeyRateLimits
from scripts.servers import RedisServer, available

# Limits per minute

_REQUESTS, _TOKENS = 600.0, 60_000.0
_KINDS = {"bucket": "bucket", "window": "fixed", "quantized": "quantized", "quantized_requests": "quantized"}
_REPLICAS = 3
_OFFERED_PER_S = 20.0
_LEAST_TOKENS, _MOST_TOKENS = 20, 100
"""The limits that calls name for their answers, evenly spread."""
_PROMPT = "Is water wet, or is it only what it touches that is wet? Say why you think so, and how sure you are. " * 2
_GIVEN_UP = "given up at the end"


class _Load(NamedTuple):
    model: str
    per_s: float = _OFFERED_PER_S
    store: str | None = None
    seed: int = 0

    def client(self, base_url: str) -> Any:
        """Return the client of a side, with its own defaults for retries and timeouts."""
        arguments: dict[str, Any] = {"base_url": base_url, "api_key": "benchmark"}
        if self.model.startswith("stock"):
            return openai.AsyncOpenAI(**arguments)
        plays = [fastlane.Connection(), fastlane.RateLimits(store=self.store)]
        return fastlane.AsyncOpenAI(**arguments, only_plays=plays)


async def _offer(loads: Sequence[_Load], base_url: str, seconds: float) -> dict[str, Counter[str]]:
    """Offer all loads at once for so long, then give up what still waits. Return how calls ended, by model."""
    ended: dict[str, Counter[str]] = {load.model: Counter() for load in loads}
    until_ns = now_ns() + int(seconds * 1e9)

    async def call(client: Any, model: str, tokens: int) -> None:
        how = "answered"
        try:
            await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": _PROMPT}],
                max_tokens=tokens,
                extra_headers=wishes(tag=tokens),
            )
        except asyncio.CancelledError:
            how = _GIVEN_UP
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the call has failed
            how = "failed"
        finally:
            ended[model][how] += 1

    async def side(load: _Load) -> None:
        random = Random(load.seed)
        calls: set[asyncio.Task[None]] = set()
        async with load.client(base_url) as client:
            next_ns = now_ns()
            while (next_ns := next_ns + int(random.expovariate(load.per_s) * 1e9)) < until_ns:
                await asyncio.sleep(max(0.0, (next_ns - now_ns()) / 1e9))
                task = asyncio.create_task(call(client, load.model, random.randint(_LEAST_TOKENS, _MOST_TOKENS)))
                calls.add(task)
                task.add_done_callback(calls.discard)
            await asyncio.sleep(max(0.0, (until_ns - now_ns()) / 1e9))
            left = tuple(calls)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    await asyncio.gather(*map(side, loads))
    return ended


def _offer_apart(loads: Sequence[_Load], base_url: str, seconds: float) -> dict[str, Counter[str]]:
    return asyncio.run(_offer(loads, base_url, seconds))


def _limited(burst: float) -> ProviderModel:
    names = [*(f"{client}-{kind}" for client in ("ours", "stock") for kind in _KINDS), "three", "three_store"]
    limits = {
        name: KeyRateLimits(
            requests_per_minute=_REQUESTS,
            tokens_per_minute=None if name.endswith("_requests") else _TOKENS,
            window=_KINDS.get(name.partition("-")[2], "bucket"),  # type: ignore[arg-type]
            burst=1.0 if "quantized" in name else burst,
        )
        for name in names
    }
    return ProviderModel(
        prefill_base_s=Quantiles.from_quartiles(0.2, 0.3, 0.5), inter_token_s=0.005, model_rate_limits=limits
    )


def _used(model: str, how: Counter[str], log: Sequence[RequestLog], from_s: float, until_ns: int) -> dict[str, Figure]:
    """Return what became of one side's calls, and how much of its limits it used."""
    name = model.replace("-", "_").removeprefix("ours_")
    asked = [one for one in log if one.model == model and one.status is not None]
    from_ns = min(one.received_ns for one in asked) + int(from_s * 1e9)
    minutes = (until_ns - from_ns) / 60e9
    minutes = float(int(minutes)) if minutes >= 1 else minutes
    end_ns = from_ns + int(minutes * 60e9)
    admitted = [one for one in asked if one.status == 200 and from_ns <= one.received_ns < end_ns]
    tokens = sum(one.prompt_tokens + int(one.tag or 0) for one in admitted)
    requests_used, tokens_used = len(admitted) / _REQUESTS, tokens / _TOKENS
    over = sum(how.values()) - how[_GIVEN_UP]
    return {
        f"{name}_refused_ratio": sum(one.status == 429 for one in asked) / max(1, len(asked)),
        f"{name}_useful_ratio": max(requests_used, 0.0 if name.endswith("_requests") else tokens_used) / minutes,
        f"{name}_failed_ratio": how["failed"] / max(1, over),
    }


def pacing(quick: bool) -> Report:
    """Count refusals, and how much of a rate limit is used, at twice its load: `RateLimits()` and the stock client.

    The provider allows each model 600 requests and 60,000 tokens a minute, as a bucket, as a window of a minute, and as
    a bucket that is filled by the second (`quantized`; `quantized_requests` has no limit of tokens). 20 calls of about
    100 tokens a second are offered to each. `three`: three processes share the load and the bucket; `three_store`: with
    Redis.

    Inside: everything that the provider received, by its own log. `_refused_ratio`: 429 among all responses.
    `_useful_ratio`: what was admitted of the limit that is nearer, in whole minutes from the second on.
    `_failed_ratio`: calls that ended with an error. Outside: how long calls wait; what waits at the end is cancelled.
    """
    # A bucket that holds a tenth of a minute is empty soon enough for a short run; in that there is no second window.
    seconds, from_s, burst = (36.0, 12.0, 0.1) if quick else (200.0, 60.0, 1.0)
    own, stock = ([_Load(f"{side}-{kind}", seed=at) for at, kind in enumerate(_KINDS)] for side in ("ours", "stock"))
    with (
        providers(model=_limited(burst)) as (emulator,),
        available(RedisServer()) as server,
        ProcessPoolExecutor(1 + _REPLICAS, mp_context=multiprocessing.get_context("spawn")) as others,
    ):
        # The stock clients in a process of their own, so that their thousands of retries do not hold up ours.
        apart = [stock]
        for number in range(_REPLICAS):
            replica = [_Load("three", _OFFERED_PER_S / _REPLICAS, None, 100 + number)]
            if server is not None:
                replica.append(_Load("three_store", _OFFERED_PER_S / _REPLICAS, server.url, 200 + number))
            apart.append(replica)
        running = [others.submit(_offer_apart, loads, emulator.base_url, seconds) for loads in apart]
        until_ns = now_ns() + int(seconds * 1e9)
        ended = asyncio.run(_offer(own, emulator.base_url, seconds))
        for other in running:
            for model, how in other.result().items():
                ended.setdefault(model, Counter()).update(how)
        log = emulator.log()
    figures: dict[str, Figure] = {}
    for model, how in ended.items():
        figures |= _used(model, how, log, from_s, until_ns)
    if server is None:
        figures |= {f"three_store_{what}_ratio": None for what in ("refused", "useful", "failed")}
    names = (*_KINDS, "three", "three_store")
    reach = {f"{name}_refused_ratio": "<= 0.01" for name in names}
    if not quick:
        reach |= {f"{name}_useful_ratio": ">= 0.95" for name in names}
    return Report(figures=figures, reach=reach, conditions={"seconds": seconds, "useful from, s": from_s})


# Concurrent calls

_PER_S = 40 / 60 * 5
_ANSWER_TOKENS = 24
_DECODE_S = 0.4
_HEADLINES = "queueing_16", "refusing_16"


_FULL = {"idle": (1, 15), "without": (4, 15), "with": (15, 30)}
_QUICK = {"idle": (1, 8), "without": (3, 6), "with": (8, 14)}
"""Seconds to warm up, and seconds that are measured."""


class _Mixed:
    """Interactive calls at random moments, and a flood of background ones."""

    def __init__(self, emulator: Emulator, arm: str, most: int | None) -> None:
        plays = [fastlane.Urgency(max_concurrency=most)] if arm == "with" else []
        own: dict[str, Any] = {"max_retries": openai.DEFAULT_MAX_RETRIES, "raise_play_errors": True}
        self._arm = arm
        self._clients = [ours(mode, emulator.base_url, *plays, **own) for mode in ("async", "sync")]
        self.ttft_ms: list[tuple[int, float | None]] = []
        """When each interactive call was issued, and its time to the first token; None if it failed."""

    async def run(self, seconds: tuple[int, int], flood: int) -> tuple[int, int]:
        """Make calls, and return from when to when they count."""
        background = [asyncio.create_task(self._flood(number)) for number in range(flood)]
        coming = asyncio.create_task(self._come())
        await asyncio.sleep(seconds[0])
        begun_ns = now_ns()
        await asyncio.sleep(seconds[1])
        ended_ns = now_ns()
        coming.cancel()
        # Calls that started in that time run to their end.
        await asyncio.gather(*await coming)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for client in self._clients:
            await settled(client.close())
        return begun_ns, ended_ns

    async def _come(self) -> list[asyncio.Task[None]]:
        random = Random(0)
        issued: list[asyncio.Task[None]] = []
        try:
            while True:
                await asyncio.sleep(random.expovariate(_PER_S))
                client = self._clients[len(issued) % 2]
                issued.append(asyncio.create_task(in_mode(client, self._interactive)))
        except asyncio.CancelledError:
            return issued

    async def _stream(self, client: Any, tag: str) -> Any:
        headers = wishes(tag=f"{self._arm}:{tag}")
        call = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, extra_headers=headers)
        return chunks(await settled(call))

    async def _interactive(self, client: Any) -> None:
        issued_ns = now_ns()
        ms = None
        try:
            async for chunk in await self._stream(client, "interactive"):
                if ms is None and has_content(chunk):
                    ms = (now_ns() - issued_ns) / 1e6
        except openai.OpenAIError:
            pass
        self.ttft_ms.append((issued_ns, ms))

    async def _flood(self, number: int) -> None:
        random = Random(number)
        with fastlane.urgency("background"):
            while True:
                try:
                    async for _ in await self._stream(self._clients[0], "background"):
                        pass
                except openai.OpenAIError:
                    await asyncio.sleep(random.uniform(0.05, 0.15))


def _in_slot_s(log: Sequence[RequestLog], tag: str, begun_ns: int, ended_ns: int) -> float:
    """Return the seconds for which requests of one tag had a slot, within that time."""
    total = 0
    for request in log:
        if request.tag == tag and request.admitted_ns is not None and request.status == 200:
            until_ns = request.finished_ns or request.reset_ns or ended_ns
            total += max(0, min(until_ns, ended_ns) - max(request.admitted_ns, begun_ns))
    return total / 1e9


def _mixed(emulator: Emulator, arm: str, seconds: tuple[int, int], slots: int, most: int | None) -> dict[str, Figure]:
    emulator.clear()
    calls = _Mixed(emulator, arm, most)
    begun_ns, ended_ns = run(calls.run(seconds, 0 if arm == "idle" else 3 * slots + 32))
    measured = [ms for at_ns, ms in calls.ttft_ms if begun_ns <= at_ns < ended_ns]
    answered = [ms for ms in measured if ms is not None]
    figures: dict[str, Figure] = {
        f"{arm}_calls": len(answered),
        f"{arm}_ttft_p50_ms": percentile(answered, 0.5) if answered else None,
        f"{arm}_ttft_p95_ms": percentile(answered, 0.95) if answered else None,
    }
    if arm == "idle":
        return figures
    log = emulator.log()
    sent = [request for request in log if begun_ns <= request.received_ns < ended_ns]
    refused = sum(request.status is not None and request.status >= 400 for request in sent)
    left_s = slots * (ended_ns - begun_ns) / 1e9 - _in_slot_s(log, f"{arm}:interactive", begun_ns, ended_ns)
    return figures | {
        f"{arm}_failed": len(measured) - len(answered),
        f"{arm}_background_share": _in_slot_s(log, f"{arm}:background", begun_ns, ended_ns) / left_s,
        f"{arm}_refused_share": refused / len(sent) if sent else None,
    }


def urgency_mixed(quick: bool) -> Report:
    """Compare interactive calls beside a flood of background ones with and without `Urgency`.

    Providers serve 4, 16 or 64 calls at once (quickly: 16); a further one waits, or is refused with 503. Each gets
    forty interactive calls a minute, from a task and from a thread, and three times as many background calls as it has
    slots and 32 more. `Urgency()` finds the slots of a provider that refuses, `Urgency(max_concurrency=...)` is given
    those of one that queues. Time runs five times as fast as at a usual provider.

    Inside: an interactive call from its issue to its first content, retries included. `ttft_ratio` is its p95 against
    that of an idle provider. `background_share`: of the time of its slots that interactive calls leave, what the
    provider spends on background ones, by its own log. Outside: the first seconds of each arm.
    """
    seconds = _QUICK if quick else _FULL
    figures: dict[str, Figure] = {}
    idle_ms: dict[int, Figure] = {}
    for slots in (16,) if quick else (4, 16, 64):
        for name in ("queueing", "refusing"):
            model = ProviderModel(
                prefill_base_s=Quantiles.from_quartiles(0.06, 0.08, 0.12),
                inter_token_s=_DECODE_S / _ANSWER_TOKENS,
                inter_token_jitter=0.3,
                default_output_tokens=_ANSWER_TOKENS,
                concurrency=slots,
                queue_places=0 if name == "refusing" else None,
            )
            found: dict[str, Figure] = {}
            with providers(model=model) as (emulator,):
                for arm in seconds if slots not in idle_ms else ("without", "with"):
                    found |= _mixed(emulator, arm, seconds[arm], slots, slots if name == "queueing" else None)
            idle = idle_ms.setdefault(slots, found.get("idle_ttft_p95_ms"))
            for arm in ("without", "with"):
                p95 = found[f"{arm}_ttft_p95_ms"]
                found[f"{arm}_ttft_ratio"] = None if p95 is None or not idle else p95 / idle
            figures |= {f"{name}_{slots}_{figure}": value for figure, value in found.items()}
    return Report(
        figures=figures,
        reach={
            **{f"{name}_with_ttft_ratio": "<= 1.3" for name in _HEADLINES},
            **{f"{name}_with_background_share": ">= 0.9" for name in _HEADLINES},
        },
        conditions={"seconds": {arm: f"{warm_up} + {measured}" for arm, (warm_up, measured) in seconds.items()}},
    )
