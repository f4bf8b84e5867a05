"""`urgency()` around calls, and clients made for one urgency."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import fastlane
from fastlane import Connection, Urgency, urgency
from fastlane.engine import pipeline
from fastlane.errors import ConfigurationError
from tests.call_peer import ANSWER
from tests.prepared_server import LIBRARY

MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours."}]


HTTP = LIBRARY.Client(transport=LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, json=ANSWER)))
CLIENT = fastlane.OpenAI(api_key="k", base_url="http://server", http_client=HTTP, only_plays=[Urgency()])


def current_urgency() -> str:
    """The urgency of a call that is made here; without a block it is interactive."""
    CLIENT.chat.completions.create(model="m", messages=MESSAGES)
    record: Any = CLIENT.last_call
    return str(record.urgency.urgency)


# The block


def test_innermost_urgency_block_counts_and_restores_outer() -> None:
    assert current_urgency() == "interactive"
    with urgency("background"):
        assert current_urgency() == "background"
        with urgency("offline"):
            assert current_urgency() == "offline"
        assert current_urgency() == "background"
    assert current_urgency() == "interactive"


def test_functions_are_decorated() -> None:
    @urgency("background")
    def level(of: int) -> tuple[int, str]:
        return of, current_urgency()

    assert level(3) == (3, "background")
    assert level.__name__ == "level"
    assert current_urgency() == "interactive"


@pytest.mark.asyncio
async def test_coroutine_functions_are_decorated() -> None:
    @urgency("offline")
    async def level() -> str:
        await asyncio.sleep(0)
        return current_urgency()

    assert await level() == await asyncio.create_task(level()) == "offline"
    assert current_urgency() == "interactive"


def test_generators_are_not_decorated() -> None:
    def each() -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigurationError, match="is a generator"):
        urgency("offline")(each)


@pytest.mark.parametrize("level", ["soon", "", None, 1])
def test_other_levels_are_refused(level: Any) -> None:
    with pytest.raises(ConfigurationError, match='"interactive", "background" or "offline"'):
        urgency(level)


# Clients


def levels(client: Any) -> list[str]:
    return [record.urgency.urgency for record in client.calls]


@pytest.mark.asyncio
async def test_calls_of_both_kinds_and_of_responses_have_the_level(arguments: dict[str, Any]) -> None:
    async with fastlane.AsyncOpenAI(
        **arguments, only_plays=[Connection(), Urgency()], raise_play_errors=True
    ) as client:
        async with urgency("background"):
            await client.chat.completions.create(model="m", messages=MESSAGES)
            await asyncio.create_task(client.responses.create(model="m", input="x"))
        await client.responses.create(model="m", input="x")

        assert levels(client) == ["background", "background", "interactive"]


def test_urgency_without_the_play_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    pipeline._warn_once.cache_clear()
    without = CLIENT.copy(only_plays=[])
    calls: list[tuple[Any, Any]] = [(without, "interactive"), (CLIENT, "background"), (without, "background")]
    for client, level in calls:
        with urgency(level):
            for _ in range(2):
                client.chat.completions.create(model="m", messages=MESSAGES)

    (warning,) = caplog.messages
    assert warning.startswith('urgency("background") has no effect, because this client has no Urgency play')
