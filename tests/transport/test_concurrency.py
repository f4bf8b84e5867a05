"""Calls beside each other: none waits for another's tokens, and none is lost."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import openai
import pytest

from fastlane import AsyncOpenAI, Connection
from fastlane.emulator import Emulator
from tests.transport.callers import open_connections, request, text_of


def test_a_fast_call_does_not_wait_behind_slow_ones(caller: Any, protocol: str) -> None:
    slow = {"prefill_ms": 2_000, "output_tokens": 1}
    ended = caller.together(*[slow] * 8, {"output_tokens": 1}, stream=True)

    assert [done.error for done in ended] == [None] * 9
    assert ended[-1].ended_ns < min(done.ended_ns for done in ended[:-1])
    assert {call.attempts[0].http_version for call in caller.calls} == {protocol}


def test_a_fast_call_does_not_wait_behind_streams_that_are_open(caller: Any) -> None:
    # Each stream goes on for longer than a test may take.
    streams = [caller.start(2, output_tokens=2_000, token_ms=100) for _ in range(4)]
    caller.ask(output_tokens=1)
    fast = caller.last_call
    for stream in streams:
        caller.close_stream(stream)

    assert fast.outcome == "completed"
    assert [call.outcome for call in caller.calls] == ["completed", *["closed"] * 4]


def test_every_stream_gets_its_own_words(caller: Any) -> None:
    texts = [f"word{number}," * 20 for number in range(12)]
    ended = caller.together(*[{"output_text": text, "token_ms": 1} for text in texts], stream=True)

    assert [text_of(done.value) for done in ended] == texts


@pytest.mark.parametrize("stream", [False, True])
def test_more_calls_than_connections_all_complete(
    make_caller: Any, arguments: dict[str, Any], provider: Emulator, stream: bool
) -> None:
    plays = [Connection(max_connections=2)]
    with make_caller(**arguments, max_retries=0, only_plays=plays, timeout=40) as caller:
        for _ in range(5):
            ended = caller.together(*[{"prefill_ms": 30, "output_tokens": 3}] * 6, stream=stream)

            assert [done.error for done in ended] == [None] * 6
    assert len({entry.connection_id for entry in provider.log()}) <= 2


def test_calls_that_wait_for_a_connection_go_on_after_an_early_close(
    make_caller: Any, arguments: dict[str, Any], provider: Emulator
) -> None:
    with make_caller(**arguments, max_retries=0, only_plays=[Connection(max_connections=1)], timeout=40) as caller:
        for _ in range(5):
            stream = caller.start(1, output_tokens=500, token_ms=5)
            caller.close_stream(stream)
            caller.ask(output_tokens=1)

        assert [call.outcome for call in caller.calls] == ["closed", "completed"] * 5


def test_a_time_out_of_one_stream_harms_no_other(caller: Any) -> None:
    other = caller.start(1, output_tokens=40, token_ms=20)
    caller.client.timeout = 0.3
    with pytest.raises(openai.APITimeoutError):
        caller.read(fault="stall;after=3")
    rest = caller.rest(other)
    caller.client.timeout = 40
    caller.ask(output_tokens=1)

    assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in rest) >= 39
    assert sorted(call.outcome for call in caller.calls) == ["completed", "completed", "failed"]


@pytest.mark.slow
def test_streams_that_are_dropped_unread_never_freeze_the_client(
    caller: Any, provider: Emulator, protocol: str, make_caller: Any
) -> None:
    # HTTP/2 has windows and a number of streams to run out of.
    rounds, at_once = (30 if protocol == "HTTP/2" else 10), 10
    for _ in range(rounds):
        streams = [caller.start(0, output_tokens=2_000, token_ms=1) for _ in range(at_once)]
        del streams
        gc.collect()
    caller.ask(output_tokens=1)

    assert 1 <= open_connections(caller) <= at_once + 2
    assert caller.last_call.outcome == "completed"
    outcomes = [call.outcome for call in caller.calls]
    assert outcomes.count("abandoned") == rounds * at_once
    assert len(outcomes) == rounds * at_once + 1


@pytest.mark.asyncio
async def test_a_task_that_is_cancelled_while_it_waits_for_a_connection_takes_none(arguments: dict[str, Any]) -> None:
    play = Connection(http2="never", max_connections=1)
    async with AsyncOpenAI(**arguments, max_retries=0, only_plays=[play], timeout=40, raise_play_errors=True) as client:
        for _ in range(5):
            slow = asyncio.create_task(client.chat.completions.create(**request(prefill_ms=200, output_tokens=1)))
            waiting = [
                asyncio.create_task(client.chat.completions.create(**request(output_tokens=1))) for _ in range(4)
            ]
            await asyncio.sleep(0.05)
            for task in waiting[:3]:
                task.cancel()
            ended = await asyncio.gather(slow, *waiting, return_exceptions=True)

            assert [type(each).__name__ for each in ended] == [
                "ChatCompletion",
                *["CancelledError"] * 3,
                "ChatCompletion",
            ]
        outcomes = [call.outcome for call in client.calls]

    assert outcomes.count("completed") == 10
    assert outcomes.count("cancelled") == 15


def test_a_whole_answer_that_runs_into_its_time_out_gives_its_connection_back(
    make_caller: Any, arguments: dict[str, Any]
) -> None:
    with make_caller(**arguments, max_retries=0, only_plays=[Connection(max_connections=1)], timeout=0.3) as caller:
        for _ in range(3):
            with pytest.raises(openai.APITimeoutError):
                caller.ask(prefill_ms=600_000)
            caller.client.timeout = 40
            assert caller.ask(output_tokens=1).choices
            caller.client.timeout = 0.3
