from __future__ import annotations

from typing import Any

import openai
import pytest

import fastlane
from fastlane.emulator import Emulator
from tests.contract.entry_points import ASYNC, MESSAGES, MODEL, SYNC, comparable

AZURE = ("chat", "chat_streamed", "chat_parse", "chat_raw", "responses", "responses_streamed", "embeddings")


def test_the_sync_and_the_async_table_name_the_same_entry_points() -> None:
    assert SYNC.keys() == ASYNC.keys()


@pytest.mark.parametrize("entry", SYNC)
def test_an_entry_point_gives_what_the_stock_client_gives(
    client: fastlane.OpenAI, stock: openai.OpenAI, entry: str
) -> None:
    expected = comparable(SYNC[entry](stock))

    assert comparable(SYNC[entry](client)) == expected


@pytest.mark.parametrize("entry", SYNC)
def test_an_entry_point_is_observed_exactly_once(provider: Emulator, client: fastlane.OpenAI, entry: str) -> None:
    SYNC[entry](client)

    (request,) = provider.log()
    (record,) = client.calls
    assert record.outcome == "completed"
    assert (record.method, record.request_id) == (request.method, request.request_id)
    assert len(record.attempts) == 1


@pytest.mark.parametrize("entry", SYNC)
def test_a_hook_hears_of_every_entry_point_exactly_once(arguments: dict[str, Any], entry: str) -> None:
    heard: list[fastlane.CallRecord] = []
    with fastlane.OpenAI(**arguments, on_call_end=[heard.append], raise_play_errors=True) as client:
        SYNC[entry](client)

        assert tuple(heard) == client.calls
        assert len(heard) == 1


@pytest.mark.parametrize("entry", AZURE)
def test_an_azure_client_gives_what_the_stock_one_gives(azure_arguments: dict[str, Any], entry: str) -> None:
    with fastlane.AzureOpenAI(**azure_arguments) as ours, openai.AzureOpenAI(**azure_arguments) as stock:
        expected = comparable(SYNC[entry](stock))

        assert comparable(SYNC[entry](ours)) == expected
        assert len(ours.calls) == 1


def test_an_azure_client_asks_for_what_the_stock_one_asks_for(
    provider: Emulator, azure_arguments: dict[str, Any]
) -> None:
    with fastlane.AzureOpenAI(**azure_arguments) as ours, openai.AzureOpenAI(**azure_arguments) as stock:
        for each in (ours, stock):
            each.chat.completions.create(model=MODEL, messages=MESSAGES)
            each.responses.create(model=MODEL, input="Name a river.")

    paths = [request.path for request in provider.log()]
    assert paths[:2] == paths[2:]
    assert all("api-key" in request.header_names for request in provider.log())


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", ASYNC)
async def test_an_async_entry_point_gives_what_the_stock_client_gives(
    async_client: fastlane.AsyncOpenAI, async_stock: openai.AsyncOpenAI, entry: str
) -> None:
    expected = comparable(await ASYNC[entry](async_stock))

    assert comparable(await ASYNC[entry](async_client)) == expected


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", ASYNC)
async def test_an_async_entry_point_is_observed_exactly_once(
    provider: Emulator, async_client: fastlane.AsyncOpenAI, entry: str
) -> None:
    await ASYNC[entry](async_client)

    (request,) = provider.log()
    (record,) = async_client.calls
    assert record.outcome == "completed"
    assert (record.method, record.request_id) == (request.method, request.request_id)
    assert len(record.attempts) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", AZURE)
async def test_an_async_azure_client_gives_what_the_stock_one_gives(
    azure_arguments: dict[str, Any], entry: str
) -> None:
    async with (
        fastlane.AsyncAzureOpenAI(**azure_arguments) as ours,
        openai.AsyncAzureOpenAI(**azure_arguments) as stock,
    ):
        expected = comparable(await ASYNC[entry](stock))

        assert comparable(await ASYNC[entry](ours)) == expected
        assert len(ours.calls) == 1
