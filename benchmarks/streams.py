"""What calls and typed chunks cost the client: openai's client as it comes against ours as it comes.

The provider has a process of its own and, where the system allows it, another core. The arms take turns, in reversed
order every other round. Nothing is subtracted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx2
import openai

import fastlane
from benchmarks._paired import in_turns, median, paired, turns
from benchmarks._provider import MODEL, provider_on_another_core
from benchmarks._report import Figure, Report
from benchmarks._server import server_on_another_core
from benchmarks._transport import MESSAGES, WrongAnswerError, percentile, settled, wishes
from fastlane._clock import cpu_ns, now_ns
from fastlane.emulator import Emulator, RequestLog
from fastlane.transport import AsyncTransport

_SIDES = ("stock", "stock_http2", "fastlane", "fastlane_http1")
"""openai's client as it comes, which speaks HTTP/1.1, and as it is told to; ours as it comes, and as it is told to."""

_VERSIONS = {"stock": "HTTP/1.1", "stock_http2": "HTTP/2", "fastlane": "HTTP/2", "fastlane_http1": "HTTP/1.1"}
_PATIENCE_S = 30.0
_STREAMS = 64
_TOKEN_MS = 10.0
# Every stream goes on for this long after what is measured.
_SPARE_S = 4.0
# How much the paces of streams differ, as a share.
_UNEVEN = 0.1


def _client(side: str, base_url: str, *, asynchronous: bool) -> Any:
    """Make a client of this side."""
    options: dict[str, Any] = {"base_url": base_url, "api_key": "none", "max_retries": 0}
    if side == "stock_http2":
        http_client = openai.DefaultAsyncHttpxClient if asynchronous else openai.DefaultHttpxClient
        options["http_client"] = http_client(http2=True)
    elif side == "fastlane_http1":
        options["plays"] = [fastlane.Connection(http2="never")]
    module: Any = openai if side.startswith("stock") else fastlane
    return module.AsyncOpenAI(**options) if asynchronous else module.OpenAI(**options)


class _Taken(NamedTuple):
    """What one turn took."""

    us_per_chunk: float
    """CPU of this process for each chunk that the provider sent while it was measured."""
    core_share: float
    """Of one core, this process."""


class _Window:
    """From the moment when every stream has brought a chunk, for a fixed time."""

    def __init__(self) -> None:
        self._started_ns, self._cpu_ns = now_ns(), cpu_ns()
        self._ended_ns = 0

    def close(self) -> None:
        self._ended_ns, self._cpu_ns = now_ns(), cpu_ns() - self._cpu_ns

    def taken(self, log: tuple[RequestLog, ...], version: str, *, way_s: float = 0.0) -> _Taken:
        """Return what was taken of streams that were sent over this version of HTTP, and took so long to arrive."""
        if {request.http_version for request in log} != {version}:
            raise RuntimeError(f"a client did not speak {version}")
        came = (sent + way_s * 1e9 for request in log for sent in request.token_ns)
        chunks = sum(self._started_ns <= at < self._ended_ns for at in came)
        return _Taken(self._cpu_ns / chunks / 1e3, self._cpu_ns / (self._ended_ns - self._started_ns))


class _Begun:
    """Counts the streams that have brought a chunk."""

    def __init__(self, streams: int) -> None:
        self._missing = streams
        self._lock = threading.Lock()
        self._all = threading.Event()

    def one(self) -> None:
        with self._lock:
            self._missing -= 1
            if not self._missing:
                self._all.set()

    def wait(self) -> None:
        """Block until all have; raises RuntimeError where one does not in time."""
        if not self._all.wait(_PATIENCE_S):
            raise RuntimeError(f"{self._missing} streams have not begun")


def _asked(streams: int, pace_ms: float, uneven: float, seconds: float) -> list[tuple[int, dict[str, str]]]:
    """For each stream, how many tokens it will have, and the headers that ask for them.

    Each has a pace of its own, so that they do not come in step.
    """
    asked = []
    for number in range(streams):
        own_ms = pace_ms * (1 + uneven * ((number + 0.5) / streams - 0.5))
        tokens = round(1e3 * seconds / own_ms)
        asked.append((tokens, wishes(output_tokens=tokens, token_ms=f"{own_ms:.4f}")))
    return asked


