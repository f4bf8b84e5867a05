"""A server that asks for a client certificate answers a client whose TLS context has one, and no other."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import openai
import pytest
import trustme

import fastlane
from fastlane.transport import AsyncTransport, Transport
from tests.call_peer import ANSWER, MESSAGES
from tests.transport.peer_h1 import PeerH1

AUTHORITY = trustme.CA()


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(context)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    with PeerH1(lambda request: request.answer(json.dumps(ANSWER).encode()), context=context) as server:
        yield f"{server.url}/v1"


def call(base_url: str, http_client: Any) -> Any:
    options: dict[str, Any] = {"api_key": "none", "base_url": base_url, "http_client": http_client, "max_retries": 0}
    if isinstance(http_client, httpx2.Client):
        with fastlane.OpenAI(**options) as client:
            return client.chat.completions.create(model="m", messages=MESSAGES)

    async def ask() -> Any:
        async with fastlane.AsyncOpenAI(**options) as client:
            return await client.chat.completions.create(model="m", messages=MESSAGES)

    return asyncio.run(ask())


@pytest.mark.parametrize("certificate", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda context: httpx2.Client(verify=context),
        lambda context: httpx2.AsyncClient(verify=context),
        lambda context: httpx2.Client(transport=Transport(verify=context)),
        lambda context: httpx2.AsyncClient(transport=AsyncTransport(verify=context)),
    ],
    ids=["sync", "async", "sync over fastlane's transport", "async over fastlane's transport"],
)
def test_only_client_with_a_certificate_is_answered(
    base_url: str, make: Callable[[ssl.SSLContext], Any], certificate: bool
) -> None:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate:
        AUTHORITY.issue_cert("client.test").configure_cert(context)
        assert call(base_url, make(context)).choices[0].message.content == "Rhine"
    else:
        with pytest.raises(openai.APIConnectionError):
            call(base_url, make(context))
