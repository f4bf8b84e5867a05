"""What the record says about time. Bounds are generous: they must hold on a busy machine."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from fastlane.emulator import ProviderModel, RequestLog, Server
from tests.emulator.requests import chat

pytestmark = pytest.mark.asyncio
MS = 1_000_000


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    options = {
        name: settings.pop(name)
        for name in ("seed", "accepted_encodings", "encoding_refusal_status")
        if name in settings
    }
    async with Server(model=ProviderModel(**settings), **options) as server:
        headers = {"authorization": "Bearer any"}
        context = server.client_context()
        assert isinstance(context, ssl.SSLContext)
        async with httpx2.AsyncClient(base_url=server.base_url, http2=True, verify=context, headers=headers) as client:
            yield server, client


async def post(client: httpx2.AsyncClient, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    response = (await client.post("/chat/completions", json=body, headers=sent)).raise_for_status()
    answer: dict[str, Any] = {} if body.get("stream") else response.json()
    return answer


def prefill_ms(record: RequestLog) -> float:
    assert record.first_token_ns is not None
    assert record.admitted_ns is not None
    return (record.first_token_ns - record.admitted_ns) / MS


async def test_prefill_takes_its_base_and_every_uncached_token() -> None:
    async with serving(prefill_base_s=0.1, prefill_s_per_token=50e-6) as (server, client):
        await post(client, chat("a" * 8_000, stream=True))
        await post(client, chat("a" * 8_000, stream=True))
    cold, warm = server.log

    assert cold.prompt_tokens == 2_002
    assert (cold.cached_tokens, warm.cached_tokens) == (0, 15 * 128)
    assert 190 <= prefill_ms(cold) <= 350
    assert 95 <= prefill_ms(warm) <= 180


async def test_tokens_come_at_their_rate_without_drifting() -> None:
    async with serving(inter_token_s=0.005, default_output_tokens=61) as (server, client):
        await post(client, chat(stream=True))
    record = server.log[0]

    assert record.token_ns[-1] - record.token_ns[0] == pytest.approx(300 * MS, abs=60 * MS)


async def test_a_whole_answer_takes_as_long_as_a_streamed_one() -> None:
    async with serving(prefill_base_s=0.05, inter_token_s=0.005, default_output_tokens=31) as (server, client):
        await post(client, chat())
    record = server.log[0]

    assert record.finished_ns is not None
    assert record.body_complete_ns is not None
    assert 195 <= (record.finished_ns - record.body_complete_ns) / MS <= 350
    assert record.token_ns == ()


async def test_a_request_beyond_the_limit_waits_for_a_place() -> None:
    async with serving(prefill_base_s=0.1, concurrency=1) as (server, client):
        await asyncio.gather(*(post(client, chat(str(number))) for number in range(3)))
    waits = sorted((record.admitted_ns or 0) - (record.body_complete_ns or 0) for record in server.log)

    assert waits[0] < 50 * MS
    assert 80 * MS <= waits[1] <= 180 * MS
    assert 180 * MS <= waits[2] <= 350 * MS


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    async with serving(prefill_base_s=30, concurrency=1) as (server, client):
        # Over HTTP/1.1, where giving up closes the connection; over HTTP/2 the stock client leaves its stream open.
        headers = {"authorization": "Bearer any"}
        async with httpx2.AsyncClient(verify=server.client_context(), headers=headers) as impatient:
            with pytest.raises(httpx2.ReadTimeout):
                await impatient.post(f"{server.base_url}/chat/completions", json=chat(), timeout=0.1)
        await post(client, chat(), x_emulator_prefill_ms="0")

    assert server.log[0].reset_ns is not None
    assert server.log[1].status == 200


async def test_tiers_differ_in_time() -> None:
    async with serving(prefill_base_s=0.1) as (server, client):
        for tier in ("flex", "default", "priority"):
            await post(client, chat(stream=True, service_tier=tier))
    flex, default, priority = map(prefill_ms, server.log)

    assert flex > default > priority


async def test_a_request_can_ask_for_its_own_times() -> None:
    async with serving(prefill_base_s=30, inter_token_s=30) as (server, client):
        await post(client, chat(stream=True), x_emulator_prefill_ms="60", x_emulator_token_ms="1")

    assert 55 <= prefill_ms(server.log[0]) <= 160


async def test_a_run_repeats_in_text_and_in_time() -> None:
    planned = []
    for _ in range(2):
        async with serving(prefill_base_s=0.0, seed=11) as (_server, client):
            answers = [await client.post("/chat/completions", json=chat(str(number))) for number in range(3)]
            planned.append([answer.content for answer in answers])
    async with serving(seed=12) as (_server, client):
        other = [(await client.post("/chat/completions", json=chat(str(number)))).content for number in range(3)]

    assert planned[0] == planned[1] != other


async def test_the_role_chunk_can_come_before_prefill() -> None:
    async with serving(prefill_base_s=0.2, role_chunk_early=True) as (server, client):
        await post(client, chat(stream=True))
    record = server.log[0]

    assert record.headers_sent_ns is not None
    assert (record.headers_sent_ns - record.received_ns) / MS < 150
    assert prefill_ms(record) >= 190


async def test_only_the_models_that_are_served_answer() -> None:
    async with serving(models=("one",), context_window_tokens=100) as (_, client):
        gone = await client.post("/chat/completions", json=chat())
        long = await client.post("/chat/completions", json={**chat("x" * 1_000), "model": "one"})
        listed = (await client.get("/models")).json()
        missing = await client.get("/models/two")

    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert [model["id"] for model in listed["data"]] == ["one"]
    assert missing.status_code == 404


@pytest.mark.parametrize("status", [415, 400])
async def test_an_encoding_that_is_not_accepted_is_refused_as_configured(status: int) -> None:
    async with serving(accepted_encodings=("json",), encoding_refusal_status=status) as (_, client):
        headers = {"content-type": "application/msgpack"}
        response = await client.post("/chat/completions", content=b"\x80", headers=headers)

    assert response.status_code == status
    assert response.json()["error"]["code"] == "unsupported_content_type"


async def test_a_bug_becomes_a_500_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("fastlane.emulator._service.list_models", broken)
    async with serving() as (_, client):
        response = await client.get("/models")

    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "RuntimeError: a bug" in capsys.readouterr().err


async def test_a_body_beyond_the_limit_is_a_413(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("_bodies", "_http2"):
        monkeypatch.setattr(f"fastlane.emulator.{module}.MAXIMUM_BYTES", 1_000)
    async with serving() as (_, client):
        response = await client.post("/chat/completions", json=chat("x" * 2_000))

    assert response.status_code == 413


async def test_many_streams_keep_their_pace() -> None:
    async with serving(prefill_base_s=0.1, inter_token_s=0.01, default_output_tokens=30) as (server, client):
        await asyncio.gather(*(post(client, chat(str(number), stream=True)) for number in range(32)))
    late = sorted(
        (moment - (record.body_complete_ns or 0) - 100 * MS - number * 10 * MS) / MS
        for record in server.log
        for number, moment in enumerate(record.token_ns)
    )

    assert late[0] >= 0
    # The client runs on the same event loop here: this shows that lateness does not add up, not how small it is.
    assert late[len(late) // 2] < 100
