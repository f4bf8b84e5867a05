"""What takes seconds to hours: limits, pauses, timeouts, idle connections. Over TLS and HTTP/2, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import openai
import pytest

import fastlane
from fastlane import AsyncOpenAI, Connection, Hedging, RateLimits, RequestEncoding, Urgency
from fastlane.emulator import KeyRateLimits, ProviderModel, Server
from tests.prepared_server import LIBRARY
from tests.virtual_time import in_virtual_time

NS = 1_000_000_000
_CLIENTS = 40


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a provider on this event loop, which clients trust."""

    @asynccontextmanager
    async def serve(*faults: str, http2: bool = True, **settings: Any) -> AsyncIterator[Server]:
        async with Server(model=ProviderModel(**settings), faults=faults, http2=http2) as server:
            authority = tmp_path / "authority.pem"
            authority.write_bytes(server.authority_pem or b"")
            monkeypatch.setenv("SSL_CERT_FILE", str(authority))
            yield server

    return serve


def client_of(server: Server, *plays: Any, **options: Any) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.base_url, api_key="sk-test", only_plays=[Connection(), *plays], **options)


async def create(client: Any, **more: Any) -> Any:
    messages = [{"role": "user", "content": "Name three colours."}]
    return await client.chat.completions.create(**{"model": "m", "messages": messages, "max_tokens": 5, **more})


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.slow
@pytest.mark.parametrize(("window", "refused"), [("bucket", 0), ("fixed", 0.01)])
@in_virtual_time
async def test_limit_is_used_without_429s(serve: Any, window: Any, refused: float) -> None:
    """Twice as many calls as are allowed come by chance. Nothing says that the limit is counted in fixed windows."""
    limits = KeyRateLimits(requests_per_minute=100, window=window, burst=0.1)
    random = Random(7)
    play = RateLimits(max_wait_s=3_600, max_queued=10_000)
    async with serve(rate_limits=limits) as server, client_of(server, play, timeout=3_600) as client:
        calls = []
        begun_s = now_s()
        while now_s() - begun_s < 180:
            calls.append(asyncio.create_task(create(client)))
            await asyncio.sleep(random.expovariate(200 / 60))
        within = [each for each in server.log if each.received_ns < (begun_s + 180) * NS]
        await asyncio.gather(*calls)
        statuses = [each.status for each in server.log]
    assert len(within) >= 270
    assert statuses.count(200) == len(calls)
    assert statuses.count(429) <= refused * len(calls)


@pytest.mark.parametrize(("header", "least_s", "most_s"), [(";retry_after=20", 20, 26), ("", 0.25, 2)])
@in_virtual_time
async def test_retry_waits_as_the_provider_says(serve: Any, header: str, least_s: float, most_s: float) -> None:
    async with serve(f"status=429;times=1{header}") as server, client_of(server, max_retries=1) as client:
        await create(client)
        first, second = server.log
    assert (first.status, second.status) == (429, 200)
    assert least_s <= (second.received_ns - first.received_ns) / NS <= most_s


@pytest.mark.parametrize("plays", [(), (RateLimits(),)], ids=["plain", "RateLimits"])
@in_virtual_time
async def test_clients_refused_at_once_return_one_by_one(serve: Any, plays: Any) -> None:
    """openai's clients would all be back within milliseconds, 20 s later."""
    async with serve(f"status=429;retry_after=20;times={_CLIENTS}") as server, AsyncExitStack() as stack:
        clients = [client_of(server, *plays, max_retries=1) for _ in range(_CLIENTS)]
        for number, client in enumerate(clients):
            client.api_key = f"sk-test-{number}"  # limits belong to a key
            await stack.enter_async_context(client)
        await asyncio.gather(*map(create, clients))
        log, records = server.log, [client.last_call for client in clients]
    refused, served = ([each.received_ns / NS for each in log if each.status == status] for status in (429, 200))
    waits = [at_s - max(refused) for at_s in served]
    assert len(waits) == _CLIENTS
    assert min(waits) >= 19.9
    assert max(waits) <= 25.1
    assert max(sum(at_s <= other_s < at_s + 0.5 for other_s in waits) for at_s in waits) < _CLIENTS / 3
    for record in records:
        assert record is not None
        first, second = (each.wire for each in record.attempts)
        assert 20 <= (second.started_ns - (first.ended_ns or 0)) / NS <= 25


