"""What calls and typed chunks cost the client: openai's client as it comes against ours as it comes.

openai's client uses HTTP/1.1 as it comes, and ours HTTP/2; `stock_http2` and `fastlane_http1` are set to do otherwise.
The provider is on another core where there is one. The arms take turns, in reversed order every other round.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import openai

from benchmarks._client import MESSAGES, check_answer, client_of, run_sync, settled, wishes
from benchmarks._conversation import conversation, tools
from benchmarks._paired import added, cpu_pairs, in_turns, middle, paired, percentile, turns
from benchmarks._provider import MODEL, provider_on_another_core
from benchmarks._report import Figure, Report
from benchmarks._servers import server_on_another_core
from fastlane._clock import cpu_ns, now_ns
from fastlane.emulator import Emulator, RequestLog, preset

_VERSIONS = {"stock": "HTTP/1.1", "stock_http2": "HTTP/2", "fastlane": "HTTP/2", "fastlane_http1": "HTTP/1.1"}
_PATIENCE_S = 30.0
# Every stream goes on for this long after what is measured.
_SPARE_S = 4.0
_T = TypeVar("_T")


class _Asked(NamedTuple):
    """How many tokens a stream will have, and the headers that ask for them."""

    tokens: int
    headers: dict[str, str]


def _streams(count: int, window_s: float) -> list[_Asked]:
    """Return what to ask for: a token about every 10 ms, each stream at its own pace, so that none is in step."""
    asked = []
    for number in range(count):
        own_ms = 10.0 * (1 + 0.1 * ((number + 0.5) / count - 0.5))
        tokens = round(1e3 * (window_s + _SPARE_S) / own_ms)
        headers = wishes(output_tokens=tokens, token_ms=f"{own_ms:.4f}", tag=f"stream {number}")
        asked.append(_Asked(tokens, headers))
    return asked


def _streamed(client: Any, headers: dict[str, str]) -> Any:
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, extra_headers=headers)


class _Window(NamedTuple):
    """From the moment when every stream has brought a chunk, for a fixed time."""

    started_ns: int
    ended_ns: int
    cpu_ns: int

    @property
    def core_share(self) -> float:
        """How much of one core this process took."""
        return self.cpu_ns / (self.ended_ns - self.started_ns)

    def us_per_chunk(self, log: Sequence[RequestLog], version: str) -> float:
        """Return the CPU for each chunk that was sent in that time, over this version of HTTP."""
        if {request.http_version for request in log} != {version}:
            raise RuntimeError(f"a client did not use {version}")
        sent = (at_ns for request in log for at_ns in request.token_ns)
        return self.cpu_ns / 1e3 / sum(self.started_ns <= at_ns < self.ended_ns for at_ns in sent)


async def _watch(
    arm: str, reads: Sequence[Awaitable[_T]], begun: threading.Semaphore, window_s: float
) -> tuple[_Window, list[_T]]:
    """Measure while all streams are read, each of which releases `begun` once; return what each read came to."""
    reading = [asyncio.ensure_future(read) for read in reads]
    if not await asyncio.to_thread(lambda: all(begun.acquire(timeout=_PATIENCE_S) for _ in reading)):
        raise RuntimeError(f"not every stream of {arm} has begun")
    started, cpu = now_ns(), cpu_ns()
    await asyncio.sleep(window_s)
    window = _Window(started, now_ns(), cpu_ns() - cpu)
    if any(task.done() for task in reading):
        raise RuntimeError(f"a stream of {arm} ended while it was measured: the machine is too busy")
    return window, await asyncio.gather(*reading)


async def _stream_turn(side: str, emulator: Emulator, streams: int, window_s: float, *, threads: bool) -> _Window:
    asked, begun = _streams(streams, window_s), threading.Semaphore(0)
    client = client_of(side, "sync" if threads else "async", emulator.base_url)

    async def read(headers: dict[str, str]) -> int:
        stream = await _streamed(client, headers)
        await anext(stream)
        begun.release()
        count = 1
        async for _ in stream:
            count += 1
        return count

    def read_in_thread(headers: dict[str, str]) -> int:
        stream = _streamed(client, headers)
        next(stream)
        begun.release()
        return 1 + sum(1 for _ in stream)

    await settled(client.models.list())
    emulator.clear()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(streams) as pool:
        reads: list[Awaitable[int]] = [
            loop.run_in_executor(pool, read_in_thread, one.headers) if threads else read(one.headers) for one in asked
        ]
        window, counts = await _watch(side, reads, begun, window_s)
    # The role and the finish reason have a chunk each.
    if counts != [one.tokens + 2 for one in asked]:
        raise RuntimeError(f"an answer of {side} is not whole")
    await settled(client.close())
    return window


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
    """Measure the CPU of a typed chunk between the socket and the application's loop: openai's client and ours.

    Streams with a chunk about every 10 ms, none in step with another, are read with `async for` (64, 16 and 1 of them)
    and with `for` in 16 threads. Inside: the process's CPU for a fixed time once every stream has begun, divided by the
    chunks that the provider sent in it; if the stock client cannot keep up, the ratio is too low. Outside: opening
    connections, requests, and ends of streams.
    """
    rounds, window_s = (1, 1.5) if quick else (7, 4.0)

    def turn(arm: tuple[str, int, str]) -> tuple[float, float]:
        name, streams, side = arm
        window = asyncio.run(_stream_turn(side, emulator, streams, window_s, threads=name.startswith("threads")))
        return window.us_per_chunk(emulator.log(), _VERSIONS[side]), window.core_share

    with provider_on_another_core() as (emulator, cores):
        taken = {arm[0]: values for arm, values in in_turns(turn, _STREAM_ARMS, rounds).items()}
    us = {arm: [per_chunk for per_chunk, _ in values] for arm, values in taken.items()}
    figures: dict[str, Figure] = {}
    for name, (stock, ours, _) in _RATIOS.items():
        figures |= paired(name, us[stock], us[ours])
    figures |= {f"{arm}_us_per_chunk": middle(values) for arm, values in us.items()}
    for arm in ("async_64_stock", "async_64_fastlane"):
        figures[f"{arm}_core_share"] = middle([share for _, share in taken[arm]])
    return Report(
        figures={**figures, "rounds": rounds},
        reach={f"{name}_ratio": f">= {target}" for name, (_, _, target) in _RATIOS.items() if target is not None},
        conditions={"measured_s": window_s, "cores": cores},
    )


async def _delays_ms(side: str, emulator: Emulator, window_s: float, streams: int) -> list[float]:
    asked, begun = _streams(streams, window_s), threading.Semaphore(0)

    async def read(headers: dict[str, str]) -> list[int]:
        # The provider numbers content from 0: the role and the finish reason are no part of its log.
        came: list[int] = []
        async for chunk in await _streamed(client, headers):
            if chunk.choices[0].delta.content:
                if not came:
                    begun.release()
                came.append(now_ns())
        return came

    async with client_of(side, "async", emulator.base_url) as client:
        await client.models.list()
        emulator.clear()
        window, came = await _watch(side, [read(one.headers) for one in asked], begun, window_s)
    log = {request.tag: request.token_ns for request in await asyncio.to_thread(emulator.log)}
    delays_ms = []
    for number, times in enumerate(came):
        # Raises where an answer is not whole.
        sent = zip(times, log[f"stream {number}"], strict=True)
        delays_ms += [(time - at) / 1e6 for time, at in sent if window.started_ns <= at < window.ended_ns]
    return delays_ms


_STEPS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
_MOST_LATE_MS, _LEAST_PACE = 10.0, 0.9


def streams_per_core(quick: bool) -> Report:
    """Count the streams of 100 tokens/s that one process reads with a p99 delay of at most 10 ms: stock and ours.

    More streams are read at each step, until one is too late. Inside: from the provider's write of a chunk, by its log,
    to the application's loop body. Outside: opening connections and sending requests. If the provider does not keep its
    pace with a step, at least the step before is carried: `provider_limited` counts such turns.
    """
    rounds, window_s = (1, 1.5) if quick else (5, 3.0)
    limited = 0

    def turn(side: str) -> float:
        nonlocal limited
        most = 0
        for streams in _STEPS:
            delays_ms = asyncio.run(_delays_ms(side, emulator, window_s, streams))
            is_late = percentile(delays_ms, 0.99) > _MOST_LATE_MS
            if is_late or len(delays_ms) < _LEAST_PACE * 100.0 * streams * window_s:
                limited += not is_late
                break
            most = streams
        return most

    with provider_on_another_core() as (emulator, cores):
        carried = in_turns(turn, ("stock", "fastlane"), rounds)
    return Report(
        figures={
            **paired("streams", carried["fastlane"], carried["stock"]),
            **{f"{side}_streams": middle(values) for side, values in carried.items()},
            "provider_limited": limited,
            "rounds": rounds,
        },
        reach={"streams_ratio": ">= 6"},
        conditions={"measured_s": window_s, "cores": cores},
    )


# Small calls

_TASKS = {"async_64": 64, "async_1": 1, "sync_1": 1}
_TEXTS = ("Yes.", "Water is wet.", "No, but it makes other things wet.")
_HEADERS = [wishes(output_text=text) for text in _TEXTS]

# Concurrency and side: each against the stock client of the same concurrency.
_CALL_ARMS = [
    *(("async_64", side) for side in ("stock", "fastlane", "fastlane_http1")),
    *(("async_1", side) for side in ("stock", "fastlane")),
    *(("sync_1", side) for side in ("stock", "fastlane")),
]


async def _calls(client: Any, tasks: int, calls: int) -> None:
    numbers = iter(range(calls))

    async def work() -> None:
        for number in numbers:
            at = number % len(_TEXTS)
            call = client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=_HEADERS[at])
            check_answer(await settled(call), _TEXTS[at])

    await asyncio.gather(*[work() for _ in range(tasks)])


async def _call_rounds(emulator: Emulator, rounds: int, calls: int) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return the microseconds of CPU and of wall-clock time of a call, for each arm and round."""
    taken: dict[tuple[str, str], list[tuple[float, float]]] = {arm: [] for arm in _CALL_ARMS}
    clients = {arm: client_of(arm[1], arm[0].partition("_")[0], emulator.base_url) for arm in _CALL_ARMS}
    for number, arm in turns(_CALL_ARMS, rounds, warm_ups=1):  # the first one opens connections
        tasks = _TASKS[arm[0]]
        count = calls if tasks > 1 else calls // 4
        emulator.clear()
        gc.collect()
        started, cpu_started = now_ns(), cpu_ns()
        await _calls(clients[arm], tasks, count)
        cpu, wall = cpu_ns() - cpu_started, now_ns() - started
        log = emulator.log()
        if len(log) != count or {request.http_version for request in log} != {_VERSIONS[arm[1]]}:
            raise RuntimeError(f"{arm[1]} did not send its calls over the protocol that it was to use")
        if number >= 0:
            taken[arm].append((cpu / 1e3 / count, wall / 1e3 / count))
    for client in clients.values():
        await settled(client.close())
    return taken


