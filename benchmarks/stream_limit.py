"""Time to first token when more streams start than the server takes on one connection: stock HTTP/2 against ours.

160 streams start at once on a client with one warm connection, whose server takes 100 at a time; each runs for four
seconds. Inside: from the application's call to the first content that it reads, the wait for a place and the opening
of further connections included. Outside: opening the first connection. Every round takes new clients; both sides take
turns, in reversed order every other round. Asynchronous. Connections are the provider's own count.
"""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks._paired import median
from benchmarks._provider import providers
from benchmarks._report import Reach, Report
from benchmarks._transport import acall_ms, afirst_content_ms, connections, ours_async, percentile, stock_async

_ROUND_TRIP_TIME_S = 0.04
_STREAMS = 160
_LIMIT = 100  # the embedded provider's own, and the stock client's
_TOKEN_MS = 100
_TOKENS = 40
_CHARACTERS_PER_TOKEN = 4


async def _burst(client: Any) -> list[float]:
    async with client:
        await acall_ms(client)
        texts = [f"stream {number}: ".ljust(_TOKENS * _CHARACTERS_PER_TOKEN, ".") for number in range(_STREAMS)]
        calls = (afirst_content_ms(client, text, token_ms=_TOKEN_MS) for text in texts)
        return await asyncio.gather(*calls)


async def _rounds(base_url: str, rounds: int) -> dict[str, list[list[float]]]:
    taken: dict[str, list[list[float]]] = {"stock": [], "fastlane": []}
    for round_number in range(rounds):
        for side in reversed(taken) if round_number % 2 else taken:
            make: Any = stock_async if side == "stock" else ours_async
            taken[side].append(await _burst(make(base_url, f"{side}:{round_number}")))
    return taken


def measure(quick: bool) -> Report:
    """Run rounds of new clients."""
    rounds = 2 if quick else 12
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S) as (emulator,):
        taken = asyncio.run(_rounds(emulator.base_url, rounds))
        log = emulator.log()
    p99 = {side: [percentile(burst, 0.99) for burst in bursts] for side, bursts in taken.items()}
    ratio = median([theirs / own for theirs, own in zip(p99["stock"], p99["fastlane"], strict=True)])
    return Report(
        figures={
            "p99_ttft_ratio": ratio.value,
            "p99_ttft_low_ratio": ratio.low,
            "p99_ttft_high_ratio": ratio.high,
            **{f"{side}_p99_ttft_ms": median(values).value for side, values in p99.items()},
            **{
                f"{side}_p50_ttft_ms": percentile([value for burst in bursts for value in burst], 0.5)
                for side, bursts in taken.items()
            },
            **{f"{side}_connections_per_round": connections(log, side) / rounds for side in taken},
            "rounds": rounds,
        },
        reach=(Reach(figure="p99_ttft_ratio", op=">=", target=5),),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "streams": _STREAMS,
            "server_limit": _LIMIT,
            "stream_s": _TOKENS * _TOKEN_MS / 1e3,
            "token_ms": _TOKEN_MS,
            "max_retries": 0,
            "tls": True,
        },
    )