def _check(side: str, counts: list[int], asked: list[tuple[int, dict[str, str]]]) -> None:
    # The role and the finish reason have a chunk each.
    if any(count != tokens + 2 for count, (tokens, _) in zip(counts, asked, strict=True)):
        raise RuntimeError(f"an answer of {side} is not whole")


async def _watched(side: str, reading: Sequence[asyncio.Future[Any]], begun: _Begun, window_s: float) -> _Window:
    await asyncio.to_thread(begun.wait)
    window = _Window()
    await asyncio.sleep(window_s)
    window.close()
    if any(task.done() for task in reading):
        raise RuntimeError(f"a stream of {side} ended while it was measured: the machine is too busy")
    return window


async def _stream_turn(side: str, emulator: Emulator, streams: int, window_s: float, *, threads: bool) -> _Taken:
    """Read streams with `async for`, or with `for` in a thread of each, and take the time."""
    asked = _asked(streams, _TOKEN_MS, _UNEVEN, window_s + _SPARE_S)
    begun = _Begun(streams)
    client = _client(side, emulator.base_url, asynchronous=not threads)

    async def read(headers: dict[str, str]) -> int:
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, extra_headers=headers
        )
        await anext(stream)
        begun.one()
        count = 1
        async for _ in stream:
            count += 1
        return count

    def read_in_thread(headers: dict[str, str]) -> int:
        stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, extra_headers=headers)
        next(stream)
        begun.one()
        count = 1
        for _ in stream:
            count += 1
        return count

    await settled(client.models.list())
    emulator.clear()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(streams) as pool:
        if threads:
            reading = [loop.run_in_executor(pool, read_in_thread, headers) for _, headers in asked]
        else:
            reading = [asyncio.ensure_future(read(headers)) for _, headers in asked]
        window = await _watched(side, reading, begun, window_s)
        _check(side, await asyncio.gather(*reading), asked)
    await settled(client.close())
    return window.taken(await asyncio.to_thread(emulator.log), _VERSIONS[side])


async def _lateness_turn(side: str, emulator: Emulator, window_s: float) -> list[float]:
    """Read streams with `async for`; the delay in milliseconds of every chunk that was sent in the window."""
    asked = _asked(_STREAMS, _TOKEN_MS, _UNEVEN, window_s + _SPARE_S)
    begun = _Begun(_STREAMS)

    async def read(client: openai.AsyncOpenAI, number: int, headers: dict[str, str]) -> list[int]:
        # The provider numbers content from 0: the role and the finish reason are no part of its log.
        came: list[int] = []
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, extra_headers={**headers, **wishes(tag=f"stream {number}")}
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                if not came:
                    begun.one()
                came.append(now_ns())
        return came

    async with _client(side, emulator.base_url, asynchronous=True) as client:
        await client.models.list()
        emulator.clear()
        reading = [asyncio.create_task(read(client, number, headers)) for number, (_, headers) in enumerate(asked)]
        await asyncio.to_thread(begun.wait)
        started = now_ns()
        came = await asyncio.gather(*reading)
    log = {request.tag: request.token_ns for request in await asyncio.to_thread(emulator.log)}
    ended = started + window_s * 1e9
    delays_ms = []
    for number, times in enumerate(came):
        sent = log[f"stream {number}"]
        if len(sent) != len(times):
            raise RuntimeError(f"an answer of {side} is not whole")
        delays_ms += [(time - at) / 1e6 for time, at in zip(times, sent, strict=True) if started <= at < ended]
    return delays_ms


# CPU of a chunk


_STREAM_ARMS = (
    *((f"async_64_{side}", 64, side) for side in ("stock", "fastlane", "stock_http2", "fastlane_http1")),
    *((f"async_{streams}_{side}", streams, side) for streams in (16, 1) for side in ("stock", "fastlane")),
    *((f"threads_16_{side}", 16, side) for side in ("stock", "fastlane")),
)
"""By name, the number of streams and the side."""

