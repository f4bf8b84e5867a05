from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import fastlane
from fastlane import FastlaneError, user_action
from tests.contract.entry_points import ENTRIES, async_chat, async_chat_streamed


def test_action_holds_the_calls_made_inside(client: fastlane.OpenAI) -> None:
    ENTRIES["chat"](client)
    with user_action("answer ticket") as action:
        ENTRIES["chat"](client)
        ENTRIES["chat_streamed"](client)
        ENTRIES["embeddings"](client)
    ENTRIES["chat"](client)

    assert action.calls == client.calls[1:4]
    assert action.call_count == 3
    assert [record.user_actions for record in client.calls] == [(), *[("answer ticket",)] * 3, ()]


def test_call_belongs_to_every_action_around_it(client: fastlane.OpenAI) -> None:
    with user_action("answer ticket") as outer:
        ENTRIES["chat"](client)
        with user_action("find similar ones") as inner:
            ENTRIES["chat"](client)
        ENTRIES["chat"](client)

    assert inner.path == ("answer ticket", "find similar ones")
    assert (outer.call_count, inner.call_count) == (3, 1)
    assert inner.calls == (outer.calls[1],)
    assert client.calls[1].user_actions == ("answer ticket", "find similar ones")
    assert outer.application_end_to_end_s is not None
    assert inner.application_end_to_end_s is not None
    assert outer.application_end_to_end_s >= inner.application_end_to_end_s


def test_action_names_the_class_of_the_error_that_ended_it() -> None:
    with pytest.raises(KeyError), user_action("answer ticket") as action:
        raise KeyError("what the customer wrote")

    assert action.error == "KeyError"
    assert action.application_end_to_end_s is not None


def test_action_cannot_be_entered_twice() -> None:
    with user_action("answer ticket") as action:
        pass

    with pytest.raises(FastlaneError, match=r"user_action\('answer ticket'\) was entered before"), action:
        pass


def test_copied_context_inherits_action_and_new_thread_does_not(client: fastlane.OpenAI) -> None:
    with user_action("answer ticket") as action:
        plain = threading.Thread(target=ENTRIES["chat"], args=(client,))
        plain.start()
        plain.join()
        assert action.call_count == 0
        inside = threading.Thread(target=contextvars.copy_context().run, args=(ENTRIES["chat"], client))
        inside.start()
        inside.join()

    assert [record.user_actions for record in client.calls] == [(), ("answer ticket",)]
    assert action.call_count == 1


def test_long_action_keeps_the_last_calls_and_counts_all(arguments: dict[str, Any]) -> None:
    with fastlane.OpenAI(**arguments) as client, user_action("job") as job:
        ENTRIES["chat"](client)
    for _ in range(1_010):
        job.add(job.calls[0])

    assert len(job.calls) == 1_000
    assert job.call_count == 1_011


@pytest.mark.asyncio
async def test_tasks_started_inside_belong_to_the_action(async_client: fastlane.AsyncOpenAI) -> None:
    async with user_action("answer ticket") as action:
        await asyncio.gather(*(async_chat_streamed(async_client) for _ in range(5)))

    assert action.call_count == 5
    assert action.calls == async_client.calls
    took_s = action.application_end_to_end_s
    assert took_s is not None
    assert took_s >= max(record.duration_s for record in action.calls)


@pytest.mark.asyncio
async def test_actions_of_tasks_side_by_side_do_not_mix(async_client: fastlane.AsyncOpenAI) -> None:
    async def act(number: int) -> user_action:
        async with user_action(f"ticket {number}") as action:
            for _ in range(number):
                await async_chat(async_client)
        return action

    actions = await asyncio.gather(*map(act, range(1, 6)))

    assert [action.call_count for action in actions] == [1, 2, 3, 4, 5]
    assert all(record.user_actions == action.path for action in actions for record in action.calls)


@pytest.mark.asyncio
async def test_cancelled_action_records_its_error(async_client: fastlane.AsyncOpenAI) -> None:
    slow = async_client.with_options(default_headers={"x-emulator-prefill-ms": "60000"})
    action = user_action("answer ticket")

    async def act() -> None:
        async with action:
            await async_chat(slow)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(act(), 0.3)

    assert action.error == "CancelledError"
    assert [record.outcome for record in action.calls] == ["cancelled"]


@pytest.mark.asyncio
async def test_action_around_generator_finalized_elsewhere_is_safe() -> None:
    action = user_action("answer ticket")

    async def parts() -> AsyncIterator[int]:
        with action:
            yield 1
            yield 2

    generator: Any = parts()
    await anext(generator)
    await asyncio.create_task(generator.aclose())

    assert action.error == "GeneratorExit"
