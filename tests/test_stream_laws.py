"""An async client's stream of whatever a server sends, cut however the network cuts it, is the stock client's."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from hypothesis import example, given, settings, strategies as st

import fastlane
from tests.fuzz.targets._stream import ARGUMENTS, CREATE, SERVER, WHOLE, described, described_error, drawn_answer, state
from tests.prepared_server import LIBRARY

ASYNC_STOCK = openai.AsyncOpenAI(http_client=LIBRARY.AsyncClient(transport=SERVER), **ARGUMENTS)
ASYNC_OURS = fastlane.AsyncOpenAI(http_client=LIBRARY.AsyncClient(transport=SERVER), **ARGUMENTS)


async def async_outcome_of(client: openai.AsyncOpenAI) -> Any:
    events: list[Any] = []
    stream = await client.chat.completions.create(**CREATE)
    try:
        async for event in stream:
            events.append((described(event), state(stream.response)))  # noqa: PERF401
    except Exception as error:  # noqa: BLE001
        return events, described_error(error), state(stream.response)
    return events, None, state(stream.response)


@settings(max_examples=150)
@example(([b"data: " + WHOLE + b"\n\ndata: " + WHOLE + b"\r\n\r", b"\n: x\n\n"], None))
@example(([b"data: " + WHOLE + b"\n\n", b"data: " + WHOLE + b"\n"], "ReadError"))
@given(st.binary(max_size=120).map(drawn_answer))
def test_every_body_is_parsed_as_by_the_async_stock_client(answer: tuple[list[bytes], str | None]) -> None:
    SERVER.reads, SERVER.failure = answer

    async def both() -> tuple[Any, Any]:
        return await async_outcome_of(ASYNC_STOCK), await async_outcome_of(ASYNC_OURS)

    expected, found = asyncio.run(both())
    assert found == expected
    assert ASYNC_OURS.calls[-1].events == len(expected[0])
