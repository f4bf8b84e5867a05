"""TLS behaves as with the stock client, and nothing is sent to an untrusted server."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import httpx2
import openai
import pytest

import fastlane
from fastlane import Connection
from tests.call_peer import MESSAGES
from tests.transport.peer import Peer
from tests.transport.peer_h1 import PeerH1


def asks(kind: Any, url: str, http2: Any) -> BaseException | None:
    """Make a call; the error that it ends with."""
    client = kind(api_key="sk-test", base_url=f"{url}/v1", max_retries=0, only_plays=[Connection(http2=http2)])
    try:
        made = client.chat.completions.create(model="m", messages=MESSAGES)
        if isinstance(client, openai.AsyncOpenAI):
            asyncio.run(made)
    except openai.OpenAIError as error:
        return error.__cause__
    finally:
        if isinstance(client, openai.OpenAI):
            client.close()
    return None


@pytest.mark.parametrize("kind", [fastlane.OpenAI, fastlane.AsyncOpenAI])
@pytest.mark.parametrize("http2", ["prefer", "never"])
def test_certificate_of_another_name_is_refused(kind: Any, http2: Any, trusting_peers: None) -> None:
    server: Any = Peer(names=("other.test",)) if http2 == "prefer" else PeerH1(tls=True, names=("other.test",))
    with server as peer:
        error = asks(kind, peer.url, http2)
        assert "certificate" in str(error).lower()
        assert peer.requests == []


@pytest.mark.parametrize("kind", [fastlane.OpenAI, fastlane.AsyncOpenAI])
def test_server_without_tls_gets_no_request(kind: Any) -> None:
    received: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(20)
            received.append(connection.recv(65_536))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    error = asks(kind, f"https://127.0.0.1:{listener.getsockname()[1]}", "prefer")
    thread.join()
    listener.close()

    assert isinstance(error, httpx2.ConnectError)
    assert b"".join(received)[:1] == b"\x16"  # the first message of a handshake, and nothing after it
    assert b"sk-test" not in b"".join(received)
