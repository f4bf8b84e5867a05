"""What a connection that is still open is worth after a pause: time to first token, stock against `Connection()`.

Both clients make a small streamed call, one right after the other and the order reversed each time; then both pause for
longer than the five seconds for which the stock client keeps an idle connection. Inside: from the application's call to
the first content that it reads. Outside: the provider's own time, which is none here. With a provider that thinks, both
sides take that much longer: the difference stays, the ratio shrinks. Asynchronous, because the stock client's
synchronous streams do not keep their connection even without a pause (see `connection`).
"""

from __future__ import annotations

import asyncio
from typing import Any

import openai

import fastlane
from benchmarks._paired import differences, median
from benchmarks._provider import MODEL, providers
from benchmarks._report import Reach, Report
from fastlane._clock import now_ns

_ROUND_TRIP_TIME_S = 0.04
_PAUSE_S = 6.0
_LANES = 3
_MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]


async def _time_to_first_content_ms(client: openai.AsyncOpenAI) -> float:
    started = now_ns()
    first: int | None = None
    stream = await client.chat.completions.create(model=MODEL, messages=_MESSAGES, max_tokens=4, stream=True)
    async for chunk in stream:
        if first is None and chunk.choices and chunk.choices[0].delta.content:
            first = now_ns()
    if first is None:
        raise RuntimeError("the stream brought no content")
    return (first - started) / 1e6


async def _lane(base_url: str, number: int, rounds: int) -> tuple[list[float], list[list[float]]]:
    """The first pair of a lane, which finds no connection open, and the pairs after a pause."""
    settings: dict[str, Any] = {"base_url": base_url, "api_key": "none", "max_retries": 0}
    # Lanes take turns, so that no call waits for the CPU of another.
    await asyncio.sleep(number * _PAUSE_S / _LANES)
    async with (
        openai.AsyncOpenAI(**settings) as stock,
        fastlane.AsyncOpenAI(**settings, only_plays=[fastlane.Connection()]) as ours,
    ):
        arms = (stock, ours)
        cold = [await _time_to_first_content_ms(arm) for arm in arms]
        taken: list[list[float]] = [[], []]
        for round_number in range(rounds):
            await asyncio.sleep(_PAUSE_S)
            for index in (1, 0) if round_number % 2 else (0, 1):
                taken[index].append(await _time_to_first_content_ms(arms[index]))
        return cold, taken


async def _lanes(base_urls: list[str], rounds: int) -> list[tuple[list[float], list[list[float]]]]:
    return await asyncio.gather(*(_lane(base_url, number, rounds) for number, base_url in enumerate(base_urls)))


def measure(quick: bool) -> Report:
    """Run several lanes with a provider each, so that no lane keeps another's connection warm."""
    rounds = 6 if quick else 25
    with providers(_LANES, round_trip_time_s=_ROUND_TRIP_TIME_S) as started:
        lanes = asyncio.run(_lanes([emulator.base_url for emulator in started], rounds))
    stock = [value for _, (values, _) in lanes for value in values]
    ours = [value for _, (_, values) in lanes for value in values]
    ratio = median([theirs / own for theirs, own in zip(stock, ours, strict=True)])
    saved = median(differences(stock, ours))
    return Report(
        figures={
            "ttft_ratio": ratio.value,
            "ttft_ratio_low": ratio.low,
            "ttft_ratio_high": ratio.high,
            "stock_ttft_ms": median(stock).value,
            "fastlane_ttft_ms": median(ours).value,
            "saved_ms": saved.value,
            "saved_low_ms": saved.low,
            "saved_high_ms": saved.high,
            "stock_cold_ttft_ms": median([cold[0] for cold, _ in lanes]).value,
            "fastlane_cold_ttft_ms": median([cold[1] for cold, _ in lanes]).value,
            "pairs": len(stock),
        },
        reach=(Reach(figure="ttft_ratio", op=">=", target=2.5), Reach(figure="pairs", op=">=", target=6)),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "pause_s": _PAUSE_S,
            "provider": "instant: no time of its own",
            "expected": "3 round trips (TCP, TLS 1.3, request) against 1",
            "lanes": _LANES,
            "streamed": True,
            "tls": True,
        },
    )
