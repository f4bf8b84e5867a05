"""`on_call_end`: functions of async clients may be coroutine functions, which never disturb a call."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput, CallRecord, Hedging, record_of
from fastlane.errors import ConfigurationError
from tests.contract.entry_points import MESSAGES, MODEL, Answer


async def ask(client: Any, **more: Any) -> Any:
    return await client.chat.completions.create(model="m", messages=MESSAGES, **more)


class Recorder:
    """A callable object whose call is a coroutine; it takes longer than the call whose record it gets."""

    def __init__(self, error: Exception | None = None) -> None:
        self.records: list[CallRecord] = []
        self._error = error

    async def __call__(self, record: CallRecord) -> None:
        await asyncio.sleep(0.05)
        self.records.append(record)
        if self._error is not None:
            raise self._error


@pytest.mark.asyncio
async def test_coroutine_function_has_run_when_close_returns(arguments: dict[str, Any]) -> None:
    recorder, plain = Recorder(), list[CallRecord]()
    async with fastlane.AsyncOpenAI(**arguments, on_call_end=[recorder, plain.append]) as client:
        await ask(client)
        await client.with_options(timeout=5).models.list()
        assert len(plain) == 2
        assert recorder.records == []

    assert recorder.records == plain


@pytest.mark.asyncio
@pytest.mark.parametrize("raises", [False, True])
async def test_coroutine_function_that_raises_is_logged_once(
    arguments: dict[str, Any], raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(KeyError("secret"))
    with caplog.at_level(logging.WARNING, "fastlane"):
        async with fastlane.AsyncOpenAI(**arguments, on_call_end=recorder, raise_play_errors=raises) as client:
            for _ in range(2):
                await ask(client)

    (warning,) = [record.getMessage() for record in caplog.records if "on_call_end" in record.getMessage()]
    assert "Recorder raised KeyError in on_call_end" in warning
    assert "secret" not in warning
    assert len(recorder.records) == 2


@pytest.mark.asyncio
async def test_coroutine_function_gets_the_record_of_a_dropped_stream(arguments: dict[str, Any]) -> None:
    recorder = Recorder()
    async with fastlane.AsyncOpenAI(**arguments, on_call_end=recorder) as client:
        stream = await ask(client, stream=True)
        del stream
        gc.collect()
        await asyncio.sleep(0)

    assert [record.outcome for record in recorder.records] == ["abandoned"]


def test_coroutine_function_without_an_event_loop_is_warned_of(
    arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Where asyncio does not run the call, as on trio."""
    recorder = Recorder()
    client = fastlane.AsyncOpenAI(**arguments, on_call_end=recorder)
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
        fastlane.OpenAI(**arguments, on_call_end=Recorder())


# `fastlane.record_of(answer)`: the record of the call that an answer came from


CALL: dict[str, Any] = {"model": MODEL, "messages": MESSAGES}

WHOLE = {
    "chat": lambda client: client.chat.completions.create(**CALL),
    "chat_parsed": lambda client: client.chat.completions.parse(**CALL, response_format=Answer),
    "chat_raw": lambda client: client.chat.completions.with_raw_response.create(**CALL),
    "chat_raw_parsed": lambda client: client.chat.completions.with_raw_response.parse(**CALL, response_format=Answer),
    "response": lambda client: client.responses.create(model=MODEL, input="?"),
    "response_parsed": lambda client: client.responses.parse(model=MODEL, input="?", text_format=Answer),
    "embeddings": lambda client: client.embeddings.create(model=MODEL, input="?"),
    "models": lambda client: client.models.list(),
}


@pytest.mark.parametrize("entry", WHOLE)
@pytest.mark.parametrize("plays", [[], [BoundedOutput(), Hedging(budget=0.05)]], ids=["default", "more"])
def test_record_of_whole_answer_is_that_of_its_call(arguments: dict[str, Any], entry: str, plays: list[Any]) -> None:
    with fastlane.OpenAI(**arguments, plays=plays) as client:
        first, second = WHOLE[entry](client), WHOLE[entry](client)

        assert (record_of(first), record_of(second)) == client.calls
        assert record_of(first) is client.calls[0]


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", [entry for entry in WHOLE if entry != "models"])
async def test_record_of_gathered_answers_is_each_its_own(arguments: dict[str, Any], entry: str) -> None:
    async with fastlane.AsyncOpenAI(**arguments) as client:
        answers = await asyncio.gather(*(WHOLE[entry](client) for _ in range(8)))
        records = [record_of(answer) for answer in answers]

        assert len({id(record) for record in records}) == 8
        for answer, record in zip(answers, records, strict=True):
            assert record is not None
            assert record.request_id == (answer.request_id if "raw" in entry else answer._request_id)


def test_record_of_stream_is_none_until_it_is_over(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        for open_stream in (
            lambda: client.chat.completions.create(**CALL, stream=True),
            lambda: client.responses.create(model=MODEL, input="?", stream=True),
            lambda: client.chat.completions.with_raw_response.create(**CALL, stream=True).parse(),
        ):
            with open_stream() as stream:
                assert record_of(stream) is None
                next(iter(stream))
                assert record_of(stream) is None
            assert record_of(stream) is client.last_call is not None
            assert client.last_call.stream


def test_record_of_stream_helper_is_that_of_its_call(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        with client.chat.completions.stream(**CALL, response_format=Answer) as chat:
            chat.until_done()
        with client.responses.stream(model=MODEL, input="?") as response:
            response.until_done()
        with client.chat.completions.with_streaming_response.create(**CALL) as raw:
            assert record_of(raw) is None
            raw.read()

        assert (record_of(chat), record_of(response), record_of(raw)) == client.calls


def test_record_of_unrecorded_object_is_none(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with openai.OpenAI(**arguments) as stock:
        assert record_of(stock.chat.completions.create(**CALL)) is None
        assert record_of(stock.chat.completions.create(**CALL, stream=True)) is None
        assert record_of(stock.chat.completions.with_raw_response.create(**CALL)) is None
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    with fastlane.OpenAI(**arguments) as disabled:
        assert record_of(disabled.chat.completions.create(**CALL)) is None
    assert [record_of(each) for each in (None, "text", 3, [], object())] == [None] * 5


def test_record_of_keeps_neither_answer_nor_call(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client:
        answer = client.chat.completions.create(**CALL)
        stream = client.chat.completions.create(**CALL, stream=True)
        list(stream)
        ids = {record.call_id for record in client.calls}
        answers = [weakref.ref(each) for each in (answer, stream)]
        client._fastlane.pipeline._calls.clear()  # type: ignore[union-attr]
        gc.collect()
        assert {record_of(answer).call_id, record_of(stream).call_id} == ids  # type: ignore[union-attr]
        del answer, stream
        gc.collect()

        assert [each() for each in answers] == [None, None]
        assert not [each for each in gc.get_objects() if isinstance(each, fastlane.CallRecord) and each.call_id in ids]