def call_cpu(quick: bool) -> Report:
    """Measure the CPU of a small call that is not streamed: openai's client and ours with default plays.

    Calls are made by 64 tasks at once, by one task, and by a thread. Inside: the process's CPU from the first call of a
    round to the end of its last, divided by the calls. Outside: making the clients, and opening connections.
    """
    rounds, calls = (3, 640) if quick else (15, 1_920)
    with provider_on_another_core() as (emulator, cores):
        taken = asyncio.run(_call_rounds(emulator, rounds, calls))
    cpu = {arm: [cpu_us for cpu_us, _ in values] for arm, values in taken.items()}
    figures: dict[str, Figure] = {}
    for concurrency, side in _CALL_ARMS:
        if side != "stock":
            name = concurrency + side.removeprefix("fastlane")
            figures |= paired(name, cpu[concurrency, "stock"], cpu[concurrency, side])
    for (concurrency, side), values in taken.items():
        figures[f"{concurrency}_{side}_cpu_us"] = middle(cpu[concurrency, side])
        figures[f"{concurrency}_{side}_calls_per_s"] = 1e6 / middle([wall_us for _, wall_us in values])
    return Report(
        figures={**figures, "rounds": rounds},
        reach={"async_64_ratio": ">= 7"},
        conditions={"calls_a_round": calls, "cores": cores},
    )


