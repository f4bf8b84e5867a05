"""What a wire, a handshake and a resolver really took: measured with bare sockets, without any client of HTTP."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks._paired import median
from benchmarks._provider import MODEL
from fastlane._clock import now_ns
from fastlane.emulator import RequestLog

RESOLVER_S = 0.03
"""What looking a name up takes at least."""
TAG = "bare"
_REQUESTS = 12
_NEVER = threading.Event()


class Delays(NamedTuple):
    """Milliseconds, medians."""

    up: float
    """From the last byte handed to the kernel to the provider's noticing it."""
    down: float
    """From the first byte that the provider handed to its kernel to its being read."""
    handshake: float
    """Two round trips, one of them TCP's, and what both ends work out."""


class Bare(NamedTuple):
    """What bare sockets saw, until the provider's log says the rest."""

    handshakes: list[float]
    requests: list[tuple[int, int]]
    """When each was sent, and when its answer began to come."""

    def delays(self, log: Sequence[RequestLog]) -> Delays:
        """The delays of each way. Raises RuntimeError where the provider has seen another number of requests."""
        seen = sorted([one for one in log if one.tag == TAG], key=lambda one: one.received_ns)
        if len(seen) != len(self.requests):
            raise RuntimeError(f"{len(self.requests)} bare requests were sent, and {len(seen)} came")
        pairs = list(zip(self.requests, seen, strict=True))
        return Delays(
            up=median([(one.received_ns - sent) / 1e6 for (sent, _), one in pairs]).value,
            down=median([(came - (one.headers_sent_ns or 0)) / 1e6 for (_, came), one in pairs]).value,
            handshake=median(self.handshakes).value,
        )


def ask_barely(url: str, bare: Bare) -> None:
    """Open connections and send small requests, one after the other, and write down when."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 0
    trust = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    body = json.dumps({"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]})
    request = (
        f"POST {address.path}/chat/completions HTTP/1.1\r\nhost: {host}\r\nx-emulator-tag: {TAG}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    for _ in range(_REQUESTS):
        with socket.create_connection((host, port)) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            started = now_ns()
            with trust.wrap_socket(plain, server_hostname=host) as secured:
                bare.handshakes.append((now_ns() - started) / 1e6)
                sent = now_ns()
                secured.sendall(request)
                secured.recv(1)
                bare.requests.append((sent, now_ns()))


@contextmanager
def known_resolver() -> Iterator[list[tuple[int, int]]]:
    """A resolver that takes a known time for "localhost"; gives when each lookup began and ended."""
    stock = socket.getaddrinfo
    lookups: list[tuple[int, int]] = []

    def slow(host: Any, port: Any, family: int = 0, *arguments: Any, **more: Any) -> Any:
        if host != "localhost":
            return stock(host, port, family, *arguments, **more)
        started = now_ns()
        found = stock(host, port, socket.AF_INET, *arguments, **more)
        _NEVER.wait(RESOLVER_S)
        lookups.append((started, now_ns()))
        return found

    socket.getaddrinfo = slow
    try:
        yield lookups
    finally:
        socket.getaddrinfo = stock
