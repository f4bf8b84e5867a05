"""One client used by many threads, tasks, event loops and processes at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

import fastlane
from fastlane.emulator import Emulator
from tests.contract.entry_points import ENTRIES, MESSAGES
from tests.knowledge.forks import in_child


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_has_connections_and_call_ids_of_its_own(provider: Emulator, arguments: dict[str, Any]) -> None:
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