@pytest.mark.parametrize(("given", "expected_s"), [({}, 600), ({"timeout": 45}, 45)], ids=["default", "45 s"])
@in_virtual_time
async def test_stalled_stream_ends_with_the_read_timeout(serve: Any, given: Any, expected_s: float) -> None:
    async with serve() as server, client_of(server) as client:
        stream = await create(client, stream=True, extra_headers={"x-emulator-fault": "stall;after=2"}, **given)
        begun_s = now_s()
        # Within a stream, openai 2 raises the error of its HTTP library.
        with pytest.raises((openai.APITimeoutError, LIBRARY.ReadTimeout)):
            async for _ in stream:
                pass
        assert now_s() - begun_s == pytest.approx(expected_s, abs=0.1)
        await asyncio.sleep(1)
        assert server.log[0].reset_ns is not None


@pytest.mark.parametrize(("idle", "connections"), [((), 1), (("idle_close=60",), 2), (("idle_fin=60",), 2)])
@in_virtual_time
async def test_call_after_two_quiet_minutes_succeeds(serve: Any, idle: tuple[str, ...], connections: int) -> None:
    async with serve(*idle) as server, client_of(server, max_retries=0) as client:
        await create(client)
        await asyncio.sleep(120)
        await create(client)
        assert server.connections == connections
        assert [each.status for each in server.log] == [200, 200]


@in_virtual_time
async def test_hedge_is_sent_when_the_first_token_is_late(serve: Any) -> None:
    async with (
        serve(prefill_base_s=0.5, inter_token_s=0.02) as server,
        client_of(server, Hedging(budget=1.0)) as client,
    ):
        for _ in range(60):
            await create(client, max_tokens=20)
        headers = {"x-emulator-fault": "slow_headers=30;times=1", "x-emulator-tag": "late"}
        await create(client, extra_headers=headers)
        record = client.last_call
    assert record is not None
    assert record.hedging is not None
    assert record.hedging.won
    assert record.time_to_first_token_s == pytest.approx(1.0, abs=0.3)


@in_virtual_time
async def test_background_call_gets_its_turn_among_interactive_ones(serve: Any) -> None:
    """It counts as interactive after two times `ageing_s`, and goes before those that came later."""
    play = Urgency(max_concurrency=1, ageing_s=10, reserved=0)
    async with serve(prefill_base_s=1.0) as server, client_of(server, play) as client:

        async def background() -> float:
            begun_s = now_s()
            with fastlane.urgency("background"):
                await create(client)
            return now_s() - begun_s

        calls = [asyncio.create_task(create(client)) for _ in range(3)]
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(background())
        while not waiting.done():
            calls.append(asyncio.create_task(create(client)))
            await asyncio.sleep(0.9)
        await asyncio.gather(*calls)
        assert 10 <= waiting.result() <= 15


@pytest.mark.parametrize("http2", [True, False])
@in_virtual_time
async def test_near_server_gets_json_when_encoding_costs_a_round_trip(serve: Any, http2: bool) -> None:
    """A round trip takes no virtual time, and compressing takes real CPU time."""
    messages = [{"role": "user", "content": Random(1).randbytes(50_000).hex()}]
    async with serve(http2=http2) as server, client_of(server, RequestEncoding(forms=("json+gzip",))) as client:
        for _ in range(2):
            await create(client, messages=messages)
        encodings: list[Any] = [record.request_encoding for record in client.calls]
    assert [encoding.form for encoding in encodings] == ["json+gzip", "json"]
    assert "more than a round trip" in encodings[1].reason
