from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fastlane import AsyncOpenAI, ConfigurationError, FastlaneError, OpenAI, user_action
from fastlane.engine.user_action import REMEMBERED_CALLS, current_user_action

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def test_an_action_measures_from_its_start_to_its_end(arguments: dict[str, Any]) -> None:
    with OpenAI(**arguments) as client, user_action("answer ticket") as action:
        client.chat.completions.create(**ASK)
        client.chat.completions.create(**ASK)
        during = action.application_end_to_end_s

    assert during is None
    assert action.application_end_to_end_s is not None
    assert action.application_end_to_end_s >= sum(call.duration_s for call in action.calls)
    assert action.calls == client.calls
    assert action.call_count == 2
    assert action.error is None
    assert [call.user_actions for call in action.calls] == [("answer ticket",), ("answer ticket",)]


def test_a_call_outside_of_every_action_belongs_to_none(arguments: dict[str, Any]) -> None:
    with OpenAI(**arguments) as client:
        client.chat.completions.create(**ASK)

        assert client.calls[0].user_actions == ()
    assert current_user_action() is None


def test_a_call_belongs_to_every_action_around_it(arguments: dict[str, Any]) -> None:
    with OpenAI(**arguments) as client, user_action("outer") as outer:
        with user_action("inner") as inner:
            client.chat.completions.create(**ASK)
        client.chat.completions.create(**ASK)

    assert inner.path == ("outer", "inner")
    assert [call.user_actions for call in outer.calls] == [("outer", "inner"), ("outer",)]
    assert inner.call_count == 1
    assert outer.call_count == 2


async def read(client: AsyncOpenAI) -> None:
    async with await client.chat.completions.create(**ASK, stream=True) as stream:
        async for _ in stream:
            pass


@pytest.mark.asyncio
async def test_calls_of_tasks_belong_to_the_action_that_started_them(arguments: dict[str, Any]) -> None:
    async with AsyncOpenAI(**arguments) as client:
        async with user_action("one") as one:
            await asyncio.gather(*(read(client) for _ in range(3)))
        async with user_action("two") as two:
            await read(client)

    assert one.call_count == 3
    assert two.call_count == 1
    assert {call.user_actions for call in one.calls} == {("one",)}


def test_a_stream_read_after_the_action_belongs_to_it_still(arguments: dict[str, Any]) -> None:
    with OpenAI(**arguments) as client:
        with user_action("ask") as action:
            stream = client.chat.completions.create(**ASK, stream=True)
        before = action.call_count
        list(stream)

    assert before == 0
    assert action.call_count == 1
    assert action.calls[0].user_actions == ("ask",)


def test_a_thread_joins_an_action_by_a_copy_of_the_context(arguments: dict[str, Any]) -> None:
    with OpenAI(**arguments) as client, user_action("ask") as action:

        def ask() -> None:
            client.chat.completions.create(**ASK)

        for target in (ask, lambda: contextvars.copy_context().run(ask)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        outside = action.call_count
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: context.run(ask))
        thread.start()
        thread.join()

    assert outside == 0
    assert action.call_count == 1


def test_an_error_ends_the_action_and_names_itself() -> None:
    action = user_action("ask")
    with pytest.raises(KeyError), action:
        raise KeyError("the prompt")

    assert action.error == "KeyError"
    assert action.application_end_to_end_s is not None
    assert current_user_action() is None


def test_an_action_is_entered_once() -> None:
    action = user_action("ask")
    with action:
        pass

    with pytest.raises(FastlaneError, match="was entered before; make a new one for each action"), action:
        pass


@pytest.mark.parametrize("name", ["", None, 3])
def test_an_action_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="user_action takes a name such as"):
        user_action(name)


def test_a_long_action_keeps_the_last_calls_and_counts_all(arguments: dict[str, Any]) -> None:
    with OpenAI(**arguments) as client, user_action("job") as job:
        client.chat.completions.create(**ASK)
    for _ in range(REMEMBERED_CALLS + 10):
        job.add(job.calls[0])

    assert len(job.calls) == REMEMBERED_CALLS
    assert job.call_count == REMEMBERED_CALLS + 11


@pytest.mark.asyncio
async def test_an_action_that_is_left_in_another_context_is_no_error() -> None:
    async def pieces() -> AsyncIterator[int]:
        async with user_action("generate"):
            yield 1

    generator = pieces()
    await asyncio.create_task(anext(generator))  # type: ignore[arg-type]
    await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]

    assert current_user_action() is None
