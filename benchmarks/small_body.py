"""Time to first token of a 12.5 kB request on an idle connection: the stock client over HTTP/2 against ours.

A connection that was idle starts slowly: ten packets in the first round trip (RFC 6928), which hold 14 kB. Headers,
body and end of a request that leave as packets of their own are one too many. Inside: from the application's call to
the first content that it reads. Outside: opening the connection, and the pauses, each long enough for the window to
fall back to its beginning. Both sides send the same body, take turns after the same pause, in reversed order every
other round, synchronous and asynchronous.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from benchmarks._paired import differences, median
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import afirst_content_ms, connections, first_content_ms, ours, ours_async, stock, stock_async
from fastlane.emulator import Emulator

_ROUND_TRIP_TIME_S = 0.04
_BODY_BYTES = 12_500
_PAUSE_S = 0.75  # three times what TCP takes for idle: the round trip and 200 ms
_MODES = ("sync", "async")


def _messages(content_bytes: int) -> list[Any]:
    return [{"role": "user", "content": "x" * content_bytes}]


def _content_bytes(emulator: Emulator) -> int:
    """How much content makes the body as large as it is meant to be."""
    with stock(emulator.direct_base_url, "probe") as client:
        first_content_ms(client, messages=_messages(0))
    (probe,) = emulator.log()
    emulator.clear()
    return _BODY_BYTES - probe.bytes_in


def _sync(base_url: str, messages: list[Any], rounds: int) -> list[list[float]]:
    with stock(base_url, "sync_stock") as theirs, ours(base_url, "sync_fastlane") as own:
        arms = (theirs, own)
        taken: list[list[float]] = [[], []]
        for client in arms:
            first_content_ms(client, messages=messages)
        for round_number in range(rounds):
            for index in (1, 0) if round_number % 2 else (0, 1):
                time.sleep(_PAUSE_S)
                taken[index].append(first_content_ms(arms[index], messages=messages))
        return taken


async def _async(base_url: str, messages: list[Any], rounds: int) -> list[list[float]]:
    async with stock_async(base_url, "async_stock") as theirs, ours_async(base_url, "async_fastlane") as own:
        arms = (theirs, own)
        taken: list[list[float]] = [[], []]
        for client in arms:
            await afirst_content_ms(client, messages=messages)
        for round_number in range(rounds):
            for index in (1, 0) if round_number % 2 else (0, 1):
                await asyncio.sleep(_PAUSE_S)
                taken[index].append(await afirst_content_ms(arms[index], messages=messages))
        return taken


def _figures(mode: str, taken: Sequence[Sequence[float]]) -> dict[str, Figure]:
    theirs, own = taken
    ratio = median([one / other for one, other in zip(theirs, own, strict=True)])
    return {
        f"{mode}_ttft_ratio": ratio.value,
        f"{mode}_ttft_low_ratio": ratio.low,
        f"{mode}_ttft_high_ratio": ratio.high,
        f"{mode}_stock_ttft_ms": median(theirs).value,
        f"{mode}_fastlane_ttft_ms": median(own).value,
        f"{mode}_saved_ms": median(differences(theirs, own)).value,
    }


def measure(quick: bool) -> Report:
    """Measure synchronous, then asynchronous clients."""
    rounds = 10 if quick else 50
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S) as (emulator,):
        messages = _messages(_content_bytes(emulator))
        sync = _sync(emulator.base_url, messages, rounds)
        asynchronous = asyncio.run(_async(emulator.base_url, messages, rounds))
        log = emulator.log()
    bodies = {(request.bytes_in, request.content_encoding) for request in log}
    if bodies != {(_BODY_BYTES, None)}:
        raise RuntimeError(f"both sides were to send {_BODY_BYTES} bytes as they are, and sent {bodies}")
    arms = [f"{mode}_{side}" for mode in _MODES for side in ("stock", "fastlane")]
    return Report(
        figures={
            **_figures("sync", sync),
            **_figures("async", asynchronous),
            **{f"{arm}_connections": connections(log, arm) for arm in arms},
            "pairs": rounds,
        },
        reach=tuple(Reach(figure=f"{mode}_ttft_ratio", op=">=", target=1.8) for mode in _MODES),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "body_bytes": _BODY_BYTES,
            "pause_s": _PAUSE_S,
            "provider": "instant: no time of its own",
            "expected": "2 round trips against 1",
            "max_retries": 0,
            "streamed": True,
            "tls": True,
        },
    )
