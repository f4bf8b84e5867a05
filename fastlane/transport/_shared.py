"""Pools that all clients of a process share: one for each setting, and one for each event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib
import os
import socket
import sys
import threading
from collections import Counter, deque
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

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


@cache
def _ssl_context(settings: PoolSettings) -> Any:
    # Loading the system's certificates costs milliseconds. The pool writes its protocols into the context, which is
    # why pools of different settings do not share one.
    return _library(settings).create_ssl_context()


def _library(settings: PoolSettings) -> ModuleType:
    return importlib.import_module(settings.library)  # imported by openai already


def _core(settings: PoolSettings) -> ModuleType:
    return importlib.import_module(settings.library.replace("httpx", "httpcore"))


def _socket_options() -> list[tuple[int, int, int]]:
    """Ask the kernel to notice within about 90 s that the peer of an idle connection is gone."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    # One probe a minute also keeps load balancers and NAT gateways from forgetting the connection.
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


@cache
def _transport_class(library: ModuleType, *, asynchronous: bool) -> type[Any]:
    """The library's own transport on a pool of ours."""
    base = library.AsyncHTTPTransport if asynchronous else library.HTTPTransport
    stream_base = library.AsyncByteStream if asynchronous else library.SyncByteStream
    body_class = type("Body", (AsyncBody if asynchronous else SyncBody, stream_base), {})

    class Transport(base):  # type: ignore[misc, valid-type]
        def __init__(self, settings: PoolSettings) -> None:
            context = _ssl_context(settings)
            options = _socket_options()
            super().__init__(verify=context, http2=settings.http2, socket_options=options)
            self._pool = pool_class(_core(settings), asynchronous=asynchronous)(
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


class _Pools:
    """The pools of this process, and how many open clients use each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: Counter[tuple[PoolSettings, bool]] = Counter()
        self._sync: dict[PoolSettings, Any] = {}
        self._async: WeakKeyDictionary[Any, dict[PoolSettings, Any]] = WeakKeyDictionary()

    def join(self, settings: PoolSettings, *, asynchronous: bool) -> None:
        _ssl_context(settings)  # now, as the stock client does, and not on the first call's path
        with self._lock:
            self._users[settings, asynchronous] += 1

    def leave(self, settings: PoolSettings, *, asynchronous: bool) -> None:
        with self._lock:
            self._users[settings, asynchronous] -= 1

    def sync_transport(self, settings: PoolSettings) -> Any:
        transport = self._sync.get(settings)
        if transport is None:
            with self._lock:
                transport = self._sync.get(settings)
                if transport is None:
                    transport = _transport_class(_library(settings), asynchronous=False)(settings)
                    self._sync[settings] = transport
        return transport

    def async_transport(self, settings: PoolSettings) -> Any:
        # Sockets belong to the loop that opened them: a client that lives through two `asyncio.run()` gets a pool
        # for each.
        of_loop = self._async.setdefault(_running_loop(), {})
        transport = of_loop.get(settings)
        if transport is None:
            transport = of_loop[settings] = _transport_class(_library(settings), asynchronous=True)(settings)
        return transport

    def close_if_unused(self, settings: PoolSettings) -> None:
        with self._lock:
            if self._users[settings, False] > 0:
                return
            transport = self._sync.pop(settings, None)
        if transport is not None:
            transport.close()

    async def aclose_if_unused(self, settings: PoolSettings) -> None:
        with self._lock:
            if self._users[settings, True] > 0:
                return
        transport = self._async.get(_running_loop(), {}).pop(settings, None)
        if transport is not None:
            await transport.aclose()

    def close_all(self) -> None:
        while self._sync:
            _, transport = self._sync.popitem()
            with contextlib.suppress(Exception):
                transport.close()


def _running_loop() -> Any:
    """The event loop of this thread: asyncio's, or trio's token for its own."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        if "trio" in sys.modules:
            return sys.modules["trio"].lowlevel.current_trio_token()
        raise


class _Process:
    """The pools of this process, and those of its parents, which are kept so that nothing closes their sockets."""

    pools = _Pools()
    left_to_the_parent: ClassVar[list[_Pools]] = []


def _start_anew_after_fork() -> None:
    """A child must not speak on its parent's connections: it leaves them as they are and opens its own."""
    _Process.left_to_the_parent.append(_Process.pools)
    _Process.pools = _Pools()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_after_fork)


@atexit.register
def _close_at_exit() -> None:
    _Process.pools.close_all()


@cache
def _handle_class(library: ModuleType, *, asynchronous: bool) -> type[Any]:
    # The library's own transport by its type, as what looks into a client expects, but without a pool of its own.
    class Handle(library.AsyncHTTPTransport if asynchronous else library.HTTPTransport):  # type: ignore[misc]
        """One client's share of a pool: closing it leaves the pool to the others, and open for the next client."""

        def __init__(self, settings: PoolSettings) -> None:
            self.settings = settings
            self._open = True
            _Process.pools.join(settings, asynchronous=asynchronous)

        def _leave(self) -> None:
            if self._open:
                self._open = False
                _Process.pools.leave(self.settings, asynchronous=asynchronous)

        if asynchronous:

            @property
            def _pool(self) -> Any:
                return _Process.pools.async_transport(self.settings)._pool

            async def handle_async_request(self, request: Any) -> Any:
                return await _Process.pools.async_transport(self.settings).handle_async_request(request)

            async def __aenter__(self) -> Any:
                return self

            async def __aexit__(self, *_: object) -> None:
                self._leave()

            async def aclose(self) -> None:
                self._leave()

        else:

            @property
            def _pool(self) -> Any:
                return _Process.pools.sync_transport(self.settings)._pool

            def handle_request(self, request: Any) -> Any:
                return _Process.pools.sync_transport(self.settings).handle_request(request)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                self._leave()

            def close(self) -> None:
                self._leave()

    return Handle


def shared_transport(settings: PoolSettings, *, asynchronous: bool) -> Any:
    """A transport of the library named in the settings, on the pool that all equal settings share."""
    return _handle_class(_library(settings), asynchronous=asynchronous)(settings)


def close_if_unused(settings: PoolSettings) -> None:
    """Close the pool's connections unless another client that is still open uses it."""
    _Process.pools.close_if_unused(settings)


async def aclose_if_unused(settings: PoolSettings) -> None:
    """Close the connections that this event loop has in the pool, unless another open client uses it."""
    await _Process.pools.aclose_if_unused(settings)