# Each against the stock client as it comes, but for the last.
_RATIOS = {
    "async_64": ("async_64_stock", "async_64_fastlane", 6),
    "async_16": ("async_16_stock", "async_16_fastlane", 5),
    "async_1": ("async_1_stock", "async_1_fastlane", 2),
    "threads_16": ("threads_16_stock", "threads_16_fastlane", 3),
    "async_64_http1": ("async_64_stock", "async_64_fastlane_http1", 4),
    "async_64_http2": ("async_64_stock_http2", "async_64_fastlane", None),
}


def stream_cpu(quick: bool) -> Report:
    """What a typed chunk costs between the socket and the application's loop: openai's client against ours.

    Streams of chat completions, each with a chunk about every 10 ms and none in step with another, are read with `async
    for` (64, 16 and 1 of them) and with `for` in 16 threads. The stock client is `openai.AsyncOpenAI()` as it comes,
    which speaks HTTP/1.1, and once more as it is told to speak HTTP/2; ours is `fastlane.AsyncOpenAI()` as it comes,
    which speaks HTTP/2, and once more as it is told not to. Inside: the CPU time of the whole process, from the moment
    when every stream has brought a chunk until a fixed time later, when none has ended, divided by the chunks that the
    provider sent in that time. (Where the stock client cannot keep up, it has not read all of them: the ratio is then
    too low.) Outside: opening connections, sending requests, ends of streams, and the provider, which has a process of
    its own and, where the system allows it, another core; Nothing is
    subtracted. The arms take turns, in reversed order every other round.
    """
    rounds, window_s = (1, 1.5) if quick else (7, 4.0)

    def turn(arm: tuple[str, int, str]) -> _Taken:
        name, streams, side = arm
        return asyncio.run(_stream_turn(side, emulator, streams, window_s, threads=name.startswith("threads")))

    with provider_on_another_core() as (emulator, cores):
        taken = {name: values for (name, _, _), values in in_turns(turn, _STREAM_ARMS, rounds).items()}
    figures: dict[str, Figure] = {}
    for name, (stock, ours, _) in _RATIOS.items():
        theirs, own = ([turn.us_per_chunk for turn in taken[arm]] for arm in (stock, ours))
        figures |= paired(name, theirs, own)
    for arm, values in taken.items():
        figures[f"{arm}_us_per_chunk"] = median([turn.us_per_chunk for turn in values]).value
    for arm in ("async_64_stock", "async_64_fastlane"):
        figures[f"{arm}_core_share"] = median([turn.core_share for turn in taken[arm]]).value
    figures["rounds"] = rounds
    return Report(
        figures=figures,
        reach={f"{name}_ratio": f">= {target}" for name, (_, _, target) in _RATIOS.items() if target is not None},
        conditions={"measured_s": window_s, "cores": cores},
    )


# Delay of a chunk


def lateness(quick: bool) -> Report:
    """How late a chunk reaches the application's loop while 64 streams bring one every 10 ms: stock against ours.

    Inside: for every chunk with content that the provider sent while it was measured, the time from the moment at which
    the provider wrote it (its own log) to the application's loop body, typed object in hand; both processes read the
    same clock. What is measured begins when every stream has brought a chunk, and lasts for a fixed time; a chunk that
    the stock client brings later than that counts with its whole delay. Outside: opening connections and sending
    requests. The stock client is `openai.AsyncOpenAI()` as it comes, ours `fastlane.AsyncOpenAI()`; they take turns, in
    reversed order every other round. The provider has a process of its own and, where the system allows it, another
    core.
    """
    rounds, window_s = (2, 2.5) if quick else (9, 4.0)

    def turn(side: str) -> tuple[float, float]:
        delays_ms = asyncio.run(_lateness_turn(side, emulator, window_s))
        return percentile(delays_ms, 0.5), percentile(delays_ms, 0.99)

    with provider_on_another_core() as (emulator, cores):
        late = in_turns(turn, ("stock", "fastlane"), rounds)
    return Report(
        figures={
            **paired("p99", [p99 for _, p99 in late["fastlane"]], [p99 for _, p99 in late["stock"]]),
            **{f"{side}_p50_ms": median([p50 for p50, _ in values]).value for side, values in late.items()},
            **{f"{side}_p99_ms": median([p99 for _, p99 in values]).value for side, values in late.items()},
            "rounds": rounds,
        },
        reach={"p99_ratio": "<= 0.1"},
        conditions={"measured_s": window_s, "cores": cores},
    )


