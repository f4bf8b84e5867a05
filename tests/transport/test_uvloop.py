"""The asynchronous client on uvloop, the event loop of many web servers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import openai
import pytest

from fastlane import AsyncOpenAI, Connection
from fastlane.emulator import Emulator
from tests.transport.callers import request

uvloop = pytest.importorskip("uvloop", reason="uvloop is not to be had for this platform")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@pytest.fixture(params=["prefer", "never"], ids=["HTTP/2", "HTTP/1.1"])
def client(request: pytest.FixtureRequest, arguments: dict[str, Any]) -> AsyncOpenAI:
    return AsyncOpenAI(**arguments, max_retries=0, only_plays=[Connection(http2=request.param)])


def test_abandoned_uvloop_calls_stop_and_client_still_works(client: AsyncOpenAI, provider: Emulator) -> None:
    async def work() -> None:
        async with client:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await client.chat.completions.create(**request(prefill_ms=60_000))
                stream = await client.chat.completions.create(**request(output_tokens=10_000, token_ms=5), stream=True)
                await anext(stream)
                await stream.close()
                await client.chat.completions.create(**request(output_tokens=1))
            with pytest.raises(openai.APITimeoutError):
                await client.with_options(timeout=0.2).chat.completions.create(**request(prefill_ms=60_000))

    run(work())

    assert [call.outcome for call in client.calls] == ["cancelled", "closed", "completed"] * 3 + ["failed"]
    assert sum(entry.finished_ns is not None for entry in provider.log()) == 3
