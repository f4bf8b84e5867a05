"""What applications do with a client besides calling it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import openai
import pytest

import fastlane
from fastlane import CallRecord
from fastlane.emulator import Emulator
from tests.contract.entry_points import ENTRIES, MESSAGES, MODEL, async_chat


class OfTheApplication(fastlane.OpenAI):
    def __init__(self, *, tenant: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.tenant = tenant


def test_a_class_of_the_application_is_observed_and_copied_as_itself(arguments: dict[str, Any]) -> None:
    with OfTheApplication(tenant="a", **arguments) as client:
        ENTRIES["chat"](client)
        copied = client.with_options(timeout=3.0)
        ENTRIES["chat"](copied)

        assert type(copied) is OfTheApplication
        assert len(client.calls) == 2


def test_a_stream_that_has_ended_stays_ended(client: fastlane.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    list(stream)

    assert list(stream) == []
    stream.close()
    assert [record.outcome for record in client.calls] == ["completed"]


def test_the_record_follows_a_base_url_that_is_set_later(provider: Emulator) -> None:
    with fastlane.OpenAI(api_key="sk-test", base_url="https://127.0.0.1:9/v1") as client:
        client.base_url = provider.base_url
        ENTRIES["chat"](client)

        assert client.calls[0].origin == provider.base_url.removesuffix("/v1")


@pytest.mark.asyncio
async def test_an_async_key_may_be_a_function(provider: Emulator, arguments: dict[str, Any]) -> None:
    async def key() -> str:
        return "sk-test"

    async with fastlane.AsyncOpenAI(**{**arguments, "api_key": key}) as client:
        await async_chat(client)

        assert len(client.calls) == len(provider.log()) == 1


def test_a_client_that_nobody_holds_is_freed_though_its_answers_are_kept(arguments: dict[str, Any]) -> None:
    client = fastlane.OpenAI(**arguments)
    answers = ENTRIES["chat"](client), ENTRIES["chat_streamed"](client)
    held = weakref.ref(client)
    del client
    gc.collect()

    assert held() is None
    assert all(answers)


def test_a_hook_may_look_at_the_log_and_finds_its_record_there(arguments: dict[str, Any]) -> None:
    seen: list[bool] = []

    def look(record: CallRecord) -> None:
        seen.append(client.last_call is record and client.calls[-1] is record)

    with fastlane.OpenAI(**arguments, on_call_end=[look], raise_play_errors=True) as client:
        ENTRIES["chat"](client)
        ENTRIES["chat_streamed"](client)

    assert seen == [True, True]


def test_a_hook_may_make_a_call_itself(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as other:

        def ask(record: CallRecord) -> None:
            ENTRIES["chat_streamed"](other)

        with fastlane.OpenAI(**arguments, on_call_end=[ask], raise_play_errors=True) as client:
            ENTRIES["chat"](client)
            ENTRIES["chat_streamed"](client)

        assert [record.outcome for record in other.calls] == ["completed"] * 2
        assert [record.outcome for record in client.calls] == ["completed"] * 2


def test_a_custom_type_to_cast_to_is_respected(client: fastlane.OpenAI, stock: openai.OpenAI) -> None:
    library = type(stock._client).__mro__[2].__module__.partition(".")[0]
    response_type = pytest.importorskip(library).Response
    answer = client.get("/models", cast_to=response_type)

    assert type(answer) is response_type
    assert answer.json()["object"] == "list"
    assert len(client.calls) == 1
