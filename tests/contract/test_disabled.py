"""FASTLANE_DISABLED=1 gives the stock client back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Call, CallRecord, Play
from tests.contract.entry_points import ASYNC, SYNC, comparable


@dataclass(frozen=True, slots=True)
class Loud(Play):
    def plan(self, call: Call) -> Call:
        raise AssertionError("no play is asked where fastlane is disabled")


def refuse(record: CallRecord) -> None:
    raise AssertionError("no hook is told where fastlane is disabled")


@pytest.fixture(autouse=True)
def disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")


@pytest.mark.parametrize("entry", SYNC)
def test_every_entry_point_works_and_leaves_no_record(
    arguments: dict[str, Any], stock: openai.OpenAI, entry: str
) -> None:
    expected = comparable(SYNC[entry](stock))
    with fastlane.OpenAI(**arguments, only_plays=[Loud()], hooks=[refuse], strict=True) as client:
        assert comparable(SYNC[entry](client)) == expected
        assert client.calls == ()
        assert client.last_call is None


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", ["chat", "chat_streamed", "responses_stream_helper", "files_create"])
async def test_async_entry_points_work_and_leave_no_record(
    arguments: dict[str, Any], async_stock: openai.AsyncOpenAI, entry: str
) -> None:
    expected = comparable(await ASYNC[entry](async_stock))
    async with fastlane.AsyncOpenAI(**arguments, only_plays=[Loud()], hooks=[refuse], strict=True) as client:
        assert comparable(await ASYNC[entry](client)) == expected
        assert client.calls == ()
        assert client.last_call is None


def test_the_http_client_is_the_stock_one(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as ours, openai.OpenAI(**arguments) as stock:
        assert type(ours._client) is type(stock._client)
        assert type(ours._client._transport) is type(stock._client._transport)
        assert ours._client.timeout == stock._client.timeout


@pytest.mark.asyncio
async def test_the_async_http_client_is_the_stock_one(arguments: dict[str, Any]) -> None:
    async with fastlane.AsyncOpenAI(**arguments) as ours, openai.AsyncOpenAI(**arguments) as stock:
        assert type(ours._client) is type(stock._client)
        assert type(ours._client._transport) is type(stock._client._transport)


@pytest.mark.parametrize("name", ["AzureOpenAI", "AsyncAzureOpenAI"])
def test_an_azure_client_is_made_as_the_stock_one(azure_arguments: dict[str, Any], name: str) -> None:
    ours, stock = getattr(fastlane, name)(**azure_arguments), getattr(openai, name)(**azure_arguments)

    assert type(ours._client._transport) is type(stock._client._transport)
    assert ours.base_url == stock.base_url
    assert ours.calls == ()


def test_copies_are_stock_too(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments, only_plays=[Loud()]) as client:
        copied = client.with_options(timeout=3.0).with_plays(Loud())
        SYNC["chat"](copied)

        assert copied.calls == ()
        assert copied._client is client._client


def test_wrong_settings_are_still_errors(arguments: dict[str, Any]) -> None:
    with pytest.raises(fastlane.ConfigurationError):
        fastlane.OpenAI(**arguments, only_plays=["connection"])  # type: ignore[list-item]


@pytest.mark.parametrize("value", ["1", "true", "YES", " 1 "])
def test_any_word_for_yes_disables(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", value)

    with fastlane.OpenAI(**arguments) as client:
        SYNC["chat"](client)
        assert client.calls == ()


@pytest.mark.parametrize("value", ["", "0", "false", "no"])
def test_any_word_for_no_leaves_it_on(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", value)

    with fastlane.OpenAI(**arguments) as client:
        SYNC["chat"](client)
        assert len(client.calls) == 1
