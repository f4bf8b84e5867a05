"""What `Urgency()` and `RateLimits()` add to a call while no call waits: CPU microseconds, in one run.

The arms take turns over the same in-memory transport: clients without these plays, with `Urgency()`, with
`RateLimits()`, with both and tiers, and a second one without any, whose difference says how large a one this run
reports where there is none. Plain calls and streams without content, synchronous and asynchronous; and what
`with_urgency()` takes to make a client for one call. Inside: all CPU of the process from the application's call to the
typed answer, or to the end of the stream. Outside: the network, TLS, HTTP framing and garbage collection, and what
waiting takes (`admission_cost`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai

import fastlane
from benchmarks._paired import cpu_pairs, differences, median
from benchmarks._prepared import ANSWER, MODEL, Prepared, stream_of
from benchmarks._report import Figure, Report
from fastlane import Connection, Play, RateLimits, Urgency

_MESSAGES: list[Any] = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Is water wet?"},
]
_SETTINGS: dict[str, Any] = {"base_url": "http://prepared.invalid/v1", "api_key": "none", "max_retries": 0}
_CALLS = 20
_ARMS: dict[str, tuple[Play, ...]] = {
    "without": (Connection(),),
    "urgency": (Connection(), Urgency()),
    "rate_limits": (Connection(), RateLimits()),
    "both": (Connection(), Urgency(tiers=True), RateLimits()),
    "again": (Connection(),),
}
_Arm = Callable[[], object]


def _sync_arm(client: openai.OpenAI, *, stream: bool) -> _Arm:
    def run() -> None:
        for _ in range(_CALLS):
            answer = client.chat.completions.create(model=MODEL, messages=_MESSAGES, stream=stream)
            if isinstance(answer, openai.Stream):
                for _chunk in answer:
                    pass

    return run


def _async_arm(client: openai.AsyncOpenAI, loop: asyncio.AbstractEventLoop, *, stream: bool) -> _Arm:
    async def run() -> None:
        for _ in range(_CALLS):
            answer = await client.chat.completions.create(model=MODEL, messages=_MESSAGES, stream=stream)
            if isinstance(answer, openai.AsyncStream):
                async for _chunk in answer:
                    pass

    return lambda: loop.run_until_complete(run())


def _transport(*, stream: bool) -> Prepared:
    return Prepared("text/event-stream", stream_of(0)) if stream else Prepared("application/json", (ANSWER,))


@contextmanager
def _sync_arms(*, stream: bool) -> Iterator[list[_Arm]]:
    transport = _transport(stream=stream)
    clients = [
        fastlane.OpenAI(**_SETTINGS, only_plays=plays, http_client=httpx2.Client(transport=transport))
        for plays in _ARMS.values()
    ]
    yield [_sync_arm(client, stream=stream) for client in clients]
    for client in clients:
        client.close()


@contextmanager
def _async_arms(*, stream: bool) -> Iterator[list[_Arm]]:
    transport = _transport(stream=stream)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        clients = [
            fastlane.AsyncOpenAI(**_SETTINGS, only_plays=plays, http_client=httpx2.AsyncClient(transport=transport))
            for plays in _ARMS.values()
        ]
        yield [_async_arm(client, loop, stream=stream) for client in clients]
        for client in clients:
            runner.run(client.close())


def _made_us(pairs: int) -> float:
    """What making a client for one call takes."""
    with fastlane.OpenAI(**_SETTINGS, only_plays=_ARMS["urgency"]) as client:

        def run() -> None:
            for _ in range(_CALLS):
                client.with_urgency("background")

        return median([taken / 1e3 / _CALLS for taken in cpu_pairs([run], pairs)[0]]).value


def measure(quick: bool) -> Report:
    """Measure plain calls and streams without content, synchronous and asynchronous."""
    pairs = 100 if quick else 400
    figures: dict[str, Figure] = {}
    for side, arms_of in (("sync", _sync_arms), ("async", _async_arms)):
        for kind, stream in (("call", False), ("stream", True)):
            with arms_of(stream=stream) as arms:
                taken = cpu_pairs(arms, pairs)
            per_call = {name: [one / 1e3 / _CALLS for one in arm] for name, arm in zip(_ARMS, taken, strict=True)}
            without = per_call.pop("without")
            figures[f"{side}_{kind}_us"] = median(without).value
            for name, arm in per_call.items():
                added = median(differences(arm, without))
                figures[f"{side}_{kind}_{name}_added_us"] = added.value
                if name == "urgency":
                    figures[f"{side}_{kind}_added_low_us"], figures[f"{side}_{kind}_added_high_us"] = added[1:]
    figures["with_urgency_us"] = _made_us(pairs)
    return Report(figures=figures, reach=(), conditions={"pairs": pairs, "calls": _CALLS})
