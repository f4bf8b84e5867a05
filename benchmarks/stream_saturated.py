"""How many typed chunks one core reads when 64 streams come as fast as they are taken: openai's client against ours.

A server of this benchmark's own writes one prepared event over TLS without end, in a process of its own and, where the
system allows it, on another core: the embedded provider would be slower than what is measured. Every event is a DATA
frame (HTTP/2) or a chunk (HTTP/1.1) of its own, and the frames of a connection's streams take turns. All events being
alike, a parser that remembers short strings, as ours does, makes a few less than it would of a real stream. Inside: the
CPU time of the client's whole process for a fixed time, begun when every stream has brought a chunk, divided by the
chunks that the application's `async for` has got in it; a second of CPU divided by that is the chunks per second of one
core. Outside: opening connections and sending requests. The stock client is `openai.AsyncOpenAI()` as it comes, which
speaks HTTP/1.1, and as it is told to speak HTTP/2; ours is `fastlane.AsyncOpenAI()` as it comes, which speaks HTTP/2,
and as it is told not to. The arms take turns, in reversed order every other round.
"""

from __future__ import annotations

import asyncio

import openai

from benchmarks._paired import median
from benchmarks._report import Reach, Report
from benchmarks._server import server_on_another_core
from benchmarks._streams import SIDES, async_client
from benchmarks._transport import MESSAGES
from fastlane._clock import cpu_ns, now_ns

_STREAMS = 64
_PATIENCE_S = 30.0


async def _turn(side: str, base_url: str, window_s: float) -> tuple[float, float]:
    """Chunks for each second of CPU, and the share of a core that the client took."""
    counts = [0] * _STREAMS

    async def read(client: openai.AsyncOpenAI, number: int) -> None:
        async for _ in await client.chat.completions.create(model="prepared-1", messages=MESSAGES, stream=True):
            counts[number] += 1

    async with async_client(side, base_url) as client:
        reading = [asyncio.create_task(read(client, number)) for number in range(_STREAMS)]
        deadline = now_ns() + _PATIENCE_S * 1e9
        while not all(counts):
            await asyncio.sleep(0.05)
            if now_ns() > deadline or any(task.done() for task in reading):
                raise RuntimeError(f"not every stream of {side} has begun")
        started, cpu_started, before = now_ns(), cpu_ns(), sum(counts)
        await asyncio.sleep(window_s)
        ended, cpu_ended, after = now_ns(), cpu_ns(), sum(counts)
        ended_early = [task for task in reading if task.done()]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        if ended_early:
            raise RuntimeError(f"a stream of {side} ended while it was measured")
    return (after - before) / (cpu_ended - cpu_started) * 1e9, (cpu_ended - cpu_started) / (ended - started)


def measure(quick: bool) -> Report:
    """Run rounds of all four arms."""
    rounds, window_s = (2, 2.0) if quick else (9, 3.0)
    taken: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    with server_on_another_core("benchmarks._endless") as server:
        base_url, cores = server.base_url, server.cores
        for round_number in range(rounds):
            for side in reversed(SIDES) if round_number % 2 else SIDES:
                taken[side].append(asyncio.run(_turn(side, base_url, window_s)))

    def ratio(ours: str, stock: str) -> tuple[float, float, float]:
        return median([own[0] / theirs[0] for own, theirs in zip(taken[ours], taken[stock], strict=True)])

    value, low, high = ratio("fastlane", "stock")
    return Report(
        figures={
            "chunks_ratio": value,
            "chunks_low_ratio": low,
            "chunks_high_ratio": high,
            "http2_chunks_ratio": ratio("fastlane", "stock_http2")[0],
            "http1_chunks_ratio": ratio("fastlane_http1", "stock")[0],
            **{f"{side}_chunks_per_core_s": median([each for each, _ in turns]).value for side, turns in taken.items()},
            **{f"{side}_core_share": median([share for _, share in turns]).value for side, turns in taken.items()},
            "rounds": rounds,
        },
        reach=(Reach(figure="chunks_ratio", op=">=", target=10),),
        conditions={"streams": _STREAMS, "measured_s": window_s, "cores": cores, "asynchronous": True, "tls": True},
    )
