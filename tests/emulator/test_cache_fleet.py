"""The prompt cache of a fleet: who goes to which machine, what keeps prompts apart, prewarming."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.emulator._prefix_cache import PrefixCache
from tests.emulator.requests import chat, events, serving

SECOND = 1_000_000_000
# Past the 1,024 tokens from which on the cache holds a prompt.
LONG = "Review this function. " * 250


@given(st.lists(st.integers(0, 10 * SECOND), min_size=30, max_size=150))
def test_cache_machine_overflows_at_its_per_minute_limit(gaps: list[int]) -> None:
    cache = PrefixCache(block_tokens=128, minimum_tokens=1_024, expiry_ns=300 * SECOND, machines=1 << 30, per_minute=5)
    now = 0
    taken: list[tuple[int, int]] = []
    for gap in gaps:
        now += gap
        machine = cache.machine(None, Random(0), prefix="a", now=now)
        taken.append((now, machine))
        last_minute = [each for time, each in taken if time > now - 60 * SECOND]
        assert last_minute.count(machine) <= 5
        asked_before = list(dict.fromkeys(each for _, each in taken))
        assert all(last_minute.count(each) == 5 for each in asked_before[: asked_before.index(machine)])


@pytest.mark.asyncio
async def test_prompt_spread_over_cache_keys_is_read_per_key() -> None:
    settings: dict[str, Any] = {"cache_machines": 64, "cache_requests_per_key_per_minute": 15}
    async with serving(**settings) as (server, client):
        for number in range(40):
            await client.post("/chat/completions", json=chat(LONG, prompt_cache_key=f"k{number % 4}"))
        spread = [record.cached_tokens for record in server.log]
        machines = {record.cache_machine for record in server.log}
    async with serving(**settings) as (server, client):
        for _ in range(40):
            await client.post("/chat/completions", json=chat(LONG))
        crowded = [record.cache_machine for record in server.log]

    assert len(machines) == 4
    assert spread.count(0) == 4
    assert [crowded.count(machine) for machine in dict.fromkeys(crowded)] == [15, 15, 10]


@pytest.mark.asyncio
async def test_only_the_beginning_of_a_prompt_chooses_the_machine() -> None:
    async with serving(cache_machines=1_000, cache_requests_per_key_per_minute=1_000) as (server, client):
        for end in ("One", "Two", "Three"):
            await client.post("/chat/completions", json=chat("x" * 1_024 + end))

    assert len({record.cache_machine for record in server.log}) == 1


@pytest.mark.asyncio
async def test_prefix_is_shared_up_to_the_first_difference() -> None:
    other_end, other_start, short = "a" * 6_000 + "b" * 2_000, "b" + "a" * 8_000, "c" * 4_000
    async with serving() as (server, client):
        for text in ("a" * 8_000, "a" * 8_000, other_end, other_start, short, short):
            await client.post("/chat/completions", json=chat(text))

    # In whole blocks of 128 tokens, from 1,024 tokens.
    assert [record.cached_tokens for record in server.log] == [0, 15 * 128, 11 * 128, 0, 0, 0]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "changed",
    [
        {"model": "another"},
        {"reasoning_effort": "high"},
        {"verbosity": "low"},
        {"service_tier": "flex"},
        {"cache_salt": "s"},
    ],
)
async def test_prompt_parts_and_key_fields_separate_cache_entries(changed: dict[str, Any]) -> None:
    async with serving() as (server, client):
        for more in ({}, {}, changed, changed):
            await client.post("/chat/completions", json=chat(LONG, **more))

    assert [record.cached_tokens > 0 for record in server.log] == [False, True, False, True]


@pytest.mark.asyncio
async def test_other_fields_share_the_cache_entry() -> None:
    async with serving() as (server, client):
        for more in ({}, {"temperature": 0.5}, {"service_tier": "default"}, {"user": "mia"}):
            await client.post("/chat/completions", json=chat(LONG, **more))

    assert [record.cached_tokens > 0 for record in server.log] == [False, True, True, True]


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_prewarm_generates_nothing_and_fills_the_cache(stream: bool) -> None:
    asked = {"model": "m", "input": LONG}
    async with serving() as (server, client):
        prewarm = {**asked, "prompt_cache_options": {"prewarm": True}, "stream": stream}
        prewarmed = await client.post("/responses", json=prewarm)
        await client.post("/responses", json=asked)
    answer = events(prewarmed.text)[-1]["response"] if stream else prewarmed.json()

    assert (answer["status"], answer["output"]) == ("completed", [])
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (server.log[0].prompt_tokens, 0)
    assert [record.output_tokens for record in server.log] == [0, 64]
    assert server.log[1].cached_tokens >= 1_024


@pytest.mark.asyncio
async def test_responses_usage_reports_cache_write_once() -> None:
    async with serving() as (_, client):
        usages = [
            (await client.post("/responses", json={"model": "m", "input": text})).json()["usage"][
                "input_tokens_details"
            ]
            for text in (LONG, LONG, "Too short to be kept.")
        ]

    assert usages[0]["cached_tokens"] == usages[1]["cache_write_tokens"] == 0
    assert usages[0]["cache_write_tokens"] == usages[1]["cached_tokens"] == 1_280
    assert usages[2] == {"cached_tokens": 0, "cache_write_tokens": 0}
