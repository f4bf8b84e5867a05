from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest

from fastlane.emulator import ProviderModel, Server
from tests.emulator.requests import chat, events, serving
from tests.waiting import happens

ENDLESS = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "100000"}


async def ask(client: httpx2.AsyncClient, tier: str | None = None, **headers: str) -> httpx2.Response:
    body = chat() if tier is None else chat(service_tier=tier)
    return await client.post(
        "/chat/completions", json=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


@asynccontextmanager
async def held(server: Server, client: httpx2.AsyncClient, tier: str | None = None) -> AsyncIterator[None]:
    """A request that is being answered for as long as the block lasts."""
    before = len(server.log)
    body = chat(stream=True) if tier is None else chat(stream=True, service_tier=tier)
    async with client.stream("POST", "/chat/completions", json=body, headers=ENDLESS):
        yield
    await happens(lambda: server.log[before].reset_ns is not None)


def waits_for_slots(server: Server, count: int) -> bool:
    return server.provider.queue.waiting == count


@pytest.mark.asyncio
async def test_exhausted_tier_is_refused_and_default_tier_serves() -> None:
    async with serving(ProviderModel().changed({"service_tiers": {"flex": {"exhausted": 1.0}}})) as (server, client):
        refused, served = await ask(client, "flex"), await ask(client, "auto")
        log = server.log

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "resource_unavailable")
    assert "retry-after" not in refused.headers
    assert served.json()["service_tier"] == "default"
    assert [(each.asked_tier, each.service_tier, each.refused) for each in log] == [
        ("flex", None, "tier"),
        ("auto", "default", None),
    ]
    assert (log[0].admitted_ns, log[0].output_tokens) == (None, 0)


@pytest.mark.parametrize(("asked", "served"), [("priority", "priority"), ("auto", "default"), ("gold", "default")])
@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
@pytest.mark.asyncio
async def test_every_chunk_and_every_answer_name_the_tier_that_served(path: str, asked: str, served: str) -> None:
    body: dict[str, Any] = {"model": "m", "service_tier": asked}
    body.update({"input": "x"} if path == "/responses" else {"messages": [{"role": "user", "content": "x"}]})
    async with serving() as (_, client):
        whole = (await client.post(path, json=body)).json()
        text = (await client.post(path, json={**body, "stream": True})).text
    chunks = [event.get("response", event) for event in events(text)]

    assert whole["service_tier"] == served
    assert {chunk["service_tier"] for chunk in chunks if "model" in chunk} == {served}


@pytest.mark.asyncio
async def test_waiting_requests_are_served_by_tier_then_arrival() -> None:
    async with serving(concurrency=1) as (server, client):
        async with held(server, client):
            waiting = []
            for number, tier in enumerate(("flex", "default", "default", "priority"), start=1):
                waiting.append(asyncio.create_task(ask(client, tier, x_emulator_tag=f"{number}: {tier}")))
                await happens(partial(waits_for_slots, server, number))
        await asyncio.gather(*waiting)
        served = sorted(server.log[1:], key=lambda record: record.admitted_ns or 0)

    assert [record.tag for record in served] == ["4: priority", "2: default", "3: default", "1: flex"]


@pytest.mark.asyncio
async def test_requests_beyond_slots_get_503_and_leak_no_slot() -> None:
    async with serving(concurrency=2, queue_places=0) as (server, client):
        for _ in range(2):
            async with held(server, client), held(server, client):
                assert (await ask(client)).status_code == 503
            assert (await ask(client)).status_code == 200

    assert [record.refused for record in server.log] == [None, None, "overload", None] * 2


@pytest.mark.asyncio
async def test_tiers_and_concurrency_can_change_under_load() -> None:
    async with serving(concurrency=1) as (server, client), held(server, client, "flex"):
        waiting = asyncio.create_task(ask(client))
        await happens(partial(waits_for_slots, server, 1))
        server.provider.change({"concurrency": 2})
        assert (await waiting).status_code == 200
        server.provider.change({"service_tiers": {"flex": {"exhausted": 1.0}}, "concurrency": 3})
        assert (await ask(client, "flex")).status_code == 429
