"""However a stream ends, its call is recorded exactly once, and the connection stays usable."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import fastlane
from fastlane import CallRecord
from fastlane.emulator import Emulator, RequestLog
from tests.contract.entry_points import MESSAGES, MODEL, async_chat
from tests.waiting import Form, comes_true

# Long enough that no test reads it to its end.
SLOW = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "3000"}
# Ends a test that waits for ever, and nothing else.
PATIENCE_S = 40


class Interrupted(BaseException):
    """What a signal handler may raise anywhere."""


@pytest.fixture
def heard() -> list[CallRecord]:
    return []


@pytest.fixture
def slow(arguments: dict[str, Any], heard: list[CallRecord]) -> Iterator[fastlane.OpenAI]:
    with fastlane.OpenAI(
        **arguments, on_call_end=[heard.append], raise_play_errors=True, default_headers=SLOW
    ) as client:
        yield client


@pytest.fixture
def either(form: Form, arguments: dict[str, Any], heard: list[CallRecord]) -> Iterator[Any]:
    with form.make(
        fastlane, **arguments, on_call_end=[heard.append], raise_play_errors=True, default_headers=SLOW
    ) as client:
        yield client


@contextlib.asynccontextmanager
async def slow_async(arguments: dict[str, Any], heard: list[CallRecord]) -> AsyncIterator[fastlane.AsyncOpenAI]:
    async with fastlane.AsyncOpenAI(
        **arguments, on_call_end=[heard.append], raise_play_errors=True, default_headers=SLOW
    ) as client:
        yield client


def opened(client: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)


async def async_opened(client: openai.AsyncOpenAI) -> openai.AsyncStream[Any]:
    return await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)


def gave_up(provider: Emulator) -> bool:
    def given_up(request: RequestLog) -> bool:
        return request.reset_ns is not None and request.output_tokens < 3000

    return all(map(given_up, provider.log()))


def outcomes(client: Any) -> list[str]:
    return [record.outcome for record in client.calls]


# Left in order


def unread(stream: Any) -> None:
    stream.close()
    stream.close()


def after_one_chunk(stream: Any) -> None:
    next(stream)
    stream.close()


def by_break(stream: Any) -> None:
    with stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break


def by_an_error(stream: Any) -> None:
    with contextlib.suppress(Interrupted), stream:
        for _ in stream:
            raise Interrupted


@pytest.mark.parametrize(("leave", "events"), [(unread, 0), (after_one_chunk, 1), (by_break, 2), (by_an_error, 1)])
def test_stream_left_early_is_closed_and_recorded_once(
    provider: Emulator, either: Any, heard: list[CallRecord], leave: Callable[[Any], None], events: int
) -> None:
    stream = opened(either)
    assert either.calls == ()
    leave(stream)
    del stream
    gc.collect()

    assert outcomes(either) == ["closed"]
    assert len(heard) == 1
    assert heard[0].events == events
    assert (heard[0].time_to_first_token_s is None) == (events < 2), "the first event has the role alone"
    assert comes_true(lambda: gave_up(provider))


def test_a_stream_helper_left_early_is_closed(provider: Emulator, slow: fastlane.OpenAI) -> None:
    with slow.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        next(iter(stream))

    assert outcomes(slow) == ["closed"]
    assert comes_true(lambda: gave_up(provider))


@pytest.mark.parametrize("read", ["nothing", "a line", "a part"])
def test_a_streaming_response_left_early_is_closed(provider: Emulator, slow: fastlane.OpenAI, read: str) -> None:
    create = slow.chat.completions.with_streaming_response.create
    with create(model=MODEL, messages=MESSAGES, stream=True) as response:
        if read == "a line":
            next(response.iter_lines())
        elif read == "a part":
            next(response.iter_bytes(1))

    assert outcomes(slow) == ["closed"]
    assert comes_true(lambda: gave_up(provider))


def test_a_raw_stream_closed_unread_is_closed(slow: fastlane.OpenAI) -> None:
    raw = slow.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, stream=True)
    raw.parse().close()

    assert outcomes(slow) == ["closed"]


# Dropped


def test_a_stream_dropped_unread_is_abandoned(
    provider: Emulator, slow: fastlane.OpenAI, heard: list[CallRecord]
) -> None:
    stream = opened(slow)
    del stream
    gc.collect()

    assert outcomes(slow) == ["abandoned"]
    assert len(heard) == 1
    assert slow.last_call is heard[0]
    assert comes_true(lambda: gave_up(provider))


# Async: left in order, dropped, cancelled


@pytest.mark.asyncio
async def test_a_call_cancelled_while_it_waits_is_cancelled(
    provider: Emulator, arguments: dict[str, Any], heard: list[CallRecord]
) -> None:
    async with slow_async(arguments, heard) as client:
        waiting = client.with_options(default_headers={"x-emulator-prefill-ms": "60000"})
        task = asyncio.ensure_future(async_chat(waiting))
        assert await asyncio.to_thread(comes_true, lambda: bool(provider.log()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert [(record.outcome, record.error) for record in heard] == [("cancelled", "CancelledError")]
        assert len(heard[0].attempts) == 1
        assert comes_true(lambda: gave_up(provider))


@pytest.mark.asyncio
async def test_a_stream_cancelled_in_the_middle_is_cancelled_and_the_client_goes_on(
    provider: Emulator, arguments: dict[str, Any], heard: list[CallRecord]
) -> None:
    async with slow_async(arguments, heard) as client:
        begun = asyncio.Event()

        async def read() -> None:
            async with await async_opened(client) as stream:
                async for _ in stream:
                    begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert [record.outcome for record in heard] == ["cancelled"]
        assert comes_true(lambda: gave_up(provider))
        await client.models.list()
        assert outcomes(client) == ["cancelled", "completed"]


# Read elsewhere


def test_a_stream_may_be_read_in_another_thread(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client, ThreadPoolExecutor(1) as pool:
        stream = opened(client)
        chunks = pool.submit(list, stream).result()

        assert outcomes(client) == ["completed"]
        assert client.calls[0].events == len(chunks)


@pytest.mark.asyncio
async def test_a_stream_may_be_read_in_another_task(async_client: fastlane.AsyncOpenAI) -> None:
    stream = await async_opened(async_client)

    async def read() -> int:
        return len([chunk async for chunk in stream])

    events = await asyncio.create_task(read())
    assert outcomes(async_client) == ["completed"]
    assert async_client.calls[0].events == events
