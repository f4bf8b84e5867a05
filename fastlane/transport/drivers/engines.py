"""Requests of the HTTP library sent over our connections, and answered in its terms."""

from __future__ import annotations

import asyncio
import os
import ssl
import types
import weakref
from collections.abc import Generator, Iterator
from functools import cache
from itertools import chain
from types import ModuleType
from typing import Any, ClassVar, Self

from fastlane._clock import now_ns

from ..pool.pool import PooledConnection
from ..pool.settings import Http2, PoolSettings, ProxyServer, library_of
from ..protocols.exchange import PHASES, Exchange, TransportError, as_library_error, ends_soon
from .asyncio_driver import AsyncioConnection, AsyncioExchange, LoopPool
from .connect import ssl_context
from .requests import OutgoingRequest, async_body_pieces, body_pieces, read_request, response_of
from .thread_driver import ThreadConnection, ThreadExchange, ThreadPool

# Bytes read by the application before the server may send as many more.
_CREDIT_BYTES = 262_144

# After `data: [DONE]` the end of the body is in the same packet or right behind it. Over HTTP/1.1 the next call can use
# the connection only once it has come.
_DRAIN_NS = 50_000_000


class _Body:
    """The part that the sync and the async class share."""

    def __init__(self, engine: Any, request: Any, exchange: Any, connection: Any, read_timeout_s: float | None) -> None:
        # A transport that the application has dropped lives on until its answers are read.
        self._engine = engine
        self._request = request
        self._exchange = exchange
        self._connection = connection
        self._read_timeout_s = read_timeout_s
        self._credited_bytes = 0
        self._is_closed = False

    def _next(self, exchange: Exchange) -> bytes:
        """Return the next piece, with all that arrived with it; empty if another thread has closed the response."""
        chunks = exchange.chunks
        try:
            came_ns, data = chunks.popleft()
            if chunks and chunks[0][0] == came_ns:
                parts = [data]
                while chunks and chunks[0][0] == came_ns:
                    parts.append(chunks.popleft()[1])
                data = b"".join(parts)
        except IndexError:
            return b""
        exchange.phases.chunk_ns = came_ns
        exchange.taken_bytes += len(data)
        if exchange.taken_bytes - self._credited_bytes >= _CREDIT_BYTES:
            self._credit(exchange)
        return data

    def _credit(self, exchange: Exchange) -> None:
        count = exchange.taken_bytes - self._credited_bytes
        self._credited_bytes = exchange.taken_bytes
        self._connection.took(exchange, count)

    def _timed_out(self) -> Exception:
        return self._library_error(TransportError("ReadTimeout", "The server sent nothing in time."))

    def _library_error(self, error: TransportError) -> Exception:
        return as_library_error(error, self._engine.library, self._request)

    def __del__(self) -> None:
        # Dropped without being closed: the rest is not read.
        if not getattr(self, "_is_closed", True) and not self._exchange.has_left:
            self._connection.abandon(self._exchange)


class SyncBody(_Body):
    """The body of a synchronous answer."""

    _exchange: ThreadExchange
    _connection: ThreadConnection

    def __iter__(self) -> Iterator[bytes]:
        exchange, timeout_s = self._exchange, self._read_timeout_s
        chunks, phases, wait = exchange.chunks, exchange.phases, exchange.wait
        while True:
            # In this order: the thread that reads adds a piece before it says that it was the last.
            is_over = exchange.answer_ended or exchange.error is not None
            if len(chunks) == 1:
                try:
                    phases.chunk_ns, data = chunks.popleft()
                except IndexError:  # another thread has closed the answer
                    continue
                exchange.taken_bytes += len(data)
                if exchange.taken_bytes - self._credited_bytes >= _CREDIT_BYTES:
                    self._credit(exchange)
                yield data
            elif chunks:
                data = self._next(exchange)
                if data:
                    yield data
            elif not is_over:
                if not wait(timeout_s):
                    raise self._timed_out()
            elif exchange.error is not None:
                raise self._library_error(exchange.error)
            else:
                return

    def close(self) -> None:
        """Close the body. One that was not read to its end is cancelled, so that the server stops."""
        if self._is_closed:
            return
        self._is_closed = True
        exchange = self._exchange
        if exchange.has_left:
            return
        if self._connection.is_http1 and not exchange.is_awaited and ends_soon(exchange):
            until_ns = now_ns() + _DRAIN_NS
            while not exchange.is_over and exchange.wait((until_ns - now_ns()) / 1e9):
                exchange.chunks.clear()
        # Where it has come to its end meanwhile, another thread that reads it may have missed that.
        self._connection.drop(exchange)


