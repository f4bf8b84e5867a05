from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest

from fastlane import errors
from fastlane.emulator import STANDARD_TIERS, Dialect, ProviderModel, RequestLog, Server, ServiceTier
from fastlane.emulator._admission import Admission
from fastlane.emulator.settings import with_tier
from tests.emulator.requests import chat, events

# Ends a test that waits for ever, and nothing else.
PATIENCE_S = 40
ENDLESS = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": "100000"}


@asynccontextmanager
async def serving(
    *, dialect: Dialect | None = None, tiers: dict[str, dict[str, Any]] | None = None, **settings: Any
) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    service_tiers: tuple[ServiceTier, ...] = STANDARD_TIERS
    for name, changes in (tiers or {}).items():
        service_tiers = with_tier(service_tiers, {"name": name, **changes})
    model = ProviderModel(service_tiers=service_tiers, **settings)
    async with (
        Server(model=model, tls=False, dialect=dialect) as server,
        httpx2.AsyncClient(
            base_url=server.base_url, headers={"authorization": "Bearer any"}, timeout=PATIENCE_S
        ) as client,
    ):
        yield server, client


async def ask(client: httpx2.AsyncClient, tier: str | None = None, **headers: str) -> httpx2.Response:
    body = chat() if tier is None else chat(service_tier=tier)
    return await client.post(
        "/chat/completions", json=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


async def happens(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is a record, which sets no event
            await asyncio.sleep(0.002)


@asynccontextmanager
async def held(server: Server, client: httpx2.AsyncClient, tier: str | None = None) -> AsyncIterator[None]:
    """A request that is being answered for as long as the block lasts."""
    before = len(server.log)
    body = chat(stream=True) if tier is None else chat(stream=True, service_tier=tier)
    async with client.stream("POST", "/chat/completions", json=body, headers=ENDLESS):
        yield
    await happens(lambda: server.log[before].reset_ns is not None)


async def waits(server: Server, number: int) -> RequestLog:
    """The record of a request once it waits for a place."""
    await happens(lambda: len(server.log) > number and server.provider.intake.admission.waiting > 0)
    return server.log[number]


@pytest.mark.asyncio
async def test_a_tier_without_capacity_refuses_as_openai_does_and_the_next_one_serves() -> None:
    async with serving(tiers={"flex": {"exhausted": 1.0}}) as (server, client):
        refused, served = await ask(client, "flex"), await ask(client, "auto")
        log = server.log

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "resource_unavailable")
    assert "retry-after" not in refused.headers
    assert served.json()["service_tier"] == "default"
    assert [(each.asked_tier, each.service_tier, each.refused) for each in log] == [
        ("flex", None, "tier"),
        ("auto", "default", None),
    ]
    assert (log[0].admitted_ns, log[0].output_tokens, log[0].queue_wait_ns) == (None, 0, None)


@pytest.mark.asyncio
async def test_the_refusal_of_a_full_tier_can_be_another_providers() -> None:
    full = {"exhausted": 1.0, "full_status": 498, "full_code": "capacity_exceeded", "full_retry_after_s": 0.25}
    async with serving(tiers={"flex": full}) as (_, client):
        refused = await ask(client, "flex")

    assert (refused.status_code, refused.json()["error"]["code"]) == (498, "capacity_exceeded")
    assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("0.25", "250")


@pytest.mark.asyncio
async def test_a_share_is_refused_or_downgraded_the_same_ones_in_every_run() -> None:
    tiers = {"flex": {"exhausted": 0.5}, "priority": {"downgraded": 0.5}}
    runs = []
    for _ in range(2):
        async with serving(tiers=tiers) as (server, client):
            for tier in ("flex", "priority") * 40:
                await ask(client, tier)
            runs.append([(each.asked_tier, each.service_tier) for each in server.log])

    assert runs[0] == runs[1]
    assert set(runs[0]) == {("flex", "flex"), ("flex", None), ("priority", "priority"), ("priority", "default")}
    assert 8 < runs[0].count(("flex", None)) < 32
    assert 8 < runs[0].count(("priority", "default")) < 32


@pytest.mark.asyncio
async def test_equal_draws_are_refused_alike_and_a_second_attempt_has_another_chance() -> None:
    async with serving(tiers={"flex": {"exhausted": 0.5}}) as (_, client):
        arms = [
            [
                (await ask(client, "flex", x_emulator_draw=str(draw), x_emulator_tag=arm)).status_code
                for draw in range(30)
            ]
            for arm in ("with", "without", "with")
        ]

    assert arms[0] == arms[1] != arms[2]


@pytest.mark.parametrize(
    ("beyond", "answers"), [("refuse", [429, 200]), ("downgrade", [200, 200]), ("queue", [None, 200])]
)
@pytest.mark.asyncio
async def test_beyond_its_places_a_tier_refuses_downgrades_or_queues(beyond: str, answers: list[int | None]) -> None:
    async with serving(tiers={"priority": {"places": 1, "beyond": beyond}}) as (server, client):
        async with held(server, client, "priority"):
            second = asyncio.create_task(ask(client, "priority"))
            await happens(lambda: len(server.log) == 2)
            if answers[0] is not None:
                answer = await second
                assert answer.status_code == answers[0]
                served = {"refuse": None, "downgrade": "default"}[beyond]
                assert server.log[1].service_tier == served
            assert (await ask(client, "default")).status_code == 200
            assert second.done() == (answers[0] is not None)
        if not second.done():
            assert (await second).json()["service_tier"] == "priority"
            assert (server.log[1].queue_wait_ns or 0) > 0
        assert (await ask(client, "priority")).json()["service_tier"] == "priority"


@pytest.mark.asyncio
async def test_traffic_that_grows_beyond_the_ramp_is_downgraded() -> None:
    async with serving(tiers={"priority": {"ramp_requests_per_minute": 2}}) as (_, client):
        served = [(await ask(client, "priority")).json()["service_tier"] for _ in range(4)]
    async with serving(tiers={"priority": {"ramp_tokens_per_minute": 500}}) as (server, client):
        for _ in range(2):
            await client.post("/chat/completions", json=chat(service_tier="priority", max_tokens=300))
        tiers = [record.service_tier for record in server.log]

    assert served == ["priority", "priority", "default", "default"]
    assert tiers == ["priority", "default"]


@pytest.mark.asyncio
async def test_auto_is_the_tier_that_was_set_and_a_tier_can_have_other_names() -> None:
    tiers = {"default": {"shown_as": "on_demand", "aliases": ("on_demand",)}}
    async with serving(tiers=tiers, auto_tier="priority") as (server, client):
        served = [(await ask(client, tier)).json()["service_tier"] for tier in (None, "auto", "fast", "on_demand")]
        asked = [record.asked_tier for record in server.log]

    assert served == ["priority", "priority", "priority", "on_demand"]
    assert asked == [None, "auto", "fast", "on_demand"]


@pytest.mark.asyncio
async def test_an_unknown_tier_is_a_400_where_that_is_set_and_names_the_known_ones() -> None:
    async with serving(refuse_unknown_tiers=True) as (_, client):
        refused = await ask(client, "gold")

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "service_tier"
    assert "'gold'. Supported values are: 'auto', 'default', 'fast', 'flex', and 'priority'." in refused.text


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
@pytest.mark.asyncio
async def test_every_chunk_and_every_answer_name_the_tier_that_served(path: str) -> None:
    body: dict[str, Any] = {"model": "m", "service_tier": "priority"}
    body.update({"input": "x"} if path == "/responses" else {"messages": [{"role": "user", "content": "x"}]})
    async with serving(tiers={"priority": {"downgraded": 1.0}}) as (_, client):
        whole = (await client.post(path, json=body)).json()
        text = (await client.post(path, json={**body, "stream": True})).text
    chunks = [event.get("response", event) for event in events(text)]

    assert whole["service_tier"] == "default"
    assert {chunk["service_tier"] for chunk in chunks if "model" in chunk} == {"default"}


@pytest.mark.parametrize(("told", "above"), [("service_tier_used", False), ("usage.service_tier", True)])
@pytest.mark.asyncio
async def test_the_tier_can_be_told_elsewhere_or_not_at_all(told: str, above: bool) -> None:
    field = told.rpartition(".")[2]
    for path, wanted in ((told, "flex"), ("none", None)):
        async with serving(dialect=Dialect(service_tier_path=path)) as (_, client):
            whole = (await ask(client, "flex")).json()
            body = chat(service_tier="flex", stream=True, stream_options={"include_usage": True})
            last = events((await client.post("/chat/completions", json=body)).text)[-1]
        for answer in (whole, last):
            assert (answer["usage"] if above else answer).get(field) == wanted
            assert "service_tier" not in answer
    with pytest.raises(errors.ConfigurationError, match="service_tier_path"):
        Dialect(service_tier_path="a.b.c")


@pytest.mark.asyncio
async def test_a_request_can_ask_which_tier_serves_it_and_to_find_it_full() -> None:
    async with serving() as (server, client):
        lowered = await ask(client, "priority", x_emulator_served_tier="default")
        full = await ask(client, "flex", x_emulator_limits="tier")
        unknown = await ask(client, "flex", x_emulator_served_tier="gold")
        refused = [record.refused for record in server.log]

    assert (lowered.json()["service_tier"], full.status_code, unknown.status_code) == ("default", 429, 400)
    assert refused == [None, "tier", None]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.asyncio
async def test_beyond_the_queue_a_request_is_refused(status: int) -> None:
    async with serving(concurrency=1, queue_places=1, overload_status=status, overload_retry_after_s=0.5) as (
        server,
        client,
    ):
        async with held(server, client):
            waiting = asyncio.create_task(ask(client))
            await waits(server, 1)
            refused = await ask(client)
        assert (await waiting).status_code == 200
        log = server.log

    assert (refused.status_code, refused.headers["retry-after-ms"]) == (status, "500")
    assert [record.refused for record in log] == [None, None, "overload"]
    assert log[0].queue_wait_ns == 0
    assert (log[1].queue_wait_ns or 0) > 0


@pytest.mark.asyncio
async def test_without_a_queue_all_beyond_the_places_are_refused_and_nothing_is_leaked() -> None:
    async with serving(concurrency=2, queue_places=0) as (server, client):
        for _ in range(2):
            async with held(server, client), held(server, client):
                assert (await ask(client)).status_code == 503
            assert (await ask(client)).status_code == 200


@pytest.mark.asyncio
async def test_tiers_and_places_can_change_while_requests_are_inside() -> None:
    async with serving(concurrency=1) as (server, client):
        async with held(server, client, "flex"):
            waiting = asyncio.create_task(ask(client))
            await waits(server, 1)
            server.provider.change({"concurrency": 2})
            assert (await waiting).status_code == 200
            tiers = with_tier(STANDARD_TIERS, {"name": "flex", "places": 1})
            server.provider.change({"service_tiers": tiers, "concurrency": 3})
            assert (await ask(client, "flex")).status_code == 429
        assert (await ask(client, "flex")).status_code == 200


@pytest.mark.asyncio
async def test_fewer_places_are_reached_as_requests_leave() -> None:
    admission = Admission(3)
    for _ in range(3):
        await admission.enter(0)
    admission.set_places(1)
    waiting = asyncio.create_task(admission.enter(0))
    for _ in range(2):
        admission.leave()
        await asyncio.sleep(0)
        assert not waiting.done()
    admission.leave()

    assert await waiting is True
    assert admission.full


@pytest.mark.asyncio
async def test_the_stock_client_falls_to_the_next_tier_by_the_code_of_the_error() -> None:
    async with (
        serving(tiers={"flex": {"exhausted": 1.0}}) as (server, _),
        openai.AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client,
    ):
        with pytest.raises(openai.RateLimitError) as caught:
            await client.responses.create(model="m", input="x", service_tier="flex")
        answer = await client.responses.create(model="m", input="x", service_tier="priority")

    assert caught.value.code == "resource_unavailable"
    assert answer.service_tier == "priority"


@pytest.mark.parametrize(
    "settings",
    [
        {"exhausted": 1.5},
        {"downgraded": -1},
        {"beyond": "wait"},
        {"places": -1},
        {"places": 0, "beyond": "queue"},
        {"full_status": 200},
        {"ramp_tokens_per_minute": 0},
        {"full_retry_after_s": 0},
    ],
)
def test_a_tier_that_cannot_work_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigurationError, match=next(iter(settings))):
        ServiceTier(name="flex", **settings)


