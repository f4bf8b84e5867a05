from __future__ import annotations

from typing import Any

import pytest

from fastlane.emulator import Dialect
from fastlane.errors import ConfigurationError
from tests.emulator.requests import chat, serving

ENDPOINTS = ["/chat/completions", "/completions", "/responses"]
# Past the 1,024 tokens from which on the cache holds a prompt.
LONG = chat("Review this function. " * 250)


@pytest.mark.asyncio
async def test_every_answer_has_the_headers_that_were_set() -> None:
    headers = {"Server": "uvicorn", "x-litellm-version": "1.80", "x-ratelimit-remaining-requests": "7"}
    async with serving(dialect=Dialect(headers={**headers, "openai-processing-ms": ""})) as (_, client):
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
async def test_cached_tokens_use_the_dialect_usage_path(path: str, usage: dict[str, Any]) -> None:
    async with serving(dialect=Dialect(cached_tokens_path=path)) as (server, client):
        for _ in range(2):
            reported = (await client.post("/chat/completions", json=LONG)).json()["usage"]
        records = server.log

    usual = {"prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details"}
    assert {name: value for name, value in reported.items() if name not in usual} == usage
    assert [record.cached_tokens for record in records] == [0, 1280]


@pytest.mark.asyncio
async def test_disabled_prompt_cache_stores_nothing() -> None:
    async with serving(prompt_cache=False) as (server, client):
        for _ in range(2):
            reported = (await client.post("/chat/completions", json=LONG)).json()["usage"]
        records = server.log

    assert reported["prompt_tokens_details"]["cached_tokens"] == 0
    assert [record.cached_tokens for record in records] == [0, 0]


@pytest.mark.parametrize("honoured", [True, False])
@pytest.mark.asyncio
async def test_dialect_may_ignore_structured_output_format(honoured: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    asked = chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    async with serving(dialect=Dialect(structured_outputs=honoured)) as (_, client):
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
def test_invalid_dialect_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Dialect(**settings)
