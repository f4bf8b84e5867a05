"""Our connections as transports of httpx2, and the pools that all clients of a process share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import sys
import threading
from collections import Counter, deque
from collections.abc import AsyncGenerator
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, NamedTuple
from weakref import WeakSet

import anyio
import httpx2

from ..pool.pool import UNKNOWN, ConnectionForecast
from ..pool.settings import Http2, PoolSettings, certificates_now, core_of, library_of
from ..protocols.exchange import FALLBACK_TRACE
from .connect import ssl_context
from .engines import AsyncEngine, Engine, SyncEngine, engines
from .requests import is_library_function, is_library_method

_TRIES = 3


class OpenConnections(NamedTuple):
    """The open connections to one server."""

    host: str
    port: int
    active: int
    """Those that carry a call."""
    idle: int


def open_connections() -> list[OpenConnections]:
    """The connections of all pools at this moment, nearly: no pool is waited for, and each goes on meanwhile.

    Connections of the HTTP library's own, which carry what ours cannot, are not among them.
    """
    counted: dict[tuple[str, int], list[int]] = {}
    for engine in engines():
        for _ in range(_TRIES):
            try:
                found = [
                    # (What has left and was not looked at yet is over all the same.)
                    (member.origin, member.claimed > len(member.ended))
                    for member in engine.members()
                    if member.is_open and not member.is_closed
                ]
            except RuntimeError:  # one was opened or closed in the very moment
                continue
            for origin, is_active in found:
                count = counted.setdefault((origin.host, origin.port), [0, 0])
                count[0 if is_active else 1] += 1
            break
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
def _methods(library: ModuleType, core: ModuleType, *, asynchronous: bool) -> tuple[_Method, ...]:
    prefix = "Async" if asynchronous else ""
    owners = [(library, "HTTPTransport"), (core, "ConnectionPool"), (core, "HTTPConnection")]
    return tuple(_Method(getattr(module, prefix + name), _METHODS[asynchronous]) for module, name in owners)


class LibraryTransports:
    """The library's own connections, for one client, made when they are first needed."""

    def __init__(self, library: ModuleType, settings: PoolSettings, *, asynchronous: bool) -> None:
        self._core = core_of(settings)
        self._methods = _methods(library, self._core, asynchronous=asynchronous)
        self._settings = settings
        self._asynchronous = asynchronous
        self._pools: dict[Any, Any] = {}
        """By the event loop or trio run whose sockets they hold; under None the synchronous one."""

    def is_wanted(self, request: Any = None) -> bool:
        """Whether the library's own transport has to carry a request, or the next one."""
        # A test's mock, or an instrumentation, sees every request of the stock client, and has to see ours too; unless
        # that instrumentation is to keep silent about it.
        for method in self._methods:
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
        """The library's own pool for whoever asks."""
        key = _running() if self._asynchronous else None
        pool = self._pools.get(key)
        return self._pools.setdefault(key, self._make()) if pool is None else pool

    @staticmethod
    def prepare(request: Any) -> None:
        """Let the library stamp the request, which our transport would have done."""
        trace = request.extensions.get(FALLBACK_TRACE)
        if trace is not None:
            request.extensions["trace"] = trace

    async def aprepare(self, request: Any) -> None:
        """As `prepare`; and have `asyncio.run` or `trio.run` close the pool, whose sockets end with it."""
        self.prepare(request)
        run = _running()
        users = _users.get(run)
        if users is None:
            _forget_ended_loops()
            users = _users[run] = WeakSet()
            _until_the_end[run] = _close_at_the_end(run, users)
            await anext(_until_the_end[run])
        users.add(self)

    async def aclose_run(self, run: Any) -> None:
        """Close the connections of an event loop or trio run that ends."""
        pool = self._pools.pop(run, None)
        if pool is not None:
            with contextlib.suppress(Exception):
                await pool.aclose()

    def forget_run(self, run: Any) -> None:
        """Let go of the connections of an event loop that has ended without closing anything."""
        self._pools.pop(run, None)

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


# One generator for each event loop or trio run, and not for each client: trio warns of one that is collected too early.
_until_the_end: dict[Any, AsyncGenerator[None]] = {}
_users: dict[Any, WeakSet[LibraryTransports]] = {}


