"""Our connections as transports of httpx2, and the pools that all clients of a process share."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, NamedTuple
from weakref import WeakSet

import httpx2

from ..pool.settings import (
    Http2,
    PoolSettings,
    ProxyRule,
    ProxyServer,
    certificates_now,
    core_name,
    library_of,
    proxy_server,
)
from ..protocols.exchange import FALLBACK_TRACE
from .connect import ssl_context
from .engines import ENGINES, AsyncEngine, Engine, SyncEngine
from .requests import is_library_function, is_library_method


class OpenConnections(NamedTuple):
    """The open connections to one server."""

    host: str
    port: int
    active: int
    """Those that carry a call."""
    idle: int


def open_connections() -> list[OpenConnections]:
    """Return the connections of all pools, without those of the HTTP library. Waits for no pool."""
    counted: dict[tuple[str, int], list[int]] = {}
    with contextlib.suppress(RuntimeError):  # one was made or closed in the very moment
        for engine in list(ENGINES):
            for member in engine.members():
                if member.is_open and not member.is_closed:
                    count = counted.setdefault((member.origin.host, member.origin.port), [0, 0])
                    # (What has left and was not looked at yet is over all the same.)
                    count[0 if member.claimed > len(member.ended) else 1] += 1
    return [OpenConnections(host, port, active, idle) for (host, port), (active, idle) in counted.items()]


TRACED = "fastlane.traced"
"""The extension by which a request says that its span is written elsewhere: no instrumentation has to see it."""

# The methods that mocks and instrumentations put their own in the place of.
_METHODS = {False: "handle_request", True: "handle_async_request"}

_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]

# Connections kept without a call: the stock client's own limit.
_MOST_IDLE = 100


class _Method:
    """A method of the library that others may replace with their own."""

    __slots__ = ("name", "original", "owner")

    def __init__(self, owner: type[Any], name: str) -> None:
        self.owner = owner
        self.name = name
        self.original: Any = None
        """What was found to be the library's own."""

    @property
    def is_replaced(self) -> bool:
        if not is_library_method(self.owner, self.name):
            return True
        self.original = self.owner.__dict__[self.name]
        return False

    @property
    def is_traced(self) -> bool:
        """Whether what is in its place is OpenTelemetry's instrumentation, around the library's own."""
        found = self.owner.__dict__[self.name]
        wrapper = getattr(found, "_self_wrapper", None)
        module = str(getattr(getattr(wrapper, "func", wrapper), "__module__", ""))  # (a partial has its function)
        inside = getattr(found, "__wrapped__", None)
        return module.startswith("opentelemetry.instrumentation.") and is_library_function(
            self.owner, self.name, inside
        )


@cache
def _methods(library: ModuleType, core: ModuleType | None, *, asynchronous: bool) -> tuple[_Method, ...]:
    prefix = "Async" if asynchronous else ""
    owners = [(library, "HTTPTransport")]
    if core is not None:
        owners += [(core, "ConnectionPool"), (core, "HTTPConnection")]
    return tuple(_Method(getattr(module, prefix + name), _METHODS[asynchronous]) for module, name in owners)


