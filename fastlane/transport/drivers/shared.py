"""Pools that all clients of a process share: one for each setting."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections import Counter, deque
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

from ..pool.outlook import UNKNOWN, Outlook
from ..pool.settings import PoolSettings, library_of
from .engines import AsyncEngine, SyncEngine
from .fallback import Fallback


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


@atexit.register
def _leave_at_exit() -> None:
    for engine in list(_Engines.sync.values()):
        with contextlib.suppress(Exception):
            engine.leave()


@cache
def _handle_class(library: ModuleType, *, asynchronous: bool) -> type[Any]:
    # The library's own transport by its type, as what looks into a client expects, but on a pool that it shares.
    base = library.AsyncHTTPTransport if asynchronous else library.HTTPTransport

    class Handle(base):  # type: ignore[misc, valid-type]
        """One client's share of a pool: closing it leaves the pool to the others, and open for the next client."""

        def __init__(self, settings: PoolSettings) -> None:
            self.settings = settings
            self._open = True
            self._fallback = Fallback(library, settings, asynchronous=asynchronous)
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

        def outlook(self, request: Any) -> Outlook:
            # (The fall-back's connections are not ours to look at.)
            outlook: Outlook = UNKNOWN if self._fallback.is_wanted(request) else self._engine.outlook(request)
            return outlook

        if asynchronous:

            async def handle_async_request(self, request: Any) -> Any:
                if self._fallback.is_wanted(request):
                    await self._fallback.aprepare(request)
                    return await super().handle_async_request(request)
                return await self._engine.handle(request)

            def warm(self, request: Any) -> Any:
                return self._awarm(request)

            async def _awarm(self, request: Any) -> bool:
                if self._fallback.is_wanted(request):
                    return False
                await self._engine.warm(request)
                return True

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
                return self._engine.handle(request)

            def warm(self, request: Any) -> Any:
                if self._fallback.is_wanted(request):
                    return False
                self._engine.warm(request)
                return True

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
