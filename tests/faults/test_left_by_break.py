"""A loop over an asynchronous stream that is left by `break`: the provider stops, one record, and no noise."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import fastlane
from fastlane.emulator import Emulator, preset

# At 20 ms for each, more than any test has the time for.
TOKENS = 3_000
SLOWLY = {"x-emulator-token-ms": "20", "x-emulator-output-tokens": str(TOKENS)}


@pytest.mark.parametrize("http2", [True, False], ids=["HTTP/2", "HTTP/1.1"])
def test_leaving_an_asynchronous_loop_stops_the_provider_without_noise(
    http2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise: list[str] = []

    async def leave(provider: Emulator) -> tuple[fastlane.CallRecord, ...]:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: noise.append(context["message"]))
        async with fastlane.AsyncOpenAI(api_key="sk-test", base_url=provider.base_url) as client:
            messages: list[Any] = [{"role": "user", "content": "Is water wet?"}]
            async for _ in await client.chat.completions.create(
                model="m", messages=messages, stream=True, extra_headers=SLOWLY
            ):
                break
            for _attempt in range(800):
                gc.collect()
                await asyncio.sleep(0.05)
                if client.calls and provider.log()[-1].reset_ns is not None:
                    break
            return client.calls

    with Emulator(model=preset("instant"), http2=http2) as provider:
        monkeypatch.setenv("SSL_CERT_FILE", str(provider.certificate_authority))
        calls = asyncio.run(leave(provider))
        (request,) = provider.log()

    assert [call.outcome for call in calls] in (["closed"], ["abandoned"])
    assert request.reset_ns is not None
    assert len(request.token_ns) < TOKENS
    assert noise == []
