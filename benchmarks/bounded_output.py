"""What `BoundedOutput()` is worth as it is by default, beside `Connection()` alone: time and tokens of a `.parse()`.

An emulated model that writes exactly, but for a fifth of its answers: behind those it runs on in white space, up to its
limit of 1,024 tokens; the application sets none. Both sides ask for the same, by a pydantic class, over HTTP/2 and
40 ms; equal draws give equal delays and equal habits. The sides take turns, in reversed order every other call. Once
with a class whose answers are bounded, so that a ceiling is set, and once with one that allows any length. Inside: from
the application's call of `.parse()` to its result, or to the error with which openai's client answers one that ran into
its limit. Tokens are the provider's own count. Outside: opening the connections, and CPU time beyond what it delays.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, NamedTuple

import openai
import pydantic

import fastlane
from benchmarks._paired import median
from benchmarks._provider import MODEL, providers
from benchmarks._report import Figure, Reach, Report, main
from benchmarks._structured import OUTPUT_LIMIT, Case, Ticket, by_tag, known, ticket
from benchmarks._transport import percentile, wishes
from fastlane._clock import now_ns
from fastlane.emulator import Emulator, RequestLog, preset

_ROUND_TRIP_TIME_S = 0.04
_MANNER = "whitespace;share=0.2"
_LANES = 8
_SIDES = ("alone", "bounded")
_CLASSES: dict[str, type[pydantic.BaseModel]] = {"bounded_schema": Ticket, "open_schema": Case}


class _Taken(NamedTuple):
    ms: float
    failed: bool


async def _ask(client: openai.AsyncOpenAI, kind: str, number: int, tag: str) -> _Taken:
    headers = wishes(tag=tag, draw=number)
    failed = False
    started = now_ns()
    try:
        await client.chat.completions.parse(
            model=MODEL,
            messages=ticket(number),
            response_format=_CLASSES[kind],
            extra_headers=headers,
        )
    except openai.LengthFinishReasonError:
        failed = True
    return _Taken((now_ns() - started) / 1e6, failed)


async def _run(emulator: Emulator, calls: int) -> dict[str, dict[str, dict[int, _Taken]]]:
    own: dict[str, Any] = {"base_url": emulator.base_url, "api_key": "none", "max_retries": 0}
    taken: dict[str, dict[str, dict[int, _Taken]]] = {kind: {side: {} for side in _SIDES} for kind in _CLASSES}
    async with (
        fastlane.AsyncOpenAI(**own, only_plays=[fastlane.Connection(idle_s=441.0)]) as alone,
        fastlane.AsyncOpenAI(
            **own, only_plays=[fastlane.Connection(idle_s=442.0), fastlane.BoundedOutput()]
        ) as bounded,
    ):
        clients = {"alone": alone, "bounded": bounded}
        for client in clients.values():
            await client.models.list()

        async def lane(first: int) -> None:
            for number in range(first, calls, _LANES):
                for kind in _CLASSES:
                    for side in reversed(_SIDES) if number // _LANES % 2 else _SIDES:
                        tag = f"{kind}:{side}:{number}"
                        taken[kind][side][number] = await _ask(clients[side], kind, number, tag)

        await asyncio.gather(*map(lane, range(_LANES)))
    return taken


def _figures(kind: str, taken: dict[str, dict[int, _Taken]], sent: dict[str, list[RequestLog]]) -> dict[str, Figure]:
    numbers = sorted(taken["alone"])
    requests = {side: [sent[f"{kind}:{side}:{number}"][0] for number in numbers] for side in _SIDES}
    ran_on = {side: [request.manner is not None for request in requests[side]] for side in _SIDES}
    if ran_on["alone"] != ran_on["bounded"]:
        raise RuntimeError("both sides were to have the same answers")
    figures: dict[str, Figure] = {}
    for side in _SIDES:
        times = [taken[side][number].ms for number in numbers]
        figures |= {
            f"{kind}_{side}_e2e_p50_ms": percentile(times, 0.5),
            f"{kind}_{side}_e2e_p95_ms": percentile(times, 0.95),
            f"{kind}_{side}_e2e_mean_ms": sum(times) / len(times),
            f"{kind}_{side}_tokens_per_call": sum(request.output_tokens for request in requests[side]) / len(numbers),
            f"{kind}_{side}_failures": sum(taken[side][number].failed for number in numbers),
        }
    ratios = [taken["alone"][number].ms / taken["bounded"][number].ms for number in numbers]
    added = [taken["bounded"][number].ms - taken["alone"][number].ms for number in numbers]
    exact = median([ratio for ratio, odd in zip(ratios, ran_on["alone"], strict=True) if not odd])
    odd_ones = median([ratio for ratio, odd in zip(ratios, ran_on["alone"], strict=True) if odd])
    return figures | {
        f"{kind}_mean_ratio": (figures[f"{kind}_alone_e2e_mean_ms"] or 0)
        / (figures[f"{kind}_bounded_e2e_mean_ms"] or 1),
        f"{kind}_tokens_ratio": (figures[f"{kind}_alone_tokens_per_call"] or 0)
        / (figures[f"{kind}_bounded_tokens_per_call"] or 1),
        f"{kind}_ran_on_paired_ratio": odd_ones.value,
        f"{kind}_ran_on_paired_low_ratio": odd_ones.low,
        f"{kind}_exact_paired_ratio": exact.value,
        f"{kind}_exact_paired_low_ratio": exact.low,
        f"{kind}_exact_paired_high_ratio": exact.high,
        f"{kind}_exact_added_ms": median(
            [each for each, odd in zip(added, ran_on["alone"], strict=True) if not odd]
        ).value,
        f"{kind}_ran_on": sum(ran_on["alone"]),
    }


def measure(quick: bool) -> Report:
    """Run both sides in turns, in lanes."""
    calls = 96 if quick else 800
    model = replace(preset("bench"), manner=_MANNER, run_on_tokens=OUTPUT_LIMIT)
    with providers(1, round_trip_time_s=_ROUND_TRIP_TIME_S, model=model) as emulators, known(emulators):
        taken = asyncio.run(_run(emulators[0], calls))
        sent = by_tag(emulators[0].log())
    figures: dict[str, Figure] = {}
    for kind in _CLASSES:
        figures |= _figures(kind, taken[kind], sent)
    figures["calls_per_side_and_class"] = calls
    return Report(
        figures=figures,
        reach=tuple(
            reach
            for kind in _CLASSES
            for reach in (
                Reach(figure=f"{kind}_mean_ratio", op=">=", target=2.0),
                Reach(figure=f"{kind}_tokens_ratio", op=">=", target=4.0),
                Reach(figure=f"{kind}_exact_paired_low_ratio", op=">=", target=0.99),
                Reach(figure=f"{kind}_bounded_failures", op="==", target=0),
            )
        ),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "provider": "preset bench: 300 tokens/s",
            "manner": _MANNER,
            "limit_of_the_model_tokens": OUTPUT_LIMIT,
            "lanes": _LANES,
            "streamed": "by the play, underneath",
            "tls": True,
        },
    )


if __name__ == "__main__":
    main("bounded_output", __doc__, measure)
