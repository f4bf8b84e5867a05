"""When the library's own transport carries a request in our place: under trio, and where somebody intercepts it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncGenerator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

import anyio

from ..pool.settings import Http2, PoolSettings, core_of
from ..protocols.phases import FALLBACK_TRACE
from .trust import ssl_context

TRACED = "fastlane.traced"
"""The extension by which a request says that its span is written elsewhere: no instrumentation has to see it."""

# The methods that mocks and instrumentations put their own in the place of.
_METHODS = {False: "handle_request", True: "handle_async_request"}

_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]

# Connections kept without a call: the stock client's own limit.
_MOST_IDLE = 100


class _Method:
    """A method of the library that others may replace with their own."""

    __slots__ = ("_name", "_original", "_owner")

    def __init__(self, owner: type[Any], name: str) -> None:
        self._owner = owner
        self._name = name
        self._original: Any = None

    @property
    def is_replaced(self) -> bool:
        found = self._owner.__dict__[self._name]
        if found is self._original:
            return False
        if not is_own(self._owner, self._name):
            return True
        self._original = found
        return False

    @property
    def is_traced(self) -> bool:
        """Whether what is in its place is OpenTelemetry's instrumentation, around the library's own."""
        found = self._owner.__dict__[self._name]
        wrapper = getattr(found, "_self_wrapper", None)
        module = str(getattr(getattr(wrapper, "func", wrapper), "__module__", ""))  # (a partial has its function)
        inside = getattr(found, "__wrapped__", None)
        return module.startswith("opentelemetry.instrumentation.") and _is_own(self._owner, self._name, inside)


def is_own(owner: type[Any], name: str) -> bool:
    """Whether a method of the HTTP library is the library's own, also where it was replaced before we first looked."""
    return _is_own(owner, name, owner.__dict__.get(name))


def _is_own(owner: type[Any], name: str, found: Any) -> bool:
    # A wrapper takes over name and module of what it wraps; whose code it is, its globals say.
    return (
        type(found) is FunctionType
        and found.__qualname__ == f"{owner.__name__}.{name}"
        and str(found.__globals__.get("__name__")).partition(".")[0] == owner.__module__.partition(".")[0]
    )


@cache
def _methods(library: ModuleType, core: ModuleType, *, asynchronous: bool) -> tuple[_Method, ...]:
    prefix = "Async" if asynchronous else ""
    owners = [(library, "HTTPTransport"), (core, "ConnectionPool"), (core, "HTTPConnection")]
    return tuple(_Method(getattr(module, prefix + name), _METHODS[asynchronous]) for module, name in owners)


class Fallback:
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
            if method.is_replaced and not (request is not None and request.extensions.get(TRACED) and method.is_traced):
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
_users: dict[Any, WeakSet[Fallback]] = {}


async def _close_at_the_end(run: Any, users: WeakSet[Fallback]) -> AsyncGenerator[None]:
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