# Calls with a long history

_HISTORIES = {20: 12, 100: 30, 400: 80}
"""Messages, and the ratio that is to be reached."""
_HELD_UP_MESSAGES = 100
_BLOCK = 5
"""Calls of one side before the other's turn."""


async def _held_up_us(client: openai.AsyncOpenAI, history: Any, listed: Any, calls: int) -> list[float]:
    """Return, for each call, the longest time that another task waited for its turn."""
    longest = 0

    async def ask_for_every_turn() -> None:
        nonlocal longest
        last = now_ns()
        while True:
            await asyncio.sleep(0)
            now = now_ns()
            longest = max(longest, now - last)
            last = now

    taken = []
    asking = asyncio.create_task(ask_for_every_turn())
    gc.collect()  # not before each call: it reads every object there is, and leaves the processor's caches to them
    for _ in range(calls):
        await asyncio.sleep(0)
        longest = 0
        await client.chat.completions.create(model=MODEL, messages=history, tools=listed)
        await asyncio.sleep(0)
        taken.append(longest / 1e3)
    asking.cancel()
    return taken


def history_cpu(quick: bool) -> Report:
    """Measure a call with a long history: its CPU, and how long it holds up the event loop; stock and ours.

    Conversations of 20, 100 and 400 messages with 14 tools, in the sizes of a recorded airline agent's, go to a server
    that answers at once. Inside: the process's CPU from `create()` to the typed answer. Outside: opening connections
    and garbage collection. The loop is held up for the longest time between two turns of a task that asks for every
    turn, while one call of 100 messages is made: wall-clock time, median.
    """
    pairs, held_up_rounds, held_up_calls = (10, 4, 5) if quick else (60, 10, 10)
    listed, histories = tools(), {messages: conversation(messages) for messages in _HISTORIES}
    sides = ("stock", "fastlane")

    def block(client: Any, messages: int, run: Callable[[Any], object]) -> Callable[[], object]:
        history = histories[messages]

        async def calls() -> None:
            for _ in range(_BLOCK):
                await settled(
                    client.chat.completions.create(model=MODEL, messages=history, tools=listed, temperature=0.5)
                )

        return lambda: run(calls())

    figures: dict[str, Figure] = {}
    with server_on_another_core() as (base_url, cores), asyncio.Runner() as runner:
        drivers: dict[str, Callable[[Any], object]] = {"sync": run_sync, "async": runner.run}
        clients = {(mode, side): client_of(side, mode, base_url) for mode in drivers for side in sides}
        for mode, run in drivers.items():
            for messages in _HISTORIES:
                arms = [block(clients[mode, side], messages, run) for side in sides]
                stock, ours = ([one / _BLOCK / 1e3 for one in arm] for arm in cpu_pairs(arms, pairs))
                name = f"{mode}_{messages}"
                figures |= paired(name, stock, ours)
                figures |= {f"{name}_stock_us": middle(stock), f"{name}_fastlane_us": middle(ours)}
        held_up: dict[str, list[float]] = {side: [] for side in sides}
        gc.disable()
        for _ in range(held_up_rounds):
            for side, values in held_up.items():
                call = _held_up_us(clients["async", side], histories[_HELD_UP_MESSAGES], listed, held_up_calls)
                values += runner.run(call)
        gc.enable()
        for client in clients.values():
            runner.run(settled(client.close()))
    held_up_name = f"loop_held_up_{_HELD_UP_MESSAGES}"
    return Report(
        figures={
            **figures,
            f"{held_up_name}_stock_ms": middle(held_up["stock"]) / 1e3,
            f"{held_up_name}_ms": middle(held_up["fastlane"]) / 1e3,
        },
        reach={
            **{f"{mode}_{size}_ratio": f">= {target}" for mode in drivers for size, target in _HISTORIES.items()},
            f"{held_up_name}_ms": "<= 0.6",
        },
        conditions={"pairs": pairs, "cores": cores},
    )


