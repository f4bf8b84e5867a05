"""The connections of an asynchronous transport on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from fastlane._clock import now_ns

from ..pool.origin import GROW_AGAIN_NS
from ..pool.outlook import Outlook
from ..pool.pool import Member, Pool
from ..pool.settings import Origin, PoolSettings
from ..protocols.errors import TransportError
from ..protocols.patience import Patience, elsewhere_within
from ..protocols.phases import Phases
from .asyncio_connections import AsyncioLink
from .asyncio_opening import OpeningLink
from .requests import Timeouts

# How long `aclose()` waits for the sockets to be closed.
_CLOSE_S = 5.0


class _Waiter:
    """A task that waits for a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, avoid: str | None) -> None:
        self.avoid = avoid
        self.granted: asyncio.Future[AsyncioLink | TransportError] = loop.create_future()
        self._given_up: asyncio.Future[None] | None = None

    def grant(self, member: Member) -> None:
        assert isinstance(member, AsyncioLink)
        self.granted.set_result(member)

    def refuse(self, error: TransportError) -> None:
        self.granted.set_result(error)

    def give_up(self) -> None:
        """Nobody wants the request any more: the task is woken, and sees to it. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.granted.get_loop().call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._given_up is not None and not self._given_up.done():
            self._given_up.set_result(None)

    async def wait(self, timeout_s: float | None, patience: Patience | None) -> bool:
        """Wait to be woken; whether the wait is over because of what has come."""
        granted = self.granted
        if patience is None:
            await asyncio.wait([granted], timeout=timeout_s)
        else:
            self._given_up = given_up = granted.get_loop().create_future()
            patience.attend(self)
            await asyncio.wait([granted, given_up], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return granted.done()


class LoopPool:
    """The connections on one event loop. To be used on that loop only."""

    def __init__(self, settings: PoolSettings, context: Callable[[], ssl.SSLContext]) -> None:
        self.settings = settings
        self.context = context
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._until_the_end: Any = None
        self._closed = False
        self._pool = Pool(
            max_connections=settings.max_connections,
            http2=settings.http2 != "never",
            plain_http2=settings.http2 == "require",
            idle_ns=int(settings.idle_s * 1e9),
            make=self._make,
        )

    def _make(self, origin: Origin) -> AsyncioLink:
        return AsyncioLink(self, origin)

    async def close_at_the_end(self, forget: Callable[[], object]) -> None:
        """Have `asyncio.run` close the connections: it ends what asynchronous generators are left."""

        async def until_the_end() -> AsyncIterator[None]:
            try:
                yield
            finally:
                self._until_the_end = None
                forget()
                if not self._closed:
                    await self.aclose()

        self._until_the_end = until_the_end()
        await anext(self._until_the_end)

    # Calls

    async def acquire(
        self, origin: Origin, timeouts: Timeouts, phases: Phases | None = None, patience: Patience | None = None
    ) -> AsyncioLink:
        """A connection with a place for one exchange on it. Raises TransportError."""
        avoid = None if patience is None else patience.avoid
        member = self._pool.claim(origin, now_ns(), avoid)
        if member is None:
            if phases is not None:
                phases.connection_wait_started_ns = now_ns()
            waiter = _Waiter(self.loop, avoid)
            self._pool.wait(origin, waiter, now_ns())
            self._start()
            return await self._wait(origin, waiter, timeouts, patience)
        assert isinstance(member, AsyncioLink)
        if not member.is_busy and member.looks_stale():
            try:
                # The loop reads in the turn after next: what asked to be called goes before what has come.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            except BaseException:
                self.unclaim(member)
                raise
        return member

    async def _wait(
        self, origin: Origin, waiter: _Waiter, timeouts: Timeouts, patience: Patience | None
    ) -> AsyncioLink:
        opening = self._pool.is_opening(origin)
        granted = waiter.granted
        try:
            while not granted.done():
                timeout_s = timeouts.connect if opening else timeouts.pool
                if patience is not None:
                    timeout_s = patience.within(timeout_s, now_ns())
                if await waiter.wait(timeout_s if waiter.avoid is None else elsewhere_within(timeout_s), patience):
                    break
                given_up = patience is not None and patience.given_up
                if waiter.avoid is not None and not given_up:
                    waiter.avoid = None  # no other is to be had soon
                    self._serve()
                    continue
                if opening and not given_up and not self._pool.is_opening(origin):
                    opening = False  # the connection came, and has no place: from here on it is the pool's time
                    continue
                self._pool.withdraw(origin, waiter)
                for unwanted in self._pool.take_unwanted(origin):
                    assert isinstance(unwanted, AsyncioLink)
                    unwanted.hang_up(TransportError("ConnectTimeout", "Nobody waits for the connection any more."))
                    self._serve()  # its place is another's now
                if patience is not None:
                    patience.check()
                if opening:
                    raise TransportError("ConnectTimeout", f"No connection to {origin.host}:{origin.port} in time.")
                raise TransportError("PoolTimeout", "No connection became free in time.")
        except BaseException:
            self._pool.withdraw(origin, waiter)
            if granted.done():
                link = granted.result()
                if isinstance(link, AsyncioLink):
                    self.unclaim(link)
            raise
        result = granted.result()
        if isinstance(result, TransportError):
            # Its traceback leads here, and from here to the request: neither would go before a garbage collection.
            waiter.granted = self.loop.create_future()
            del granted
            try:
                raise result
            finally:
                del result
        return result

    def _start(self) -> None:
        new, surplus = self._pool.take_orders()
        for member in new:
            assert isinstance(member, AsyncioLink)
            # In a context of its own: a connection outlives the call that happened to need it first.
            # (Task factories of applications need not know of `context`.)
            task = contextvars.Context().run(self.loop.create_task, member.open())
            member.opening_task = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(member.opening_ended)
        for member in surplus:
            assert isinstance(member, AsyncioLink)
            member.hang_up(TransportError("ReadError", "The connection was closed."))

    def unclaim(self, link: AsyncioLink) -> None:
        """The call leaves without having begun."""
        self._pool.unclaim(link, now_ns())
        self._start()

    def opened(self, link: OpeningLink) -> None:
        """The connection is open."""
        if self._closed and isinstance(link, AsyncioLink):
            link.hang_up(TransportError("ReadError", "The transport was closed."))
            return
        self._pool.opened(link, now_ns())
        self._start()

    def failed(self, link: OpeningLink, error: TransportError) -> None:
        """The connection could not be opened."""
        self._pool.failed(link, error, now_ns())
        self._start()
        if self._pool.has_waiters and not self._closed:
            # They go on waiting for a place on another connection: for them it is tried again.
            self.loop.call_later(GROW_AGAIN_NS / 1e9, self._serve)

    def _serve(self) -> None:
        if not self._closed:
            self._pool.serve(now_ns())
            self._start()

    def changed(self, link: AsyncioLink) -> None:
        """The connection has other places than before."""
        self._pool.changed(link, now_ns())
        self._start()

    def closed(self, link: AsyncioLink, *, by_idle_peer: bool) -> None:
        """The connection is closed."""
        self._pool.closed(link, now_ns(), by_idle_peer=by_idle_peer, unwelcome_pings=link.pings_are_unwelcome)
        if not self._closed:
            self._start()

    def ping_interval_ns(self, origin: Origin, wanted_ns: int) -> int | None:
        """Nanoseconds between pings; None where they are not welcome."""
        return self._pool.ping_interval_ns(origin, wanted_ns)

    def members(self) -> Iterator[Member]:
        """Every connection, open or opening. Waits for no lock: others may come and go meanwhile."""
        return self._pool.members()

    def outlook(self, origin: Origin) -> Outlook:
        """What a request to the origin would find that came now."""
        return self._pool.outlook(origin, now_ns())

    async def warm(self, origin: Origin, timeouts: Timeouts) -> None:
        """Have a connection to the origin open, its SETTINGS exchanged, and keep it so. Raises TransportError."""
        link = await self.acquire(origin, timeouts)
        try:
            await asyncio.wait([link.ready], timeout=timeouts.connect)
            if not link.ready.done():
                raise TransportError("ConnectTimeout", "The server did not say what it allows in time.")
            link.check_ready()
        finally:
            self.unclaim(link)
        self._pool.keep_warm(origin)

    async def aclose(self) -> None:
        """Close every connection; those who wait for an answer get an error."""
        self._closed = True
        links = [member for member in self._pool.members() if isinstance(member, AsyncioLink)]
        self._pool.refuse_all(TransportError("ConnectError", "The transport was closed."))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for link in links:
            link.hang_up(TransportError("ReadError", "The transport was closed."))
        if links or tasks:
            await asyncio.wait([*tasks, *(link.gone for link in links)], timeout=_CLOSE_S)
        until_the_end, self._until_the_end = self._until_the_end, None
        if until_the_end is not None:
            await until_the_end.aclose()

    def forget(self) -> None:
        """Let go of the sockets without a word: the loop has ended, or belongs to the parent process."""
        for member in list(self._pool.members()):
            assert isinstance(member, AsyncioLink)
            member.forget()
