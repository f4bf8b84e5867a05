"""Opening a connection on an event loop of asyncio: connect, shake hands, and tell the pool."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING, cast

from fastlane._clock import now_ns

from ..pool.settings import Origin
from ..protocols.errors import TransportError
from .connect import Connected, connect_asyncio
from .link import CLOSED, MOST_OPENING_NS, Link
from .tls import Tls

if TYPE_CHECKING:
    from .loop_pool import LoopPool


class OpeningLink(Link, asyncio.BufferedProtocol):
    """A connection on an event loop, up to the moment when it stands."""

    def __init__(self, owner: LoopPool, origin: Origin) -> None:
        settings = owner.settings
        super().__init__(origin, http2=settings.http2)
        self.loop = owner.loop
        # The loop's timers must not keep a pool alive that everybody else has dropped.
        self._owner = weakref.ref(owner)
        self._settings = settings
        self.ready: asyncio.Future[None] = self.loop.create_future()
        """The peer has said what it allows, or the connection is gone."""
        self.gone: asyncio.Future[None] = self.loop.create_future()
        """The socket is closed."""
        self._transport: asyncio.Transport | None = None
        self._shaken: asyncio.Future[None] | None = None
        self.opening_task: asyncio.Task[None] | None = None
        self._dead = False

    # Opening

    async def open(self) -> None:
        """Connect, and tell the pool how it went."""
        failure: TransportError | None = None
        try:
            async with asyncio.timeout(MOST_OPENING_NS / 1e9):
                await self._open()
        except TransportError as error:
            failure = error
        except TimeoutError:
            failure = TransportError(
                "ConnectTimeout", f"No connection to {self.origin.host}:{self.origin.port} in time."
            )
        except OSError as error:
            failure = TransportError("ConnectError", str(error))
            failure.__cause__ = error
        except BaseException as error:
            self._opening_failed(TransportError("ConnectError", f"{type(error).__name__} while connecting"))
            raise
        if failure is not None:
            self._opening_failed(failure)

    def opening_ended(self, task: asyncio.Task[None]) -> None:
        """The task that opens is over; one that was cancelled before its first step has told nobody."""
        if task.cancelled() and not self._dead:
            self._opening_failed(TransportError("ConnectError", CLOSED))
        if self._transport is None:
            self._be_gone()

    def _opening_failed(self, error: TransportError) -> None:
        self._dead = True
        if self._transport is not None:
            self._transport.abort()
        else:
            self._be_gone()
        owner = self._owner()
        if owner is not None:
            owner.failed(self, error)

    async def _open(self) -> None:
        owner = self._owner()
        if owner is None or self._dead:
            raise TransportError("ConnectError", CLOSED)
        if self.origin.scheme == "https":
            self.tls = Tls(owner.context(), self.origin.server_hostname)
        del owner
        connected = await connect_asyncio(self.origin.host, self.origin.port)
        self._socket = connected.socket
        try:
            await self.loop.create_connection(lambda: self, sock=connected.socket)
        except BaseException:
            connected.socket.close()
            raise
        tls_started_ns = tls_ended_ns = None
        if self.tls is not None:
            tls_started_ns = now_ns()
            self._shaken = self.loop.create_future()
            self._shake(b"")
            try:
                await self._shaken
            finally:
                self._shaken = None
            tls_ended_ns = now_ns()
        self._established(connected, tls_started_ns, tls_ended_ns)

    def _shake(self, data: bytes) -> None:
        shaken = self._shaken
        assert shaken is not None
        try:
            done = self.handshake(data)
        except TransportError as error:
            if not shaken.done():
                shaken.set_exception(error)
            done = False
        output = self.handshake_output()
        if output and self._transport is not None:
            self._transport.write(output)
        if done and not shaken.done():
            shaken.set_result(None)

    def _established(self, connected: Connected, tls_started_ns: int | None, tls_ended_ns: int | None) -> None:
        owner = self._owner()
        if owner is None or self._dead or self._transport is None or self._transport.is_closing():
            raise TransportError("ConnectError", CLOSED)
        tls = self.tls
        opening = connected.opening(
            tls_started_ns=tls_started_ns,
            tls_ended_ns=tls_ended_ns,
            alpn=None if tls is None else tls.alpn,
            tls_version=None if tls is None else tls.version,
        )
        self.establish(opening, now_ns())
        self._begin()
        self._be_ready()
        owner.opened(self)

    def _begin(self) -> None:
        """The connection stands. To be done by the class that uses it."""
        raise NotImplementedError

    def _be_ready(self) -> None:
        if self.http is not None and self.http.is_ready and not self.ready.done():
            self.ready.set_result(None)

    def _be_gone(self) -> None:
        for future in (self.ready, self.gone):
            if not future.done():
                future.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the event loop's transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of classes of its own

    def _take_early(self, data: bytes) -> None:
        if self._dead:
            return
        if self._shaken is not None and not self._shaken.done():
            self._shake(data)
            return
        # Between the end of the handshake and the task that waits for it.
        with contextlib.suppress(TransportError):
            self.handshake(data)
