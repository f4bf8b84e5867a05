"""A long prompt now and then: `openai.OpenAI()` as it comes against fastlane with `RequestEncoding()`.

Prompts of 123 kB, six seconds apart, over 40 ms to a provider that takes every form of body: one kind repeats its code,
as the talk's must have, one is real source code. The stock client has closed its connection by then, opens another one
and sends JSON over HTTP/1.1; ours still has its connection, and sends fewer bytes. Both clients make their calls one
right after the other, in reversed order every other round, and then both pause. Inside: from the application's call to
the first content that it reads. Outside: the provider's own time, which is none here. With a provider that thinks, both
sides take that much longer: the difference stays, the ratio shrinks. Asynchronous, in lanes with a provider each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import openai

import fastlane
from benchmarks._encoding import BODY_BYTES, KINDS, Kind, plays, prompt
from benchmarks._paired import differences, median
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import afirst_content_ms, wishes
from fastlane.emulator import Emulator, RequestLog

_ROUND_TRIP_TIME_S = 0.04
_PAUSE_S = 6.0
_LANES_OF_A_KIND = 2
_SIDES = ("stock", "fastlane")
_REACH = {"talk": 4.0, "source": 2.5}


async def _lane(emulator: Emulator, kind: Kind, start_s: float, rounds: int) -> list[list[float]]:
    messages = prompt(kind)
    # Lanes take turns, so that no call waits for the CPU of another.
    await asyncio.sleep(start_s)
    options: dict[str, Any] = {"base_url": emulator.base_url, "api_key": "none", "max_retries": 0}
    async with (
        openai.AsyncOpenAI(**options, default_headers=wishes(tag="stock")) as stock,
        fastlane.AsyncOpenAI(
            **options, default_headers=wishes(tag="fastlane"), only_plays=plays(encoding=True)
        ) as ours,
    ):
        arms = (stock, ours)
        for arm in arms:
            await afirst_content_ms(arm, messages=messages)
        taken: list[list[float]] = [[], []]
        for round_number in range(rounds):
            await asyncio.sleep(_PAUSE_S)
            for index in (1, 0) if round_number % 2 else (0, 1):
                taken[index].append(await afirst_content_ms(arms[index], messages=messages))
        return taken


async def _lanes(emulators: Sequence[Emulator], rounds: int) -> list[list[list[float]]]:
    kinds = [kind for kind in KINDS for _ in range(_LANES_OF_A_KIND)]
    return await asyncio.gather(
        *(
            _lane(emulator, kind, number * _PAUSE_S / len(kinds), rounds)
            for number, (emulator, kind) in enumerate(zip(emulators, kinds, strict=True))
        )
    )


def _figures(kind: Kind, lanes: Sequence[Sequence[Sequence[float]]], log: Sequence[RequestLog]) -> dict[str, Figure]:
    stock, ours = ([value for lane in lanes for value in lane[index]] for index in (0, 1))
    # The first call of each side opened its connection; what ours decided then is its own affair.
    sent = {side: [one for one in log if one.tag == side] for side in _SIDES}
    if {one.content_encoding for one in sent["stock"]} != {None}:
        raise RuntimeError("the stock client was to send JSON as it is")
    if {one.bytes_in_decoded for one in log} != {BODY_BYTES}:
        raise RuntimeError(f"each call was to have {BODY_BYTES} bytes of JSON")
    ratio = median([theirs / own for theirs, own in zip(stock, ours, strict=True)])
    return {
        f"{kind}_ttft_ratio": ratio.value,
        f"{kind}_ttft_low_ratio": ratio.low,
        f"{kind}_ttft_high_ratio": ratio.high,
        f"{kind}_stock_ttft_ms": median(stock).value,
        f"{kind}_fastlane_ttft_ms": median(ours).value,
        f"{kind}_saved_ms": median(differences(stock, ours)).value,
        f"{kind}_sent_bytes": sent["fastlane"][-1].bytes_in,
    }


def measure(quick: bool) -> Report:
    """Run lanes of both kinds with a provider each, so that no lane keeps another's connection warm."""
    rounds = 5 if quick else 25
    with providers(len(KINDS) * _LANES_OF_A_KIND, round_trip_time_s=_ROUND_TRIP_TIME_S) as started:
        lanes = asyncio.run(_lanes(started, rounds))
        logs = [emulator.log() for emulator in started]
    figures: dict[str, Figure] = {}
    for number, kind in enumerate(KINDS):
        own = slice(number * _LANES_OF_A_KIND, (number + 1) * _LANES_OF_A_KIND)
        figures |= _figures(kind, lanes[own], [one for log in logs[own] for one in log])
    figures["pairs_of_a_kind"] = rounds * _LANES_OF_A_KIND
    return Report(
        figures=figures,
        reach=tuple(Reach(figure=f"{kind}_ttft_ratio", op=">=", target=_REACH[kind]) for kind in KINDS),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "pause_s": _PAUSE_S,
            "body_bytes": BODY_BYTES,
            "provider": "instant: no time of its own",
            "expected": "6 round trips (TCP, TLS 1.3, request in 4) against 1 (talk) or 2 (source)",
            "lanes_of_a_kind": _LANES_OF_A_KIND,
            "streamed": True,
            "tls": True,
        },
    )