class LibraryTransports:
    """The library's own connections, for one client, made when they are first needed."""

    def __init__(self, library: ModuleType, settings: PoolSettings, *, asynchronous: bool) -> None:
        self._library, self._core_name = library, core_name(settings)
        self._settings = settings
        self._asynchronous = asynchronous
        self._pools: dict[Any, Any] = {}
        """By the event loop or trio run whose sockets they hold; under None the synchronous one."""

    def is_wanted(self, request: Any = None) -> bool:
        """Whether the library's own transport has to carry a request, or the next one."""
        # A test's mock, or an instrumentation, sees every request of the stock client, and has to see ours too; unless
        # that instrumentation is to keep silent about it.
        # If the library's core was not imported, none of its methods was replaced; nor while another thread or greenlet
        # imports it, and the module has no classes yet.
        core = sys.modules.get(self._core_name)
        if not hasattr(core, "AsyncHTTPConnection" if self._asynchronous else "HTTPConnection"):
            core = None
        for method in _methods(self._library, core, asynchronous=self._asynchronous):
            if method.owner.__dict__[method.name] is method.original or not method.is_replaced:
                continue
            if not (request is not None and request.extensions.get(TRACED) and method.is_traced):
                return True
        # So does what stands in for sockets: gevent, a SOCKS wrapper, a test that forbids them.
        if socket.socket.__module__ != "socket":
            return True
        return self._asynchronous and "trio" in sys.modules and _trio_token() is not None

    @property
    def pool(self) -> Any:
        """The library's own pool for this caller."""
        key = _running() if self._asynchronous else None
        pool = self._pools.get(key)
        if pool is None:
            self._forget_ended()
            pool = self._pools.setdefault(key, self._make())
        return pool

    @staticmethod
    def prepare(request: Any) -> None:
        """Let the library stamp the request, which our transport would have done."""
        trace = request.extensions.get(FALLBACK_TRACE)
        if trace is not None:
            request.extensions["trace"] = trace

    def _forget_ended(self) -> None:
        """Let go of the connections of event loops and trio runs that have ended: they cannot be closed any more."""
        running = _running()
        for run in list(self._pools):
            # A trio run does not tell whether it has ended.
            if run is not running and not (isinstance(run, asyncio.AbstractEventLoop) and not run.is_closed()):
                self._pools.pop(run, None)

    def _make(self) -> Any:
        return _ProxyPools(self._settings, self._pool_through) if self._settings.proxies else self._pool_through(None)

    def _pool_through(self, proxy: ProxyServer | None) -> Any:
        settings = self._settings
        core = importlib.import_module(self._core_name)
        pool = core.AsyncConnectionPool if self._asynchronous else core.ConnectionPool
        # Its HTTP/2 lets one call wait for another, and never tells a server to stop.
        http2 = settings.http2 == "require"
        protocols: Http2 = "require" if http2 else "never"
        context = ssl_context(settings.verify, settings.certificates, protocols, library=settings.library)
        through: dict[str, Any] = {}
        if proxy is not None:
            trust = ssl_context(proxy.verify, settings.certificates, "never", library=settings.library)
            through["proxy"] = core.Proxy(
                str(proxy),
                auth=proxy.credentials,
                headers=list(proxy.headers),
                ssl_context=trust if proxy.scheme == "https" else None,
            )
        return pool(
            ssl_context=context,
            max_connections=settings.max_connections,
            max_keepalive_connections=_MOST_IDLE,
            keepalive_expiry=settings.idle_s,
            http1=not http2,
            http2=http2,
            socket_options=_SOCKET_OPTIONS,
            **through,
        )

    def close(self) -> None:
        """Close its connections."""
        while self._pools:
            self._pools.popitem()[1].close()

    async def aclose(self) -> None:
        """Close its connections on this loop."""
        self._forget_ended()
        pool = self._pools.pop(_running(), None)
        if pool is not None:
            await pool.aclose()


class _ProxyPools:
    """The library's pools, one for each proxy, as one pool."""

    def __init__(self, settings: PoolSettings, make: Callable[[ProxyServer | None], Any]) -> None:
        self._settings, self._make = settings, make
        self._pools: dict[ProxyServer | None, Any] = {}

    def _pool_for(self, request: Any) -> Any:
        url = request.url
        proxy = self._settings.proxy_for(url.scheme.decode("ascii"), url.host.decode("ascii"), url.port)
        return self._pools.get(proxy) or self._pools.setdefault(proxy, self._make(proxy))

    def handle_request(self, request: Any) -> Any:
        return self._pool_for(request).handle_request(request)

    async def handle_async_request(self, request: Any) -> Any:
        return await self._pool_for(request).handle_async_request(request)

    def close(self) -> None:
        while self._pools:
            self._pools.popitem()[1].close()

    async def aclose(self) -> None:
        while self._pools:
            await self._pools.popitem()[1].aclose()


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


class _Engines:
    """The engines of this process. Their pools start anew in a child process by themselves."""

    users: ClassVar[WeakSet[Any]] = WeakSet()
    """The transports of open clients. One may be closed in a finaliser, which takes no lock."""
    # Making an engine makes objects, and with them garbage collections: a finaliser may come back here.
    lock: ClassVar[Any] = threading.RLock()
    made: ClassVar[dict[tuple[type[Any], PoolSettings], Any]] = {}

    @classmethod
    def of(cls, kind: type[Any], settings: PoolSettings) -> Any:
        with cls.lock:
            return cls.made.get((kind, settings)) or cls.made.setdefault((kind, settings), kind(settings))


def is_used(settings: PoolSettings, *, asynchronous: bool) -> bool:
    """Return whether an open client uses the pool."""
    with _Engines.lock:
        return any(
            user.is_open and user.asynchronous is asynchronous and user.settings == settings for user in _Engines.users
        )


if hasattr(os, "register_at_fork"):
    # The parent's other threads may have held it, and none of them lives on in the child.
    os.register_at_fork(after_in_child=_Engines.lock._at_fork_reinit)


