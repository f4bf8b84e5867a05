"""FASTLANE_DISABLED=1 gives the stock client back."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Call, CallRecord
from fastlane.catalog import Catalog, CatalogModel, Route
from fastlane.emulator import Emulator
from tests.contract.entry_points import ASYNC, MESSAGES, MODEL, SYNC, comparable
from tests.session_play import SessionPlay


@dataclass(frozen=True, slots=True)
class Loud(SessionPlay):
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
    with fastlane.OpenAI(**arguments, only_plays=[Loud()], on_call_end=[refuse], raise_play_errors=True) as client:
        assert comparable(SYNC[entry](client)) == expected
        assert client.calls == ()
        assert client.last_call is None


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", ["chat", "chat_streamed", "responses_stream_helper", "files_create"])
async def test_async_entry_points_work_and_leave_no_record(
    arguments: dict[str, Any], async_stock: openai.AsyncOpenAI, entry: str
) -> None:
    expected = comparable(await ASYNC[entry](async_stock))
    async with fastlane.AsyncOpenAI(
        **arguments, only_plays=[Loud()], on_call_end=[refuse], raise_play_errors=True
    ) as client:
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


@pytest.mark.parametrize("value", ["1", "true", "True", "YES", "on", "On", " 1 "])
def test_disabled_variable_true_disables(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", value)

    with fastlane.OpenAI(**arguments) as client:
        SYNC["chat"](client)
        assert client.calls == ()


@pytest.mark.parametrize("value", ["", " ", "0", "false", "no", "off", "OFF"])
def test_disabled_variable_false_leaves_fastlane_on(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", value)

    with fastlane.OpenAI(**arguments) as client:
        SYNC["chat"](client)
        assert len(client.calls) == 1


@pytest.mark.parametrize("value", ["2", "Y", "disabled"])
def test_disabled_variable_unknown_is_an_error(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "0")
    with fastlane.OpenAI(**arguments) as client:
        monkeypatch.setenv("FASTLANE_DISABLED", value)
        expected = f"FASTLANE_DISABLED: expected 1, true, yes or on .* got '{value}'"
        for make in (
            lambda: fastlane.OpenAI(**arguments),
            lambda: fastlane.AsyncOpenAI(**arguments),
            lambda: client.with_options(timeout=3.0),
            fastlane.install,
            fastlane.telemetry.configure,
        ):
            with pytest.raises(fastlane.ConfigurationError, match=expected):
                make()
        # A client that is there already goes on.
        SYNC["chat"](client)
        assert len(client.calls) == 1


def test_disabled_variable_unknown_does_not_break_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "2")

    subprocess.run([sys.executable, "-c", "import fastlane"], check=True, timeout=50)


CATALOG = Catalog(
    models=[CatalogModel(name=MODEL, quality=40, first_token_s=((1_000, 0.3), (10_000, 1.6)), tokens_per_s=50)]
)


@pytest.mark.parametrize("entry", [
    "chat.completions.create", "chat.completions.parse", "chat.completions.with_raw_response.create",
    "responses.create", "responses.parse", "embeddings.create",
])  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_disabled_client_route_is_an_error_sync(
    provider: Emulator, arguments: dict[str, Any], entry: str, stream: bool
) -> None:
    with fastlane.OpenAI(**arguments, plays=[fastlane.Connection(), fastlane.Routing(CATALOG)]) as client:
        for each in (client, client.with_options(timeout=3.0)):
            with pytest.raises(fastlane.ConfigurationError, match="FASTLANE_DISABLED is set"):
                attrgetter(entry)(each)(**asked(entry, "fastlane/auto?min_quality=30", stream=stream))
        with (
            pytest.raises(fastlane.ConfigurationError, match="FASTLANE_DISABLED is set"),
            client.chat.completions.stream(model=Route(task="triage"), messages=MESSAGES),
        ):
            pass

    assert provider.log() == ()


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", ["chat.completions.create", "responses.create", "responses.parse"])
@pytest.mark.parametrize("stream", [False, True])
async def test_disabled_client_route_is_an_error_async(
    provider: Emulator, arguments: dict[str, Any], entry: str, stream: bool
) -> None:
    async with fastlane.AsyncOpenAI(**arguments, plays=[fastlane.Connection(), fastlane.Routing(CATALOG)]) as client:
        with pytest.raises(fastlane.ConfigurationError, match="FASTLANE_DISABLED is set"):
            await attrgetter(entry)(client)(**asked(entry, "fastlane/auto", stream=stream))
        with pytest.raises(fastlane.ConfigurationError, match="FASTLANE_DISABLED is set"):
            async with client.responses.stream(model="fastlane/auto", input="?"):
                pass

    assert provider.log() == ()


def asked(entry: str, model: str, *, stream: bool) -> dict[str, Any]:
    prompt: dict[str, Any] = {"messages": MESSAGES} if entry.startswith("chat") else {"input": "Name a river."}
    if stream and entry.endswith("create") and "embeddings" not in entry:
        prompt["stream"] = True
    return {"model": model, **prompt}
