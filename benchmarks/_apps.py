"""Applications that log their own time to first token: many streams in one process, on openai's client and on ours."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import openai

import fastlane
from benchmarks._server import apart
from fastlane._clock import now_ns
from tests.truth import ClientTimes, ServerPace, TruthServer, truth_server

SIDES = ("stock", "fastlane")
_MESSAGES: list[Any] = [{"role": "user", "content": "Is water wet?"}]
_THINK_S = 0.02


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


def _asked(tag: str) -> dict[str, Any]:
    return {"model": "truth", "messages": _MESSAGES, "stream": True, "user": tag}


async def _async_app(client: openai.AsyncOpenAI, streams: int, requests: int, pace: ServerPace) -> list[ClientTimes]:
    done: list[ClientTimes] = []

    async def call(tag: str) -> ClientTimes:
        log = _Log(tag)
        async for chunk in await client.chat.completions.create(**_asked(tag)):
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

    async def run() -> list[ClientTimes]:
        client = module.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
        return await _async_app(client, streams, requests, pace)

    return asyncio.run(run())


def app(side: str, truth: TruthServer, pace: ServerPace, *, streams: int, requests: int) -> Sequence[ClientTimes]:
    """Run one application in a new process of its own, and return what it logged."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_app, side, truth.base_url, streams, requests, pace).result()


@contextmanager
def truth_on_another_core() -> Iterator[tuple[TruthServer, str]]:
    """Start a truth server, and keep it and the processes of applications apart, as far as there is a way to."""
    with apart() as move, truth_server() as truth:
        yield truth, move()
