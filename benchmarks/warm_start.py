"""What the first call costs after `client.warm()`, against the next call of the same client.

Every pair takes a new client with a pool of its own: it is warmed, then it calls at once, then it calls again. Inside:
from the application's call to its parsed answer, for both calls. Outside: `warm()` itself, which is told as a figure,
making the client, and what the process does once, such as importing: both sides have called before. The stock client's
first call, over HTTP/2 on a client that is new as well, stands beside it for scale, in turns, its order reversed every
other round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks._paired import median
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import acall_ms, call_ms, connections, ours, ours_async, stock, stock_async
from fastlane._clock import now_ns

_ROUND_TRIP_TIME_S = 0.04
_MODES = ("sync", "async")


def _checked(warmed: bool) -> None:
    if not warmed:
        raise RuntimeError("the client says that it could not be warmed")


def _cold_ms(base_url: str) -> list[float]:
    with stock(base_url, "stock") as client:
        return [call_ms(client)]


async def _acold_ms(base_url: str) -> list[float]:
    async with stock_async(base_url, "stock") as client:
        return [await acall_ms(client)]


def _warm_ms(base_url: str, arm: str) -> list[float]:
    with ours(base_url, arm) as client:
        started = now_ns()
        warmed = client.warm()
        taken = (now_ns() - started) / 1e6
        _checked(warmed)
        return [taken, call_ms(client), call_ms(client)]


async def _awarm_ms(base_url: str, arm: str) -> list[float]:
    async with ours_async(base_url, arm) as client:
        started = now_ns()
        warmed = await client.warm()
        taken = (now_ns() - started) / 1e6
        _checked(warmed)
        return [taken, await acall_ms(client), await acall_ms(client)]


def _sync(base_url: str, pairs: int) -> list[list[float]]:
    _cold_ms(base_url)
    _warm_ms(base_url, "outside")
    rows = []
    for number in range(pairs):
        if number % 2:
            rows.append(_warm_ms(base_url, f"sync:{number}") + _cold_ms(base_url))
        else:
            cold = _cold_ms(base_url)
            rows.append(_warm_ms(base_url, f"sync:{number}") + cold)
    return rows


async def _async(base_url: str, pairs: int) -> list[list[float]]:
    await _acold_ms(base_url)
    await _awarm_ms(base_url, "outside")
    rows = []
    for number in range(pairs):
        if number % 2:
            rows.append(await _awarm_ms(base_url, f"async:{number}") + await _acold_ms(base_url))
        else:
            cold = await _acold_ms(base_url)
            rows.append(await _awarm_ms(base_url, f"async:{number}") + cold)
    return rows


def _figures(mode: str, rows: Sequence[Sequence[float]]) -> dict[str, Figure]:
    ratio = median([first / again for _, first, again, _ in rows])
    return {
        f"{mode}_first_to_warm_ratio": ratio.value,
        f"{mode}_first_to_warm_low_ratio": ratio.low,
        f"{mode}_first_to_warm_high_ratio": ratio.high,
        f"{mode}_warming_ms": median([warming for warming, *_ in rows]).value,
        f"{mode}_first_call_ms": median([first for _, first, _, _ in rows]).value,
        f"{mode}_warm_call_ms": median([again for _, _, again, _ in rows]).value,
        f"{mode}_stock_cold_call_ms": median([cold for *_, cold in rows]).value,
        f"{mode}_stock_cold_to_first_ratio": median([cold / first for _, first, _, cold in rows]).value,
    }


def measure(quick: bool) -> Report:
    """Measure pairs of synchronous, then of asynchronous clients."""
    pairs = 25 if quick else 150
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S) as (emulator,):
        rows = {"sync": _sync(emulator.base_url, pairs), "async": asyncio.run(_async(emulator.base_url, pairs))}
        log = emulator.log()
    return Report(
        figures={
            **_figures("sync", rows["sync"]),
            **_figures("async", rows["async"]),
            **{f"{mode}_connections_per_client": connections(log, mode) / pairs for mode in _MODES},
            "pairs": pairs,
        },
        reach=tuple(Reach(figure=f"{mode}_first_to_warm_ratio", op="<=", target=1.15) for mode in _MODES),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "provider": "instant: no time of its own",
            "expected": "1 round trip each; the stock client's cold call 3 (TCP, TLS 1.3, request)",
            "max_retries": 0,
            "streamed": False,
            "tls": True,
        },
    )
