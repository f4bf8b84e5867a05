"""What a second attempt is worth where first tokens are late: the slow end of the time to first token, and its price.

An emulated provider is 20 times as late with a share of its first tokens: 1.25 % (so that the 99th percentile is one of
them), 8 % and 30 %. Two of our clients ask it the same over TLS and HTTP/2, one with `Hedging()` and one without, half
of the calls in threads and half in tasks, 32 at a time; they take turns in pairs, in reversed order every other
time, and in a pair both draw the same luck for their first attempt. Inside: from the application's call to its first
content. Outside: the connections, and the first calls, of which the play learns what is usual. Tokens are those of the
provider's own log: of requests that did not become the answer, against those that did. A loser still generates where it
was sent a token after the application had its answer whole, by one clock for both processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import fastlane
from benchmarks._provider import providers
from benchmarks._report import Figure, Report
from benchmarks._structured import by_tag
from benchmarks._transport import first_content_ms, in_mode, ours, percentile, run, settled
from fastlane._clock import now_ns
from fastlane.emulator import Emulator, ProviderModel, Quantiles, RequestLog
from fastlane.plays.hedging.play import Hedging

_LATE: dict[str, tuple[float, int, int]] = {"1": (0.0125, 3_200, 512), "8": (0.08, 800, 96), "30": (0.3, 320, 128)}
"""By name: the share that is late, and pairs in a whole and in a quick run."""
_ARMS = ("without", "with")
_LANES = 32
_LEARNING = 64
_RESAMPLES = 1_000
_ANSWER = ("Yes, it is. " * 10).strip()
_Lanes = Sequence[Sequence[int]]
_MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet, or only what it touches? " * 100}]


class _Asked(NamedTuple):
    ttft_ms: float
    ended_ns: int


class _Run(NamedTuple):
    """What came of one share of late ones."""

    asked: dict[tuple[str, int], _Asked]
    log: Sequence[RequestLog]
    records: list[fastlane.CallRecord]
    """Of the arm with the play, in the order in which the calls ended."""


def _model(late_share: float) -> ProviderModel:
    return ProviderModel(
        prefill_base_s=Quantiles.from_quartiles(0.072, 0.08, 0.092),
        inter_token_s=0.002,
        late_share=late_share,
        late_factor=20,
    )


async def _ask(mode: str, base_url: str, play: Hedging, stages: Sequence[_Lanes], found: _Run) -> None:
    """Make both arms' calls with clients of one mode, stage by stage, each lane one call after the other."""
    clients = {
        "without": ours(mode, base_url, raise_play_errors=True),
        "with": ours(mode, base_url, play, raise_play_errors=True, on_call_end=[found.records.append]),
    }

    async def timed(client: Any, arm: str, number: int) -> None:
        ms = await first_content_ms(client, _ANSWER, _MESSAGES, tag=f"{arm}:{number}", draw=number)
        found.asked[arm, number] = _Asked(ms, now_ns())

    async def lane(numbers: Sequence[int]) -> None:
        for number in numbers:
            for arm in reversed(_ARMS) if number % 2 else _ARMS:
                await in_mode(clients[arm], timed, arm, number)

    for lanes in stages:
        await asyncio.gather(*map(lane, lanes))
    for client in clients.values():
        await settled(client.close())


