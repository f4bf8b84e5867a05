from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, strategies as st

from fastlane.emulator import _tokens
from fastlane.emulator._admission import SlotQueue
from fastlane.emulator._prefix_cache import PrefixCache


def make(machines: int = 1) -> PrefixCache:
    return PrefixCache(block_tokens=128, minimum_tokens=1_024, expiry_ns=100, machines=machines)


def digests(text: str) -> tuple[bytes, ...]:
    return _tokens.prefix_digests(text, block_tokens=128)


@given(st.integers(0, 3_000))
def test_cached_tokens_are_whole_blocks_from_1024_tokens(tokens: int) -> None:
    cache, text = make(), "a" * (tokens * 4)
    cache.remember(0, "m", digests(text), 0)

    expected = tokens // 128 * 128
    assert cache.cached_tokens(0, "m", digests(text), 50) == (expected if expected >= 1_024 else 0)


def test_prefix_is_shared_up_to_the_first_difference() -> None:
    cache = make()
    cache.remember(0, "m", digests("a" * 8_000), 0)

    assert cache.cached_tokens(0, "m", digests("a" * 6_000 + "b" * 2_000), 1) == 11 * 128
    assert cache.cached_tokens(0, "m", digests("b" + "a" * 8_000), 1) == 0
    assert cache.cached_tokens(0, "other", digests("a" * 8_000), 1) == 0
    assert cache.cached_tokens(1, "m", digests("a" * 8_000), 1) == 0


def test_prefix_is_forgotten_when_it_expires_and_use_keeps_it() -> None:
    cache, text = make(), digests("a" * 8_000)
    cache.remember(0, "m", text, 0)
    cache.remember(0, "m", text, 90)

    assert cache.cached_tokens(0, "m", text, 150) == 15 * 128
    assert cache.cached_tokens(0, "m", text, 190) == 0


@pytest.mark.asyncio
async def test_queue_releases_by_tier_then_arrival() -> None:
    queue, order = SlotQueue(1), list[str]()
    await queue.enter(0)

    async def one(name: str, rank: int) -> None:
        await queue.enter(rank)
        order.append(name)
        queue.leave()

    tasks = [asyncio.create_task(one(name, rank)) for name, rank in (("flex", 0), ("a", 1), ("b", 1), ("fast", 2))]
    await asyncio.sleep(0)
    queue.leave()
    await asyncio.gather(*tasks)

    assert order == ["fast", "a", "b", "flex"]


@pytest.mark.asyncio
async def test_cancelled_waiter_takes_no_slot() -> None:
    queue = SlotQueue(1)
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
