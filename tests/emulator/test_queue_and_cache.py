from __future__ import annotations

import asyncio

import pytest

from fastlane.emulator import _tokens
from fastlane.emulator._admission import AdmissionQueue
from fastlane.emulator._prefix_cache import PrefixCache


def test_prefix_is_forgotten_when_it_expires_and_use_keeps_it() -> None:
    cache = PrefixCache(block_tokens=128, minimum_tokens=1_024, expiry_ns=100, machines=1)
    text = _tokens.prefix_digests("a" * 8_000, block_tokens=128)
    cache.remember(0, "m", text, 0)
    cache.remember(0, "m", text, 90)

    assert cache.cached_tokens(0, "m", text, 150) == 15 * 128
    assert cache.cached_tokens(0, "m", text, 190) == 0


@pytest.mark.asyncio
async def test_cancelled_waiter_takes_no_slot() -> None:
    queue = AdmissionQueue(1)
    await queue.enter(0)
    gone = asyncio.create_task(queue.enter(0))
    late = asyncio.create_task(queue.enter(0))
    await asyncio.sleep(0)
    gone.cancel()
    queue.leave()

    assert await late is True
    queue.leave()
    handed = asyncio.create_task(queue.enter(0))
    await asyncio.sleep(0)
    both = asyncio.create_task(queue.enter(0))
    await asyncio.sleep(0)
    queue.leave()
    # The slot is handed over, but its task is cancelled before it runs again.
    both.cancel()
    await asyncio.gather(handed, both, return_exceptions=True)
    assert await queue.enter(0) is False
