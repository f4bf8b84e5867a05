"""What is planned in time, and in which order it happens.

A machine may be late at any moment: upper bounds on what was measured hold nowhere. So the moments that the provider
waits for are compared, which are exact on any machine; of what was measured, only that nothing came before its time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx2
import pytest

from fastlane.emulator import RequestLog, _answer
from tests.emulator.requests import chat, content, serving
from tests.waiting import happens

pytestmark = pytest.mark.asyncio
over_tls = partial(serving, http2=True)
MS = 1_000_000


async def post(client: httpx2.AsyncClient, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    response = (await client.post("/chat/completions", json=body, headers=sent)).raise_for_status()
    answer: dict[str, Any] = {} if body.get("stream") else response.json()
    return answer


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The moments that answers wait for, in the order in which they wait."""
    moments: list[int] = []
    wait_until = _answer.until

    async def until(deadline_ns: int) -> None:
        moments.append(deadline_ns)
        await wait_until(deadline_ns)

    monkeypatch.setattr(_answer, "until", until)
    return moments


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """What answers wait for, in place of a moment."""
    opened = asyncio.Event()

    async def until(_: int) -> None:
        await opened.wait()

    monkeypatch.setattr(_answer, "until", until)
    return opened


def body_complete_ns(record: RequestLog) -> int:
    assert record.body_complete_ns is not None
    return record.body_complete_ns


def first_token_planned_ns(record: RequestLog, planned: list[int]) -> int:
    """The first moment that was waited for after a request was there: requests came one after the other."""
    return min(moment for moment in planned if moment >= body_complete_ns(record))


def planned_prefill_ms(record: RequestLog, planned: list[int]) -> float:
    return (first_token_planned_ns(record, planned) - body_complete_ns(record)) / MS


async def test_prefill_takes_its_base_and_every_uncached_token(planned: list[int]) -> None:
    async with over_tls(prefill_base_s=0.1, prefill_s_per_token=50e-6) as (server, client):
        await post(client, chat("a" * 8_000, stream=True))
        await post(client, chat("a" * 8_000, stream=True))
    cold, warm = server.log

    assert cold.prompt_tokens == 2_002
    assert (cold.cached_tokens, warm.cached_tokens) == (0, 15 * 128)
    assert planned_prefill_ms(cold, planned) == pytest.approx(100 + 2_002 * 0.05)
    assert planned_prefill_ms(warm, planned) == pytest.approx(100 + (2_002 - 15 * 128) * 0.05)
    for record in (cold, warm):
        assert record.first_token_ns is not None
        assert record.first_token_ns >= first_token_planned_ns(record, planned)


async def test_late_flag_in_log_matches_first_token_delay(planned: list[int]) -> None:
    async with over_tls(prefill_base_s=0.01, late_share=0.5, late_factor=3) as (server, client):
        for number in range(12):
            await post(client, chat(str(number), stream=number % 2 == 0))
    for record in server.log:
        assert planned_prefill_ms(record, planned) == pytest.approx(30 if record.late else 10)

    assert {record.late for record in server.log} == {True, False}
    assert RequestLog.from_json(server.log[0].to_json()) == server.log[0]


async def test_token_schedule_does_not_drift_after_late_tokens(
    monkeypatch: pytest.MonkeyPatch, planned: list[int]
) -> None:
    in_time = _answer.until

    async def late(deadline_ns: int) -> None:
        await in_time(deadline_ns)
        await asyncio.sleep(0.007)

    monkeypatch.setattr(_answer, "until", late)
    async with over_tls(prefill_base_s=0.0, inter_token_s=0.005, default_output_tokens=31) as (
        server,
        client,
    ):
        await post(client, chat(stream=True))
    record = server.log[0]

    due = [body_complete_ns(record) + number * 5 * MS for number in range(31)]
    assert sorted(set(planned)) == due
    assert all(came >= moment for came, moment in zip(record.token_ns, due, strict=True))


async def test_queued_request_waits_for_slot_then_prefill(gate: asyncio.Event, planned: list[int]) -> None:
    async with over_tls(prefill_base_s=0.1, default_output_tokens=1, concurrency=1) as (server, client):
        asked = [asyncio.ensure_future(post(client, chat(str(number)))) for number in range(3)]
        # A prompt is counted right before its request queues.
        await happens(lambda: len(server.log) == 3 and all(record.prompt_tokens for record in server.log))
        assert sum(record.admitted_ns is not None for record in server.log) == 1
        gate.set()
        await asyncio.gather(*asked)
    first, second, third = sorted(server.log, key=lambda record: record.admitted_ns or 0)

    assert (first.finished_ns or 0) <= (second.admitted_ns or 0) < (second.finished_ns or 0) <= (third.admitted_ns or 0)
    assert planned == [
        moment + 100 * MS for moment in (body_complete_ns(first), second.admitted_ns or 0, third.admitted_ns or 0)
    ]


async def test_request_headers_set_its_timing(planned: list[int]) -> None:
    async with over_tls(prefill_base_s=30, inter_token_s=30, default_output_tokens=4) as (server, client):
        await post(client, chat(stream=True), x_emulator_prefill_ms="60", x_emulator_token_ms="1")
    (record,) = server.log

    assert sorted({moment - body_complete_ns(record) for moment in planned}) == [60 * MS, 61 * MS, 62 * MS, 63 * MS]


async def test_role_chunk_can_come_before_prefill(gate: asyncio.Event) -> None:
    async with (
        over_tls() as (server, client),
        client.stream(
            "POST", "/chat/completions", json=chat(stream=True), headers={"x-emulator-fault": "early_role"}
        ) as response,
    ):
        parts = response.aiter_text()
        early = await anext(parts)
        before = server.log[0]
        gate.set()
        rest = "".join([part async for part in parts])

    assert '"role":"assistant"' in early
    assert content(early) == ""
    assert (before.status, before.first_token_ns) == (200, None)
    assert '"role"' not in rest
    assert len(content(rest)) == 256


async def test_prompt_longer_than_the_context_window_is_refused() -> None:
    async with over_tls(models=("one",), context_window_tokens=100) as (_, client):
        long = await client.post("/chat/completions", json={**chat("x" * 1_000), "model": "one"})
        missing = await client.get("/models/two")

    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert missing.status_code == 404


async def test_bug_becomes_a_500_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("fastlane.emulator._server.one_model", broken)
    async with over_tls() as (_, client):
        response = await client.get("/models")

    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "RuntimeError: a bug" in capsys.readouterr().err