class AsyncBody(_Body):
    """The body of an asynchronous answer."""

    _exchange: AsyncioExchange
    _connection: AsyncioConnection

    def __aiter__(self) -> Self:
        return self

    # A generator that is awaited, and not an asynchronous one: fewer frames to go through for each piece.
    @types.coroutine
    def __anext__(self) -> Generator[Any, None, bytes]:
        exchange = self._exchange
        chunks = exchange.chunks
        while True:
            if len(chunks) == 1:
                exchange.phases.chunk_ns, data = chunks.popleft()
                exchange.taken_bytes += len(data)
                if exchange.taken_bytes - self._credited_bytes >= _CREDIT_BYTES:
                    self._credit(exchange)
                return data
            if chunks:
                return self._next(exchange)
            if exchange.error is not None:
                raise self._library_error(exchange.error)
            if exchange.answer_ended:
                raise StopAsyncIteration
            yield exchange.expect(self._read_timeout_s)
            if exchange.timed_out:
                raise self._timed_out()

    async def aclose(self) -> None:
        """Close the body. One that was not read to its end is cancelled, so that the server stops."""
        if self._is_closed:
            return
        self._is_closed = True
        exchange = self._exchange
        try:
            # (A task that reads it sees to the end itself.)
            drains = self._connection.is_http1 and not exchange.has_left and not exchange.is_awaited
            if drains and ends_soon(exchange):
                until_ns = now_ns() + _DRAIN_NS
                while not exchange.is_over and await exchange.expect(max(0.0, (until_ns - now_ns()) / 1e9)):
                    exchange.chunks.clear()
        finally:
            exchange.done()
            if not exchange.has_left:
                self._connection.drop(exchange)


@cache
def body_class(library: ModuleType, *, asynchronous: bool) -> type[Any]:
    """Return the class of bodies that is a stream of the HTTP library."""
    if asynchronous:
        return type("AsyncBody", (AsyncBody, library.AsyncByteStream), {})
    return type("SyncBody", (SyncBody, library.SyncByteStream), {})


# A connection may close in the very moment in which a call is given it, before anything was sent. That many in a row is
# no accident.
_MOST_CONNECTIONS = 5

_HTTP1: Http2 = "never"

ENGINES: weakref.WeakSet[Any] = weakref.WeakSet()


class Engine:
    """The part that the sync and the async class share."""

    _asynchronous: ClassVar[bool]

    def __init__(self, settings: PoolSettings) -> None:
        self.settings = settings
        self.library = library_of(settings)
        self._body_class = body_class(self.library, asynchronous=self._asynchronous)
        ENGINES.add(self)

    def context(self, proxy: ProxyServer | None = None) -> ssl.SSLContext:
        """Return the TLS context of the pool, or the one for a proxy, which is spoken to over HTTP/1.1."""
        settings = self.settings
        verify, http2 = (settings.verify, settings.http2) if proxy is None else (proxy.verify, _HTTP1)
        return ssl_context(verify, settings.certificates, http2, library=settings.library)

    def make_contexts(self) -> None:
        """Read the certificates now, which takes milliseconds, and not on the first call's path."""
        self.context()
        for _, proxy in self.settings.proxies:
            if proxy is not None and proxy.scheme == "https":
                self.context(proxy)

    def _response(self, request: Any, outgoing: OutgoingRequest, exchange: Any, connection: Any) -> Any:
        head = exchange.answer_head
        extensions: dict[str, Any] = {
            "http_version": connection.http_version,
            "network_stream": connection,
            PHASES: exchange.phases,
        }
        if connection.is_http1:
            extensions["reason_phrase"] = head.reason
        else:
            extensions["stream_id"] = exchange.stream_id
        stream = self._body_class(self, request, exchange, connection, outgoing.timeouts.read)
        return response_of(self.library, head.status, head.headers, stream, extensions)


def _may_resend(outgoing: OutgoingRequest, error: BaseException) -> bool:
    """Return whether to send an unprocessed request once more on another connection; prepares its phases for that."""
    if not isinstance(error, TransportError) or not error.unprocessed:
        return False
    phases = outgoing.phases
    begun = phases.send_started_ns is not None
    if begun and (phases.resent or outgoing.body is None):
        return False
    phases.begin_again(resent=begun)
    return True


def _no_connection() -> TransportError:
    message = f"{_MOST_CONNECTIONS} connections were closed before they could be used."
    return TransportError("ConnectError", message)


