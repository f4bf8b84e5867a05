"""What keeping to a provider's rate limits is worth: refusals, and how much of the limit is used, at twice its load.

An emulated provider allows each model 600 requests and 60,000 tokens a minute, and counts a request's prompt and the
limit of its answer when it comes, as OpenAI does. It enforces that in several ways: as a bucket that fills all the
time, as a window that is whole again after each minute, and as a bucket of which each second has its share (quantized);
quantized_requests is that without a limit of tokens. Its headers are OpenAI's in all of them. Over TLS and HTTP/2, 20
calls of about 100 tokens a second are offered to each, evenly by chance, by our client with `RateLimits()` and
its defaults, and by the stock client with its own retries; all sides run at the same time, and nobody else uses their
limits. `three`: three processes of ours share the load and the bucket, without knowing of each other; `three_store`:
with a Redis server between them (None where there is none).

Inside: everything that the provider received, by its own log. `_refused_ratio`: answers of status 429 among all
answers, from the first call on. `_useful_ratio`: what was admitted, against what the limit allows in the same time,
requests or tokens, whichever is nearer to its limit: in whole minutes from the second on, counted from the first
request, because a bucket is full when it begins, and windows begin with it. `_failed_ratio`: calls that ended
with an error in the application. Outside: how long calls wait; at twice the limit a queue grows without end, and what
waits at the end of the run is given up.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._provider import providers
from benchmarks._report import Figure, Report
from fastlane._clock import now_ns
from fastlane.emulator import ProviderModel, Quantiles, RequestLog
from fastlane.emulator.settings import KeyRateLimits
from scripts.redis_server import RedisServer
from scripts.servers import available

_REQUESTS, _TOKENS = 600.0, 60_000.0
_KINDS = {"bucket": "bucket", "window": "fixed", "quantized": "quantized", "quantized_requests": "quantized"}
_REPLICAS = 3
_FULL_S, _FROM_S = 200.0, 60.0
# A bucket that holds a tenth of a minute is empty soon enough for a short run; in that there is no second window.
_QUICK_S, _QUICK_FROM_S, _QUICK_BURST = 36.0, 12.0, 0.1
_OFFERED_PER_S = 20.0
_LEAST_TOKENS, _MOST_TOKENS = 20, 100
"""The limits that calls name for their answers, evenly spread."""
_PROMPT = "Is water wet, or is it only what it touches that is wet? Say why you think so, and how sure you are. " * 2


class _Load(NamedTuple):
    """What one side asks for."""

    model: str
    client: str
    """"ours" or "stock"."""
    per_s: float = _OFFERED_PER_S
    store: str | None = None
    seed: int = 0


def _client_of(load: _Load, base_url: str) -> Any:
    """The client of a side, with its own defaults for retries and time-outs."""
    arguments: dict[str, Any] = {"base_url": base_url, "api_key": "benchmark"}
    if load.client == "stock":
        return openai.AsyncOpenAI(**arguments)
    return fastlane.AsyncOpenAI(**arguments, only_plays=[fastlane.Connection(), fastlane.RateLimits(store=load.store)])


async def _offer(loads: Sequence[_Load], base_url: str, seconds: float) -> dict[str, Counter[str]]:
    """Offer all loads at once for so long, then give up what still waits. Returns how calls ended, by model."""
    ended: dict[str, Counter[str]] = {load.model: Counter() for load in loads}
    until_ns = now_ns() + int(seconds * 1e9)

    async def call(client: Any, load: _Load, tokens: int) -> None:
        try:
            await client.chat.completions.create(
                model=load.model,
                messages=[{"role": "user", "content": _PROMPT}],
                max_tokens=tokens,
                extra_headers={"x-emulator-tag": str(tokens)},
            )
        except asyncio.CancelledError:
            ended[load.model]["given up at the end"] += 1
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the call has failed
            ended[load.model][type(error).__name__] += 1
        else:
            ended[load.model]["answered"] += 1

    async def side(load: _Load) -> None:
        random = Random(load.seed)
        calls: set[asyncio.Task[None]] = set()
        async with _client_of(load, base_url) as client:
            next_ns = now_ns()
            while (next_ns := next_ns + int(random.expovariate(load.per_s) * 1e9)) < until_ns:
                await asyncio.sleep(max(0.0, (next_ns - now_ns()) / 1e9))
                task = asyncio.create_task(call(client, load, random.randint(_LEAST_TOKENS, _MOST_TOKENS)))
                calls.add(task)
                task.add_done_callback(calls.discard)
            await asyncio.sleep(max(0.0, (until_ns - now_ns()) / 1e9))
            left = tuple(calls)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    await asyncio.gather(*(side(load) for load in loads))
    return ended


def _replica(loads: Sequence[_Load], base_url: str, seconds: float) -> dict[str, Counter[str]]:
    return asyncio.run(_offer(loads, base_url, seconds))


def _model(*, burst: float) -> ProviderModel:
    names = [f"{client}-{kind}" for client in ("ours", "stock") for kind in _KINDS]
    limits = {
        name: KeyRateLimits(
            requests_per_minute=_REQUESTS,
            tokens_per_minute=None if name.endswith("_requests") else _TOKENS,
            window=_KINDS.get(name.partition("-")[2], "bucket"),  # type: ignore[arg-type]
            burst=1.0 if "quantized" in name else burst,
        )
        for name in (*names, "three", "three_store")
    }
    return ProviderModel(
        prefill_base_s=Quantiles.from_quartiles(0.2, 0.3, 0.5), inter_token_s=0.005, model_rate_limits=limits
    )


def _replicas(store: str | None) -> list[list[_Load]]:
    """Return what each of three processes offers."""
    replicas = []
    for number in range(_REPLICAS):
        loads = [_Load("three", "ours", 20.0 / _REPLICAS, None, 100 + number)]
        if store is not None:
            loads.append(_Load("three_store", "ours", 20.0 / _REPLICAS, store, 200 + number))
        replicas.append(loads)
    return replicas


def _figures(
    log: tuple[RequestLog, ...], ended: Mapping[str, Counter[str]], from_s: float, until_ns: int
) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for model, how in ended.items():
        name = model.replace("-", "_").removeprefix("ours_")
        asked = [one for one in log if one.model == model and one.status is not None]
        from_ns = min(one.received_ns for one in asked) + int(from_s * 1e9)
        minutes = (until_ns - from_ns) / 60e9
        minutes = float(int(minutes)) if minutes >= 1 else minutes
        end_ns = from_ns + int(minutes * 60e9)
        sizes = [
            one.prompt_tokens + int(one.tag or 0)
            for one in asked
            if one.status == 200 and from_ns <= one.received_ns < end_ns
        ]
        used = [len(sizes) / _REQUESTS]
        if not name.endswith("_requests"):
            used.append(sum(sizes) / _TOKENS)
        figures[f"{name}_refused_ratio"] = sum(one.status == 429 for one in asked) / max(1, len(asked))
        figures[f"{name}_useful_ratio"] = max(used) / minutes
        over = sum(how.values()) - how["given up at the end"]
        figures[f"{name}_failed_ratio"] = (over - how["answered"]) / max(1, over)
    return figures


def measure(quick: bool) -> Report:
    """Offer everything at once, and read the provider's log."""
    seconds, from_s = (_QUICK_S, _QUICK_FROM_S) if quick else (_FULL_S, _FROM_S)
    sides = [f"{client}-{kind}" for client in ("ours", "stock") for kind in _KINDS]
    with (
        providers(1, model=_model(burst=_QUICK_BURST if quick else 1.0)) as (emulator,),
        available(RedisServer()) as server,
        ProcessPoolExecutor(1 + _REPLICAS, mp_context=multiprocessing.get_context("spawn")) as others,
    ):
        loads = [_Load(side, side.partition("-")[0], seed=number) for number, side in enumerate(sides)]
        # In a process of their own, so that their thousands of retries do not hold up the calls of ours.
        stock = [load for load in loads if load.client == "stock"]
        store = None if server is None else server.url
        groups = (stock, *_replicas(store))
        running = [others.submit(_replica, own, emulator.base_url, seconds) for own in groups]
        until_ns = now_ns() + int(seconds * 1e9)
        ended = asyncio.run(_offer([load for load in loads if load not in stock], emulator.base_url, seconds))
        for other in running:
            for model, how in other.result().items():
                ended.setdefault(model, Counter()).update(how)
        log = emulator.log()
    figures = _figures(log, ended, from_s, until_ns)
    if store is None:
        figures |= {f"three_store_{what}_ratio": None for what in ("refused", "useful", "failed")}
    ours = (*_KINDS, "three", "three_store")
    reach = {f"{name}_refused_ratio": "<= 0.01" for name in ours}
    if not quick:
        reach |= {f"{name}_useful_ratio": ">= 0.95" for name in ours}
    return Report(
        figures=figures,
        reach=reach,
        conditions={"seconds": seconds, "useful from, s": from_s},
    )
