"""Many typed streams at once, on openai's client as it comes and on ours, and the provider that writes them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import openai

import fastlane
from benchmarks._provider import MODEL, provider_cpu_ns
from benchmarks._transport import MESSAGES, wishes
from fastlane._clock import cpu_ns, now_ns
from fastlane.emulator import Emulator, RequestLog

SIDES = ("stock", "stock_http2", "fastlane", "fastlane_http1")
"""openai's client as it comes, which speaks HTTP/1.1, and as it is told to; ours as it comes, and as it is told to."""

_VERSIONS = {"stock": "HTTP/1.1", "stock_http2": "HTTP/2", "fastlane": "HTTP/2", "fastlane_http1": "HTTP/1.1"}
_PATIENCE_S = 30.0
# Every stream goes on for this long after what is measured.
_SPARE_S = 4.0
# How much the paces of streams differ, as a share.
_UNEVEN = 0.1


def async_client(side: str, base_url: str) -> openai.AsyncOpenAI:
    """Make a client of this side."""
    options: dict[str, Any] = {"base_url": base_url, "api_key": "none", "max_retries": 0}
    if side == "stock":
        return openai.AsyncOpenAI(**options)
    if side == "stock_http2":
        return openai.AsyncOpenAI(http_client=openai.DefaultAsyncHttpxClient(http2=True), **options)
    if side == "fastlane":
        return fastlane.AsyncOpenAI(**options)
    return fastlane.AsyncOpenAI(plays=[fastlane.Connection(http2="never")], **options)


def sync_client(side: str, base_url: str) -> openai.OpenAI:
    """Make a client of this side."""
    options: dict[str, Any] = {"base_url": base_url, "api_key": "none", "max_retries": 0}
    if side == "stock":
        return openai.OpenAI(**options)
    if side == "stock_http2":
        return openai.OpenAI(http_client=openai.DefaultHttpxClient(http2=True), **options)
    if side == "fastlane":
        return fastlane.OpenAI(**options)
    return fastlane.OpenAI(plays=[fastlane.Connection(http2="never")], **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one turn took."""

    us_per_chunk: float
    """CPU of this process for each chunk that the provider sent while it was measured."""
    chunks_per_s: float
    provider_cpu_share: float | None
    """Of one core."""
    busy_share: float
    """Of one core, this process."""


class _Window:
    """From the moment when every stream has brought a chunk, for a fixed time."""

    def __init__(self, emulator: Emulator, side: str) -> None:
        self._emulator = emulator
        self._side = side
        self._provider_ns: int | None = None
        self._started = self._cpu_started = self._ended = self._cpu_ended = 0

    def open(self) -> None:
        self._provider_ns = provider_cpu_ns(self._emulator)
        self._started, self._cpu_started = now_ns(), cpu_ns()

    def close(self) -> None:
        self._ended, self._cpu_ended = now_ns(), cpu_ns()
        ended_ns = provider_cpu_ns(self._emulator)
        if self._provider_ns is not None and ended_ns is not None:
            self._provider_ns = ended_ns - self._provider_ns

    def taken(self, log: tuple[RequestLog, ...]) -> Taken:
        if {request.http_version for request in log} != {_VERSIONS[self._side]}:
            raise RuntimeError(f"{self._side} did not speak the protocol that it was to speak")
        chunks = sum(self._started <= sent < self._ended for request in log for sent in request.token_ns)
        lasted = self._ended - self._started
        cpu = self._cpu_ended - self._cpu_started
        return Taken(
            us_per_chunk=cpu / chunks / 1e3,
            chunks_per_s=chunks / lasted * 1e9,
            provider_cpu_share=None if self._provider_ns is None else self._provider_ns / lasted,
            busy_share=cpu / lasted,
        )


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


def _asked(streams: int, token_ms: float, window_s: float) -> list[tuple[int, dict[str, str]]]:
    """For each stream, how many tokens it will have, and the headers that ask for them.

    Each has a pace of its own, so that they do not come in step.
    """
    asked = []
    for number in range(streams):
        pace_ms = token_ms * (1 + _UNEVEN * ((number + 0.5) / streams - 0.5))
        tokens = round(1e3 * (window_s + _SPARE_S) / pace_ms)
        asked.append((tokens, wishes(output_tokens=tokens, token_ms=f"{pace_ms:.4f}")))
    return asked


def _check(side: str, counts: list[int], asked: list[tuple[int, dict[str, str]]]) -> None:
    # The role and the finish reason have a chunk each.
    if any(count != tokens + 2 for count, (tokens, _) in zip(counts, asked, strict=True)):
        raise RuntimeError(f"an answer of {side} is not whole")


@asynccontextmanager
async def _opened(side: str, base_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with async_client(side, base_url) as client:
        await client.models.list()
        yield client


async def async_turn(side: str, emulator: Emulator, *, streams: int, token_ms: float, window_s: float) -> Taken:
    """Read streams with `async for` and take the time."""
    asked = _asked(streams, token_ms, window_s)
    begun = _Begun(streams)

    async def read(client: openai.AsyncOpenAI, headers: dict[str, str]) -> int:
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, extra_headers=headers
        )
        await anext(stream)
        begun.one()
        count = 1
        async for _ in stream:
            count += 1
        return count

    async with _opened(side, emulator.base_url) as client:
        emulator.clear()
        reading = [asyncio.create_task(read(client, headers)) for _, headers in asked]
        await asyncio.to_thread(begun.wait)
        window = _Window(emulator, side)
        window.open()
        await asyncio.sleep(window_s)
        window.close()
        if any(task.done() for task in reading):
            raise RuntimeError(f"a stream of {side} ended while it was measured: the machine is too busy")
        _check(side, await asyncio.gather(*reading), asked)
    return window.taken(await asyncio.to_thread(emulator.log))


def sync_turn(side: str, emulator: Emulator, *, streams: int, token_ms: float, window_s: float) -> Taken:
    """Read streams with `for`, each in a thread of its own, and take the time."""
    asked = _asked(streams, token_ms, window_s)
    begun = _Begun(streams)

    def read(client: openai.OpenAI, headers: dict[str, str]) -> int:
        stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, extra_headers=headers)
        next(stream)
        begun.one()
        count = 1
        for _ in stream:
            count += 1
        return count

    with sync_client(side, emulator.base_url) as client, ThreadPoolExecutor(streams) as pool:
        client.models.list()
        emulator.clear()
        reading = [pool.submit(read, client, headers) for _, headers in asked]
        begun.wait()
        window = _Window(emulator, side)
        window.open()
        threading.Event().wait(window_s)
        window.close()
        if any(future.done() for future in reading):
            raise RuntimeError(f"a stream of {side} ended while it was measured: the machine is too busy")
        _check(side, [future.result() for future in reading], asked)
    return window.taken(emulator.log())


async def lateness_turn(
    side: str, emulator: Emulator, *, streams: int, token_ms: float, window_s: float
) -> list[float]:
    """Read streams with `async for`; the delay in milliseconds of every chunk that was sent in the window."""
    asked = _asked(streams, token_ms, window_s)
    begun = _Begun(streams)

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

    async with _opened(side, emulator.base_url) as client:
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
