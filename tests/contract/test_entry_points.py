from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import openai
import pytest

import fastlane
from fastlane.emulator import Emulator
from tests.contract.entry_points import ENTRIES, MESSAGES, comparable
from tests.knowledge.forks import in_child
from tests.programs import printed_by, run_python
from tests.waiting import Form

AZURE = ("chat", "chat_streamed", "chat_parse", "chat_raw", "responses", "responses_streamed", "embeddings")


@pytest.fixture
def theirs(form: Form, arguments: dict[str, Any]) -> Iterator[Any]:
    with form.make(openai, **arguments) as made:
        yield made


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry_point_returns_stock_result_and_one_record(
    form: Form, arguments: dict[str, Any], provider: Emulator, theirs: Any, entry: str
) -> None:
    records: list[fastlane.CallRecord] = []
    expected = comparable(ENTRIES[entry](theirs))
    with form.make(fastlane, **arguments, on_call_end=[records.append], raise_play_errors=True) as client:
        assert comparable(ENTRIES[entry](client)) == expected

        _, request = provider.log()
        (record,) = client.calls
        assert records == [record]
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


# One client used by many threads, tasks, event loops and processes at once


@pytest.mark.asyncio
async def test_concurrent_calls_each_have_their_record(provider: Emulator, async_client: fastlane.AsyncOpenAI) -> None:
    """The model's name says which call it was, on the record as in the provider's log."""

    async def ask(number: int) -> tuple[str, str]:
        stream = await async_client.chat.completions.create(
            model=f"model-{number}",
            messages=MESSAGES,
            stream=True,
            extra_headers={"x-emulator-output-tokens": str(number + 1), "x-emulator-token-ms": "1"},
            stream_options={"include_usage": True},
        )
        await asyncio.sleep(0)
        return f"model-{number}", str(len([chunk async for chunk in stream]))

    events = dict(await asyncio.gather(*map(ask, range(50))))
    served = {request.model: request for request in provider.log()}

    for record in async_client.calls:
        assert record.model is not None
        request = served[record.model]
        assert record.request_id == request.request_id
        assert record.usage.output_tokens == request.output_tokens == int(record.model.removeprefix("model-")) + 1
        assert str(record.events) == events[record.model]
    assert len(async_client.calls) == 50


UNCLOSED = """
import asyncio, fastlane
client = fastlane.AsyncOpenAI(api_key="sk-test", plays=[fastlane.Connection()])
async def main():
    own = fastlane.AsyncOpenAI(api_key="sk-test")
    for each in (client, own):
        ask = each.chat.completions.create
        call = {"model": "fast-1", "messages": [{"role": "user", "content": "?"}]}
        await ask(**call)
        async for chunk in await ask(**call, stream=True):
            break
        unread = await ask(**call, stream=True)
        unanswered = asyncio.create_task(ask(**call))
        await asyncio.sleep(0)
asyncio.run(main())
asyncio.run(main())
"""


def test_async_client_unclosed_leaves_no_resource_warning(provider: Emulator) -> None:
    """`asyncio.run` closes the connections of an unclosed client, unread streams included."""
    environment = {"OPENAI_BASE_URL": provider.base_url}
    ran = run_python("-W", "always::ResourceWarning", "-c", UNCLOSED, environment=environment)

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_child_has_new_connections_and_call_ids(provider: Emulator, arguments: dict[str, Any]) -> None:
    def ask() -> tuple[str, bool | None]:
        ENTRIES["chat"](client)
        return client.calls[-1].call_id, client.calls[-1].connection_reused

    with fastlane.OpenAI(**arguments) as client:
        ask()
        child_id, child_reused = in_child(ask)
        own_id, own_reused = ask()

    assert child_id != own_id
    assert (child_reused, own_reused) == (False, True)
    assert len({request.connection_id for request in provider.log()}) == 2


# With the openai that is installed, every fast path finds what it needs, at every entry point


# In a process of its own, where nothing has been asked or remembered yet.
USE = """
import json, logging, os

class LogRecorder(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())

said = []
logging.getLogger("fastlane").addHandler(LogRecorder(logging.WARNING))

import fastlane
from fastlane.decode import probes
from tests.contract.entry_points import ENTRIES
from tests.waiting import Form

where = {"api_key": "sk-test", "base_url": os.environ["BASE_URL"], "max_retries": 0}

all_called = True
for form in (Form("sync"), Form("async")):
    with form.make(fastlane, **where) as client:
        for entry in ENTRIES.values():
            entry(client)
        all_called = all_called and len(client.calls) == len(ENTRIES)
    form.close()
print(json.dumps({"all_called": all_called, "said": said, "seams": probes._found}))
"""


@pytest.mark.slow
def test_every_entry_point_takes_every_seam(provider: Emulator) -> None:
    results = json.loads(printed_by("-c", USE, environment={"BASE_URL": provider.base_url}))
    assert results["all_called"]
    assert results["said"] == []
    # Each look at openai's streams by a name of its own: two by one name, and the second is never taken.
    assert results["seams"].keys() >= {"openai.Stream", "openai.AsyncStream", "openai.Stream()"}
    assert [seam for seam, found in results["seams"].items() if not found] == []