# CPU of a chunk's bytes

_ROUND_TRIP_TIME_S = 0.04
_BODY = json.dumps({"model": MODEL, "messages": MESSAGES, "stream": True}).encode()
_BYTES_ARMS = ("http2_stock", "http2_fastlane", "http1_stock", "http1_fastlane")


def _http_client(arm: str, emulator: Emulator) -> httpx2.AsyncClient:
    trust = ssl.create_default_context(cafile=str(emulator.certificate_authority))
    http2 = arm.startswith("http2")
    if arm.endswith("stock"):
        return httpx2.AsyncClient(http2=http2, verify=trust)
    return httpx2.AsyncClient(transport=AsyncTransport(http2="require" if http2 else "never", verify=trust))


async def _bytes_turn(arm: str, emulator: Emulator, window_s: float) -> float:
    """CPU microseconds for each chunk that is read as bytes."""
    emulator.clear()
    # A chunk every 10 to 40 ms.
    asked = _asked(_STREAMS, 25.0, 1.2, window_s + 1.0)
    begun = _Begun(_STREAMS)

    async def read(client: httpx2.AsyncClient, wanted: dict[str, str]) -> bytes:
        chunks: list[bytes] = []
        headers = {"authorization": "Bearer none", "content-type": "application/json", **wanted}
        url = f"{emulator.base_url}/chat/completions"
        async with client.stream("POST", url, content=_BODY, headers=headers) as response:
            response.raise_for_status()
            async for chunk in response.aiter_raw():
                if not chunks:
                    begun.one()
                chunks.append(chunk)
        return b"".join(chunks)

    async with _http_client(arm, emulator) as client:
        reading = [asyncio.create_task(read(client, headers)) for _, headers in asked]
        window = await _watched(arm, reading, begun, window_s)
        answers = await asyncio.gather(*reading)
    for answer, (tokens, _) in zip(answers, asked, strict=True):
        # The role and the finish reason have a chunk each, and so has the end.
        if answer.count(b"\n\n") != tokens + 3 or not answer.endswith(b"data: [DONE]\n\n"):
            raise RuntimeError(f"an answer of {arm} is not whole")
    log = await asyncio.to_thread(emulator.log)
    version = "HTTP/2" if arm.startswith("http2") else "HTTP/1.1"
    return window.taken(log, version, way_s=_ROUND_TRIP_TIME_S / 2).us_per_chunk


def transport_cpu(quick: bool) -> Report:
    """What a chunk of a stream costs on its way through the transport: stock httpx2 against ours, HTTP/2 and HTTP/1.1.

    64 streams at once, each with a chunk every 10 to 40 ms as models write them, are read as bytes by an
    `httpx2.AsyncClient` on its own transport and on ours; nothing is parsed. Inside: the CPU time of the whole process,
    from the moment when every stream has brought its first bytes until a fixed time later, when none has ended, divided
    by the chunks that the provider sent in that time. Outside: opening connections, sending requests, ends of streams,
    and the provider.
    """
    rounds, window_s = (2, 3.0) if quick else (9, 4.0)
    with provider_on_another_core(round_trip_time_s=_ROUND_TRIP_TIME_S) as (emulator, cores):
        taken = in_turns(lambda arm: asyncio.run(_bytes_turn(arm, emulator, window_s)), _BYTES_ARMS, rounds)
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


