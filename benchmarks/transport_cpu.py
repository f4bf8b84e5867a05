"""What a chunk of a stream costs on its way through the transport: stock httpx2 against ours, HTTP/2 and HTTP/1.1.

64 streams at once, each with a chunk every 10 to 40 ms as models write them, are read as bytes by an
`httpx2.AsyncClient` on its own transport and on ours; nothing is parsed. Inside: the CPU time of the whole process,
from the moment when every stream has brought its first bytes until a fixed time later, when none has ended, divided by
the chunks that the provider sent in that time. Outside: opening connections, sending requests, ends of streams, and the
provider, which has a process of its own and, where the system allows it, another core. Nothing is subtracted. The four
arms take turns, in reversed order every other round.
"""

from __future__ import annotations

import asyncio
import json
import ssl

import httpx2

from benchmarks._paired import in_turns, median, paired
from benchmarks._provider import MODEL, provider_on_another_core
from benchmarks._report import Report
from benchmarks._transport import MESSAGES, wishes
from fastlane._clock import cpu_ns, now_ns
from fastlane.emulator import Emulator
from fastlane.transport import AsyncTransport

_ROUND_TRIP_TIME_S = 0.04
_STREAMS = 64
_QUICKEST_MS, _SLOWEST_MS = 10.0, 40.0
_SPARE_S = 1.0
_BODY = json.dumps({"model": MODEL, "messages": MESSAGES, "stream": True}).encode()
_ARMS = ("http2_stock", "http2_fastlane", "http1_stock", "http1_fastlane")


def _client(arm: str, emulator: Emulator) -> httpx2.AsyncClient:
    trust = ssl.create_default_context(cafile=str(emulator.certificate_authority))
    http2 = arm.startswith("http2")
    if arm.endswith("stock"):
        return httpx2.AsyncClient(http2=http2, verify=trust)
    return httpx2.AsyncClient(transport=AsyncTransport(http2="require" if http2 else "never", verify=trust))


class _Begun:
    """The moment when every stream has brought its first bytes."""

    def __init__(self) -> None:
        self._missing = _STREAMS
        self.all = asyncio.Event()

    def one(self) -> None:
        self._missing -= 1
        if not self._missing:
            self.all.set()


async def _read(client: httpx2.AsyncClient, url: str, headers: dict[str, str], begun: _Begun) -> list[bytes]:
    chunks: list[bytes] = []
    async with client.stream("POST", url, content=_BODY, headers=headers) as response:
        response.raise_for_status()
        async for chunk in response.aiter_raw():
            if not chunks:
                begun.one()
            chunks.append(chunk)
    return chunks


async def _turn(arm: str, emulator: Emulator, window_s: float) -> float:
    """CPU microseconds for each chunk."""
    emulator.clear()
    url = f"{emulator.base_url}/chat/completions"
    begun = _Begun()
    asked: list[int] = []
    reading = []
    async with _client(arm, emulator) as client:
        for number in range(_STREAMS):
            token_ms = _QUICKEST_MS + (_SLOWEST_MS - _QUICKEST_MS) * number / (_STREAMS - 1)
            asked.append(round(1e3 * (window_s + _SPARE_S) / token_ms))
            wanted = wishes(output_tokens=asked[-1], token_ms=f"{token_ms:.3f}")
            headers = {"authorization": "Bearer none", "content-type": "application/json", **wanted}
            reading.append(asyncio.create_task(_read(client, url, headers, begun)))
        await asyncio.wait_for(begun.all.wait(), 10)
        started, cpu_started = now_ns(), cpu_ns()
        await asyncio.sleep(window_s)
        ended, cpu_ended = now_ns(), cpu_ns()
        if any(task.done() for task in reading):
            raise RuntimeError(f"a stream of {arm} ended while it was measured: the machine is too busy")
        answers = [b"".join(chunks) for chunks in await asyncio.gather(*reading)]
    for answer, tokens in zip(answers, asked, strict=True):
        # The role and the finish reason have a chunk each, and so has the end.
        if answer.count(b"\n\n") != tokens + 3 or not answer.endswith(b"data: [DONE]\n\n"):
            raise RuntimeError(f"an answer of {arm} is not whole")
    log = await asyncio.to_thread(emulator.log)
    if {request.http_version for request in log} != {"HTTP/2" if arm.startswith("http2") else "HTTP/1.1"}:
        raise RuntimeError(f"{arm} did not speak the protocol that it was to speak")
    way = _ROUND_TRIP_TIME_S * 1e9 / 2
    chunks = sum(started <= sent + way < ended for request in log for sent in request.token_ns)
    return (cpu_ended - cpu_started) / chunks / 1e3


def measure(quick: bool) -> Report:
    """Run rounds of all four arms."""
    rounds, window_s = (2, 3.0) if quick else (9, 4.0)
    with provider_on_another_core(round_trip_time_s=_ROUND_TRIP_TIME_S) as (emulator, cores):
        taken = in_turns(lambda arm: asyncio.run(_turn(arm, emulator, window_s)), _ARMS, rounds)
    return Report(
        figures={
            **paired("http2_cpu", taken["http2_stock"], taken["http2_fastlane"]),
            **paired("http1_cpu", taken["http1_stock"], taken["http1_fastlane"]),
            **{f"{arm}_us_per_chunk": median(values).value for arm, values in taken.items()},
            "rounds": rounds,
        },
        reach={"http2_cpu_ratio": ">= 4", "http1_cpu_ratio": ">= 3"},
        conditions={"measured_s": window_s, "cores": cores},
    )
