"""A prompt is kept in the cache by requests, as often as was allowed, and only while the block runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import fastlane
from fastlane import user_action
from fastlane.emulator import Emulator
from fastlane.errors import ConfigurationError
from fastlane.plays.prompt_cache.view import AsyncKeepWarm
from tests.waiting import HANG_S, comes_true

# Over 1,024 tokens, from where on the embedded provider remembers prompts.
SYSTEM: Any = {"role": "system", "content": "Answer with care, and never without the number of the reservation. " * 120}
QUESTION: Any = {"role": "user", "content": "When do we leave?"}


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)


@pytest.fixture
def client(provider: Emulator, arguments: dict[str, Any]) -> fastlane.OpenAI:
    provider.forget_prompts()
    return fastlane.OpenAI(**arguments, max_retries=0)


def test_prompt_is_read_again_and_again(client: fastlane.OpenAI) -> None:
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as keeper:
        assert comes_true(lambda: keeper.requests > 3)

    assert keeper.error is None
    cached = [record.usage.cached_tokens for record in client.calls]
    assert cached[0] == 0
    assert set(cached[1:]) == {1920}


def test_no_request_follows_the_block_or_max_requests(client: fastlane.OpenAI) -> None:
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as ended:
        assert comes_true(lambda: ended.requests > 0)
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, max_requests=2, model="m") as spent:
        assert comes_true(lambda: spent.requests == 2)
        # The last one may be under way.
        assert comes_true(lambda: not any(thread.name == "fastlane later" for thread in threading.enumerate()))
        sent = ended.requests
        for keeper in (ended, spent):
            keeper._run()  # as the timer would, had it been planned before

        assert (ended.requests, spent.requests) == (sent, 2)


def test_after_a_request_that_fails_the_next_one_is_sent(client: fastlane.OpenAI, provider: Emulator) -> None:
    provider.set_faults("status=401")
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as keeper:
        assert comes_true(lambda: keeper.error == "AuthenticationError")
        provider.set_faults()
        sent = keeper.requests
        assert comes_true(lambda: keeper.requests > sent + 1 and keeper.error is None)


def test_a_client_that_was_closed_is_no_error_of_the_application(client: fastlane.OpenAI) -> None:
    client.close()
    with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, max_requests=1, model="m") as keeper:
        assert comes_true(lambda: keeper.error is not None)


def test_an_asynchronous_client_does_the_same(provider: Emulator, arguments: dict[str, Any]) -> None:
    provider.forget_prompts()

    async def kept() -> tuple[AsyncKeepWarm, list[int | None], int]:
        async with fastlane.AsyncOpenAI(**arguments) as client:
            async with (
                user_action("answer") as action,
                client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as keeper,
            ):
                await until(lambda: keeper.requests > 3)
            return keeper, [record.usage.cached_tokens for record in client.calls], action.call_count

    keeper, cached, in_action = asyncio.run(asyncio.wait_for(kept(), HANG_S))

    assert keeper.error is None
    assert cached[1] == 1920
    assert in_action == 0


def test_an_asynchronous_request_that_fails_raises_nothing(provider: Emulator, arguments: dict[str, Any]) -> None:
    async def kept() -> str | None:
        async with fastlane.AsyncOpenAI(**arguments, max_retries=0) as client:
            async with client.prompt_cache.keep_warm([SYSTEM], every_s=0.05, model="m") as keeper:
                await until(lambda: keeper.error is not None)
            return keeper.error

    provider.set_faults("status=401")
    try:
        assert asyncio.run(asyncio.wait_for(kept(), HANG_S)) == "AuthenticationError"
    finally:
        provider.set_faults()


def test_what_cannot_work_is_said_at_once(client: fastlane.OpenAI) -> None:
    with pytest.raises(ConfigurationError, match=r"needs every_s=\.\.\., in seconds"):
        client.prompt_cache.keep_warm([SYSTEM], model="m")
    with pytest.raises(ConfigurationError, match=r"every_s=\.\.\.\) takes seconds above 0, got 0"):
        client.prompt_cache.keep_warm([SYSTEM], model="m", every_s=0)
    with pytest.raises(ConfigurationError, match=r"max_requests=\.\.\.\) takes a whole number from 1, got 0"):
        client.prompt_cache.keep_warm([SYSTEM], model="m", every_s=9, max_requests=0)
    with pytest.raises(ConfigurationError, match="found nothing in the prompt that stays"):
        client.prompt_cache.keep_warm([QUESTION], every_s=0.05, model="m")


def test_with_the_kill_switch_nothing_is_sent(
    provider: Emulator, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    before = len(provider.log())

    async def kept() -> int:
        async with fastlane.AsyncOpenAI(**arguments) as client:
            async with client.prompt_cache.keep_warm([SYSTEM], every_s=0.001, model="m") as keeper:
                await asyncio.sleep(0.05)
            return keeper.requests

    with fastlane.OpenAI(**arguments) as client:
        with client.prompt_cache.keep_warm([SYSTEM], every_s=0.001, model="m") as keeper:
            time.sleep(0.05)
        assert keeper.requests == 0
    assert asyncio.run(kept()) == 0
    assert len(provider.log()) == before
