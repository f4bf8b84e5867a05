"""One client used by many threads, tasks, event loops and processes at once."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

import fastlane
from fastlane import CallRecord
from fastlane.emulator import Emulator
from tests.contract.entry_points import MESSAGES, MODEL, async_chat


@pytest.mark.asyncio
async def test_each_record_tells_of_its_own_call(provider: Emulator, async_client: fastlane.AsyncOpenAI) -> None:
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
    """`asyncio.run` closes the connections of a client that was not closed, streams that nobody read included."""
    ran = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", UNCLOSED],
        env={**os.environ, **provider.environment, "OPENAI_BASE_URL": provider.base_url},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(importlib.util.find_spec("trio") is None, reason="trio is not installed")
def test_an_async_client_runs_on_trio(arguments: dict[str, Any]) -> None:
    import trio  # type: ignore[import-not-found, unused-ignore]

    async def use() -> tuple[CallRecord, ...]:
        async with fastlane.AsyncOpenAI(**arguments) as client:
            await async_chat(client)
            async with await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True) as stream:
                await anext(stream)
            with trio.move_on_after(0.3):
                await async_chat(client.with_options(default_headers={"x-emulator-prefill-ms": "60000"}))
            await async_chat(client)
            return client.calls

    records = trio.run(use)
    assert [record.outcome for record in records] == ["completed", "closed", "cancelled", "completed"]


FORKING = """
import json, os, sys
import fastlane

client = fastlane.OpenAI(api_key="sk-test", base_url=os.environ["BASE_URL"], max_retries=0)
messages = [{"role": "user", "content": "Name a river."}]

def ask(stream):
    answer = client.chat.completions.create(model="fast-1", messages=messages, stream=stream)
    if stream:
        list(answer)

def told():
    return [
        [each.call_id, each.outcome, each.request_id, each.attempts[0].connection_id, each.connection_reused]
        for each in client.calls
    ]

ask(False)
before = client.chat.completions.create(model="fast-1", messages=messages, stream=True)
next(before)
reading, writing = os.pipe()
child = os.fork()
if not child:
    try:
        known = len(client.calls)
        for number in range(6):
            ask(number % 2 == 1)
        os.write(writing, json.dumps(told()[known:]).encode())
        os._exit(0)
    except BaseException as error:
        os.write(writing, json.dumps(repr(error)).encode())
        os._exit(1)
os.close(writing)
list(before)
for number in range(6):
    ask(number % 2 == 1)
with open(reading) as pipe:
    of_child = json.loads(pipe.read())
_, status = os.waitpid(child, 0)
ask(False)
client.close()
print(json.dumps({"status": status, "child": of_child, "parent": told()}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_makes_calls_while_its_parent_goes_on(provider: Emulator) -> None:
    environment = {**os.environ, **provider.environment, "BASE_URL": provider.base_url}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["status"] == 0, told["child"]
    parent, child = told["parent"], told["child"]
    assert [outcome for _, outcome, *_ in parent] == ["completed"] * 9
    assert [outcome for _, outcome, *_ in child] == ["completed"] * 6
    assert {call[0] for call in parent}.isdisjoint(call[0] for call in child)
    assert {call[3] for call in parent}.isdisjoint(call[3] for call in child)
    assert child[0][4] is False
    assert {call[2] for call in parent + child} == {request.request_id for request in provider.log()}
