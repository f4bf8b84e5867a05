"""What a typed chunk costs between the socket and the application's loop: openai's client against ours.

Streams of chat completions, each with a chunk about every 10 ms and none in step with another, are read with
`async for` (64, 16 and 1 of them) and with `for` in 16 threads. The stock client is `openai.AsyncOpenAI()` as it comes,
which speaks HTTP/1.1, and once more as it is told to speak HTTP/2; ours is `fastlane.AsyncOpenAI()` as it comes, which
speaks HTTP/2, and once more as it is told not to. Inside: the CPU time of the whole process, from the moment when every
stream has brought a chunk until a fixed time later, when none has ended, divided by the chunks that the provider sent
in that time. (Where the stock client cannot keep up, it has not read all of them: the ratio is then too low.) Outside:
opening connections, sending requests, ends of streams, and the provider, which has a process of its own and, where the
system allows it, another core; what share of that it took is a figure. Nothing is subtracted. The arms take turns, in
reversed order every other round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from benchmarks._paired import median
from benchmarks._provider import provider_on_another_core
from benchmarks._report import Figure, Reach, Report
from benchmarks._streams import Taken, async_turn, sync_turn
from fastlane.emulator import Emulator

_TOKEN_MS = 10.0


def _with_tasks(emulator: Emulator, window_s: float, *, side: str, streams: int) -> Taken:
    return asyncio.run(async_turn(side, emulator, streams=streams, token_ms=_TOKEN_MS, window_s=window_s))


def _with_threads(emulator: Emulator, window_s: float, *, side: str, streams: int) -> Taken:
    return sync_turn(side, emulator, streams=streams, token_ms=_TOKEN_MS, window_s=window_s)


_ARMS: dict[str, Callable[[Emulator, float], Taken]] = {
    **{
        f"async_{streams}_{side}": partial(_with_tasks, side=side, streams=streams)
        for streams in (64, 16, 1)
        for side in ("stock", "fastlane", "stock_http2", "fastlane_http1")
        if streams == 64 or side in ("stock", "fastlane")
    },
    **{f"threads_16_{side}": partial(_with_threads, side=side, streams=16) for side in ("stock", "fastlane")},
}

# Each against the stock client as it comes, but for the last.
_RATIOS = {
    "async_64": ("async_64_stock", "async_64_fastlane", 6),
    "async_16": ("async_16_stock", "async_16_fastlane", 5),
    "async_1": ("async_1_stock", "async_1_fastlane", 2),
    "threads_16": ("threads_16_stock", "threads_16_fastlane", 3),
    "async_64_http1": ("async_64_stock", "async_64_fastlane_http1", 4),
    "async_64_http2": ("async_64_stock_http2", "async_64_fastlane", None),
}


def measure(quick: bool) -> Report:
    """Run rounds of all arms."""
    rounds, window_s = (1, 1.5) if quick else (7, 4.0)
    taken: dict[str, list[Taken]] = {arm: [] for arm in _ARMS}
    with provider_on_another_core() as (emulator, cores):
        for round_number in range(rounds):
            for arm in reversed(_ARMS) if round_number % 2 else _ARMS:
                taken[arm].append(_ARMS[arm](emulator, window_s))
    figures: dict[str, Figure] = {}
    for name, (stock, ours, _) in _RATIOS.items():
        ratio = median(
            [one.us_per_chunk / other.us_per_chunk for one, other in zip(taken[stock], taken[ours], strict=True)]
        )
        figures |= {f"{name}_ratio": ratio.value, f"{name}_low_ratio": ratio.low, f"{name}_high_ratio": ratio.high}
    for arm, turns in taken.items():
        figures[f"{arm}_us_per_chunk"] = median([turn.us_per_chunk for turn in turns]).value
    for arm in ("async_64_stock", "async_64_fastlane"):
        figures[f"{arm}_core_share"] = median([turn.busy_share for turn in taken[arm]]).value
        shares = [turn.provider_cpu_share for turn in taken[arm] if turn.provider_cpu_share is not None]
        figures[f"{arm}_provider_core_share"] = median(shares).value if shares else None
    figures["rounds"] = rounds
    return Report(
        figures=figures,
        reach=tuple(
            Reach(figure=f"{name}_ratio", op=">=", target=target)
            for name, (_, _, target) in _RATIOS.items()
            if target is not None
        ),
        conditions={"chunk_every_ms": _TOKEN_MS, "measured_s": window_s, "cores": cores, "tls": True},
    )
