"""How late a chunk reaches the application's loop, while 64 streams bring one about every 10 ms: openai's client, ours.

Inside: for every chunk with content that the provider sent while it was measured, the time from the moment at which the
provider wrote it (its own log) to the application's loop body, typed object in hand; both processes read the same
clock. What is measured begins when every stream has brought a chunk, and lasts for a fixed time; a chunk that the stock
client brings later than that counts with its whole delay. Outside: opening connections and sending requests. The stock
client is `openai.AsyncOpenAI()` as it comes, ours `fastlane.AsyncOpenAI()`; they take turns, in reversed order every
other round. The provider has a process of its own and, where the system allows it, another core.
"""

from __future__ import annotations

import asyncio

from benchmarks._paired import median
from benchmarks._provider import provider_on_another_core
from benchmarks._report import Reach, Report
from benchmarks._streams import lateness_turn
from benchmarks._transport import percentile

_STREAMS = 64
_TOKEN_MS = 10.0
_SIDES = ("stock", "fastlane")


def measure(quick: bool) -> Report:
    """Run rounds of both sides."""
    rounds, window_s = (2, 2.5) if quick else (9, 4.0)
    late: dict[str, list[tuple[float, float]]] = {side: [] for side in _SIDES}
    with provider_on_another_core() as (emulator, cores):
        for round_number in range(rounds):
            for side in reversed(_SIDES) if round_number % 2 else _SIDES:
                delays_ms = asyncio.run(
                    lateness_turn(side, emulator, streams=_STREAMS, token_ms=_TOKEN_MS, window_s=window_s)
                )
                late[side].append((percentile(delays_ms, 0.5), percentile(delays_ms, 0.99)))
    ratio = median([own[1] / theirs[1] for own, theirs in zip(late["fastlane"], late["stock"], strict=True)])
    return Report(
        figures={
            "p99_ratio": ratio.value,
            "p99_low_ratio": ratio.low,
            "p99_high_ratio": ratio.high,
            **{f"{side}_p50_ms": median([p50 for p50, _ in turns]).value for side, turns in late.items()},
            **{f"{side}_p99_ms": median([p99 for _, p99 in turns]).value for side, turns in late.items()},
            "rounds": rounds,
        },
        reach=(Reach(figure="p99_ratio", op="<=", target=0.1),),
        conditions={
            "streams": _STREAMS,
            "chunk_every_ms": _TOKEN_MS,
            "measured_s": window_s,
            "cores": cores,
            "asynchronous": True,
            "tls": True,
        },
    )
