from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from fastlane.emulator import Dialect, ProviderModel, Server
from fastlane.errors import ConfigurationError
from tests.emulator.requests import chat

ENDPOINTS = ["/chat/completions", "/completions", "/responses"]
# Past the 1,024 tokens from which on the cache holds a prompt.
LONG = chat("Review this function. " * 250)


def body_for(path: str, **more: Any) -> dict[str, Any]:
    prompt = {"/completions": {"prompt": "x"}, "/responses": {"input": "x"}}.get(path)
    return {"model": "m", **prompt, **more} if prompt else chat(**more)


@asynccontextmanager
async def serving(
    dialect: Dialect | None = None, *, model: ProviderModel | None = None
) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    async with (
        Server(model=replace(model or ProviderModel(), dialect=dialect or Dialect()), tls=False) as server,
        httpx2.AsyncClient(base_url=server.base_url, headers={"authorization": "Bearer any"}, timeout=40) as client,
    ):
        yield server, client


@pytest.mark.asyncio
async def test_every_answer_has_the_headers_that_were_set() -> None:
    headers = {"Server": "uvicorn", "x-litellm-version": "1.80", "x-ratelimit-remaining-requests": "7"}
    async with serving(Dialect(headers={**headers, "openai-processing-ms": ""})) as (_, client):
        answers = [
            await client.post("/chat/completions", json=chat()),
            await client.post("/chat/completions", json=chat(stream=True)),
            await client.post("/chat/completions", json={"model": "m"}),
            await client.get("/models"),
        ]

    assert [answer.status_code for answer in answers] == [200, 200, 400, 200]
    for answer in answers:
        assert {name: answer.headers[name] for name in headers} == headers
        assert "openai-processing-ms" not in answer.headers
        assert answer.headers["x-request-id"]


@pytest.mark.asyncio
async def test_a_header_that_is_set_replaces_the_emulators_own() -> None:
    async with serving(Dialect(headers={"openai-processing-ms": "12"})) as (_, client):
        answer = await client.post("/chat/completions", json=chat())

    assert answer.headers.get_list("openai-processing-ms") == ["12"]


@pytest.mark.asyncio
async def test_models_are_owned_by_who_was_named() -> None:
    async with serving(Dialect(owned_by="vllm")) as (_, client):
        listed = (await client.get("/models")).json()
        one = (await client.get("/models/any")).json()

    assert [model["owned_by"] for model in [*listed["data"], one]] == ["vllm", "vllm"]


@pytest.mark.parametrize(
    ("path", "usage"),
    [
        ("standard", {"prompt_tokens_details": {"cached_tokens": 1280, "audio_tokens": 0}}),
        ("none", {}),
        ("usage.prompt_cache_hit_tokens", {"prompt_cache_hit_tokens": 1280}),
        ("usage.details.cached", {"details": {"cached": 1280}}),
    ],
)
@pytest.mark.asyncio
async def test_cached_tokens_are_told_where_the_provider_tells_them(path: str, usage: dict[str, Any]) -> None:
    async with serving(Dialect(cached_tokens_path=path)) as (server, client):
        for _ in range(2):
            told = (await client.post("/chat/completions", json=LONG)).json()["usage"]
        records = server.log

    usual = {"prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details"}
    assert {name: value for name, value in told.items() if name not in usual} == usage
    assert [record.cached_tokens for record in records] == [0, 1280]


@pytest.mark.asyncio
async def test_a_response_without_cached_tokens_has_no_details_of_its_input() -> None:
    async with serving(Dialect(cached_tokens_path="none")) as (_, client):
        usage = (await client.post("/responses", json=body_for("/responses"))).json()["usage"]

    assert "input_tokens_details" not in usage
    assert usage["input_tokens"] > 0


@pytest.mark.asyncio
async def test_without_a_prompt_cache_nothing_is_remembered() -> None:
    async with serving(model=ProviderModel(prompt_cache=False)) as (server, client):
        for _ in range(2):
            told = (await client.post("/chat/completions", json=LONG)).json()["usage"]
        records = server.log

    assert told["prompt_tokens_details"]["cached_tokens"] == 0
    assert [record.cached_tokens for record in records] == [0, 0]


@pytest.mark.parametrize("honoured", [True, False])
@pytest.mark.asyncio
async def test_a_provider_may_ignore_the_format_that_was_asked_for(honoured: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    asked = chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    async with serving(Dialect(structured_outputs=honoured)) as (_, client):
        answer = (await client.post("/chat/completions", json=asked)).json()

    text = answer["choices"][0]["message"]["content"]
    assert text.startswith('{"a":') is honoured


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"headers": {"Content-Length": "3"}}, "'content-length' is the emulator's own"),
        ({"cached_tokens_path": "cached"}, "a path like 'usage.prompt_cache_hit_tokens', got 'cached'"),
    ],
)
def test_a_dialect_that_nobody_can_speak_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Dialect(**settings)