@cache
def _handle_class(library: ModuleType, *, asynchronous: bool) -> type[Any]:
    # The library's own transport by its type, as what looks into a client expects, but on a pool that it shares.
    base = library.AsyncHTTPTransport if asynchronous else library.HTTPTransport

    class Handle(base):  # type: ignore[misc, valid-type]
        """One client's share of a pool: closing it leaves the pool to the others, and open for the next client."""

        def __init__(self, settings: PoolSettings) -> None:
            self.settings = settings
            self.asynchronous = asynchronous
            self.is_open = True
            self._fallback = LibraryTransports(library, settings, asynchronous=asynchronous)
            self.websockets: WeakSet[Any] = WeakSet()  # of this client, which closes them
            with _Engines.lock:  # first, so that no client that is closed meanwhile closes the engine
                _Engines.users.add(self)
            self._engine: Any = _Engines.of(AsyncEngine if asynchronous else SyncEngine, settings)
            self._engine.make_contexts()  # now, as the stock client does

        @property
        def _pool(self) -> Any:
            return self._fallback.pool

        @property
        def falls_back(self) -> bool:
            """Whether the library's own transport would carry a request at the moment."""
            return self._fallback.is_wanted()

        if asynchronous:

            async def handle_async_request(self, request: Any) -> Any:
                if self._fallback.is_wanted(request):
                    self._fallback.prepare(request)
                    return await super().handle_async_request(request)
                return await self._engine.handle_async_request(request)

            def warm(self, request: Any) -> Any:
                return self._awarm(request)

            async def _awarm(self, request: Any) -> bool:
                return not self._fallback.is_wanted(request) and await self._engine.warm(request)

            async def __aenter__(self) -> Any:
                return self

            async def __aexit__(self, *_: object) -> None:
                await self.aclose()

            async def aclose(self) -> None:
                self.is_open = False
                for websocket in list(self.websockets):
                    if websocket.loop is _running():
                        await websocket.close()
                    else:
                        websocket.abort()
                await self._fallback.aclose()

        else:

            def handle_request(self, request: Any) -> Any:
                if self._fallback.is_wanted(request):
                    self._fallback.prepare(request)
                    return super().handle_request(request)
                return self._engine.handle_request(request)

            def warm(self, request: Any) -> Any:
                return not self._fallback.is_wanted(request) and self._engine.warm(request)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                self.close()

            def close(self) -> None:
                self.is_open = False
                for websocket in list(self.websockets):
                    websocket.close()
                self._fallback.close()

    return Handle


def shared_transport(settings: PoolSettings, *, asynchronous: bool) -> Any:
    """A transport of the library named in the settings, on the pool that all equal settings share."""
    return _handle_class(library_of(settings), asynchronous=asynchronous)(settings)


def close_if_unused(settings: PoolSettings) -> None:
    """Close the pool's connections unless another client that is still open uses it."""
    with _Engines.lock:
        engine = None if is_used(settings, asynchronous=False) else _Engines.made.pop((SyncEngine, settings), None)
    if engine is not None:
        engine.close()


async def aclose_if_unused(settings: PoolSettings) -> None:
    """Close the connections that this event loop has in the pool, unless another open client uses it."""
    engine = _Engines.made.get((AsyncEngine, settings))
    if engine is not None and not is_used(settings, asynchronous=True):
        with contextlib.suppress(RuntimeError):  # no asyncio loop, and so no connections of ours
            asyncio.get_running_loop()
            await engine.aclose()


class _OwnPool(Engine):
    def __init__(
        self,
        *,
        http2: Http2 = "prefer",
        max_connections: int = 1_000,
        idle_s: float = 300.0,
        ping_s: float | None = 45.0,
        verify: bool | ssl.SSLContext = True,
        proxy: str | httpx2.URL | httpx2.Proxy | None = None,
    ) -> None:
        super().__init__(
            PoolSettings(
                http2=http2,
                max_connections=max_connections,
                idle_s=float(idle_s),
                ping_s=None if ping_s is None else float(ping_s),
                verify=verify,
                certificates=certificates_now(),
                proxies=() if proxy is None else (ProxyRule(None, proxy_server(proxy)),),
            )
        )
        self.make_contexts()


class Transport(_OwnPool, SyncEngine, httpx2.BaseTransport):
    """A pool of connections of its own: `httpx2.Client(transport=Transport())`.

    `http2`: "prefer" (HTTP/2 where the server speaks it), "require" or "never". `max_connections`: open at once.
    `idle_s`: seconds for which a connection without a request is kept. `ping_s`: seconds between pings on a connection
    without a request; None for none. `verify`: False for no verification at all, or an `ssl.SSLContext`. `proxy`: what
    `httpx2.HTTPTransport` takes; raises ValueError for a URL that is none of a proxy. The environment is not read.
    """


class AsyncTransport(_OwnPool, AsyncEngine, httpx2.AsyncBaseTransport):
    """A pool of connections on each event loop of asyncio, with the settings of `Transport`."""
