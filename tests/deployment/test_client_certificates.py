"""A server that asks for a client certificate answers a client whose TLS context has one, and no other."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx2
import openai
import pytest
import trustme

import fastlane
from fastlane.transport import AsyncTransport, Transport
from tests.call_peer import ANSWER, MESSAGES

AUTHORITY = trustme.CA()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Print nothing of handshakes that failed."""


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(context)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    with Server(("127.0.0.1", 0), Handler) as server:
        # A handshake in the thread of its connection, so that one that fails holds up no other.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"https://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def context_of(*, certificate: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate:
        AUTHORITY.issue_cert("client.test").configure_cert(context)
    return context


def call(base_url: str, http_client: Any) -> Any:
    options: dict[str, Any] = {"api_key": "none", "base_url": base_url, "http_client": http_client, "max_retries": 0}
    if isinstance(http_client, httpx2.Client):
        with fastlane.OpenAI(**options) as client:
            return client.chat.completions.create(model="m", messages=MESSAGES)

    async def ask() -> Any:
        async with fastlane.AsyncOpenAI(**options) as client:
            return await client.chat.completions.create(model="m", messages=MESSAGES)

    return asyncio.run(ask())


def http_client(kind: str, *, certificate: bool) -> Any:
    context = context_of(certificate=certificate)
    match kind:
        case "sync":
            return httpx2.Client(verify=context)
        case "async":
            return httpx2.AsyncClient(verify=context)
        case "sync over fastlane's transport":
            return httpx2.Client(transport=Transport(verify=context))
        case _:
            return httpx2.AsyncClient(transport=AsyncTransport(verify=context))


KINDS = ["sync", "async", "sync over fastlane's transport", "async over fastlane's transport"]


@pytest.mark.parametrize("kind", KINDS)
def test_client_with_a_certificate_is_answered(base_url: str, kind: str) -> None:
    assert call(base_url, http_client(kind, certificate=True)).choices[0].message.content == "Rhine"


@pytest.mark.parametrize("kind", KINDS)
def test_client_without_a_certificate_raises_connection_error(base_url: str, kind: str) -> None:
    with pytest.raises(openai.APIConnectionError):
        call(base_url, http_client(kind, certificate=False))
