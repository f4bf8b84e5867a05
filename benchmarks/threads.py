"""How many calls fail when sixteen threads share a client: the stock client over HTTP/2 against ours.

Sixteen threads make 25 calls each at the same time, on one client that has no connection yet; every round takes new
clients. Inside: every call of every thread, the ones that find no connection open among them. A call has failed if it
brought an error, or another text than the one that it alone asked for. Both sides take turns, in reversed order every
other round; the stock side has fewer rounds, because one failure is enough to know. Connections are the provider's own
count.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import openai

from benchmarks._provider import providers
from benchmarks._report import Reach, Report
from benchmarks._transport import WrongAnswerError, call_ms, connections, ours, stock

_ROUND_TRIP_TIME_S = 0.04
_THREADS = 16
_CALLS = 25
_TIMEOUT_S = 20.0


def _failures(client: openai.OpenAI, round_number: int) -> list[str]:
    together = Barrier(_THREADS)

    def thread(number: int) -> list[str]:
        failed = []
        together.wait()
        for call in range(_CALLS):
            try:
                call_ms(client, f"round {round_number}, thread {number}, call {call}")
            except (openai.OpenAIError, WrongAnswerError) as error:
                failed.append(type(error).__name__)
        return failed

    with ThreadPoolExecutor(_THREADS) as pool:
        return [name for failed in pool.map(thread, range(_THREADS)) for name in failed]


def measure(quick: bool) -> Report:
    """Run rounds of new clients."""
    rounds = {"stock": 3 if quick else 6, "fastlane": 6 if quick else 20}
    make: dict[str, Callable[..., Any]] = {"stock": stock, "fastlane": ours}
    failed: dict[str, list[str]] = {side: [] for side in make}
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S) as (emulator,):
        for round_number in range(max(rounds.values())):
            for side in reversed(make) if round_number % 2 else make:
                if round_number < rounds[side]:
                    with make[side](emulator.base_url, side, timeout=_TIMEOUT_S) as client:
                        failed[side] += _failures(client, round_number)
        log = emulator.log()
    return Report(
        figures={
            "fastlane_failed_calls": len(failed["fastlane"]),
            "fastlane_calls": rounds["fastlane"] * _THREADS * _CALLS,
            "fastlane_connections_per_round": connections(log, "fastlane") / rounds["fastlane"],
            "stock_failed_calls": len(failed["stock"]),
            "stock_calls": rounds["stock"] * _THREADS * _CALLS,
            "stock_connections_per_round": connections(log, "stock") / rounds["stock"],
        },
        reach=(Reach(figure="fastlane_failed_calls", op="==", target=0),),
        conditions={
            "errors": {side: sorted(set(names)) for side, names in failed.items()},
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "threads": _THREADS,
            "calls_of_a_thread": _CALLS,
            "rounds": rounds,
            "timeout_s": _TIMEOUT_S,
            "max_retries": 0,
            "tls": True,
        },
    )
