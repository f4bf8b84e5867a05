"""When the library's own transport carries a request in our place: under trio, and where somebody intercepts it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from functools import cache
from types import ModuleType
from typing import Any

import anyio

from ._phases import FALLBACK_TRACE
from ._settings import Http2, PoolSettings, core_of
from ._trust import ssl_context

# The methods that mocks and instrumentations put their own in the place of.
_METHODS = {False: "handle_request", True: "handle_async_request"}

_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]

# Connections kept without a call: the stock client's own limit.
_MOST_IDLE = 100


@cache
def _originals(library: ModuleType, core: ModuleType) -> dict[bool, tuple[tuple[type[Any], str, Any], ...]]:
    """The library's own methods, sync and async, as they are before anybody has replaced them."""
    found = {}
    for asynchronous, method in _METHODS.items():
        prefix = "Async" if asynchronous else ""
        owners = [(library, "HTTPTransport"), (core, "ConnectionPool"), (core, "HTTPConnection")]
        classes = [getattr(module, prefix + name) for module, name in owners]
        found[asynchronous] = tuple((owner, method, owner.__dict__[method]) for owner in classes)
    return found


class Fallback:
    """The library's own connections, for one client, made when they are first needed."""

    def __init__(self, library: ModuleType, settings: PoolSettings, *, asynchronous: bool) -> None:
        self._core = core_of(settings)
        self._originals = _originals(library, self._core)[asynchronous]
        self._settings = settings
        self._asynchronous = asynchronous
        self._pools: dict[Any, Any] = {}
        """By the event loop or trio run whose sockets they hold; under None the synchronous one."""
        self._until_the_end: list[Any] = []

    @property
    def is_wanted(self) -> bool:
        """Whether the library's own transport has to carry the next request."""
        # A test's mock, or an instrumentation, sees every request of the stock client, and has to see ours too.
        for owner, method, original in self._originals:
            if owner.__dict__[method] is not original:
                return True
        return self._asynchronous and "trio" in sys.modules and _trio_token() is not None

    @property
    def pool(self) -> Any:
        """The library's own pool for whoever asks."""
        key = _running() if self._asynchronous else None
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = self._make()
        return pool

    @staticmethod
    def prepare(request: Any) -> None:
        """Let the library stamp the request, which our transport would have done."""
        trace = request.extensions.get(FALLBACK_TRACE)
        if trace is not None:
            request.extensions["trace"] = trace

    async def aprepare(self, request: Any) -> None:
        """As `prepare`; and have `asyncio.run` or `trio.run` close the pool, whose sockets end with it."""
        self.prepare(request)
        key = _running()
        if key in self._pools:
            return
        self._pools[key] = self._make()

        async def until_the_end() -> AsyncIterator[None]:
            try:
                yield
            finally:
                pool = self._pools.pop(key, None)
                # Trio ends its generators under cancellation.
                with anyio.CancelScope(shield=True), contextlib.suppress(Exception):
                    if pool is not None:
                        await pool.aclose()

        self._until_the_end.append(until_the_end())
        await anext(self._until_the_end[-1])

    def _make(self) -> Any:
        settings = self._settings
        pool = self._core.AsyncConnectionPool if self._asynchronous else self._core.ConnectionPool
        # Its HTTP/2 lets one call wait for another, and never tells a server to stop.
        http2 = settings.http2 == "require"
        protocols: Http2 = "require" if http2 else "never"
        context = ssl_context(settings.verify, settings.certificates, protocols, library=settings.library)
        return pool(
            ssl_context=context,
            max_connections=settings.max_connections,
            max_keepalive_connections=_MOST_IDLE,
            keepalive_expiry=settings.idle_s,
            http1=not http2,
            http2=http2,
            socket_options=_SOCKET_OPTIONS,
        )

    def close(self) -> None:
        """Close its connections."""
        while self._pools:
            self._pools.popitem()[1].close()

    async def aclose(self) -> None:
        """Close its connections on this loop."""
        pool = self._pools.pop(_running(), None)
        if pool is not None:
            await pool.aclose()


def _trio_token() -> Any:
    try:
        return sys.modules["trio"].lowlevel.current_trio_token()
    except RuntimeError:
        return None


def _running() -> Any:
    """The event loop or trio run that this is called on; None outside of any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return _trio_token() if "trio" in sys.modules else None
