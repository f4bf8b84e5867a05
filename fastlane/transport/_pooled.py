"""The HTTP library's own transport, on a pool of ours with settings that clients can share."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
from collections import deque
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from ._answer import AsyncBody, SyncBody
from ._pool import pool_class


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """What makes two clients share connections: equal settings."""

    library: str
    """The HTTP library that the installed openai is built on: "httpx2", or "httpx" for openai 2."""
    http2: bool
    idle_s: float
    max_connections: int
    certificates: tuple[str | None, str | None]
    """SSL_CERT_FILE and SSL_CERT_DIR, as they were when the client was made."""


def pool_settings(library: str, *, http2: bool, idle_s: float, max_connections: int) -> PoolSettings:
    """The settings of a client that is being made now."""
    certificates = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    return PoolSettings(
        library=library, http2=http2, idle_s=idle_s, max_connections=max_connections, certificates=certificates
    )


def ssl_context(settings: PoolSettings) -> Any:
    """The TLS context of a pool, shared by all pools that trust the same and offer the same protocols."""
    return _ssl_context(library_of(settings), settings.http2, settings.certificates)


@cache
def _ssl_context(library: ModuleType, http2: bool, certificates: tuple[str | None, str | None]) -> Any:  # noqa: ARG001
    # Loading the certificates costs milliseconds. The library finds them by the environment, as `certificates` says;
    # a pool writes the protocols that it offers into the context.
    return library.create_ssl_context()


def library_of(settings: PoolSettings) -> ModuleType:
    """The HTTP library, such as httpx2."""
    return importlib.import_module(settings.library)  # imported by openai already


def core_of(settings: PoolSettings) -> ModuleType:
    """The library underneath it, such as httpcore2."""
    return importlib.import_module(settings.library.replace("httpx", "httpcore"))


def socket_options() -> list[tuple[int, int, int]]:
    """Ask the kernel to notice within about 90 s that the peer of an idle connection is gone."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    # One probe a minute also keeps load balancers and NAT gateways from forgetting the connection.
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


@cache
def transport_class(library: ModuleType, *, asynchronous: bool) -> type[Any]:
    """The library's own transport on a pool of ours."""
    base = library.AsyncHTTPTransport if asynchronous else library.HTTPTransport
    stream_base = library.AsyncByteStream if asynchronous else library.SyncByteStream
    body_class = type("Body", (AsyncBody if asynchronous else SyncBody, stream_base), {})

    class Transport(base):  # type: ignore[misc, valid-type]
        def __init__(self, settings: PoolSettings) -> None:
            context = ssl_context(settings)
            options = socket_options()
            super().__init__(verify=context, http2=settings.http2, socket_options=options)
            self._pool = pool_class(core_of(settings), asynchronous=asynchronous)(
                max_connections=settings.max_connections,
                ssl_context=context,
                keepalive_expiry=settings.idle_s,
                http1=True,
                http2=settings.http2,
                socket_options=options,
            )
            self.abandoned: deque[Any] = deque()

        def wrapped(self, response: Any) -> Any:
            response.stream = body_class(response, self.abandoned)
            return response

        if asynchronous:

            async def handle_async_request(self, request: Any) -> Any:
                while self.abandoned:
                    with contextlib.suppress(Exception):
                        await self.abandoned.popleft().aclose()
                return self.wrapped(await super().handle_async_request(request))

        else:

            def handle_request(self, request: Any) -> Any:
                while self.abandoned:
                    with contextlib.suppress(Exception):  # another thread may have been faster
                        self.abandoned.popleft().close()
                return self.wrapped(super().handle_request(request))

    return Transport
