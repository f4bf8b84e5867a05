"""What the `RequestEncoding` play is worth for prompts of 4 to 123 kB: time to first token beside `Connection()` alone.

Real source code over 40 ms to a provider that takes every form of body, each call on a connection that was idle: the
window has fallen back to its beginning, as it does while a model thinks. And 123 kB once more right behind that, over
windows that the call before has opened, where fewer bytes save less. Both sides have a warm connection of fastlane's
and take turns, in reversed order every other round. Inside: from the application's call to the first content
that it reads, and so everything that encoding takes. Outside: opening the connections, and the provider's own time,
which is none here. Asynchronous, in lanes with a provider each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import fastlane
from benchmarks._encoding import BODY_BYTES, plays, prompt
from benchmarks._paired import differences, median
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report
from benchmarks._transport import afirst_content_ms
from fastlane.emulator import Emulator

_ROUND_TRIP_TIME_S = 0.04
# A window of 90 segments is halved four times, once for each round trip and 200 ms.
_PAUSE_S = 1.2
_LANES = 3
_SIZES = {"4_kb": 4_000, "16_kb": 16_000, "64_kb": 64_000, "123_kb": BODY_BYTES}
_AGAIN = "123_kb_again"
_CASES = (*_SIZES, _AGAIN)


class _Pair(NamedTuple):
    """One call of each side, in milliseconds, and whether the second was sent encoded."""

    alone_ms: float
    encoding_ms: float
    encoded: bool


async def _lane(emulator: Emulator, start_s: float, rounds: int) -> dict[str, list[_Pair]]:
    prompts = {name: prompt("source", size) for name, size in _SIZES.items()}
    await asyncio.sleep(start_s)
    options: dict[str, Any] = {"base_url": emulator.base_url, "api_key": "none", "max_retries": 0}
    pairs: dict[str, list[_Pair]] = {name: [] for name in _CASES}
    async with (
        fastlane.AsyncOpenAI(**options, only_plays=plays(encoding=False)) as alone,
        fastlane.AsyncOpenAI(**options, only_plays=plays(encoding=True)) as encoding,
    ):
        arms = (alone, encoding)
        for arm in arms:
            await afirst_content_ms(arm, messages=prompts["123_kb"])
        for round_number in range(rounds):
            for name, messages in prompts.items():
                await asyncio.sleep(_PAUSE_S)
                cases = (name, _AGAIN) if name == "123_kb" else (name,)
                taken: dict[str, list[float]] = {case: [0.0, 0.0] for case in cases}
                encoded: dict[str, bool] = {}
                for index in (1, 0) if round_number % 2 else (0, 1):
                    for case in cases:
                        taken[case][index] = await afirst_content_ms(arms[index], messages=messages)
                        if index == 1:
                            encoded[case] = _was_encoded(encoding)
                for case in cases:
                    pairs[case].append(_Pair(taken[case][0], taken[case][1], encoded[case]))
    return pairs


def _was_encoded(client: fastlane.AsyncOpenAI) -> bool:
    record = client.last_call.request_encoding if client.last_call is not None else None
    return record is not None and record.form != "json"


async def _lanes(emulators: Sequence[Emulator], rounds: int) -> list[dict[str, list[_Pair]]]:
    return await asyncio.gather(
        *(_lane(emulator, number * _PAUSE_S / len(emulators), rounds) for number, emulator in enumerate(emulators))
    )


def _figures(case: str, pairs: Sequence[_Pair]) -> dict[str, Figure]:
    alone, encoding = [pair.alone_ms for pair in pairs], [pair.encoding_ms for pair in pairs]
    ratio = median([theirs / own for theirs, own in zip(alone, encoding, strict=True)])
    saved = median(differences(alone, encoding))
    return {
        f"at_{case}_ttft_ratio": ratio.value,
        f"at_{case}_alone_ttft_ms": median(alone).value,
        f"at_{case}_encoding_ttft_ms": median(encoding).value,
        f"at_{case}_saved_ms": saved.value,
        f"at_{case}_saved_low_ms": saved.low,
        f"at_{case}_saved_high_ms": saved.high,
        f"at_{case}_encoded_share": sum(pair.encoded for pair in pairs) / len(pairs),
    }


def measure(quick: bool) -> Report:
    """Run several lanes with a provider each."""
    rounds = 5 if quick else 25
    with providers(_LANES, round_trip_time_s=_ROUND_TRIP_TIME_S) as started:
        lanes = asyncio.run(_lanes(started, rounds))
    figures: dict[str, Figure] = {}
    for case in _CASES:
        figures |= _figures(case, [pair for lane in lanes for pair in lane[case]])
    figures["pairs"] = rounds * _LANES
    return Report(
        figures=figures,
        reach=(
            Reach(figure="at_4_kb_encoded_share", op="==", target=0),
            Reach(figure="at_16_kb_ttft_ratio", op=">=", target=1.5),
            Reach(figure="at_64_kb_ttft_ratio", op=">=", target=1.3),
            Reach(figure="at_123_kb_ttft_ratio", op=">=", target=1.7),
            Reach(figure="at_123_kb_again_ttft_ratio", op=">=", target=0.9),
        ),
        conditions={
            "round_trip_time_ms": 1e3 * _ROUND_TRIP_TIME_S,
            "pause_s": _PAUSE_S,
            "provider": "instant: no time of its own",
            "expected": "round trips: 1 against 1, 2 against 1, 3 against 2, 4 against 2",
            "lanes": _LANES,
            "streamed": True,
            "tls": True,
        },
    )
