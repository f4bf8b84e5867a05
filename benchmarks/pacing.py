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
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from benchmarks._child import Child
from benchmarks._paced import Load, offer
from benchmarks._provider import providers
from benchmarks._report import Figure, Report
from fastlane._clock import now_ns
from fastlane.emulator import ProviderModel, Quantiles, RequestLog
from fastlane.emulator.settings import KeyRateLimits

_REQUESTS, _TOKENS = 600.0, 60_000.0
_KINDS = {"bucket": "bucket", "window": "fixed", "quantized": "quantized", "quantized_requests": "quantized"}
_REPLICAS = 3
_FULL_S, _FROM_S = 200.0, 60.0
# A bucket that holds a tenth of a minute is empty soon enough for a short run; in that there is no second window.
_QUICK_S, _QUICK_FROM_S, _QUICK_BURST = 36.0, 12.0, 0.1


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


@contextmanager
def _redis() -> Iterator[str | None]:
    try:
        import redis  # noqa: F401 - without its client there is no store

        from scripts.distribution import UnavailableError
        from scripts.redis_server import RedisServer
    except ImportError:
        yield None
        return
    server = RedisServer()
    try:
        server.start()
    except UnavailableError:
        server.stop()
        yield None
        return
    try:
        yield server.url
    finally:
        server.stop()


def _replicas(store: str | None) -> list[list[Load]]:
    """Return what each of three processes offers."""
    replicas = []
    for number in range(_REPLICAS):
        loads = [Load("three", "ours", 20.0 / _REPLICAS, None, 100 + number)]
        if store is not None:
            loads.append(Load("three_store", "ours", 20.0 / _REPLICAS, store, 200 + number))
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
        _redis() as store,
        ExitStack() as stack,
    ):
        loads = [Load(side, side.partition("-")[0], seed=number) for number, side in enumerate(sides)]
        # In a process of their own, so that their thousands of retries do not hold up the calls of ours.
        stock = [load for load in loads if load.client == "stock"]
        settings = {"base_url": emulator.base_url, "seconds": seconds}
        others = [
            stack.enter_context(Child("benchmarks._paced", json.dumps({"loads": own, **settings})))
            for own in (stock, *_replicas(store))
        ]
        until_ns = now_ns() + int(seconds * 1e9)
        ended = asyncio.run(offer([load for load in loads if load not in stock], emulator.base_url, seconds))
        for other in others:
            for model, how in other.hear().items():
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
