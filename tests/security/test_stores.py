"""What replicas tell each other over a shared store holds no prompt, answer, key, header or user."""

from __future__ import annotations

from typing import Any

import fastlane
from fastlane import Connection, RateLimits, Routing
from fastlane.catalog import Catalog, CatalogModel
from fastlane.emulator import Emulator
from scripts.servers import RedisServer
from tests.telemetry.planted import forms
from tests.waiting import until

SECRETS = ("sk-zq7-key", "sk-zq7-other-key", "zq7-prompt", "zq7-answer", "zq7-user", "zq7-header", "zq7-tenant")


def kept(server: RedisServer) -> bytes:
    """Everything in a store, names of its keys included."""
    import redis

    client: Any = redis.Redis.from_url(server.url)
    found = []
    for key in client.keys("*"):
        read = {b"hash": client.hgetall, b"stream": client.xrange, b"string": client.get}
        kind = client.type(key)
        if kind != b"none":  # a key may expire between two looks
            found.append(f"{key!r} {read[kind](key)!r}".encode())
    client.close()
    return b"\n".join(found)


def test_shared_store_holds_figures_and_no_text(
    provider: Emulator, redis_server: RedisServer, monkeypatch: Any
) -> None:
    monkeypatch.setenv("ZQ7_KEY", "sk-zq7-other-key")
    settings: dict[str, Any] = {"base_url": provider.base_url, "api_key_env": "ZQ7_KEY", "tokens_per_s": 100.0}
    models = tuple(CatalogModel(name=name, first_token_s=((1, 0.01),), **settings) for name in ("near", "far"))
    forwarded = ("x-emulator-output-text", "x-emulator-fault")
    plays = [
        Routing(Catalog(models=models), forward_headers=forwarded),
        Connection(),
        RateLimits(store=redis_server.url),
    ]
    headers = {"x-emulator-output-text": "zq7-answer zq7-answer", "x-secret": "zq7-header", "x-tenant": "zq7-tenant"}
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": "zq7-prompt"}],
        "user": "zq7-user",
        "metadata": {"who": "zq7-user"},
        "prompt_cache_key": "zq7-tenant",
    }
    with fastlane.OpenAI(api_key="sk-zq7-key", base_url=provider.base_url, only_plays=plays, max_retries=0) as client:
        for number in range(12):
            fault = {"x-emulator-fault": "status=429"} if number % 4 == 3 else {}
            try:
                name = "fastlane/auto" if number % 2 else "m"
                stream = client.chat.completions.create(
                    model=name, stream=True, extra_headers={**headers, **fault}, **asked
                )
                list(stream)
            except fastlane.APIStatusError:
                assert fault

        until(lambda: kept(redis_server))
    found = kept(redis_server)

    assert b"fastlane:" in found
    assert [secret for secret in SECRETS for form in forms(secret) if form in found] == []