class SyncEngine(Engine):
    """A synchronous transport's work."""

    _asynchronous = False

    def __init__(self, settings: PoolSettings) -> None:
        super().__init__(settings)
        self._pool = ThreadPool(settings, self.context)

    def handle_request(self, request: Any) -> Any:
        """Send a request and return its response, the body unread. Raises the library's errors."""
        try:
            outgoing = read_request(request, self.library)
            route, timeouts, head, body, phases, patience = outgoing
            rest = body_pieces(request) if body is None else iter(())
            first = next(rest) if body is None else (body, True)
            for _ in range(_MOST_CONNECTIONS):
                if patience is not None:
                    patience.check()
                connection = self._pool.acquire(route.origin, timeouts, phases, patience)
                exchange: ThreadExchange | None = None
                try:  # from here on, so that Ctrl-C leaves no place taken
                    exchange = ThreadExchange(head, phases, connection, patience)
                    if patience is not None:
                        patience.check()
                    connection.send_request(exchange, chain([first], rest), timeouts.write)
                    while exchange.answer_head is None:
                        if exchange.error is not None:
                            raise exchange.error.again()  # so that the error and this frame do not keep each other
                        if not exchange.wait(timeouts.read):
                            raise TransportError("ReadTimeout", "The server did not answer in time.")
                    return self._response(request, outgoing, exchange, connection)
                except BaseException as error:
                    if exchange is None:
                        self._pool.unclaim(connection)
                    else:
                        connection.drop(exchange)
                    if not _may_resend(outgoing, error):
                        raise
            raise _no_connection()
        except TransportError as error:
            raise as_library_error(error, self.library, request) from error

    def warm(self, request: Any) -> bool:
        """Open a connection that such a request could be sent on, and keep one open; the request is not sent.

        True once the connection stands. Raises the library's errors.
        """
        try:
            outgoing = read_request(request, self.library)
            self._pool.warm(outgoing.route.origin, outgoing.timeouts)
        except TransportError as error:
            raise as_library_error(error, self.library, request) from error
        return True

    def close(self) -> None:
        """Close every connection; the transport can be used again and opens new ones."""
        self._pool.close()

    def members(self) -> Iterator[PooledConnection]:
        """Return every connection, open or opening. Takes no lock: the list may change meanwhile."""
        return self._pool.pool.members()

    def forget(self) -> None:
        """Release the parent's connections in a child process."""
        self._pool.forget()


class AsyncEngine(Engine):
    """An asynchronous transport's work, on whichever event loop it is called."""

    _asynchronous = True

    def __init__(self, settings: PoolSettings) -> None:
        super().__init__(settings)
        self._pools: dict[asyncio.AbstractEventLoop, LoopPool] = {}

    async def _pool(self) -> LoopPool:
        # Sockets belong to the loop that opened them: a client that lives through two `asyncio.run()` gets a pool for
        # each.
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            self._forget_ended_loops()
            pool = self._pools[loop] = LoopPool(self.settings, self.context)
            pools = self._pools
            made = pool
            # Not by the loop alone: another pool may be its by then.
            await pool.close_at_the_end(lambda: pools.pop(loop) if pools.get(loop) is made else None)
        return pool

    def _forget_ended_loops(self) -> None:
        """Forget loops that ended without closing their connections."""
        for loop in list(self._pools):
            if loop.is_closed():
                self._pools.pop(loop).forget()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request and return its response, the body unread. Raises the library's errors."""
        try:
            outgoing = read_request(request, self.library)
            route, timeouts, head, body, phases, patience = outgoing
            pool = self._pools.get(asyncio.get_running_loop()) or await self._pool()
            rest = None if body is not None else async_body_pieces(request)
            first = (body or b"", True) if rest is None else await anext(rest)
            for _ in range(_MOST_CONNECTIONS):
                if patience is not None:
                    patience.check()
                connection = await pool.acquire(route.origin, timeouts, phases, patience)
                exchange = AsyncioExchange(head, phases, connection, patience)
                try:
                    if patience is not None:
                        patience.check()
                    await connection.send_request(exchange, first, rest, timeouts.write)
                    while exchange.answer_head is None:
                        if exchange.error is not None:
                            raise exchange.error.again()  # so that the error and this frame do not keep each other
                        if not await exchange.expect(timeouts.read):
                            raise TransportError("ReadTimeout", "The server did not answer in time.")
                    return self._response(request, outgoing, exchange, connection)
                except BaseException as error:
                    connection.drop(exchange)
                    if not _may_resend(outgoing, error):
                        raise
            raise _no_connection()
        except TransportError as error:
            raise as_library_error(error, self.library, request) from error

    async def warm(self, request: Any) -> bool:
        """Open a connection on this event loop that such a request could be sent on; see `SyncEngine.warm`."""
        try:
            outgoing = read_request(request, self.library)
            await (await self._pool()).warm(outgoing.route.origin, outgoing.timeouts)
        except TransportError as error:
            raise as_library_error(error, self.library, request) from error
        return True

    async def aclose(self) -> None:
        """Close every connection of this event loop; the transport can be used again and opens new ones."""
        self._forget_ended_loops()
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    def members(self) -> Iterator[PooledConnection]:
        """Return every connection on any loop that still runs, open or opening. Takes no lock."""
        for loop, pool in list(self._pools.items()):
            if not loop.is_closed():
                yield from pool.pool.members()

    def forget(self) -> None:
        """Release the parent's connections in a child process."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.forget()


def _start_anew_after_fork() -> None:
    """Release the parent's connections in a child process without closing the protocol."""
    for engine in list(ENGINES):
        engine.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_after_fork)