# A fresh process


class _Child(NamedTuple):
    """What a fresh process took: wall time to its token, CPU to its end, and the most resident memory."""

    wall_ms: float
    cpu_ms: float
    memory_mib: float


# Without trio, which few applications have, and which openai's HTTP library imports where it is installed.
_FIRST_TOKEN = """
import sys
sys.modules["trio"] = None
from {package} import OpenAI
question = [{{"role": "user", "content": "Is water wet?"}}]
client = OpenAI(base_url="{base_url}", api_key="none")
for chunk in client.chat.completions.create(model="instant", messages=question, stream=True):
    if chunk.choices and chunk.choices[0].delta.content:
        print("token", flush=True)
        break
"""


def _first_token(package: str, provider: Emulator) -> _Child:
    begun = time.perf_counter()
    command = [sys.executable, "-c", _FIRST_TOKEN.format(package=package, base_url=provider.base_url)]
    environment = {**os.environ, **provider.environment}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        if child.stdout.readline().strip() != "token":
            raise RuntimeError(f"a fresh process of {package} got no token")
        wall_ms = 1e3 * (time.perf_counter() - begun)
        _, status, taken = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    per_mib = 2**20 if sys.platform == "darwin" else 2**10
    return _Child(wall_ms, 1e3 * (taken.ru_utime + taken.ru_stime), taken.ru_maxrss / per_mib)