# Chunks as fast as they come


async def _saturated_turn(side: str, base_url: str, window_s: float) -> tuple[float, float]:
    """Chunks for each second of CPU, and the share of a core that the client took."""
    counts = [0] * _STREAMS

    async def read(client: openai.AsyncOpenAI, number: int) -> None:
        async for _ in await client.chat.completions.create(model="prepared-1", messages=MESSAGES, stream=True):
            counts[number] += 1

    async with _client(side, base_url, asynchronous=True) as client:
        reading = [asyncio.create_task(read(client, number)) for number in range(_STREAMS)]
        deadline = now_ns() + _PATIENCE_S * 1e9
        while not all(counts):
            await asyncio.sleep(0.05)
            if now_ns() > deadline or any(task.done() for task in reading):
                raise RuntimeError(f"not every stream of {side} has begun")
        started, cpu_started, before = now_ns(), cpu_ns(), sum(counts)
        await asyncio.sleep(window_s)
        ended, cpu_ended, after = now_ns(), cpu_ns(), sum(counts)
        ended_early = [task for task in reading if task.done()]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        if ended_early:
            raise RuntimeError(f"a stream of {side} ended while it was measured")
    return (after - before) / (cpu_ended - cpu_started) * 1e9, (cpu_ended - cpu_started) / (ended - started)


def stream_saturated(quick: bool) -> Report:
    """How many typed chunks one core reads when 64 streams come as fast as they are taken: stock against ours.

    A server of this benchmark's own writes one prepared event over TLS without end, in a process of its own and, where
    the system allows it, on another core: the embedded provider would be slower than what is measured. Every event is a
    DATA frame (HTTP/2) or a chunk (HTTP/1.1) of its own, and the frames of a connection's streams take turns. All
    events being alike, a parser that remembers short strings, as ours does, makes a few less than it would of a real
    stream. Inside: the CPU time of the client's whole process for a fixed time, begun when every stream has brought a
    chunk, divided by the chunks that the application's `async for` has got in it; a second of CPU divided by that is
    the chunks per second of one core. Outside: opening connections and sending requests. The stock client is
    `openai.AsyncOpenAI()` as it comes, which speaks HTTP/1.1, and as it is told to speak HTTP/2; ours is
    `fastlane.AsyncOpenAI()` as it comes, which speaks HTTP/2, and as it is told not to. The arms take turns, in
    reversed order every other round.
    """
    rounds, window_s = (2, 2.0) if quick else (9, 3.0)
    with server_on_another_core("benchmarks._endless") as server:
        taken = in_turns(lambda side: asyncio.run(_saturated_turn(side, server.base_url, window_s)), _SIDES, rounds)
    per_core = {side: [chunks for chunks, _ in values] for side, values in taken.items()}
    return Report(
        figures={
            **paired("chunks", per_core["fastlane"], per_core["stock"]),
            "http2_chunks_ratio": paired("", per_core["fastlane"], per_core["stock_http2"])["_ratio"],
            "http1_chunks_ratio": paired("", per_core["fastlane_http1"], per_core["stock"])["_ratio"],
            **{f"{side}_chunks_per_core_s": median(values).value for side, values in per_core.items()},
            **{f"{side}_core_share": median([share for _, share in values]).value for side, values in taken.items()},
            "rounds": rounds,
        },
        reach={"chunks_ratio": ">= 10"},
        conditions={"measured_s": window_s, "cores": server.cores},
    )


# Small calls

_TASKS = 64
_TEXTS = ("Yes.", "Water is wet.", "No, but it makes other things wet.")
_HEADERS = [wishes(output_text=text) for text in _TEXTS]

# Concurrency and side: each against the stock client of the same concurrency.
_CALL_ARMS = [
    *((f"async_{_TASKS}", side) for side in ("stock", "fastlane", "fastlane_http1")),
    *(("async_1", side) for side in ("stock", "fastlane")),
    *(("sync_1", side) for side in ("stock", "fastlane")),
]


