"""What a stream that is closed early still costs: tokens that the provider sends after the close.

A thousand streams or more, half of them synchronous in threads and half asynchronous, thirty at a time, are closed by
the application after their third token; stock HTTP/2 does the same with fewer streams. Inside: tokens that the provider
handed to its socket after the application called `close()`, by one clock for both processes. The news of a close needs
half a round trip. A pace of one token every 20 ms allows two tokens in a round trip, and one more because the pace and
the close do not know of each other. Outside: the call that opens the connection. Both sides take turns, in reversed
order every other round; after the stock side's turn the provider is given the time to end what was not stopped.
Connections are the provider's own count.
"""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai

from benchmarks._paired import median
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import (
    MESSAGES,
    acall_ms,
    call_ms,
    connections,
    ours,
    ours_async,
    percentile,
    stock,
    stock_async,
    wishes,
)
from fastlane._clock import now_ns
from fastlane.emulator import RequestLog

_ROUND_TRIP_TIME_S = 0.04
_TOKEN_MS = 20
_TOKENS = 100
_READ_TOKENS = 3
_AT_A_TIME = 30
_ALLOWED_TOKENS = math.ceil(1e3 * _ROUND_TRIP_TIME_S / _TOKEN_MS) + 1

Closed = dict[str, int | None]
"""When each stream was closed, by its tag; None if it broke before."""


def _content(chunk: Any) -> str:
    return (chunk.choices[0].delta.content or "") if chunk.choices else ""


def _wanted(tag: str) -> dict[str, Any]:
    headers = wishes(tag=tag, output_tokens=_TOKENS, token_ms=_TOKEN_MS)
    return {"model": MODEL, "messages": MESSAGES, "extra_headers": headers}


def _close_early(client: openai.OpenAI, tag: str) -> int | None:
    try:
        with client.chat.completions.create(**_wanted(tag), stream=True) as stream:
            read = 0
            for chunk in stream:
                read += bool(_content(chunk))
                if read == _READ_TOKENS:
                    return now_ns()
    except openai.APIConnectionError:
        pass
    return None


async def _aclose_early(client: openai.AsyncOpenAI, tag: str) -> int | None:
    try:
        async with await client.chat.completions.create(**_wanted(tag), stream=True) as stream:
            read = 0
            async for chunk in stream:
                read += bool(_content(chunk))
                if read == _READ_TOKENS:
                    return now_ns()
    except openai.APIConnectionError:
        pass
    return None


def _streams(client: openai.OpenAI, tags: list[str]) -> Closed:
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return dict(zip(tags, pool.map(lambda tag: _close_early(client, tag), tags), strict=True))


async def _astreams(client: openai.AsyncOpenAI, tags: list[str]) -> Closed:
    at_once = asyncio.Semaphore(_AT_A_TIME)

    async def one(tag: str) -> int | None:
        async with at_once:
            return await _aclose_early(client, tag)

    return dict(zip(tags, await asyncio.gather(*(one(tag) for tag in tags)), strict=True))


async def _rounds(base_url: str, rounds: int, counts: dict[str, int]) -> Closed:
    closed: Closed = {}
    with stock(base_url, "sync_stock") as theirs, ours(base_url, "sync_fastlane") as own:
        async with stock_async(base_url, "async_stock") as atheirs, ours_async(base_url, "async_fastlane") as aown:
            for client in (theirs, own):
                await asyncio.to_thread(call_ms, client)
            for aclient in (atheirs, aown):
                await acall_ms(aclient)
            sides = {"stock": (theirs, atheirs), "fastlane": (own, aown)}
            for round_number in range(rounds):
                for side in reversed(sides) if round_number % 2 else sides:
                    client, aclient = sides[side]
                    numbers = range(counts[side])
                    tags = [f"sync_{side}:{round_number}:{number}" for number in numbers]
                    closed |= await asyncio.to_thread(_streams, client, tags)
                    closed |= await _astreams(aclient, [tag.replace("sync", "async", 1) for tag in tags])
                    if side == "stock":
                        await asyncio.sleep(_TOKENS * _TOKEN_MS / 1e3 + _ROUND_TRIP_TIME_S)
            # Still usable: a window that leaked or a limit of streams that was used up would show here.
            await asyncio.to_thread(call_ms, own)
            await acall_ms(aown)
    return closed


def _figures(mode: str, closed: Closed, log: tuple[RequestLog, ...]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    sent = {request.tag: request for request in log}
    for side in ("stock", "fastlane"):
        arm = f"{mode}_{side}"
        mine = {tag: moment for tag, moment in closed.items() if tag.split(":")[0] == arm}
        after = [
            sum(token > moment for token in sent[tag].token_ns) for tag, moment in mine.items() if moment is not None
        ]
        reset = sum(sent[tag].reset_code is not None for tag, moment in mine.items() if moment is not None)
        figures |= {
            f"{arm}_tokens_after_close_p50": median(after).value if after else None,
            f"{arm}_tokens_after_close_p99": percentile(after, 0.99) if after else None,
            f"{arm}_tokens_after_close_max": max(after, default=None),
            f"{arm}_streams": len(mine),
            f"{arm}_streams_reset": reset,
            f"{arm}_failures": sum(moment is None for moment in mine.values()),
            f"{arm}_connections": connections(log, arm),
        }
    return figures


def measure(quick: bool) -> Report:
    """Measure both sides in rounds, each with synchronous and asynchronous streams."""
    rounds = 5 if quick else 10
    counts = {"stock": 3, "fastlane": 100}  # in each mode and round
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S) as (emulator,):
        closed = asyncio.run(_rounds(emulator.base_url, rounds, counts))
        log = emulator.log()
    figures = _figures("sync", closed, log) | _figures("async", closed, log)
    return Report(
        figures=figures,
        reach=tuple(
            reach
            for mode in ("sync", "async")
            for reach in (
                Reach(figure=f"{mode}_fastlane_tokens_after_close_max", op="<=", target=_ALLOWED_TOKENS),
                Reach(figure=f"{mode}_fastlane_failures", op="==", target=0),
                Reach(figure=f"{mode}_fastlane_connections", op="==", target=1),
            )
        ),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "token_ms": _TOKEN_MS,
            "tokens_of_a_whole_stream": _TOKENS,
            "tokens_read_before_the_close": _READ_TOKENS,
            "streams_at_a_time": _AT_A_TIME,
            "expected": "one round trip's tokens and one more, of which half a round trip cannot be saved",
            "max_retries": 0,
            "tls": True,
        },
    )
