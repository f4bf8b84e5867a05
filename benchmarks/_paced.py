"""A steady load of calls at twice what a provider allows, by one client or by several at once; also as a replica."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import openai

import fastlane
from benchmarks._child import say
from fastlane._clock import now_ns

OFFERED_PER_S = 20.0
LEAST_TOKENS, MOST_TOKENS = 20, 100
"""The limits that calls name for their answers, evenly spread."""
_PROMPT = "Is water wet, or is it only what it touches that is wet? Say why you think so, and how sure you are. " * 2


class Load(NamedTuple):
    """What one side asks for."""

    model: str
    client: str
    """"ours" or "stock"."""
    per_s: float = OFFERED_PER_S
    store: str | None = None
    seed: int = 0


def client_of(load: Load, base_url: str) -> Any:
    """The client of a side, with its own defaults for retries and time-outs."""
    arguments: dict[str, Any] = {"base_url": base_url, "api_key": "benchmark"}
    if load.client == "stock":
        return openai.AsyncOpenAI(**arguments)
    return fastlane.AsyncOpenAI(**arguments, only_plays=[fastlane.Connection(), fastlane.RateLimits(store=load.store)])


async def offer(loads: Sequence[Load], base_url: str, seconds: float) -> dict[str, Counter[str]]:
    """Offer all loads at once for so long, then give up what still waits. Returns how calls ended, by model."""
    ended: dict[str, Counter[str]] = {load.model: Counter() for load in loads}
    until_ns = now_ns() + int(seconds * 1e9)

    async def call(client: Any, load: Load, tokens: int) -> None:
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

    async def side(load: Load) -> None:
        random = Random(load.seed)
        calls: set[asyncio.Task[None]] = set()
        async with client_of(load, base_url) as client:
            next_ns = now_ns()
            while (next_ns := next_ns + int(random.expovariate(load.per_s) * 1e9)) < until_ns:
                await asyncio.sleep(max(0.0, (next_ns - now_ns()) / 1e9))
                task = asyncio.create_task(call(client, load, random.randint(LEAST_TOKENS, MOST_TOKENS)))
                calls.add(task)
                task.add_done_callback(calls.discard)
            await asyncio.sleep(max(0.0, (until_ns - now_ns()) / 1e9))
            left = tuple(calls)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    await asyncio.gather(*(side(load) for load in loads))
    return ended


def _replica(settings: Mapping[str, Any]) -> None:
    loads = [Load(*load) for load in settings["loads"]]
    ended = asyncio.run(offer(loads, settings["base_url"], settings["seconds"]))
    say(ended)


if __name__ == "__main__":
    _replica(json.loads(sys.argv[1]))