class _CallTaken(NamedTuple):
    """What one round took, for each call."""

    cpu_us: float
    wall_us: float


async def _calls(client: Any, tasks: int, calls: int) -> None:
    numbers = iter(range(calls))

    async def work() -> None:
        for number in numbers:
            text = _TEXTS[number % len(_TEXTS)]
            headers = _HEADERS[number % len(_HEADERS)]
            answer = await settled(
                client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=headers)
            )
            if answer.choices[0].message.content != text:
                raise WrongAnswerError(f"call {number} brought {answer.choices[0].message.content!r}")

    await asyncio.gather(*[work() for _ in range(tasks)])


async def _call_rounds(emulator: Emulator, rounds: int, calls: int) -> dict[tuple[str, str], list[_CallTaken]]:
    taken: dict[tuple[str, str], list[_CallTaken]] = {arm: [] for arm in _CALL_ARMS}
    clients = {
        (concurrency, side): _client(side, emulator.base_url, asynchronous=concurrency != "sync_1")
        for concurrency, side in _CALL_ARMS
    }
    for round_number, arm in turns(_CALL_ARMS, rounds, warm_ups=1):  # the first one opens connections
        concurrency, side = arm
        tasks = _TASKS if concurrency == f"async_{_TASKS}" else 1
        count = calls if tasks > 1 else calls // 4
        emulator.clear()
        gc.collect()
        started, cpu_started = now_ns(), cpu_ns()
        await _calls(clients[arm], tasks, count)
        cpu, wall = cpu_ns() - cpu_started, now_ns() - started
        log = emulator.log()
        if len(log) != count or {request.http_version for request in log} != {_VERSIONS[side]}:
            raise RuntimeError(f"{side} did not send its calls over the protocol that it was to speak")
        if round_number >= 0:
            taken[arm].append(_CallTaken(cpu / 1e3 / count, wall / 1e3 / count))
    for client in clients.values():
        await settled(client.close())
    return taken


def call_cpu(quick: bool) -> Report:
    """What a small call that is not streamed costs the client: openai's client as it comes against ours as it comes.

    Chat completions of a few tokens are asked for by 64 tasks at once, each with its next call as soon as its last is
    over; by one task; and by a thread of the synchronous client. The stock client is `openai.AsyncOpenAI()`, which
    speaks HTTP/1.1; ours is `fastlane.AsyncOpenAI()`, which speaks HTTP/2, and once more as it is told not to. Every
    text is compared with the one that was asked for. Inside: the CPU time of the whole process, all threads, from the
    first call of a round to the end of its last, divided by the calls. Outside: making the clients, opening
    connections, and the provider, which has a process of its own and, where the system allows it, another
    core. Nothing is subtracted. The arms take turns, in reversed order every other round.
    """
    rounds, calls = (3, 640) if quick else (15, 1_920)
    with provider_on_another_core() as (emulator, cores):
        taken = asyncio.run(_call_rounds(emulator, rounds, calls))
    figures: dict[str, Figure] = {}
    for concurrency, side in _CALL_ARMS:
        if side == "stock":
            continue
        theirs, own = ([turn.cpu_us for turn in taken[concurrency, arm]] for arm in ("stock", side))
        figures |= paired(concurrency if side == "fastlane" else f"{concurrency}_http1", theirs, own)
    for (concurrency, side), values in taken.items():
        name = f"{concurrency}_{side}"
        figures[f"{name}_cpu_us"] = median([turn.cpu_us for turn in values]).value
        figures[f"{name}_calls_per_s"] = 1e6 / median([turn.wall_us for turn in values]).value
    figures["rounds"] = rounds
    return Report(
        figures=figures,
        reach={f"async_{_TASKS}_ratio": ">= 7"},
        conditions={"calls_a_round": calls, "cores": cores},
    )


BENCHMARKS = {
    "stream_cpu": stream_cpu,
    "lateness": lateness,
    "transport_cpu": transport_cpu,
    "stream_saturated": stream_saturated,
    "call_cpu": call_cpu,
}
