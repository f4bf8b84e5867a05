"""Pools that all clients of a process share: one for each setting, and one for each event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import anyio

from ._pooled import PoolSettings, library_of, ssl_context, transport_class


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


class _OfLoop:
    """The pools of one event loop, which are closed when it ends."""

    def __init__(self) -> None:
        self.transports: dict[PoolSettings, Any] = {}
        self._until_the_end: Any = None

    async def close_at_the_end(self, forget: Callable[[], object]) -> None:
        """Have `asyncio.run` or `trio.run` close the pools: it ends what asynchronous generators are left."""

        async def until_the_end() -> AsyncIterator[None]:
            try:
                yield
            finally:
                forget()
                # Trio ends its generators under cancellation.
                with anyio.CancelScope(shield=True):
                    for transport in self.transports.values():
                        with contextlib.suppress(Exception):
                            await transport.aclose()

        self._until_the_end = until_the_end()
        await anext(self._until_the_end)


class _Pools:
    """The pools of this process."""

    def __init__(self, users: _Users | None = None) -> None:
        self.users = _Users(users)
        # Making a pool makes objects, and with them garbage collections: a finaliser may come back here.
        self._lock = threading.RLock()
        self._sync: dict[PoolSettings, Any] = {}
        self._async: dict[Any, _OfLoop] = {}

    def sync_transport(self, settings: PoolSettings) -> Any:
        transport = self._sync.get(settings)
        if transport is None:
            with self._lock:
                transport = self._sync.get(settings)
                if transport is None:
                    transport = transport_class(library_of(settings), asynchronous=False)(settings)
                    self._sync[settings] = transport
        return transport

    def async_transport(self, settings: PoolSettings) -> Any:
        """The running loop's pool for these settings; None until `open_async` has made it."""
        of_loop = self._async.get(_running_loop())
        return of_loop.transports.get(settings) if of_loop is not None else None

    async def open_async(self, settings: PoolSettings) -> Any:
        # Sockets belong to the loop that opened them: a client that lives through two `asyncio.run()` gets a pool
        # for each.
        loop = _running_loop()
        of_loop = self._async.get(loop)
        first = of_loop is None
        if of_loop is None:
            self._forget_ended_loops()
            of_loop = self._async[loop] = _OfLoop()
        transport = of_loop.transports.get(settings)
        if transport is None:
            transport = transport_class(library_of(settings), asynchronous=True)(settings)
            of_loop.transports[settings] = transport
        if first:
            await of_loop.close_at_the_end(lambda: self._async.pop(loop, None))
        return transport

    def _forget_ended_loops(self) -> None:
        """Let go of loops that ended without closing what they had; the sockets go with them."""
        for loop in list(self._async):
            if isinstance(loop, asyncio.AbstractEventLoop) and loop.is_closed():
                self._async.pop(loop, None)

    def close_if_unused(self, settings: PoolSettings) -> None:
        if self.users.none_of(settings, asynchronous=False):
            transport = self._sync.pop(settings, None)
            if transport is not None:
                transport.close()

    async def aclose_if_unused(self, settings: PoolSettings) -> None:
        of_loop = self._async.get(_running_loop())
        if of_loop is not None and self.users.none_of(settings, asynchronous=True):
            transport = of_loop.transports.pop(settings, None)
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
    _Process.pools = _Pools(_Process.pools.users)


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
            ssl_context(settings)  # now, as the stock client does, and not on the first call's path
            _Process.pools.users.join(settings, asynchronous=asynchronous)

        def _leave(self) -> None:
            if self._open:
                self._open = False
                _Process.pools.users.leave(self.settings, asynchronous=asynchronous)

        def __del__(self) -> None:
            # An asynchronous client that is collected outside of its loop cannot close its HTTP client.
            if getattr(self, "_open", False):
                self._leave()

        if asynchronous:

            @property
            def _pool(self) -> Any:
                transport = _Process.pools.async_transport(self.settings)
                return None if transport is None else transport._pool

            async def handle_async_request(self, request: Any) -> Any:
                transport = _Process.pools.async_transport(self.settings)
                if transport is None:
                    transport = await _Process.pools.open_async(self.settings)
                return await transport.handle_async_request(request)

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
    return _handle_class(library_of(settings), asynchronous=asynchronous)(settings)


def close_if_unused(settings: PoolSettings) -> None:
    """Close the pool's connections unless another client that is still open uses it."""
    _Process.pools.close_if_unused(settings)


async def aclose_if_unused(settings: PoolSettings) -> None:
    """Close the connections that this event loop has in the pool, unless another open client uses it."""
    await _Process.pools.aclose_if_unused(settings)
