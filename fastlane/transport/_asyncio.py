"""Connections for asyncio: a protocol on the event loop's own transport, which reads for all exchanges at once."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import weakref
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from .._clock import now_ns
from ._connect import Connected, connect_asyncio
from ._errors import TransportError
from ._exchange import TAIL_BYTES, RequestHead
from ._link import Link, LinkedExchange
from ._phases import Phases
from ._settings import Origin
from ._tls import Tls

if TYPE_CHECKING:
    from ._loop_pool import LoopPool

# How often a connection without traffic looks at the time, at most and at least.
_LONGEST_TICK_S = 5.0
_SHORTEST_TICK_S = 0.05

_READ_BYTES = 65_536

CLOSED = "The connection was closed."


class AsyncioExchange(LinkedExchange):
    """An exchange that a task waits for."""

    __slots__ = ("_loop", "_since_ns", "_timeout_s", "_timer", "_waiter")

    def __init__(self, request_head: RequestHead, phases: Phases, link: AsyncioLink) -> None:
        super().__init__(request_head, phases, link)
        self._loop = link.loop
        self._waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_s = 0.0
        self._since_ns = 0

    def arrived(self, data: bytes, now_ns: int) -> None:
        # As the base class has it, in one piece: this is the path of every piece of every answer.
        self.phases.data_ns.append(now_ns)
        self.tail = data if len(data) >= TAIL_BYTES else self.tail[-TAIL_BYTES:] + data
        if not self.discarding:
            self.chunks.append((now_ns, data))
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(True)

    def wake(self) -> None:
        if (self.answer_ended and self.request_ended) or self.error is not None:
            self.leave()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(True)

    def expect(self, timeout_s: float | None) -> asyncio.Future[bool]:
        """What to await until something happens: True, or False where nothing did within the time.

        To be awaited at once, and by one task at a time.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        if timeout_s is not None:
            # One timer for all waits of the exchange: to set one and take it back costs more than a piece of an answer.
            self._since_ns = now_ns()
            if timeout_s != self._timeout_s or self._timer is None:
                self._set_timer(timeout_s)
        elif self._timer is not None:
            self.done()
        return waiter

    def _set_timer(self, timeout_s: float) -> None:
        self.done()
        self._timeout_s = timeout_s
        self._timer = self._loop.call_later(timeout_s, self._look)

    def _look(self) -> None:
        self._timer = None
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        left_s = self._timeout_s - (now_ns() - self._since_ns) / 1e9
        if left_s <= 0:
            waiter.set_result(False)
        else:
            self._timer = self._loop.call_later(left_s, self._look)

    def done(self) -> None:
        """Nobody will wait any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class AsyncioLink(Link, asyncio.BufferedProtocol):
    """One connection on an event loop."""

    def __init__(self, owner: LoopPool, origin: Origin, *, connect_timeout_s: float | None) -> None:
        settings = owner.settings
        tls = Tls(owner.context(), origin.server_hostname) if origin.scheme == "https" else None
        super().__init__(origin, http2=settings.http2, tls=tls)
        self.loop = owner.loop
        # The loop's timers must not keep a pool alive that everybody else has dropped.
        self._owner = weakref.ref(owner)
        self._settings = settings
        self._connect_timeout_s = connect_timeout_s
        self.ready: asyncio.Future[None] = self.loop.create_future()
        """The peer has said what it allows, or the connection is gone."""
        self.gone: asyncio.Future[None] = self.loop.create_future()
        """The socket is closed."""
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._shaken: asyncio.Future[None] | None = None
        self._room_waiters: list[asyncio.Future[None]] = []
        self._paused = False
        self._dead = False
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._timer: asyncio.TimerHandle | None = None
        self._tick_s = max(
            _SHORTEST_TICK_S, min(_LONGEST_TICK_S, settings.idle_s / 4, (settings.ping_s or _LONGEST_TICK_S) / 4)
        )

    # Opening

    async def open(self) -> None:
        """Connect, and tell the pool how it went."""
        failure: TransportError | None = None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._open()
        except TransportError as error:
            failure = error
        except TimeoutError:
            failure = TransportError(
                "ConnectTimeout", f"No connection to {self.origin.host}:{self.origin.port} in time."
            )
        except OSError as error:
            failure = TransportError("ConnectError", str(error))
        except BaseException as error:
            self._opening_failed(TransportError("ConnectError", f"{type(error).__name__} while connecting"))
            raise
        if failure is not None:
            self._opening_failed(failure)

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
        self._write()
        self._timer = self.loop.call_later(self._tick_s, self._look)
        self._be_ready()
        owner.opened(self)

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts what comes: one buffer for all of it, because a new one costs more than a small piece."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """This much has come."""
        arrived_ns = now_ns()
        http, tls = self.http, self.tls
        if http is None or self._dead:
            self._take_early(bytes(self._buffer[:nbytes]))
            return
        try:
            self.receive(self._buffer[:nbytes], arrived_ns)
        except TransportError as error:
            self._write()
            self._end(error, by_peer=True)
            return
        # Asked here, and not by `_after`, because for nearly every piece of an answer both say no.
        if http.outgoing or (tls is not None and tls.outgoing.pending):
            self._write()
        if self.ended or http.has_news:
            self._after()

    def _take_early(self, data: bytes) -> None:
        if self._dead:
            return
        if self._shaken is not None and not self._shaken.done():
            self._shake(data)
            return
        # Between the end of the handshake and the task that waits for it.
        with contextlib.suppress(TransportError):
            self.handshake(data)

    def eof_received(self) -> None:
        shaken = self._shaken
        if shaken is not None and not shaken.done():
            shaken.set_exception(
                TransportError("ConnectError", "The server closed the connection during the TLS handshake.")
            )
        elif not self._dead and self.http is not None:
            try:
                self.receive_end(now_ns())
            except TransportError as error:
                self._end(error, by_peer=True)

    def connection_lost(self, exc: Exception | None) -> None:
        shaken = self._shaken
        text = str(exc) if exc is not None else CLOSED
        if shaken is not None and not shaken.done():
            shaken.set_exception(TransportError("ConnectError", text))
        self._end(TransportError("ReadError", text), by_peer=True)
        self._be_gone()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _after(self) -> None:
        """Bytes were taken in: answer, and tell the pool what has changed."""
        self._write()
        if not self.has_changed():
            return
        self._be_ready()
        owner = self._owner()
        if owner is not None:
            owner.changed(self)
        if self.is_used_up:
            self._end(None, by_peer=True)

    def _be_ready(self) -> None:
        if self.http is not None and self.http.is_ready and not self.ready.done():
            self.ready.set_result(None)

    def _be_gone(self) -> None:
        for future in (self.ready, self.gone):
            if not future.done():
                future.set_result(None)

    def _look(self) -> None:
        """Look at the time, now and then."""
        owner = self._owner()
        if self._dead:
            return
        if owner is None:
            self._end(None, by_peer=False)
            return
        settings = self._settings
        ping_ns = None if settings.ping_s is None else owner.ping_interval_ns(self.origin, int(settings.ping_s * 1e9))
        if self.tick(now_ns(), idle_ns=int(settings.idle_s * 1e9), ping_ns=ping_ns) is not None:
            self._end(None, by_peer=False)
            return
        self._timer = self.loop.call_later(self._tick_s, self._look)
        self._after()

    def _end(self, error: TransportError | None, *, by_peer: bool) -> None:
        """The connection is at its end: tell everybody, and close it."""
        if self._dead:
            return
        self._dead = True
        idle = not self.claimed
        transport = self._transport
        if self._timer is not None:
            self._timer.cancel()
        if transport is not None and not transport.is_closing():
            if not by_peer:
                self._say_goodbye()
            # Nobody waits for what a peer does not take.
            if transport.get_write_buffer_size():
                transport.abort()
            else:
                transport.close()
        self.fail(error or TransportError("ReadError", CLOSED))
        self.resume_writing()
        owner = self._owner()
        if owner is not None:
            owner.closed(self, by_idle_peer=by_peer and idle)

    def _say_goodbye(self) -> None:
        with contextlib.suppress(TransportError):
            if self.http is not None:
                self.http.goodbye()
            self._write()
            if self.tls is not None:
                self.tls.close()
                self._write()

    def _write(self) -> None:
        try:
            data = self.output()
        except TransportError:
            return  # TLS is broken: reading says so too
        if data and self._transport is not None:
            self._transport.write(data)

    # What tasks call

    async def send_request(
        self,
        exchange: AsyncioExchange,
        first: tuple[bytes, bool],
        rest: AsyncIterator[tuple[bytes, bool]] | None,
        write_timeout_s: float | None,
    ) -> None:
        """Send a request, its body in pieces; an answer that comes earlier ends it. Raises TransportError."""
        data, last = first
        goes_on = await self._send_piece(exchange, data, last=last, begin=True, timeout_s=write_timeout_s)
        while goes_on and not last and rest is not None:
            data, last = await anext(rest)
            goes_on = await self._send_piece(exchange, data, last=last, begin=False, timeout_s=write_timeout_s)

    async def _send_piece(
        self, exchange: AsyncioExchange, data: bytes, *, last: bool, begin: bool, timeout_s: float | None
    ) -> bool:
        """Send a piece of the body, the first with the head; False where an answer has come already."""
        transport, http = self._transport, self.http
        if self._dead or http is None or transport is None or transport.is_closing():
            raise exchange.error or TransportError("ReadError", CLOSED, unprocessed=begin)
        if begin:
            clean = not transport.get_write_buffer_size()
            http.begin(exchange, end=last and not data)
            self.stamp_sending(exchange.phases, self._socket)
        position = 0
        while True:
            if not begin and (exchange.is_over or exchange.answer_head is not None):
                return False
            if not exchange.request_ended:
                position = self.push(exchange, data, position, last=last)
            self._write()
            if begin:
                begin = False
                if transport.is_closing() and clean:
                    # Not a byte of the request has left this machine: nobody can have processed it.
                    raise TransportError("WriteError", CLOSED, unprocessed=True)
            if self._paused:
                await self._wait_for_room(timeout_s)
            elif position >= len(data):
                break
            elif not http.room(exchange) and not await exchange.expect(timeout_s):
                raise _too_slow()
        if last:
            exchange.phases.send_ended_ns = now_ns()
        return True

    async def _wait_for_room(self, timeout_s: float | None) -> None:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._room_waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise _too_slow() from None

    def drop(self, exchange: AsyncioExchange) -> None:
        """Nobody reads the exchange any more."""
        exchange.done()
        if self._dead:
            exchange.leave()
        elif not self.cancel(exchange, now_ns()):
            self._end(TransportError("ReadError", CLOSED), by_peer=False)
        else:
            self._after()

    def abandon(self, exchange: AsyncioExchange) -> None:
        """The answer was garbage-collected, in whatever thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the connection with it
            self.loop.call_soon_threadsafe(self.drop, exchange)

    def took(self, exchange: AsyncioExchange, count: int) -> None:
        """The application has read this much of the body: let the peer send more."""
        if not self._dead and self.http is not None:
            self.http.took(exchange, count)
            self._write()

    def hang_up(self, error: TransportError) -> None:
        """Close the connection now."""
        if self.http is None and not self._dead:
            self._dead = True  # its opening fails
            if self._transport is not None:
                self._transport.abort()
            return
        self._end(error, by_peer=False)

    def looks_stale(self) -> bool:
        """Whether bytes or an end have come that the loop has not looked at yet."""
        sock = self._socket
        if sock is None:
            return False
        try:
            if hasattr(select, "poll"):
                poller = select.poll()
                poller.register(sock, select.POLLIN)
                return bool(poller.poll(0))
            return bool(select.select([sock], [], [], 0)[0])
        except (OSError, ValueError):
            return True  # closed: the next use says so

    def network_info(self, info: str) -> Any:
        """What the library's `network_stream` extension tells."""
        return None if self._socket is None else self.extra_info(info, self._socket)

    def forget(self) -> None:
        """Let go of the socket without a word: its loop has ended, or belongs to the parent process."""
        self._dead = True
        self.tls = None
        if self._socket is not None:
            self._socket.close()
        self.fail(TransportError("ReadError", "The connection belongs to an event loop that has ended."))


def _too_slow() -> TransportError:
    return TransportError("WriteTimeout", "The server did not take the request in time.")
