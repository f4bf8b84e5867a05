"""What a short call takes beside slow ones on the same connection: the stock client over HTTP/2 against ours.

While one call of 1 s (synchronous, in another thread) or four of them (asynchronous, in other tasks) are in flight,
calls of 5 ms follow one another on the same client. Inside: from the application's short call to its parsed answer.
Outside: opening the connection; the short calls begin when the slow ones have been on their way for 0.1 s and none
begins in their last 0.1 s. The idle figures are the same calls on the same clients with nothing beside them. All arms
take turns, in reversed order every other round. Connections are the provider's own count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import openai

from benchmarks._paired import median
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import acall_ms, call_ms, connections, ours, ours_async, percentile, stock, stock_async
from fastlane._clock import now_ns

_SLOW_MS = 1_000
_SHORT_MS = 5
_MARGIN_S = 0.1
_SLOW = {"sync": 1, "async": 4}


@dataclass(slots=True)
class _Arm:
    """One client, with or without slow calls beside the short ones."""

    client: Any
    slow: int
    taken: list[float] = field(default_factory=list)
    failed: int = 0

    def failed_one(self) -> None:
        """Count a call that brought an error: the stock client loses some when threads share a connection."""
        self.failed += 1


def _arms(theirs: Any, own: Any, slow: int) -> dict[str, _Arm]:
    return {
        "stock": _Arm(theirs, slow),
        "fastlane": _Arm(own, slow),
        "stock_idle": _Arm(theirs, 0),
        "fastlane_idle": _Arm(own, 0),
    }


def _turn(arm: _Arm) -> None:
    def call(text: str, milliseconds: int) -> float | None:
        try:
            return call_ms(arm.client, text, prefill_ms=milliseconds)
        except openai.APIConnectionError:
            arm.failed_one()
            return None

    with ThreadPoolExecutor(max(1, arm.slow)) as pool:
        for number in range(arm.slow):
            pool.submit(call, f"slow {number}", _SLOW_MS)
        began = now_ns()
        time.sleep(_MARGIN_S)
        while now_ns() - began < _SLOW_MS * 1e6 - _MARGIN_S * 1e9:
            taken = call("short", _SHORT_MS)
            if taken is not None:
                arm.taken.append(taken)


async def _aturn(arm: _Arm) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(arm.slow):
            group.create_task(acall_ms(arm.client, f"slow {number}", prefill_ms=_SLOW_MS))
        began = now_ns()
        await asyncio.sleep(_MARGIN_S)
        while now_ns() - began < _SLOW_MS * 1e6 - _MARGIN_S * 1e9:
            arm.taken.append(await acall_ms(arm.client, "short", prefill_ms=_SHORT_MS))


def _sync(base_url: str, rounds: int) -> dict[str, _Arm]:
    with stock(base_url, "sync_stock") as theirs, ours(base_url, "sync_fastlane") as own:
        for client in (theirs, own):
            call_ms(client)
        arms = _arms(theirs, own, _SLOW["sync"])
        for round_number in range(rounds):
            for name in reversed(arms) if round_number % 2 else arms:
                _turn(arms[name])
        return arms


async def _async(base_url: str, rounds: int) -> dict[str, _Arm]:
    turn: Callable[[_Arm], Awaitable[None]] = _aturn
    async with stock_async(base_url, "async_stock") as theirs, ours_async(base_url, "async_fastlane") as own:
        for client in (theirs, own):
            await acall_ms(client)
        arms = _arms(theirs, own, _SLOW["async"])
        for round_number in range(rounds):
            for name in reversed(arms) if round_number % 2 else arms:
                await turn(arms[name])
        return arms


def _figures(mode: str, arms: dict[str, _Arm]) -> dict[str, Figure]:
    p50 = {name: median(arm.taken).value for name, arm in arms.items()}
    p99 = {name: percentile(arm.taken, 0.99) for name, arm in arms.items()}
    return {
        f"{mode}_p50_ratio": p50["stock"] / p50["fastlane"],
        f"{mode}_fastlane_p99_to_idle_ratio": p99["fastlane"] / p99["fastlane_idle"],
        **{f"{mode}_{name}_p50_ms": value for name, value in p50.items()},
        **{f"{mode}_{name}_p99_ms": value for name, value in p99.items() if name.startswith("fastlane")},
        **{f"{mode}_{name}_calls": len(arm.taken) for name, arm in arms.items()},
        f"{mode}_stock_failed_calls": arms["stock"].failed + arms["stock_idle"].failed,
        f"{mode}_fastlane_failed_calls": arms["fastlane"].failed + arms["fastlane_idle"].failed,
    }


def measure(quick: bool) -> Report:
    """Measure threads beside one slow call, then tasks beside four."""
    rounds = 4 if quick else 24
    with providers(1, round_trip_time_s=0.0) as (emulator,):
        loopback = emulator.direct_base_url
        figures = _figures("sync", _sync(loopback, rounds)) | _figures("async", asyncio.run(_async(loopback, rounds)))
        log = emulator.log()
    arms = [f"{mode}_{side}" for mode in _SLOW for side in ("stock", "fastlane")]
    return Report(
        figures={**figures, **{f"{arm}_connections": connections(log, arm) for arm in arms}},
        reach=(
            *(Reach(figure=f"{mode}_p50_ratio", op=">=", target=20) for mode in _SLOW),
            *(Reach(figure=f"{mode}_fastlane_p99_to_idle_ratio", op="<=", target=3) for mode in _SLOW),
            *(Reach(figure=f"{mode}_fastlane_connections", op="==", target=1) for mode in _SLOW),
        ),
        conditions={
            "wire": "none: loopback",
            "slow_calls_beside": _SLOW,
            "slow_call_ms": _SLOW_MS,
            "short_call_ms": _SHORT_MS,
            "rounds": rounds,
            "max_retries": 0,
            "streamed": False,
            "tls": True,
        },
    )