@pytest.mark.parametrize(
    ("tiers", "settings", "match"),
    [
        (({"name": "flex", "downgraded": 0.5, "downgraded_to": "gold"}), {}, "downgraded_to"),
        (({"name": "default", "downgraded": 0.5}), {}, "downgraded_to"),
        (({"name": "auto"}), {}, "auto"),
        (({"name": "flex", "aliases": ("priority",)}), {}, "priority"),
        (({"name": "flex"}), {"auto_tier": "gold"}, "auto_tier"),
        (({"name": "flex"}), {"queue_places": -1}, "queue_places"),
        (({"name": "flex"}), {"overload_status": 200}, "overload_status"),
        (({"name": "flex"}), {"overload_retry_after_s": -1}, "overload_retry_after_s"),
    ],
)
def test_tiers_that_do_not_go_together_are_refused(tiers: dict[str, Any], settings: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=match):
        ProviderModel(service_tiers=with_tier(STANDARD_TIERS, tiers), **settings)


def test_a_tier_is_written_as_text_for_the_command() -> None:
    settings = ServiceTier.named("flex; exhausted=0.2;places=4;full_status=498;aliases=slow,cheap")

    assert with_tier(STANDARD_TIERS, settings)[2] == replace(
        STANDARD_TIERS[2], exhausted=0.2, places=4, full_status=498, aliases=("slow", "cheap")
    )
    assert ServiceTier(**ServiceTier.named("gold;places=none")) == ServiceTier(name="gold")
    for wrong in ("flex;speed=2", "flex;places=many", ""):
        with pytest.raises(errors.ConfigurationError):
            ServiceTier(**ServiceTier.named(wrong))
