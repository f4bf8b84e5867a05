"""What the emulator's tests send and read."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2

from fastlane.emulator import Emulator, ProviderModel, Server
from tests.emulator.raw_http2 import RawHttp2


def chat(text: str = "Review this.", **more: Any) -> dict[str, Any]:
    return {"model": "some-model", "messages": [{"role": "user", "content": text}], **more}


def stream(client: httpx2.Client, body: dict[str, Any], *, fault: str | None = None, **headers: str) -> str:
    """Stream a chat completion and return what came; raises what the client raises."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if fault:
        sent["x-emulator-fault"] = fault
    with client.stream("POST", "/chat/completions", json={**body, "stream": True}, headers=sent) as response:
        response.raise_for_status()
        return "".join(response.iter_text())


def events(text: str) -> list[dict[str, Any]]:
    """The JSON events of a stream, without [DONE] and comments."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def content(text: str) -> str:
    return "".join(
        choice["delta"].get("content") or "" for event in events(text) for choice in event["choices"] if choice
    )


@asynccontextmanager
async def serving(
    model: ProviderModel | None = None, *, http2: bool = False, seed: int = 0, **settings: Any
) -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    """A server in this event loop, over TLS for HTTP/2, and a client."""
    model = ProviderModel(**settings) if model is None else model
    async with Server(model=model, seed=seed, tls=http2) as server:
        headers = {"authorization": "Bearer any"}
        trust: Any = server.client_context() if http2 else True
        options: dict[str, Any] = {"base_url": server.base_url, "headers": headers, "timeout": 40}
        async with httpx2.AsyncClient(http2=http2, verify=trust, **options) as client:
            yield server, client


def raw_http2(emulator: Emulator, **options: Any) -> RawHttp2:
    """A connection to an emulator on which a test sees the frames."""
    context = ssl.create_default_context(cafile=str(emulator.certificate_authority))
    return RawHttp2(urlsplit(emulator.direct_base_url).port or 0, context, **options)
