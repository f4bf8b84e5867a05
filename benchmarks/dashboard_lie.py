"""What an application's own dashboard says of a provider, against what the provider did: openai's client, and ours.

8, 32 and 50 streams at once of 2,000 tokens a second each (first token after 50 ms, 200 tokens), all in one process, as
an application has them, with `async for` in one event loop. The provider is a truth
server in a process of its own and, where the system allows it, on another core, over HTTP/1.1; it stamps
CLOCK_MONOTONIC just before each send. Inside: everything between the application's own two stamps, which it takes just
before `create()` and in its loop's body, the first chunk with content in hand. Outside: the first two rounds, in which
modules are imported and connections opened. Starts are staggered over the time of one answer.

`_ttft_*_ms` is what the application would log, `_true_ttft_p50_ms` what the provider did, and `_error_` the difference,
request by request. `_tpot_error_p50_ratio` is the same for the time per output token, as a share of the true one.
Nothing raises an error when an event loop is full: the application just sees a slow provider that is not slow.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import openai

import fastlane
from benchmarks._report import Figure, Report
from benchmarks._server import apart
from benchmarks._transport import MESSAGES
from fastlane._clock import now_ns
from tests.truth import PACES, ClientTimes, ServerPace, percentile, score, truth_server

_RATE = 2_000
_STREAMS = (8, 32, 50)
_SIDES = ("stock", "fastlane")
_THINK_S = 0.02
_MOST_P99_MS = 10.0


class _Log:
    """What one call of an application's loop wrote down."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._started_ns = now_ns()
        self._stamps: list[int] = []
        self._tokens = 0

    def see(self, chunk: Any) -> None:
        stamp = now_ns()
        if chunk.choices and chunk.choices[0].delta.content:
            self._stamps.append(stamp)
        if chunk.usage is not None:
            self._tokens = chunk.usage.completion_tokens

    def reading(self) -> ClientTimes:
        first, last = self._stamps[0], self._stamps[-1]
        return ClientTimes(
            tag=self._tag,
            time_to_first_token_s=(first - self._started_ns) / 1e9,
            time_per_output_token_s=(last - first) / 1e9 / (self._tokens - 1),
            chunks=len(self._stamps),
        )


async def _async_app(client: openai.AsyncOpenAI, streams: int, requests: int, pace: ServerPace) -> list[ClientTimes]:
    done: list[ClientTimes] = []

    async def call(tag: str) -> ClientTimes:
        log = _Log(tag)
        stream = await client.chat.completions.create(model="truth", messages=MESSAGES, stream=True, user=tag)
        async for chunk in stream:
            log.see(chunk)
        return log.reading()

    async def lane(number: int) -> None:
        await asyncio.sleep(pace.answer_s * number / streams)
        for request in range(requests):
            done.append(await call(f"{number}/{request}"))
            await asyncio.sleep(random.uniform(0, _THINK_S))

    async with client:
        await call("warm-up")
        await asyncio.gather(*[call(f"warm-up/{number}") for number in range(streams)])
        await asyncio.gather(*[lane(number) for number in range(streams)])
    return done


def _app(side: str, base_url: str, streams: int, requests: int, pace: ServerPace) -> list[ClientTimes]:
    module: Any = openai if side == "stock" else fastlane
    client = module.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    return asyncio.run(_async_app(client, streams, requests, pace))


def measure(quick: bool) -> Report:
    """Run every application at every number of streams, each a few times in a new process."""
    rounds, most = (1, 6) if quick else (3, 10)
    pace = PACES[_RATE]
    figures: dict[str, Figure] = {}
    late: list[float] = []
    with apart() as move, truth_server() as truth:
        cores = move()
        for streams in (_STREAMS[0], _STREAMS[-1]) if quick else _STREAMS:
            for side in _SIDES:
                scores = []
                # The stock client's lie does not depend on luck, and takes its time.
                stock = side.startswith("stock")
                for _ in range(1 if stock else rounds):
                    truth.clear()
                    truth.answer_like(pace)
                    # As many requests in all, whatever the number of streams: else few have too small a share of p99.
                    each = most // 2 if stock else most
                    requests = each * _STREAMS[-1] // streams if streams < 32 else each
                    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                        readings = pool.submit(_app, side, truth.base_url, streams, requests, pace).result()
                    scores.append(score(readings, truth.log()))
                start = f"{side}_{streams}"
                middle = {
                    "ttft_p50_ms": [each.reported_ttft_p50_ms for each in scores],
                    "ttft_p99_ms": [each.reported_ttft_p99_ms for each in scores],
                    "true_ttft_p50_ms": [each.true_ttft_p50_ms for each in scores],
                    "error_p50_ms": [each.ttft_error_p50_ms for each in scores],
                    "error_p99_ms": [each.ttft_error_p99_ms for each in scores],
                    "tpot_error_p50_ratio": [each.tpot_error_p50 for each in scores],
                }
                figures |= {f"{start}_{name}": percentile(values, 0.5) for name, values in middle.items()}
                figures[f"{start}_wrong_counts"] = sum(each.wrong_counts + each.unmatched for each in scores)
                late.append(percentile([each.server_late_p99_ms for each in scores], 0.5))
    figures["server_late_p99_ms"] = max(late)
    return Report(
        figures=figures,
        reach={"fastlane_50_error_p99_ms": f"<= {_MOST_P99_MS}", "fastlane_50_wrong_counts": "== 0"},
        conditions={"rounds": f"{rounds}, of which the middle one counts; stock 1", "cores": cores},
    )
