from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
import pytest

import fastlane
from fastlane.bench._arms import is_asynchronous
from fastlane.bench.recorded import Sample, SampleKey
from fastlane.bench.running._requests import (
    ScheduledRequest,
    StreamReader,
    delivery_gap_ms,
    error_text,
    read,
    read_async,
    sample_of,
)
from fastlane.emulator import Emulator

PLACE = SampleKey(arm="baseline", tag="0/baseline/0/0", block=0, conversation="greeting", turn=1)
BODY = {
    "model": "any",
    "messages": [{"role": "user", "content": "Hi"}],
    "stream_options": {"include_usage": True},
}
CLIENTS = [openai.OpenAI, openai.AsyncOpenAI, fastlane.OpenAI, fastlane.AsyncOpenAI]


def recorded(provider: Emulator, kind: Any, **headers: str) -> Sample:
    job = ScheduledRequest(PLACE, BODY, {f"x-emulator-{name}": value for name, value in headers.items()})
    client = kind(base_url=provider.base_url, api_key="secret", max_retries=0)

    async def read_it() -> StreamReader:
        async with client:
            return await read_async(client, job)

    if is_asynchronous(client):
        return sample_of(client, PLACE, asyncio.run(read_it()))
    with client:
        return sample_of(client, PLACE, read(client, job))


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: f"{kind.__module__.partition('.')[0]}.{kind.__name__}")
def test_every_client_is_timestamped_at_the_same_points(provider: Emulator, kind: Any) -> None:
    sample = recorded(provider, kind, **{"output-tokens": "7"})

    assert sample.error is None
    assert (sample.output_tokens, len(sample.token_ns), sample.finish_reason) == (7, 7, "stop")
    assert sample.response_ns is not None
    assert sample.first_event_ns is not None
    stamps = [sample.issued_ns, sample.response_ns, sample.first_event_ns, *sample.token_ns, sample.ended_ns]
    assert stamps == sorted(stamps)
    assert sample.first_content_ns == sample.token_ns[0]
    own = sample.record
    assert (own is not None) == (kind.__module__.startswith("fastlane"))
    if own is not None:
        assert own.usage.output_tokens == 7
        assert sample.delivery_gap_ms is not None
        assert sample.delivery_gap_ms > 0


@pytest.mark.parametrize("kind", [openai.OpenAI, fastlane.AsyncOpenAI])
def test_failed_request_is_a_sample_without_times(provider: Emulator, kind: Any) -> None:
    sample = recorded(provider, kind, **{"output-tokens": "many"})

    assert sample.error == "BadRequestError 400"
    assert sample.error_message is not None
    assert "the provider's own words are not kept" in sample.error_message
    assert "param x-emulator-output-tokens" in sample.error_message
    assert sample.response_ns is None
    assert sample.time_to_first_token_s is None
    assert sample.api_end_to_end_s is None


def chunk(usage: Any = None, **delta: Any) -> Any:
    empty = {"content": None, "tool_calls": None, "refusal": None}
    return SimpleNamespace(
        id="answer", usage=usage, choices=[SimpleNamespace(delta=SimpleNamespace(**empty | delta), finish_reason=None)]
    )


def test_only_output_counts_as_a_token() -> None:
    for delta, kind in (
        ({"role": "assistant", "content": ""}, None),
        ({"content": "a"}, "content"),
        ({"tool_calls": [1]}, "content"),
        ({"refusal": "no"}, "content"),
        ({"reasoning_content": "a"}, "reasoning"),
        ({"reasoning": "a"}, "reasoning"),
    ):
        reading = StreamReader()
        reading.take(chunk(**delta), 5)
        assert reading.first_event_ns == 5
        assert list(reading.token_ns) == ([5] if kind else [])
        assert reading.first_content_ns == (5 if kind == "content" else None)

    reading = StreamReader()
    reading.take(SimpleNamespace(id="answer", usage=SimpleNamespace(completion_tokens=3), choices=[]), 5)
    reading.take(SimpleNamespace(id="answer", usage=None, choices=None), 6)
    assert list(reading.token_ns) == []
    assert reading.usage.completion_tokens == 3


def test_longest_wait_of_a_chunk_is_its_delivery_gap() -> None:
    assert delivery_gap_ms([3_000_000, 9_000_000], [1_000_000, 4_000_000]) == 5.0
    assert delivery_gap_ms([3_000_000], [1_000_000, 4_000_000]) is None
    assert delivery_gap_ms([], []) is None


def test_error_message_has_its_cause_without_the_key() -> None:
    class Failing:
        api_key = "secret"

        @property
        def chat(self) -> Any:
            try:
                raise ConnectionRefusedError(111, "Connection refused by secret")
            except ConnectionRefusedError as error:
                raise RuntimeError("Connection error.") from error

    client = Failing()
    sample = sample_of(client, PLACE, read(client, ScheduledRequest(PLACE, BODY, {})))

    assert sample.error == "RuntimeError"
    assert sample.error_message == "Connection error. <- ConnectionRefusedError: [Errno 111] Connection refused by …"
    assert error_text(RuntimeError("x" * 1_000)) == "x" * 400


def test_provider_error_text_keeps_only_codes() -> None:
    request = httpx2.Request("POST", "http://provider/v1/chat/completions")
    body = {
        "message": "no sk-1***9 may ask 'my secret'",
        "type": "invalid_request_error",
        "code": "my secret",
        "param": 7,
    }
    refused = openai.BadRequestError(str(body), response=httpx2.Response(400, request=request), body=body)
    cut = openai.APIError("my secret", request, body={"code": "server_error", "message": "my secret"})
    outer = RuntimeError("it failed")
    outer.__cause__ = cut

    assert error_text(refused) == "the provider's own words are not kept (type invalid_request_error)"
    assert error_text(outer) == "it failed <- APIError: the provider's own words are not kept (code server_error)"


class Unsaid(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("this error cannot say what it is")


@pytest.mark.parametrize(("raised", "named"), [(SystemExit(3), "SystemExit"), (Unsaid(), "Unsaid")])
def test_every_client_exception_is_a_sample(raised: BaseException, named: str) -> None:
    def create(**_: Any) -> Any:
        raise raised

    async def later(**_: Any) -> Any:
        raise raised

    def client(method: Any) -> Any:
        return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=method)))

    job = ScheduledRequest(PLACE, BODY, {})
    readings = read(client(create), job), asyncio.run(read_async(client(later), job))

    assert [sample_of(client(create), PLACE, each).error for each in readings] == [named, named]
