"""`fastlane.record_of(answer)`: the record of the call that an answer came from."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import weakref
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput, Hedging, record_of
from tests.contract.entry_points import MESSAGES, MODEL, Answer

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


def test_record_of_what_has_none_is_none(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with openai.OpenAI(**arguments) as stock:
        assert record_of(stock.chat.completions.create(**CALL)) is None
        assert record_of(stock.chat.completions.create(**CALL, stream=True)) is None
        assert record_of(stock.chat.completions.with_raw_response.create(**CALL)) is None
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    with fastlane.OpenAI(**arguments) as disabled:
        assert record_of(disabled.chat.completions.create(**CALL)) is None
    assert [record_of(each) for each in (None, "text", 3, [], object())] == [None] * 5


def test_record_of_leaves_the_answer_as_openai_made_it(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client, openai.OpenAI(**arguments) as stock:
        ours, theirs = client.chat.completions.create(**CALL), stock.chat.completions.create(**CALL)
        assert record_of(ours) is not None

        assert vars(ours).keys() == vars(theirs).keys()
        for copied in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), ours.model_copy()):
            assert copied == ours
            assert record_of(copied) is None


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
