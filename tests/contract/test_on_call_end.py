"""`on_call_end`: functions of async clients may be coroutine functions, which never disturb a call."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

import fastlane
from fastlane import CallRecord
from fastlane.errors import ConfigurationError
from tests.contract.entry_points import MESSAGES


async def ask(client: Any, **more: Any) -> Any:
    return await client.chat.completions.create(model="m", messages=MESSAGES, **more)


class Heard:
    """A callable object whose call is a coroutine; it takes longer than the call whose record it gets."""

    def __init__(self, error: Exception | None = None) -> None:
        self.records: list[CallRecord] = []
        self._error = error

    async def __call__(self, record: CallRecord) -> None:
        await asyncio.sleep(0.05)
        self.records.append(record)
        if self._error is not None:
            raise self._error


def test_coroutine_function_has_run_when_close_returns(arguments: dict[str, Any]) -> None:
    heard, plain = Heard(), list[CallRecord]()

    async def work() -> None:
        async with fastlane.AsyncOpenAI(**arguments, on_call_end=[heard, plain.append]) as client:
            await ask(client)
            await client.with_options(timeout=5).models.list()
            assert len(plain) == 2
            assert heard.records == []

    asyncio.run(work())

    assert heard.records == plain


@pytest.mark.parametrize("raises", [False, True])
def test_coroutine_function_that_raises_is_logged_once(
    arguments: dict[str, Any], raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard(KeyError("secret"))

    async def work() -> None:
        async with fastlane.AsyncOpenAI(**arguments, on_call_end=heard, raise_play_errors=raises) as client:
            for _ in range(2):
                await ask(client)

    with caplog.at_level(logging.WARNING, "fastlane"):
        asyncio.run(work())

    (warning,) = [record.getMessage() for record in caplog.records if "on_call_end" in record.getMessage()]
    assert "Heard raised KeyError in on_call_end" in warning
    assert "secret" not in warning
    assert len(heard.records) == 2


def test_coroutine_function_gets_the_record_of_a_dropped_stream(arguments: dict[str, Any]) -> None:
    heard = Heard()

    async def work() -> None:
        async with fastlane.AsyncOpenAI(**arguments, on_call_end=heard) as client:
            stream = await ask(client, stream=True)
            del stream
            gc.collect()
            await asyncio.sleep(0)

    asyncio.run(work())

    assert [record.outcome for record in heard.records] == ["abandoned"]


def test_coroutine_function_without_an_event_loop_is_warned_of(
    arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Where asyncio does not run the call, as on trio."""
    heard = Heard()
    client = fastlane.AsyncOpenAI(**arguments, on_call_end=heard)
    pipeline = client._fastlane.pipeline  # type: ignore[union-attr]

    async def work() -> None:
        await ask(client.with_options())

    asyncio.run(work())
    pipeline._loop = None
    with caplog.at_level(logging.WARNING, "fastlane"):
        pipeline.report(pipeline._calls[-1])

    assert "no asyncio event loop is running" in caplog.text


def test_coroutine_function_of_a_sync_client_is_an_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="a sync client takes plain functions"):
        fastlane.OpenAI(**arguments, on_call_end=Heard())


def test_one_function_is_taken_without_a_list(arguments: dict[str, Any]) -> None:
    records: list[CallRecord] = []

    with fastlane.OpenAI(**arguments, on_call_end=records.append) as client:
        client.models.list()

    assert len(records) == 1
