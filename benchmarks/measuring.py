"""How far what is measured is from what the server did: a truth server, compiled from C, that stamps each send.

It answers on loopback over HTTP/1.1 and stamps CLOCK_MONOTONIC before it sends each chunk.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import openai

import fastlane
from benchmarks._client import MESSAGES, OPTIONS, SIDES, client_of, has_content
from benchmarks._paired import middle
from benchmarks._report import Figure, Report
from benchmarks._servers import apart
from fastlane._clock import now_ns
from fastlane.bench._self_test import MOST_P50_MS, MOST_P99_MS, MOST_PACE_ERROR
from fastlane.bench.recorded import Sample, SampleKey
from fastlane.bench.running._requests import ScheduledRequest, read_async, sample_of
from tests.truth import (
    ARMS,
    PACES,
    ClientTimes,
    ServerPace,
    TruthLog,
    TruthServer,
    percentile,
    run,
    score,
    truth_server,
)


def fidelity(quick: bool) -> Report:
    """Compare what a load generator reports with what the server did: this harness, and the stock client.

    50 streams at once, of 100 tokens a second (first token after 200 ms, 64 tokens) and of 2,000 (50 ms, 200 tokens).
    `fastlane` is this harness's worker on `fastlane.AsyncOpenAI`, at 2,000 tokens a second in as many processes as
    cores; `threads` on `fastlane.OpenAI` (not with `--quick`); `stock` on `openai.AsyncOpenAI` in one process.
    `_arrived` is by our transport's stamps. If `server_late_p99_ms` is above 1 ms, the machine was too busy. Inside:
    everything that a client adds to time to first token and time per output token. Outside: each tool's first round.
    """
    requests = {100: 2, 2_000: 4} if quick else {100: 6, 2_000: 16}
    arms = [arm for arm in ARMS if not quick or arm.name != "threads"]
    figures: dict[str, Figure] = {}
    reach: dict[str, str] = {}
    for rate in PACES:
        for row in run(rate, requests=requests[rate], arms=arms):
            name, scored = f"{row.arm}_{rate}", row.score
            figures |= {
                f"{name}_ttft_error_p50_ms": scored.ttft_error_p50_ms,
                f"{name}_ttft_error_p99_ms": scored.ttft_error_p99_ms,
                f"{name}_tpot_error_p50_ratio": scored.tpot_error_p50,
                f"{name}_tpot_error_p99_ratio": scored.tpot_error_p99,
                f"{name}_wrong_counts": scored.wrong_counts + scored.unmatched,
                f"{name}_server_late_p99_ms": scored.server_late_p99_ms,
            }
            if row.arm != "stock":
                figures[f"{name}_arrived_error_p50_ms"] = scored.arrived_error_p50_ms
                figures[f"{name}_arrived_error_p99_ms"] = scored.arrived_error_p99_ms
                figures[f"{name}_processes"] = row.shards
        reach |= {
            f"fastlane_{rate}_ttft_error_p50_ms": f"<= {MOST_P50_MS}",
            f"fastlane_{rate}_ttft_error_p99_ms": f"<= {MOST_P99_MS}",
            f"fastlane_{rate}_tpot_error_p50_ratio": f"<= {MOST_PACE_ERROR}",
            f"fastlane_{rate}_wrong_counts": "== 0",
        }
    return Report(figures=figures, reach=reach, conditions={"requests_of_each_stream": requests})


# An application's own stamps

_RATE = 2_000
_STREAMS = (8, 32, 50)
_THINK_S = 0.02


async def _logged_call(client: openai.AsyncOpenAI, tag: str) -> ClientTimes:
    """Make a call, and return what an application writes down in its loop."""
    started_ns, stamps, tokens = now_ns(), list[int](), 0
    stream: Any = client.chat.completions.create(model="truth", messages=MESSAGES, stream=True, user=tag)
    async for chunk in await stream:
        stamp = now_ns()
        if has_content(chunk):
            stamps.append(stamp)
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
    return ClientTimes(
        tag=tag,
        time_to_first_token_s=(stamps[0] - started_ns) / 1e9,
        time_per_output_token_s=(stamps[-1] - stamps[0]) / 1e9 / (tokens - 1),
        chunks=len(stamps),
    )


async def _logged_calls(client: openai.AsyncOpenAI, streams: int, requests: int, answer_s: float) -> list[ClientTimes]:
    done: list[ClientTimes] = []

    async def lane(number: int) -> None:
        await asyncio.sleep(answer_s * number / streams)
        for request in range(requests):
            done.append(await _logged_call(client, f"{number}/{request}"))
            await asyncio.sleep(random.uniform(0, _THINK_S))

    async with client:
        await _logged_call(client, "warm-up")
        await asyncio.gather(*[_logged_call(client, f"warm-up/{number}") for number in range(streams)])
        await asyncio.gather(*map(lane, range(streams)))
    return done


def _application(side: str, base_url: str, *load: Any) -> list[ClientTimes]:
    return asyncio.run(_logged_calls(client_of(side, "async", base_url), *load))


def dashboard_lie(quick: bool) -> Report:
    """Compare what an application logs of a provider with what it did: openai's client, and ours.

    8, 32 and 50 streams at once of 2,000 tokens a second (first token after 50 ms, 200 tokens), with `async for` in one
    event loop; the truth server is on another core if there is one. Inside: everything between the caller's
    two stamps, before `create()` and at the first chunk with content. Outside: the first two rounds. `_ttft_*_ms` is
    what it logs, `_true_ttft_p50_ms` what the provider did, `_error_` the difference, request by request.
    """
    rounds, most = (1, 6) if quick else (3, 10)
    pace = PACES[_RATE]
    figures: dict[str, Figure] = {}
    late: list[float] = []
    with apart() as move, truth_server() as truth:
        cores = move()
        for streams in (_STREAMS[0], _STREAMS[-1]) if quick else _STREAMS:
            for side in SIDES:
                scores = []
                # The stock client's lie does not depend on luck, and takes its time.
                for _ in range(1 if side == "stock" else rounds):
                    truth.clear()
                    truth.answer_like(pace)
                    # As many requests in all, whatever the number of streams: else few have too small a share of p99.
                    each = most // 2 if side == "stock" else most
                    requests = each * _STREAMS[-1] // streams if streams < 32 else each
                    load = (side, truth.base_url, streams, requests, pace.answer_s)
                    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                        scores.append(score(pool.submit(_application, *load).result(), truth.log()))
                values = {
                    "ttft_p50_ms": [each.reported_ttft_p50_ms for each in scores],
                    "ttft_p99_ms": [each.reported_ttft_p99_ms for each in scores],
                    "true_ttft_p50_ms": [each.true_ttft_p50_ms for each in scores],
                    "error_p50_ms": [each.ttft_error_p50_ms for each in scores],
                    "error_p99_ms": [each.ttft_error_p99_ms for each in scores],
                    "tpot_error_p50_ratio": [each.tpot_error_p50 for each in scores],
                }
                start = f"{side}_{streams}"
                figures |= {f"{start}_{name}": middle(several) for name, several in values.items()}
                figures[f"{start}_wrong_counts"] = sum(each.wrong_counts + each.unmatched for each in scores)
                late.append(middle([each.server_late_p99_ms for each in scores]))
    return Report(
        figures={**figures, "server_late_p99_ms": max(late)},
        reach={"fastlane_50_error_p99_ms": "<= 10.0", "fastlane_50_wrong_counts": "== 0"},
        conditions={"rounds": f"{rounds}, of which the middle one counts; stock 1", "cores": cores},
    )


# A server that stops

_PACE = ServerPace(time_to_first_token_s=0.02, token_s=0.001, tokens=10, stall_every_s=10.0, stall_s=1.0)
_LOADS = ("open", "one_by_one", "closed")
_PER_S = 20.0
_USERS = 10


def true_ttft_ms(intended_ns: Sequence[int], stalls: Sequence[tuple[int, int]], first_token_s: float) -> list[float]:
    """Return what requests meet that are there when they are meant to be, at a server that only its stalls hold up."""
    first_ns = round(first_token_s * 1e9)

    def resumed(at_ns: int) -> int:
        return next((end for begin, end in stalls if begin <= at_ns < end), at_ns)

    return [(resumed(resumed(at) + first_ns) - at) / 1e6 for at in intended_ns]


async def _send(client: fastlane.AsyncOpenAI, tag: str, intended_ns: int | None = None) -> Sample:
    key = SampleKey(arm="fastlane", tag=tag, block=0, conversation=tag, turn=0, intended_ns=intended_ns)
    body = {"model": "truth", "messages": MESSAGES, "user": tag}
    sample = sample_of(client, key, await read_async(client, ScheduledRequest(key, body, {})))
    if sample.error is not None:
        raise RuntimeError(f"a request failed: {sample.error}: {sample.error_message}")
    return sample


async def _scheduled(client: fastlane.AsyncOpenAI, load: str, ends_ns: int) -> list[Sample]:
    """Send requests by a schedule: each when it is due, or one after the other."""
    drawing, at_ns, sending, samples = random.Random(1), float(now_ns()), list[asyncio.Task[Sample]](), list[Sample]()
    while (at_ns := at_ns + drawing.expovariate(_PER_S) * 1e9) < ends_ns:
        await asyncio.sleep(max(0.0, (at_ns - now_ns()) / 1e9))
        if load == "open":
            sending.append(asyncio.create_task(_send(client, f"{load}/{at_ns}", int(at_ns))))
        else:
            samples.append(await _send(client, f"{load}/{at_ns}"))
    return [*samples, *await asyncio.gather(*sending)]


async def _closed(client: fastlane.AsyncOpenAI, ends_ns: int) -> list[Sample]:
    samples: list[Sample] = []

    async def user(number: int) -> None:
        while now_ns() < ends_ns:
            samples.append(await _send(client, f"closed/{number}/{len(samples)}"))

    await asyncio.gather(*map(user, range(_USERS)))
    return samples


async def _stalled(truth: TruthServer, load: str, seconds: float) -> tuple[list[Sample], TruthLog]:
    async with fastlane.AsyncOpenAI(base_url=truth.base_url, **OPTIONS) as client:
        for number in range(2):
            await _send(client, f"warm-up/{number}")
        await asyncio.to_thread(truth.answer_like, _PACE)
        await asyncio.to_thread(truth.clear)
        ends_ns = now_ns() + round(seconds * 1e9)
        sent = _closed(client, ends_ns) if load == "closed" else _scheduled(client, load, ends_ns)
        return await sent, truth.log()


def omission(quick: bool) -> Report:
    """Compare the p99 of three kinds of load with the truth, at a server that stops for one second in ten.

    The truth server takes 20 ms to the first of 10 tokens. `open`: 20 requests a second (Poisson), counted from when
    they were due: this harness's open load. `one_by_one`: the same schedule one after the other, counted from when they
    were sent. `closed`: ten users without a pause, counted from when they were sent. True is what a request meets that
    comes when it is due; `_p99_ratio` is reported / true. Inside: time to first token. Outside: the first two requests.
    """
    seconds = _PACE.stall_every_s * (1 if quick else 4)
    with truth_server() as truth:
        taken = {load: asyncio.run(_stalled(truth, load, seconds)) for load in _LOADS}
    samples, log = taken["open"]
    true = true_ttft_ms([sample.started_ns for sample in samples], log.stalls, _PACE.time_to_first_token_s)
    true_p99_ms = percentile(true, 0.99)
    reported = {load: [1e3 * (one.time_to_first_token_s or 0) for one in sent] for load, (sent, _) in taken.items()}
    p99_ms = {load: percentile(values, 0.99) for load, values in reported.items()}
    return Report(
        figures={
            "true_p99_ms": true_p99_ms,
            **{f"{load}_p99_ms": value for load, value in p99_ms.items()},
            **{f"{load}_p99_ratio": value / true_p99_ms for load, value in p99_ms.items()},
            "open_p99_error_ratio": abs(p99_ms["open"] / true_p99_ms - 1),
            "true_p50_ms": percentile(true, 0.5),
            "open_p50_ms": percentile(reported["open"], 0.5),
            "open_dispatch_p99_ms": percentile([1e3 * (each.dispatch_delay_s or 0) for each in samples], 0.99),
            **{f"{load}_requests": len(values) for load, values in reported.items()},
            "stalls": len(log.stalls),
        },
        reach={"open_p99_error_ratio": "<= 0.05"},
        conditions={"measured_s": seconds},
    )
