from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

import fastlane
from fastlane.emulator import Emulator
from tests.contract.entry_points import ENTRIES, MESSAGES, MODEL, comparable
from tests.waiting import Form

AZURE = ("chat", "chat_streamed", "chat_parse", "chat_raw", "responses", "responses_streamed", "embeddings")


@pytest.fixture
def theirs(form: Form, arguments: dict[str, Any]) -> Iterator[Any]:
    with form.make(openai, **arguments) as made:
        yield made


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry_point_gives_what_openai_gives_and_is_recorded_once(
    form: Form, arguments: dict[str, Any], provider: Emulator, theirs: Any, entry: str
) -> None:
    heard: list[fastlane.CallRecord] = []
    expected = comparable(ENTRIES[entry](theirs))
    with form.make(fastlane, **arguments, on_call_end=[heard.append], raise_play_errors=True) as client:
        assert comparable(ENTRIES[entry](client)) == expected

        _, request = provider.log()
        (record,) = client.calls
        assert heard == [record]
        assert record.outcome == "completed"
        assert (record.method, record.request_id) == (request.method, request.request_id)
        assert len(record.attempts) == 1


@pytest.mark.parametrize("entry", AZURE)
def test_azure_client_gives_what_openais_gives(form: Form, azure_arguments: dict[str, Any], entry: str) -> None:
    with (
        form.make(fastlane, "AzureOpenAI", **azure_arguments) as ours,
        form.make(openai, "AzureOpenAI", **azure_arguments) as theirs,
    ):
        expected = comparable(ENTRIES[entry](theirs))

        assert comparable(ENTRIES[entry](ours)) == expected
        assert len(ours.calls) == 1


def test_azure_client_asks_for_what_openais_asks_for(provider: Emulator, azure_arguments: dict[str, Any]) -> None:
    with fastlane.AzureOpenAI(**azure_arguments) as ours, openai.AzureOpenAI(**azure_arguments) as stock:
        for each in (ours, stock):
            each.chat.completions.create(model=MODEL, messages=MESSAGES)
            each.responses.create(model=MODEL, input="Name a river.")

    paths = [request.path for request in provider.log()]
    assert paths[:2] == paths[2:]
    assert all("api-key" in request.header_names for request in provider.log())
