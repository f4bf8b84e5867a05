"""The play `RateLimits`: its settings, and its calls to servers with limits."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Connection, OpenAI, QueueFullError, QueueTimeoutError, RateLimits
from fastlane.emulator import Emulator
from fastlane.plays.rate_limits.queue import queues
from tests.waiting import until

MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours."}]
PATIENCE_S = 30.0


def create(client: Any, **more: Any) -> Any:
    return client.chat.completions.create(**{"model": "m", "messages": MESSAGES, "max_tokens": 5, **more})


def test_repr_is_the_fingerprint_and_holds_no_address() -> None:
    assert "tokens_per_minute=6000.0" in repr(RateLimits(tokens_per_minute=6_000))
    pytest.importorskip("redis")
    play = RateLimits(store="redis://:secret@localhost:1/0")
    assert repr(play) == repr(RateLimits())
    assert copy.deepcopy(play) == play


# Calls


def test_record_says_how_long_and_for_what_a_call_waited(arguments: dict[str, Any]) -> None:
    play = RateLimits(requests_per_minute=120)
    with OpenAI(**arguments, only_plays=[Connection(), play], raise_play_errors=True) as client:
        for _ in range(7):
            create(client)
        record: Any = client.last_call

    assert record.rate_limits.waited_for == "stated"
    assert record.savings["queue_s"].value == record.rate_limits.waited_s > 0


def test_full_queue_refuses(arguments: dict[str, Any]) -> None:
    play = RateLimits(requests_per_minute=1, max_queued=1)
    with OpenAI(**arguments, only_plays=[Connection(), play]) as client, ThreadPoolExecutor(1) as pool:
        create(client)
        waiting = pool.submit(create, client, timeout=PATIENCE_S * 10)
        until(lambda: any(sum(queue.queued) for _, queue in queues.items()))
        with pytest.raises(QueueFullError):
            create(client)
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            waiting.result(PATIENCE_S)


def test_interactive_calls_are_sent_before_background_ones(arguments: dict[str, Any]) -> None:
    play = RateLimits(requests_per_minute=120)
    order: list[str] = []

    def call(level: str) -> None:
        with fastlane.urgency(level):  # type: ignore[arg-type]
            create(client)
        order.append(level)

    with OpenAI(**arguments, only_plays=[Connection(), play]) as client, ThreadPoolExecutor(3) as pool:
        for _ in range(5):
            create(client)
        background = [pool.submit(call, "background") for _ in range(2)]
        until(lambda: any(sum(queue.queued) == 2 for _, queue in queues.items()))
        call("interactive")
        for one in background:
            one.result(PATIENCE_S)
    assert order == ["interactive", "background", "background"]


def test_retry_for_which_no_turn_comes_is_not_made(arguments: dict[str, Any], provider: Emulator) -> None:
    fault = {"x-emulator-fault": "status=500;times=1", "x-emulator-tag": "unretried-turn"}
    play = RateLimits(requests_per_minute=1, max_wait_s=0.05)
    with (
        OpenAI(**arguments, only_plays=[Connection(), play], max_retries=2) as client,
        pytest.raises(openai.InternalServerError) as raised,
    ):
        create(client, extra_headers=fault)
    assert isinstance(raised.value.__cause__, QueueTimeoutError)
    assert len(provider.log()) == 1
