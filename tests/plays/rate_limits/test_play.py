"""The play `RateLimits`: its settings, and its calls to servers with limits."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Connection, OpenAI, QueueFullError, QueueTimeoutError, RateLimits
from fastlane.emulator import Emulator, KeyRateLimits, preset
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


@pytest.fixture
def limited() -> Iterator[Emulator]:
    """A server that allows ten requests a second, and six at once."""
    limits = KeyRateLimits(requests_per_minute=600, burst=0.01)
    with Emulator(model=replace(preset("instant"), rate_limits=limits), seed=0) as emulator:
        yield emulator


def test_calls_wait_instead_of_being_refused(limited: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in limited.environment.items():
        monkeypatch.setenv(name, value)
    own: dict[str, Any] = {
        "base_url": limited.base_url,
        "api_key": "sk-test",
        "max_retries": 0,
        "raise_play_errors": True,
    }
    with OpenAI(**own, only_plays=[Connection(), RateLimits()]) as client:
        for _ in range(7):
            create(client)
        limits = [record.rate_limits for record in client.calls]
    waited = [one for one in limits if one is not None and one.waited_s]
    assert [request.status for request in limited.log()] == [200] * 7
    assert waited
    assert waited[-1].waited_for == "requests"
    assert client.calls[-1].savings["queue_s"].value == waited[-1].waited_s


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
