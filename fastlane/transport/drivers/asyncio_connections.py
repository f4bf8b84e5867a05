"""Connections for asyncio: a protocol on the event loop's own transport, which reads for all exchanges at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns

from ..pool.settings import Origin, tick_s
from ..protocols.errors import TransportError
from ..protocols.limits import STREAM_WINDOW
from .asyncio_exchange import AsyncioExchange
from .asyncio_opening import OpeningLink
from .link import CLOSED
from .sockets import is_ready

if TYPE_CHECKING:
    from .loop_pool import LoopPool

_READ_BYTES = 65_536


class AsyncioLink(OpeningLink):
    """One connection on an event loop."""

    def __init__(self, owner: LoopPool, origin: Origin) -> None:
        super().__init__(owner, origin)
        self._stalled: deque[AsyncioExchange] = deque()
        """Those whose requests wait for room in the socket."""
        self._paused = False
        self.woken: deque[AsyncioExchange] = deque()
        """Those that are resumed at the end of the read that is going on."""
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._timer: asyncio.TimerHandle | None = None
        self.tick_s = tick_s(self._settings)

    # What the loop calls

    def _begin(self) -> None:
        self._write()
        self._timer = self.loop.call_later(self.tick_s, self._look)

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
        self.is_reading = True
        self._heard_ns = arrived_ns
        try:
            # As `receive` does it, which would be one more call for each piece of each answer.
            if tls is None:
                http.receive(bytes(self._buffer[:nbytes]), arrived_ns)
            else:
                plain = tls.feed(self._buffer[:nbytes])
                if plain:
                    http.receive(plain, arrived_ns)
                if tls.ended:
                    self.receive_end(arrived_ns)
        except TransportError as error:
            self._write()
            self._end(error, by_peer=True)
        else:
            # Asked here, and not by `_after`, because for nearly every piece of an answer both say no.
            if http.outgoing or (tls is not None and tls.outgoing.pending):
                self._write()
            if self.ended or http.has_news:
                self._after()
        finally:
            self.is_reading = False
        exchange = self._exchange
        if exchange is not None and exchange.arrived_bytes - exchange.taken_bytes >= STREAM_WINDOW:
            self._read_on()
        if self.woken:
            self._resume()

    def _resume(self) -> None:
        """Go on with the tasks that were waiting for what has come."""
        woken = self.woken
        if "nest_asyncio" in sys.modules and getattr(self.loop, "_nest_patched", False):
            # Loops that run within their own callbacks (nest_asyncio, in notebooks) need a turn for each task.
            while woken:
                self.loop.call_soon(woken.popleft().resume)
            return
        try:
            while woken:
                woken.popleft().resume()
        finally:
            if woken:  # an application's SystemExit or KeyboardInterrupt passes here
                self.loop.call_soon(self._resume)

    def eof_received(self) -> None:
        """Handle the peer's end of the stream."""
        shaken = self._shaken
        if shaken is not None and not shaken.done():
            shaken.set_exception(
                TransportError("ConnectError", "The server closed the connection during the TLS handshake.")
            )
        elif not self._dead and self.http is not None:
            self.is_reading = True
            try:
                self.receive_end(now_ns())
            except TransportError as error:
                self._end(error, by_peer=True)
            finally:
                self.is_reading = False
            self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all exchanges of the connection."""
        if exc is not None and not self._dead and self.http is not None and self._shaken is None:
            self._read_what_is_left()
        shaken = self._shaken
        text = str(exc) if exc is not None else CLOSED
        if shaken is not None and not shaken.done():
            shaken.set_exception(TransportError("ConnectError", text))
        self._end(TransportError("ReadError", text), by_peer=True)
        self._be_gone()

    def _read_what_is_left(self) -> None:
        """Writing has failed. An answer may have come before: the loop, which reads no more, still has the socket."""
        sock = self._socket
        with contextlib.suppress(OSError):
            while sock is not None and not self._dead:
                size = sock.recv_into(self._buffer)
                if not size:
                    return
                self.buffer_updated(size)

    def pause_writing(self) -> None:
        """Stop writing while the transport's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on writing."""
        self._paused = False
        while self._stalled:
            self._stalled.popleft().wake()

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

    def _look(self) -> None:
        """Look at the time, now and then."""
        owner = self._owner()
        if self._dead:
            return
        if owner is None and not self.is_busy:  # answers that are still read keep their pool alive
            self._end(None, by_peer=False)
        for exchange in list(self.waiting):
            exchange.look_ahead(2 * self.tick_s)
        if owner is None:
            if self.waiting:
                self._timer = self.loop.call_later(self.tick_s, self._look)
            else:
                self.tick_s = math.inf  # this was the last look: who waits from now on has a timer of its own
            return
        settings = self._settings
        ping_ns = None if settings.ping_s is None else owner.ping_interval_ns(self.origin, int(settings.ping_s * 1e9))
        if self.tick(now_ns(), idle_ns=int(settings.idle_s * 1e9), ping_ns=ping_ns) is not None:
            self._end(None, by_peer=False)
            return
        self._timer = self.loop.call_later(self.tick_s, self._look)
        self._write()
        owner.changed(self)  # calls may wait that a failure to open a further connection has left waiting

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
        transport = self._transport
        if data and transport is not None and not transport.is_closing():  # the loop would log what it cannot send
            transport.write(data)

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
        # (Before it has begun, too: another task may have given it up.)
        if exchange.error is not None or exchange.answer_ended or exchange.answer_head is not None:
            return False
        if self._dead or http is None or transport is None or transport.is_closing():
            self.is_closed = True  # the pool hears of it in a later turn of the loop, and would give it to others
            raise TransportError("ReadError", CLOSED, unprocessed=begin)
        if begin:
            clean = not transport.get_write_buffer_size()
            self.begin(exchange, end=last and not data)
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
                    self.is_closed = True
                    exchange.phases.send_started_ns = None
                    raise TransportError("WriteError", CLOSED, unprocessed=True)
            if self._paused:
                self._stalled.append(exchange)
            elif position >= len(data):
                break
            elif http.room(exchange):
                continue
            if not await exchange.expect(timeout_s):
                raise TransportError("WriteTimeout", "The server did not take the request in time.")
        if last:
            exchange.phases.send_ended_ns = now_ns()
        return True

    def drop(self, exchange: AsyncioExchange, given_up: bool = False) -> None:
        """Nobody reads the exchange any more, or whoever does is told that it was given up."""
        exchange.done()
        if self._dead:
            exchange.leave()
        elif not self.cancel(exchange, now_ns(), given_up=given_up):
            self._end(TransportError("ReadError", CLOSED), by_peer=False)
        else:
            self._after()
            self._read_on()

    def abandon(self, exchange: AsyncioExchange) -> None:
        """The answer was garbage-collected, in whatever thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the connection with it
            self.loop.call_soon_threadsafe(self.drop, exchange)

    def took(self, exchange: AsyncioExchange, count: int) -> None:
        """The application has read this much of the body: let the peer send more."""
        if not self._dead and self.http is not None:
            self.http.took(exchange, count)
            self._write()
            self._read_on()

    def _read_on(self) -> None:
        """Have an answer over HTTP/1.1 wait for its reader, or no longer."""
        if self._transport is None or self._dead:
            return
        if self.is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def hang_up(self, error: TransportError) -> None:
        """Close the connection now."""
        if self.http is not None:
            self._end(error, by_peer=False)
        elif self.opening_task is not None:
            self.opening_task.cancel()

    def looks_stale(self) -> bool:
        """Whether bytes or an end have come that the loop has not looked at yet."""
        return self._socket is not None and is_ready(self._socket, 0.0, write=False)

    def network_info(self, info: str) -> Any:
        """What the library's `network_stream` extension tells."""
        return None if self._socket is None else self.extra_info(info, self._socket)

    def forget(self) -> None:
        """Let go of the socket without a word: its loop has ended, or belongs to the parent process."""
        self._dead = True
        self.is_reading = True  # nobody can be resumed on a loop that has ended
        self.tls = None
        if self._socket is not None:
            self._socket.close()
        self.fail(TransportError("ReadError", "The connection belongs to an event loop that has ended."))
