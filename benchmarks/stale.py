"""What a call costs after the server closed the idle connection: the stock client over HTTP/2 against ours.

The provider closes every connection that was idle for 0.3 s as middleboxes do, by a FIN without a GOAWAY; the next call
is made when that is known to the kernel for long. Inside: from the application's call to its parsed answer, the
retries of the openai library included (two, its default, on both sides), with the pause before them that makes most of
what the stock client pays. Outside: the pause before the call. Two further clients make the same calls without any
retry, to count errors. All take turns, in reversed order every other round.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import openai

from benchmarks._paired import differences, median
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import acall_ms, call_ms, ours, ours_async, stock, stock_async, wishes

_ROUND_TRIP_TIME_S = 0.04
_IDLE_S = 0.3
_PAUSE_S = 1.0
_MODES = ("sync", "async")
_CLOSING: dict[str, Any] = {"default_headers": wishes(fault=f"idle_fin={_IDLE_S}")}
_RETRYING: dict[str, Any] = {**_CLOSING, "max_retries": openai.DEFAULT_MAX_RETRIES}

Taken = dict[str, list[float | None]]
"""Milliseconds of each arm's calls; None for a call that brought an error."""


def _sync(base_url: str, rounds: int) -> Taken:
    with ExitStack() as stack:
        arms = {
            "stock": stack.enter_context(stock(base_url, "stock", **_RETRYING)),
            "fastlane": stack.enter_context(ours(base_url, "fastlane", **_RETRYING)),
            "stock_bare": stack.enter_context(stock(base_url, "stock_bare", **_CLOSING)),
            "fastlane_bare": stack.enter_context(ours(base_url, "fastlane_bare", **_CLOSING)),
        }
        taken: Taken = {name: [] for name in arms}
        for client in arms.values():
            call_ms(client)
        for round_number in range(rounds):
            time.sleep(_PAUSE_S)
            for name in reversed(arms) if round_number % 2 else arms:
                try:
                    taken[name].append(call_ms(arms[name]))
                except openai.APIConnectionError:
                    taken[name].append(None)
        return taken


async def _async(base_url: str, rounds: int) -> Taken:
    async with AsyncExitStack() as stack:
        arms = {
            "stock": await stack.enter_async_context(stock_async(base_url, "stock", **_RETRYING)),
            "fastlane": await stack.enter_async_context(ours_async(base_url, "fastlane", **_RETRYING)),
            "stock_bare": await stack.enter_async_context(stock_async(base_url, "stock_bare", **_CLOSING)),
            "fastlane_bare": await stack.enter_async_context(ours_async(base_url, "fastlane_bare", **_CLOSING)),
        }
        taken: Taken = {name: [] for name in arms}
        for client in arms.values():
            await acall_ms(client)
        for round_number in range(rounds):
            await asyncio.sleep(_PAUSE_S)
            for name in reversed(arms) if round_number % 2 else arms:
                try:
                    taken[name].append(await acall_ms(arms[name]))
                except openai.APIConnectionError:
                    taken[name].append(None)
        return taken


def _figures(mode: str, taken: Taken) -> dict[str, Figure]:
    pairs = [
        (theirs, own)
        for theirs, own in zip(taken["stock"], taken["fastlane"], strict=True)
        if theirs is not None and own is not None
    ]
    figures: dict[str, Figure] = {f"{mode}_{name}_errors": values.count(None) for name, values in taken.items()}
    if not pairs:
        return {f"{mode}_ratio": None, **figures}
    ratio = median([theirs / own for theirs, own in pairs])
    stock_ms, ours_ms = [theirs for theirs, _ in pairs], [own for _, own in pairs]
    return {
        f"{mode}_ratio": ratio.value,
        f"{mode}_low_ratio": ratio.low,
        f"{mode}_high_ratio": ratio.high,
        f"{mode}_stock_ms": median(stock_ms).value,
        f"{mode}_fastlane_ms": median(ours_ms).value,
        f"{mode}_saved_ms": median(differences(stock_ms, ours_ms)).value,
        **figures,
    }


def measure(quick: bool) -> Report:
    """Measure synchronous, then asynchronous clients."""
    rounds = 8 if quick else 45
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S) as (emulator,):
        taken = {"sync": _sync(emulator.base_url, rounds), "async": asyncio.run(_async(emulator.base_url, rounds))}
    return Report(
        figures={**_figures("sync", taken["sync"]), **_figures("async", taken["async"]), "calls_of_each_arm": rounds},
        reach=(
            *(Reach(figure=f"{mode}_ratio", op=">=", target=3) for mode in _MODES),
            *(Reach(figure=f"{mode}_fastlane_bare_errors", op="==", target=0) for mode in _MODES),
        ),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "server_closes_after_s": _IDLE_S,
            "pause_s": _PAUSE_S,
            "max_retries": openai.DEFAULT_MAX_RETRIES,
            "max_retries_bare": 0,
            "provider": "instant: no time of its own",
            "expected": "3 round trips (TCP, TLS 1.3, request); the stock client also waits 0.4 to 0.5 s to retry",
            "streamed": False,
            "tls": True,
        },
    )
