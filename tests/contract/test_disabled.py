"""FASTLANE_DISABLED=1 gives the stock client back."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Call, CallRecord
from fastlane.catalog import Catalog, CatalogModel, Route
from fastlane.emulator import Emulator
from tests.contract.entry_points import ENTRIES, MESSAGES, MODEL, comparable
from tests.session_play import SessionPlay
from tests.waiting import Form, inner_of


@dataclass(frozen=True, slots=True)
class Loud(SessionPlay):
    def plan(self, call: Call) -> Call:
        raise AssertionError("no play is asked where fastlane is disabled")


def refuse(record: CallRecord) -> None:
    raise AssertionError("no hook is called when fastlane is disabled")


@pytest.fixture(autouse=True)
def disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")


@pytest.mark.parametrize("entry", ["chat", "chat_streamed", "chat_raw", "responses_stream_helper", "files_create"])
def test_disabled_entry_point_works_and_leaves_no_record(form: Form, arguments: dict[str, Any], entry: str) -> None:
    options: dict[str, Any] = {"only_plays": [Loud()], "on_call_end": [refuse], "raise_play_errors": True}
    with form.make(openai, **arguments) as stock, form.make(fastlane, **arguments, **options) as client:
        expected = comparable(ENTRIES[entry](stock))

        assert comparable(ENTRIES[entry](client)) == expected
        assert client.calls == ()
        assert client.last_call is None


@pytest.mark.parametrize("name", ["OpenAI", "AzureOpenAI"])
def test_disabled_http_client_is_the_stock_one(
    form: Form, arguments: dict[str, Any], azure_arguments: dict[str, Any], name: str
) -> None:
    given = arguments if name == "OpenAI" else azure_arguments
    with form.make(fastlane, name, **given) as made, form.make(openai, name, **given) as stock:
        ours, theirs = inner_of(made._client), inner_of(stock._client)
        assert type(ours) is type(theirs)
        assert type(ours._transport) is type(theirs._transport)
        assert (ours.timeout, made.base_url, made.calls) == (theirs.timeout, stock.base_url, ())


@pytest.mark.parametrize(
    ("value", "calls"),
    [(value, 0) for value in ("1", "true", "True", "YES", "on", "On", " 1 ")]
    + [(value, 1) for value in ("", " ", "0", "false", "no", "off", "OFF")],
)
def test_disabled_variable_disables_if_it_is_true(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, value: str, calls: int
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", value)

    with fastlane.OpenAI(**arguments) as client:
        ENTRIES["chat"](client)
        assert len(client.calls) == calls


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
        ENTRIES["chat"](client)
        assert len(client.calls) == 1


CATALOG = Catalog(
    models=[CatalogModel(name=MODEL, quality=40, first_token_s=((1_000, 0.3), (10_000, 1.6)), tokens_per_s=50)]
)


@pytest.mark.parametrize("entry", [
    "chat.completions.create", "chat.completions.parse", "chat.completions.with_raw_response.create",
    "responses.create", "responses.parse", "embeddings.create",
])  # fmt: skip
def test_disabled_client_route_is_an_error(
    form: Form, provider: Emulator, arguments: dict[str, Any], entry: str
) -> None:
    prompt: dict[str, Any] = {"messages": MESSAGES} if entry.startswith("chat") else {"input": "Name a river."}
    with form.make(fastlane, **arguments, plays=[fastlane.Connection(), fastlane.Routing(CATALOG)]) as client:
        for each in (client, client.with_options(timeout=3.0)):
            with pytest.raises(fastlane.ConfigurationError, match="FASTLANE_DISABLED is set"):
                attrgetter(entry)(each)(model="fastlane/auto?min_quality=30", **prompt)
        with (
            pytest.raises(fastlane.ConfigurationError, match="FASTLANE_DISABLED is set"),
            client.chat.completions.stream(model=Route(task="triage"), messages=MESSAGES),
        ):
            pass

    assert provider.log() == ()