async def _close_at_the_end(run: Any, users: WeakSet[LibraryTransports]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _users.pop(run, None)
        _until_the_end.pop(run, None)
        # Trio ends its generators under cancellation.
        with anyio.CancelScope(shield=True):
            for fallback in list(users):
                await fallback.aclose_run(run)


def _forget_ended_loops() -> None:
    for run in list(_users):
        if isinstance(run, asyncio.AbstractEventLoop) and run.is_closed():
            _until_the_end.pop(run, None)
            for fallback in list(_users.pop(run, ())):
                fallback.forget_run(run)


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


class _Users:
    """How many open clients use each pool. A client may leave in a finaliser, which must not wait for any lock."""

    def __init__(self, before: _Users | None = None) -> None:
        self._lock = threading.RLock()
        self._counted: Counter[tuple[PoolSettings, bool]] = Counter(before._counted if before else ())
        self._news: deque[tuple[tuple[PoolSettings, bool], int]] = deque(before._news if before else ())

    def join(self, settings: PoolSettings, *, asynchronous: bool) -> None:
        self._news.append(((settings, asynchronous), 1))
        if len(self._news) > 1_000:
            self._count()

    def leave(self, settings: PoolSettings, *, asynchronous: bool) -> None:
        self._news.append(((settings, asynchronous), -1))

    def none_of(self, settings: PoolSettings, *, asynchronous: bool) -> bool:
        self._count()
        return self._counted[settings, asynchronous] <= 0

    def _count(self) -> None:
        with self._lock:
            while self._news:
                key, change = self._news.popleft()
                self._counted[key] += change


class _Engines:
    """The engines of this process. Their pools start anew in a child process by themselves."""

    users: ClassVar[_Users] = _Users()
    # Making an engine makes objects, and with them garbage collections: a finaliser may come back here.
    lock: ClassVar[Any] = threading.RLock()
    sync: ClassVar[dict[PoolSettings, SyncEngine]] = {}
    asynchronous: ClassVar[dict[PoolSettings, AsyncEngine]] = {}

    @classmethod
    def sync_engine(cls, settings: PoolSettings) -> SyncEngine:
        engine = cls.sync.get(settings)
        if engine is None:
            with cls.lock:
                engine = cls.sync.setdefault(settings, cls.sync.get(settings) or SyncEngine(settings))
        return engine

    @classmethod
    def async_engine(cls, settings: PoolSettings) -> AsyncEngine:
        engine = cls.asynchronous.get(settings)
        if engine is None:
            with cls.lock:
                engine = cls.asynchronous.setdefault(settings, cls.asynchronous.get(settings) or AsyncEngine(settings))
        return engine


def _new_locks_after_fork() -> None:
    """The parent's other threads may have held the locks, and none of them lives on in the child."""
    _Engines.lock = threading.RLock()
    _Engines.users = _Users(_Engines.users)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_locks_after_fork)


@cache
def _handle_class(library: ModuleType, *, asynchronous: bool) -> type[Any]:
    # The library's own transport by its type, as what looks into a client expects, but on a pool that it shares.
    base = library.AsyncHTTPTransport if asynchronous else library.HTTPTransport

    class Handle(base):  # type: ignore[misc, valid-type]
        """One client's share of a pool: closing it leaves the pool to the others, and open for the next client."""

        def __init__(self, settings: PoolSettings) -> None:
            self.settings = settings
            self._open = True
            self._fallback = LibraryTransports(library, settings, asynchronous=asynchronous)
            # First, so that nobody who leaves meanwhile closes the engine.
            _Engines.users.join(settings, asynchronous=asynchronous)
            self._engine: Any = (_Engines.async_engine if asynchronous else _Engines.sync_engine)(settings)
            self._engine.context()  # now, as the stock client does, and not on the first call's path

        @property
        def _pool(self) -> Any:
            return self._fallback.pool

        def _leave(self) -> None:
            if self._open:
                self._open = False
                _Engines.users.leave(self.settings, asynchronous=asynchronous)

        def __del__(self) -> None:
            # An asynchronous client that is collected outside of its loop cannot close its HTTP client.
            if getattr(self, "_open", False):
                self._leave()

        @property
        def falls_back(self) -> bool:
            """Whether the library's own transport would carry a request at the moment."""
            return self._fallback.is_wanted()

        def outlook(self, request: Any) -> ConnectionForecast:
            # (The fall-back's connections are not ours to look at.)
            outlook: ConnectionForecast = (
                UNKNOWN if self._fallback.is_wanted(request) else self._engine.outlook(request)
            )
            return outlook

        if asynchronous:

            async def handle_async_request(self, request: Any) -> Any:
                if self._fallback.is_wanted(request):
                    await self._fallback.aprepare(request)
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
                self._leave()
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
                self._leave()
                self._fallback.close()

    return Handle


def shared_transport(settings: PoolSettings, *, asynchronous: bool) -> Any:
    """A transport of the library named in the settings, on the pool that all equal settings share."""
    return _handle_class(library_of(settings), asynchronous=asynchronous)(settings)


def close_if_unused(settings: PoolSettings) -> None:
    """Close the pool's connections unless another client that is still open uses it."""
    with _Engines.lock:
        engine = _Engines.sync.pop(settings, None) if _Engines.users.none_of(settings, asynchronous=False) else None
    if engine is not None:
        engine.close()


def close_if_left(transport: Any) -> None:
    """Close a pool's connections that were opened after its last client had left, and nobody would close any more."""
    if _Engines.sync.get(transport.settings) is transport._engine:
        close_if_unused(transport.settings)
    else:
        transport._engine.close()


async def aclose_if_unused(settings: PoolSettings) -> None:
    """Close the connections that this event loop has in the pool, unless another open client uses it."""
    engine = _Engines.asynchronous.get(settings)
    if engine is not None and _Engines.users.none_of(settings, asynchronous=True):
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
    ) -> None:
        super().__init__(
            PoolSettings(
                http2=http2,
                max_connections=max_connections,
                idle_s=float(idle_s),
                ping_s=None if ping_s is None else float(ping_s),
                verify=verify,
                certificates=certificates_now(),
            )
        )
        self.context()


class Transport(_OwnPool, SyncEngine, httpx2.BaseTransport):
    """A pool of connections of its own: `httpx2.Client(transport=Transport())`.

    `http2`: "prefer" (HTTP/2 where the server speaks it), "require" or "never". `max_connections`: open at once.
    `idle_s`: seconds for which a connection without a request is kept. `ping_s`: seconds between pings on a connection
    without a request; None for none. `verify`: False for no verification at all, or the application's own context.
    """


class AsyncTransport(_OwnPool, AsyncEngine, httpx2.AsyncBaseTransport):
    """A pool of connections of its own on each event loop: `httpx2.AsyncClient(transport=AsyncTransport())`.

    For asyncio; settings as for `Transport`.
    """