def _run(emulator: Emulator, pairs: int) -> _Run:
    found, play = _Run({}, [], []), Hedging()
    learning = [range(lane, _LEARNING, _LANES) for lane in range(_LANES)]
    lanes = [range(_LEARNING + lane, _LEARNING + pairs, _LANES) for lane in range(_LANES)]
    sync = [numbers[: len(numbers) // 2] for numbers in lanes]
    asynchronous = [numbers[len(numbers) // 2 :] for numbers in lanes]
    run(_ask("sync", emulator.base_url, play, [learning, sync], found))
    run(_ask("async", emulator.base_url, play, [asynchronous], found))
    log = [one for one in emulator.log() if (one.tag or "").partition(":")[0] in _ARMS]
    return found._replace(log=log)


def _ratio(run: _Run, numbers: Sequence[int]) -> float:
    p99 = {arm: percentile([run.asked[arm, number].ttft_ms for number in numbers], 0.99) for arm in _ARMS}
    return p99["without"] / p99["with"]


def _interval(run: _Run, numbers: Sequence[int]) -> tuple[float, float]:
    """The 95 % interval of the ratio: the pairs drawn again, with replacement."""
    random = Random(0)
    drawn = sorted(_ratio(run, random.choices(numbers, k=len(numbers))) for _ in range(_RESAMPLES))
    return drawn[round(0.025 * _RESAMPLES)], drawn[round(0.975 * _RESAMPLES) - 1]


def _tokens(request: RequestLog) -> int:
    return request.prompt_tokens + request.output_tokens


def _figures(name: str, run: _Run) -> dict[str, Figure]:
    everything = sorted({number for _, number in run.asked})
    # The play learns from the first ones what is usual; what they and their second attempts cost counts all the same.
    numbers = everything[_LEARNING:]
    sent = by_tag(run.log)
    late = [sent[f"without:{number}"][0].late for number in numbers]
    tokens = extra = generating = not_reset = 0
    for number in everything:
        requests = sent[f"with:{number}"]
        answered = [request for request in requests if request.finished_ns is not None and request.reset_ns is None]
        if not answered:
            raise RuntimeError("a call was to be answered")
        answer = min(answered, key=lambda request: request.finished_ns or 0)
        tokens += _tokens(answer)
        for loser in (request for request in requests if request is not answer):
            extra += _tokens(loser)
            not_reset += loser.reset_ns is None
            generating += any(token_ns > run.asked["with", number].ended_ns for token_ns in loser.token_ns)
    hedged = [record.hedging is not None and record.hedging.hedged for record in run.records]
    told = [record.hedging for record in run.records if record.hedging is not None and record.hedging.hedged]
    second_half = hedged[len(hedged) // 2 :]
    low, high = _interval(run, numbers)
    figures: dict[str, Figure] = {"late_share": sum(late) / len(late)}
    for arm in _ARMS:
        values = [run.asked[arm, number].ttft_ms for number in numbers]
        figures |= {f"{arm}_ttft_p50_ms": percentile(values, 0.5), f"{arm}_ttft_p99_ms": percentile(values, 0.99)}
    figures |= {
        "ttft_p99_ratio": _ratio(run, numbers),
        "ttft_p99_low_ratio": low,
        "ttft_p99_high_ratio": high,
        "second_attempts": sum(hedged),
        "second_attempts_won": sum(bool(one.won) for one in told),
        "extra_tokens_share": extra / tokens,
        "told_extra_tokens_share": sum(one.extra_input_tokens or 0 for one in told) / tokens,
        "losers_still_generating": generating,
        "losers_not_reset": not_reset,
        "second_half_hedged_share": sum(second_half) / len(second_half),
    }
    return {f"late_{name}_{figure}": value for figure, value in figures.items()}


def measure(quick: bool) -> Report:
    """Measure each share at a provider of its own, one after the other."""
    figures: dict[str, Figure] = {}
    for name, (share, pairs, few) in _LATE.items():
        with providers(1, model=_model(share)) as (emulator,):
            figures |= _figures(name, _run(emulator, few if quick else pairs))
    return Report(
        figures=figures,
        reach={
            "late_1_ttft_p99_ratio": ">= 4",
            **{f"late_{name}_extra_tokens_share": f"<= {Hedging().budget}" for name in _LATE},
            **{f"late_{name}_losers_still_generating": "== 0" for name in _LATE},
            **{f"late_{name}_losers_not_reset": "== 0" for name in _LATE},
            "late_30_second_half_hedged_share": "<= 0.02",
        },
    )
