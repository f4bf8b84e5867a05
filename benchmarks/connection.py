"""What the default client saves without any pause: the CPU of another client, and the connections of streamed calls.

Inside, of another client: the constructor's CPU. Inside, of streamed calls: twenty calls one after the other on each
side, taking turns, synchronous, read to their end, timed from the application's call to the first content; the number
of connections is the provider's own count. Outside: the provider's own time, which is none here.
"""

from __future__ import annotations

from typing import Any

import openai

import fastlane
from benchmarks._paired import cpu_pairs, median
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Reach, Report
from fastlane._clock import now_ns

_ROUND_TRIP_TIME_S = 0.04
_CALLS = 20
_CLIENTS = 10
_MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]


def _time_to_first_content_ms(client: openai.OpenAI) -> float:
    started = now_ns()
    first: int | None = None
    for chunk in client.chat.completions.create(model=MODEL, messages=_MESSAGES, max_tokens=4, stream=True):
        if first is None and chunk.choices and chunk.choices[0].delta.content:
            first = now_ns()
    if first is None:
        raise RuntimeError("the stream brought no content")
    return (first - started) / 1e6


def _streamed_calls(*, http2: bool) -> dict[str, Figure]:
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S, http2=http2) as (emulator,):
        settings: dict[str, Any] = {"base_url": emulator.base_url, "api_key": "none", "max_retries": 0}
        arms = {
            "stock": openai.OpenAI(**settings, default_headers={"x-arm": "stock"}),
            "fastlane": fastlane.OpenAI(**settings),
        }
        taken: dict[str, list[float]] = {name: [] for name in arms}
        connections: dict[str, set[str]] = {name: set() for name in arms}
        for round_number in range(_CALLS):
            for name in reversed(arms) if round_number % 2 else arms:
                taken[name].append(_time_to_first_content_ms(arms[name]))
        for request in emulator.log():
            connections["stock" if "x-arm" in request.header_names else "fastlane"].add(request.connection_id)
        for client in arms.values():
            client.close()
    ratio = median([stock / ours for stock, ours in zip(taken["stock"], taken["fastlane"], strict=True)])
    protocol = "http2" if http2 else "http1"
    return {
        f"{protocol}_stock_connections": len(connections["stock"]),
        f"{protocol}_fastlane_connections": len(connections["fastlane"]),
        f"{protocol}_stock_ttft_ms": median(taken["stock"]).value,
        f"{protocol}_fastlane_ttft_ms": median(taken["fastlane"]).value,
        f"{protocol}_ttft_ratio": ratio.value,
        f"{protocol}_ttft_low_ratio": ratio.low,
        f"{protocol}_ttft_high_ratio": ratio.high,
    }


def _another_client(pairs: int) -> dict[str, Figure]:
    settings: dict[str, Any] = {"base_url": "https://provider.invalid/v1", "api_key": "none"}
    made: list[openai.OpenAI] = []
    # Several in a row: one alone would mostly measure what the other side left in the processor's caches.
    stock, ours = cpu_pairs(
        (
            lambda: made.extend(openai.OpenAI(**settings) for _ in range(_CLIENTS)),
            lambda: made.extend(fastlane.OpenAI(**settings) for _ in range(_CLIENTS)),
        ),
        pairs,
    )
    for client in made:
        client.close()
    return {
        "another_client_stock_ms": median(stock).value / 1e6 / _CLIENTS,
        "another_client_fastlane_ms": median(ours).value / 1e6 / _CLIENTS,
        "another_client_ratio": median(stock).value / median(ours).value,
    }


def measure(quick: bool) -> Report:
    """Measure another client, then streamed calls over HTTP/1.1 and HTTP/2."""
    pairs = 20 if quick else 100
    return Report(
        figures={**_another_client(pairs), **_streamed_calls(http2=False), **_streamed_calls(http2=True)},
        reach=(
            Reach(figure="another_client_fastlane_ms", op="<=", target=0.2),
            Reach(figure="http1_fastlane_connections", op="==", target=1),
            Reach(figure="http2_fastlane_connections", op="==", target=1),
        ),
        conditions={
            "pairs_of_another_client": pairs,
            "clients_of_a_pair": _CLIENTS,
            "calls_of_each_side": _CALLS,
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "provider": "instant: no time of its own",
            "synchronous": True,
            "streamed": True,
            "tls": True,
        },
    )