# A server that imports the application, makes its client, and forks a worker for each line that it reads.
_FORKING = """
import os, sys, time
sys.modules["trio"] = None
from {package} import OpenAI
question = [{{"role": "user", "content": "Is water wet?"}}]
client = OpenAI(base_url="{base_url}", api_key="none")
for _ in sys.stdin:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for chunk in client.chat.completions.create(model="instant", messages=question, stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            break
    print(1e3 * (time.perf_counter() - wall_s), 1e3 * (time.process_time() - cpu_s), flush=True)
    os._exit(0)
"""


def _first_call(server: subprocess.Popen[str]) -> tuple[float, ...]:
    """Fork a worker; return the wall and CPU milliseconds of its first call."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return tuple(map(float, server.stdout.readline().split()))


def cold_start(quick: bool) -> Report:
    """Measure a fresh process up to its first streamed token from the emulator without delays, fastlane / openai.

    Inside: wall time from the interpreter's start to the token, CPU time to its end, and the most resident memory; and
    wall and CPU time of the first call of a forked worker, whose parent has made the client and not used it.
    Outside: trio, which openai's HTTP library imports if it is installed; what the parent does at its first fork.
    """
    sides = ("openai", "fastlane")
    with Emulator(model=preset("instant"), seed=0) as provider, ExitStack() as stack:
        rounds = 8 if quick else 30
        taken = in_turns(lambda side: _first_token(side, provider), sides, rounds, warm_ups=1)
        servers = {}
        for side in sides:
            command = [sys.executable, "-c", _FORKING.format(package=side, base_url=provider.base_url)]
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            server = subprocess.Popen(command, env={**os.environ, **provider.environment}, **pipes)
            servers[side] = stack.enter_context(server)
        forked = in_turns(lambda side: _first_call(servers[side]), sides, rounds, warm_ups=1)
    figures: dict[str, Figure] = {}
    both: dict[str, Any] = {"fork_": forked, "": taken}
    for prefix, measured in both.items():
        for at, what in enumerate((f"{prefix}wall", f"{prefix}cpu")):
            ours, theirs = ([one[at] for one in measured[package]] for package in ("fastlane", "openai"))
            figures |= paired(what, ours, theirs)
            figures |= {f"fastlane_{what}_ms": middle(ours), f"openai_{what}_ms": middle(theirs)}
    memory = {package: [one.memory_mib for one in taken[package]] for package in taken}
    figures |= added("added_memory", memory["fastlane"], memory["openai"], "mib")
    figures["openai_memory_mib"] = middle(memory["openai"])
    return Report(
        figures=figures,
        reach={
            **dict.fromkeys(("wall_ratio", "cpu_ratio", "fork_wall_ratio", "fork_cpu_ratio"), "<= 1"),
            "added_memory_mib": "<= 12",
        },
        conditions={"pairs": len(taken["openai"])},
    )
