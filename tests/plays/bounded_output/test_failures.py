from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import httpx
import httpx2
import openai
import pytest
from pydantic import BaseModel, Field

import fastlane
from fastlane import BoundedOutput, Connection, ContextTrimming, PromptCache, RequestEncoding
from fastlane.emulator import Emulator
from tests.call_peer import CallPeer
from tests.plays.bounded_output import answers as told
from tests.plays.bounded_output.answers import FORMAT, MESSAGES, VALID, bounded, output_of, streamed
from tests.transport.resources import descriptors, threads
from tests.waiting import comes_true

MODEL = "model"


class Ticket(BaseModel):
    category: Literal["billing", "bug", "shipping"]
    confidence: float = Field(ge=0, le=1)


def parse(client: Any, **more: Any) -> Any:
    return client.chat.completions.parse(**{"model": MODEL, "messages": MESSAGES, "response_format": Ticket, **more})


def test_a_call_that_is_cancelled_anywhere_leaves_nothing_behind(arguments: dict[str, Any], provider: Emulator) -> None:
    records: list[fastlane.CallRecord] = []
    slow = {"x-emulator-token-ms": "1", "x-emulator-prefill-ms": "5", "x-emulator-manner": "wrong_enum"}

    async def run() -> None:
        plays = (Connection(), BoundedOutput(reasks=1, reasoning_tokens=0))
        async with fastlane.AsyncOpenAI(
            **arguments, only_plays=plays, raise_play_errors=True, on_call_end=[records.append]
        ) as client:
            for step in range(40):
                call = asyncio.ensure_future(parse(client, extra_headers=slow))
                await asyncio.sleep(step * 0.0015)
                call.cancel()
                try:
                    await call
                except asyncio.CancelledError:
                    pass
                assert len(records) == step + 1
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert len(left) <= 3, left  # of the connection
        assert await asyncio.to_thread(comes_true, lambda: not open_streams(provider))

    before = descriptors(), threads()
    asyncio.run(run())
    assert {record.outcome for record in records} <= {"cancelled", "completed"}
    assert records[0].outcome == "cancelled"
    assert comes_true(lambda: (descriptors() - before[0], threads() - before[1]) == (set(), set()))


def open_streams(provider: Emulator) -> list[Any]:
    return [one for one in provider.log() if one.finished_ns is None and one.reset_ns is None]


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_the_applications_own_http_client_serves_too(
    arguments: dict[str, Any], provider: Emulator, library: Any
) -> None:
    seen: list[str] = []

    def look(response: Any) -> None:
        seen.append(response.read().decode())

    for hooks in ({}, {"response": [look]}):
        with (
            library.Client(event_hooks=hooks) as http_client,
            fastlane.OpenAI(
                **arguments, only_plays=(BoundedOutput(),), raise_play_errors=True, http_client=http_client
            ) as client,
        ):
            answer = parse(client, extra_headers={"x-emulator-manner": "prose"}, max_tokens=100)
        assert isinstance(answer.choices[0].message.parsed, Ticket)
    assert "data: " in seen[0]


def test_it_goes_with_the_other_plays(arguments: dict[str, Any], provider: Emulator) -> None:
    plays = (Connection(), ContextTrimming(), PromptCache(), BoundedOutput(reasks=1), RequestEncoding())
    with fastlane.OpenAI(**arguments, only_plays=plays, raise_play_errors=True) as client:
        for manner in ("exact", "prose", "wrong_enum"):
            answer = parse(client, extra_headers={"x-emulator-manner": manner})
            assert isinstance(answer.choices[0].message.parsed, Ticket)
            assert output_of(client).verdict == "valid"


@pytest.mark.parametrize(
    ("fault", "expected", "requests"),
    [
        ("drop;after=3", None, 2),
        ("reset;after=3;code=8", None, 2),
        ("stall=0.05;after=3", None, 1),
        ("status=429;retry_after=0.01", None, 2),
        ("status=500", None, 2),
        ("malformed;after=3", json.JSONDecodeError, 1),
    ],
)
def test_faults_end_as_they_do_without_a_stream(
    arguments: dict[str, Any], provider: Emulator, fault: str, expected: type[Exception] | None, requests: int
) -> None:
    records: list[fastlane.CallRecord] = []
    plays = (Connection(), BoundedOutput(reasks=1))
    headers = {"x-emulator-fault": f"{fault};times=1", "x-emulator-tag": "t"}
    with fastlane.OpenAI(
        **arguments, only_plays=plays, raise_play_errors=True, max_retries=1, on_call_end=[records.append]
    ) as client:
        if expected is None:
            assert isinstance(parse(client, extra_headers=headers).choices[0].message.parsed, Ticket)
        else:
            with pytest.raises(expected):
                parse(client, extra_headers=headers)

    (record,) = records
    assert len(provider.log()) == len(record.attempts) == requests
    assert record.outcome == ("completed" if expected is None else "failed")


def test_a_watcher_that_fails_breaks_no_call(one_peer: CallPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("fastlane.plays.bounded_output.answer.JsonScanner", broken)
    with bounded(one_peer, raise_play_errors=False) as client:
        one_peer.replies = [streamed(told.told(VALID))]
        answer = client.chat.completions.create(model="m", messages=MESSAGES, response_format=FORMAT)
    assert answer.choices[0].message.content == VALID


@pytest.mark.parametrize("strict", [False, True])
def test_openais_strict_validation_takes_what_was_put_together(peer: CallPeer, strict: bool) -> None:
    with bounded(peer, _strict_response_validation=strict) as client:
        for text in (VALID, f"{VALID}{' ' * 40}{VALID}"):
            peer.replies = [streamed(told.told(text))]
            answer = client.chat.completions.create(model="m", messages=MESSAGES, response_format=FORMAT)
            assert answer.choices[0].message.content == VALID


def test_an_azure_client_reads_the_same(arguments: dict[str, Any], provider: Emulator) -> None:
    azure: Any = fastlane.AzureOpenAI(
        api_key="sk-test",
        azure_endpoint=provider.base_url.removesuffix("/v1"),
        api_version="2024-10-21",
        only_plays=(Connection(), BoundedOutput()),
        raise_play_errors=True,
    )
    with azure as client:
        answer = parse(client, extra_headers={"x-emulator-manner": "prose"}, max_tokens=200)
        assert isinstance(answer.choices[0].message.parsed, Ticket)
        assert client.last_call.outcome == "stopped"


def test_a_refusal_and_a_filter_are_as_with_the_stock_client(one_peer: CallPeer) -> None:
    refused = [told.chunk(role="assistant"), told.chunk(refusal="I "), told.chunk(refusal="must not."),
               told.chunk(finish="stop"), told.usage_chunk()]  # fmt: skip
    with bounded(one_peer, BoundedOutput(reasks=1)) as client:
        one_peer.replies = [streamed(refused)]
        message = parse(client).choices[0].message
        assert (message.refusal, message.parsed) == ("I must not.", None)
        assert client.last_call.output.verdict == "refused"
        one_peer.replies = [streamed(told.told(VALID[:9], finish="content_filter"))]
        with pytest.raises(openai.ContentFilterFinishReasonError):
            parse(client)
        assert len(one_peer.take()) == 2
