"""What the shell around the stock client costs: CPU per call and per streamed chunk that fastlane adds, default plays.

Inside: everything from the application's call to the typed answer, or to the last typed chunk read; both clients over
the same in-memory transport. Outside: the network, TLS, HTTP framing and garbage collection. Below zero, the fast path
saves more than the shell takes. A third arm, a second stock client, shows how large a difference this run would report
where there is none.

The figures that start with `connected` are calls to a provider in another process, with TLS, over each side's own
connections: the stock client's HTTP/1.1, and what `Connection()` opens. They say what HTTP/2 costs in the library
underneath, which the shell does not choose the price of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import openai

import fastlane
from benchmarks._paired import Median, cpu_pairs, differences, median
from benchmarks._prepared import ANSWER, MODEL, Prepared, stream_of
from benchmarks._provider import providers
from benchmarks._report import Figure, Reach, Report

_MESSAGES: list[Any] = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Is water wet?"},
]
_CHUNKS = 200
_CONNECTION: dict[str, Any] = {"base_url": "http://prepared.invalid/v1", "api_key": "none", "max_retries": 0}
_Arm = Callable[[], object]


class _Batch(NamedTuple):
    """What one arm does in one round."""

    content_type: str
    reads: tuple[bytes, ...]
    stream: bool
    calls: int


_CALL = _Batch("application/json", (ANSWER,), stream=False, calls=20)
_EMPTY_STREAM = _Batch("text/event-stream", stream_of(0), stream=True, calls=20)
_LONG_STREAM = _Batch("text/event-stream", stream_of(_CHUNKS), stream=True, calls=2)


def _sync_arm(client: openai.OpenAI, batch: _Batch) -> _Arm:
    def run() -> None:
        for _ in range(batch.calls):
            answer = client.chat.completions.create(model=MODEL, messages=_MESSAGES, stream=batch.stream)
            if isinstance(answer, openai.Stream):
                for _chunk in answer:
                    pass

    return run


def _async_arm(client: openai.AsyncOpenAI, batch: _Batch, loop: asyncio.AbstractEventLoop) -> _Arm:
    async def run() -> None:
        for _ in range(batch.calls):
            answer = await client.chat.completions.create(model=MODEL, messages=_MESSAGES, stream=batch.stream)
            if isinstance(answer, openai.AsyncStream):
                async for _chunk in answer:
                    pass

    return lambda: loop.run_until_complete(run())


@contextmanager
def _sync_arms(batch: _Batch) -> Iterator[list[_Arm]]:
    transport = Prepared(batch.content_type, batch.reads)
    clients = [
        kind(**_CONNECTION, http_client=httpx2.Client(transport=transport))
        for kind in (openai.OpenAI, fastlane.OpenAI, openai.OpenAI)
    ]
    yield [_sync_arm(client, batch) for client in clients]
    for client in clients:
        client.close()


@contextmanager
def _async_arms(batch: _Batch) -> Iterator[list[_Arm]]:
    transport = Prepared(batch.content_type, batch.reads)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        clients = [
            kind(**_CONNECTION, http_client=httpx2.AsyncClient(transport=transport))
            for kind in (openai.AsyncOpenAI, fastlane.AsyncOpenAI, openai.AsyncOpenAI)
        ]
        yield [_async_arm(client, batch, loop) for client in clients]
        for client in clients:
            runner.run(client.close())


class _Cost(NamedTuple):
    """Microseconds per call."""

    stock: float
    added: Median
    nothing_added: float


def _cost(arms: list[_Arm], batch: _Batch, pairs: int) -> _Cost:
    stock, ours, again = ([taken / 1e3 / batch.calls for taken in arm] for arm in cpu_pairs(arms, pairs))
    return _Cost(median(stock).value, median(differences(ours, stock)), median(differences(again, stock)).value)


def _connected(pairs: int) -> dict[str, Figure]:
    """Microseconds of CPU per call over real connections, each arm on its own."""
    with providers(1, round_trip_time_s=0.0) as (provider,):
        settings: dict[str, Any] = {"base_url": provider.base_url, "api_key": "none", "max_retries": 0}
        clients = {
            "stock": openai.OpenAI(**settings),
            "http1": fastlane.OpenAI(**settings, only_plays=[fastlane.Connection(http2="never")]),
            "http2": fastlane.OpenAI(**settings, only_plays=[fastlane.Connection()]),
        }
        taken = cpu_pairs([_sync_arm(client, _CALL) for client in clients.values()], pairs)
        for client in clients.values():
            client.close()
    per_call = {name: [one / 1e3 / _CALL.calls for one in arm] for name, arm in zip(clients, taken, strict=True)}
    return {
        "connected_call_stock_us": median(per_call["stock"]).value,
        "connected_call_http1_added_us": median(differences(per_call["http1"], per_call["stock"])).value,
        "connected_call_http2_added_us": median(differences(per_call["http2"], per_call["stock"])).value,
    }


def measure(quick: bool) -> Report:
    """Measure plain calls, streams without content and long streams, synchronous and asynchronous."""
    pairs = 100 if quick else 400
    figures: dict[str, Figure] = {}
    for side, arms_of in (("sync", _sync_arms), ("async", _async_arms)):
        costs: list[_Cost] = []
        for batch in (_CALL, _EMPTY_STREAM, _LONG_STREAM):
            with arms_of(batch) as arms:
                costs.append(_cost(arms, batch, pairs))
        call, empty, long = costs
        stock_chunk_us = (long.stock - empty.stock) / _CHUNKS
        chunk_us = (long.added.value - empty.added.value) / _CHUNKS
        figures |= {
            f"{side}_call_added_us": call.added.value,
            f"{side}_call_added_low_us": call.added.low,
            f"{side}_call_added_high_us": call.added.high,
            f"{side}_call_stock_us": call.stock,
            f"{side}_call_added_ratio": call.added.value / call.stock,
            f"{side}_call_stock_to_stock_us": call.nothing_added,
            f"{side}_stream_added_us": empty.added.value,
            f"{side}_stream_stock_us": empty.stock,
            f"{side}_chunk_added_us": chunk_us,
            f"{side}_chunk_stock_us": stock_chunk_us,
            f"{side}_chunk_added_ratio": chunk_us / stock_chunk_us,
            f"{side}_chunk_stock_to_stock_us": (long.nothing_added - empty.nothing_added) / _CHUNKS,
        }
    figures |= _connected(pairs // 10)
    return Report(
        figures=figures,
        reach=(
            Reach(figure="sync_call_added_us", op="<=", target=30),
            Reach(figure="async_call_added_us", op="<=", target=30),
            Reach(figure="sync_chunk_added_us", op="<=", target=3),
            Reach(figure="async_chunk_added_us", op="<=", target=3),
        ),
        conditions={
            "pairs": pairs,
            "chunks_of_a_long_stream": _CHUNKS,
            "one_event_per_read": True,
            "garbage_collection": "between rounds",
        },
    )
