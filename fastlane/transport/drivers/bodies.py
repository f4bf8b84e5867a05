"""The bodies of answers, read from their exchanges."""

from __future__ import annotations

import types
from collections.abc import Generator, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Self

from fastlane._clock import now_ns

from ..protocols.errors import TransportError, as_library_error
from ..protocols.exchange import Exchange, worth_lingering
from .asyncio_connections import AsyncioLink
from .asyncio_exchange import AsyncioExchange
from .thread_connections import ThreadLink
from .thread_exchange import ThreadExchange

# Bytes read by the application before the server is told that it may send as many more.
_CREDIT_BYTES = 262_144

# After `data: [DONE]` the end of the body is in the same packet or right behind it. Over HTTP/1.1 the next call can use
# the connection only once it has come.
_DRAIN_NS = 50_000_000


class _Body:
    """What both forms share."""

    def __init__(
        self, library: ModuleType, request: Any, exchange: Any, link: Any, pool: Any, read_timeout_s: float | None
    ) -> None:
        self._library = library
        self._request = request
        self._exchange = exchange
        self._link = link
        # A transport that the application has dropped lives on until its answers are read.
        self._pool = pool
        self._read_timeout_s = read_timeout_s
        self._credited_bytes = 0
        self._is_closed = False

    def _next(self, exchange: Exchange) -> bytes:
        """The next piece, with all that came with it; empty where another thread has closed the answer."""
        chunks = exchange.chunks
        try:
            came_ns, data = chunks.popleft()
            if chunks and chunks[0][0] == came_ns:
                pieces = [data]
                while chunks and chunks[0][0] == came_ns:
                    pieces.append(chunks.popleft()[1])
                data = b"".join(pieces)
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
        self._link.took(exchange, count)

    def _timed_out(self) -> Exception:
        error = TransportError("ReadTimeout", "The server sent nothing in time.")
        return as_library_error(error, self._library, self._request)

    def _raise(self, error: TransportError) -> None:
        raise as_library_error(error, self._library, self._request)

    def __del__(self) -> None:
        # Dropped without being closed: nobody reads the rest.
        if not getattr(self, "_is_closed", True) and not self._exchange.has_left:
            self._link.abandon(self._exchange)


class SyncBody(_Body):
    """The body of a synchronous answer."""

    _exchange: ThreadExchange
    _link: ThreadLink

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
                self._raise(exchange.error)
            else:
                return

    def close(self) -> None:
        """End the body. One that was left half-read is broken off, so that the server stops."""
        if self._is_closed:
            return
        self._is_closed = True
        exchange = self._exchange
        if exchange.has_left:
            return
        if self._link.is_http1 and not exchange.is_awaited and worth_lingering(exchange):
            until_ns = now_ns() + _DRAIN_NS
            while not exchange.is_over and exchange.wait((until_ns - now_ns()) / 1e9):
                exchange.chunks.clear()
        # Where it has come to its end meanwhile, another thread that reads it may have missed that.
        self._link.drop(exchange)


class AsyncBody(_Body):
    """The body of an asynchronous answer."""

    _exchange: AsyncioExchange
    _link: AsyncioLink

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
                self._raise(exchange.error)
            if exchange.answer_ended:
                raise StopAsyncIteration
            yield exchange.expect(self._read_timeout_s)
            if exchange.timed_out:
                raise self._timed_out()

    async def aclose(self) -> None:
        """End the body. One that was left half-read is broken off, so that the server stops."""
        if self._is_closed:
            return
        self._is_closed = True
        exchange = self._exchange
        try:
            # (A task that reads it sees to the end itself.)
            drains = self._link.is_http1 and not exchange.has_left and not exchange.is_awaited
            if drains and worth_lingering(exchange):
                until_ns = now_ns() + _DRAIN_NS
                while not exchange.is_over and await exchange.expect(max(0.0, (until_ns - now_ns()) / 1e9)):
                    exchange.chunks.clear()
        finally:
            exchange.done()
            if not exchange.has_left:
                self._link.drop(exchange)


@cache
def body_class(library: ModuleType, *, asynchronous: bool) -> type[Any]:
    """The body as the library knows its streams."""
    if asynchronous:
        return type("AsyncBody", (AsyncBody, library.AsyncByteStream), {})
    return type("SyncBody", (SyncBody, library.SyncByteStream), {})
