"""What p99 says of a server that stops for a second every ten: from the intended start, and by ways that leave it out.

A truth server (20 ms to the first token, 10 tokens, 1 ms apart) does nothing at all for one second in the middle of
each period of ten, and logs from when to when. Requests are recorded by this harness on `fastlane.AsyncOpenAI`.

- `open`: requests are sent by a schedule (20 a second, Poisson), whatever became of those before, and each counts from
  when the schedule wanted it: this harness's open load
- `one_by_one`: the same schedule in the manner of a script: one after the other, late ones at once, each counted from
  when it was sent. A stall delays one request in its figures, and two hundred in truth
- `closed`: ten users without a pause, counted from when each request was sent

Inside: time to first token, p99. True is what the server's own schedule and log say that a request meets that is there
at its intended moment: it waits for the end of a stall that it comes into, or in which its first token is due.
`_p99_ratio` is reported / true, where the truth of all three is that of the open load: what users meet who come when
they want to. Outside: the first two requests, in which modules are imported and connections opened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import fastlane
from benchmarks._report import Report
from fastlane._clock import now_ns
from fastlane.bench.recorded import Sample, SampleKey
from fastlane.bench.running._messages import ScheduledRequest
from fastlane.bench.running._reading import read_async, sample_of
from tests.truth import ServerPace, TruthLog, TruthServer, percentile, truth_server

_PACE = ServerPace(time_to_first_token_s=0.02, token_s=0.001, tokens=10, stall_every_s=10.0, stall_s=1.0)
_RATE = 20.0
_USERS = 10
_ALLOWED = 0.05


def true_ttft_ms(intended_ns: Sequence[int], stalls: Sequence[tuple[int, int]], first_token_s: float) -> list[float]:
    """What requests meet that are there when they are meant to be, at a server that only its stalls hold up."""
    first_ns = round(first_token_s * 1e9)

    def resumed(at_ns: int) -> int:
        return next((end for begin, end in stalls if begin <= at_ns < end), at_ns)

    return [(resumed(resumed(at) + first_ns) - at) / 1e6 for at in intended_ns]


class _Loads:
    """Three ways to send requests, all recorded alike."""

    def __init__(self, client: fastlane.AsyncOpenAI, seconds: float, seed: int) -> None:
        self._client = client
        self._ns = round(seconds * 1e9)
        self._random = random.Random(seed)

    async def _one(self, tag: str, intended_ns: int | None = None) -> Sample:
        place = SampleKey(arm="fastlane", tag=tag, block=0, conversation=tag, turn=0, intended_ns=intended_ns)
        body = {"model": "truth", "messages": [{"role": "user", "content": "Is water wet?"}], "user": tag}
        reading = await read_async(self._client, ScheduledRequest(place, body, {}))
        sample = sample_of(self._client, place, reading)
        if sample.error is not None:
            raise RuntimeError(f"a request failed: {sample.error}: {sample.error_message}")
        return sample

    async def warm(self) -> None:
        for number in range(2):
            await self._one(f"warm-up/{number}")

    def _schedule(self) -> list[int]:
        at, ends, arrivals = float(now_ns()), now_ns() + self._ns, list[int]()
        while (at := at + self._random.expovariate(_RATE) * 1e9) < ends:
            arrivals.append(int(at))
        return arrivals

    async def open(self) -> list[Sample]:
        sending = []
        for number, at_ns in enumerate(self._schedule()):
            await asyncio.sleep(max(0.0, (at_ns - now_ns()) / 1e9))
            sending.append(asyncio.create_task(self._one(f"open/{number}", at_ns)))
        return await asyncio.gather(*sending)

    async def one_by_one(self) -> list[Sample]:
        samples = []
        for number, at_ns in enumerate(self._schedule()):
            await asyncio.sleep(max(0.0, (at_ns - now_ns()) / 1e9))
            samples.append(await self._one(f"one/{number}"))
        return samples

    async def closed(self) -> list[Sample]:
        ends, samples = now_ns() + self._ns, list[Sample]()

        async def user(number: int) -> None:
            count = 0
            while now_ns() < ends:
                samples.append(await self._one(f"closed/{number}/{count}"))
                count += 1

        await asyncio.gather(*[user(number) for number in range(_USERS)])
        return samples


def _reported_ms(samples: Sequence[Sample]) -> list[float]:
    return [1e3 * (sample.time_to_first_token_s or 0.0) for sample in samples]


async def _run(truth: TruthServer, load: str, seconds: float) -> tuple[list[Sample], TruthLog]:
    async with fastlane.AsyncOpenAI(base_url=truth.base_url, api_key="none", max_retries=0) as client:
        loads = _Loads(client, seconds, seed=1)
        await loads.warm()
        await asyncio.to_thread(truth.answer_like, _PACE)
        await asyncio.to_thread(truth.clear)
        samples: list[Sample] = await getattr(loads, load)()
    return samples, truth.log()


def measure(quick: bool) -> Report:
    """Send all three loads, one after the other, each over whole periods of the server."""
    seconds = _PACE.stall_every_s * (1 if quick else 4)
    with truth_server() as truth:
        taken = {load: asyncio.run(_run(truth, load, seconds)) for load in ("open", "one_by_one", "closed")}
    samples, log = taken["open"]
    intended = [sample.started_ns for sample in samples]
    true = true_ttft_ms(intended, log.stalls, _PACE.time_to_first_token_s)
    p99_ms = percentile(true, 0.99)
    reported = {load: _reported_ms(samples) for load, (samples, _) in taken.items()}
    return Report(
        figures={
            "true_p99_ms": p99_ms,
            **{f"{load}_p99_ms": percentile(values, 0.99) for load, values in reported.items()},
            **{f"{load}_p99_ratio": percentile(values, 0.99) / p99_ms for load, values in reported.items()},
            "open_p99_error_ratio": abs(percentile(reported["open"], 0.99) / p99_ms - 1),
            "true_p50_ms": percentile(true, 0.5),
            "open_p50_ms": percentile(reported["open"], 0.5),
            "open_dispatch_p99_ms": percentile([1e3 * (each.dispatch_delay_s or 0) for each in samples], 0.99),
            **{f"{load}_requests": len(samples) for load, (samples, _) in taken.items()},
            "stalls": len(log.stalls),
        },
        reach={"open_p99_error_ratio": f"<= {_ALLOWED}"},
        conditions={"measured_s": seconds},
    )
