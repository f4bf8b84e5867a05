"""Connections for asyncio: a protocol on the event loop's own transport, which reads for all exchanges at once."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, cast

from fastlane._clock import now_ns

from ..pool.pool import GROW_AGAIN_NS, Pool
from ..pool.settings import PoolSettings, ServerOrigin
from ..protocols.exchange import TAIL_BYTES, Exchange, Patience, Phases, RequestHead, TransportError
from ..protocols.limits import STREAM_WINDOW
from .connect import connect_asyncio
from .connection import CLOSED, MOST_OPENING_S, ClientConnection, PooledExchange, PoolWaiter, TlsContexts, is_ready
from .requests import Timeouts


class AsyncioExchange(PooledExchange):
    """An exchange that a task waits for.

    It is future-like (`asyncio.isfuture`), so that the callback that reads the socket resumes its task: with a future
    of the loop's own the task would resume one turn of the loop later.
    """

    __slots__ = (
        "__weakref__",
        "_asyncio_future_blocking",
        "_callback",
        "_cancellation",
        "_context",
        "_is_woken",
        "_loop",
        "_patience",
        "_timer",
        "_timer_ns",
        "_until_ns",
        "_woken",
        "timed_out",
    )

    def __init__(
        self,
        request_head: RequestHead,
        phases: Phases,
        connection: AsyncioConnection,
        patience: Patience | None = None,
    ) -> None:
        Exchange.__init__(self, request_head, phases)
        self.connection = connection
        self.has_left = False
        self._loop = connection.loop
        self._woken = connection.woken
        """Those of the connection that are resumed at the end of the read that is going on."""
        self._asyncio_future_blocking = False
        self._callback: Callable[[Any], object] | None = None
        self._context: contextvars.Context | None = None
        self._cancellation: asyncio.CancelledError | None = None
        self._is_woken = False
        """Resuming the task that waits is under way."""
        self.timed_out = False
        """The last wait ended because nothing happened in time."""
        self._timer: asyncio.TimerHandle | None = None
        """One for all waits of the exchange: to set one and take it back costs more than a piece of an answer."""
        self._timer_ns = 0
        """When the timer is due: not after the wait that is going on."""
        self._until_ns: int | None = None
        """When the wait that is going on times out."""
        self._patience = patience
        if patience is not None:
            patience.attend(self)

    # What the protocol tells

    def arrived(self, data: bytes, now_ns: int) -> None:
        """Take bytes of the response's body."""
        # As the base class has it, in one piece: this is the path of every piece of every answer.
        self.phases.data_ns.append(now_ns)
        self.arrived_bytes += len(data)
        self.tail = data if len(data) >= TAIL_BYTES else self.tail[-TAIL_BYTES:] + data
        if not self.discarding:
            self.chunks.append((now_ns, data))
        if self._callback is not None and not self._is_woken:
            self._is_woken = True
            self._woken.append(self)

    def wake(self) -> None:
        """Wake the task that waits."""
        if (self.answer_ended and self.request_ended) or self.error is not None:
            self.leave()
        if self.answer_ended or self.error is not None:
            self.done()  # nothing waits any more, and a timer would keep what is not read
        if self._callback is not None and not self._is_woken:
            self._is_woken = True
            if self.connection.is_reading:
                self._woken.append(self)
            else:
                # Another task has done it, and no task can be resumed from within another.
                self._loop.call_soon(self.resume)

    # What a task waits on

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits."""
        return self._callback is not None

    def expect(self, timeout_s: float | None) -> AsyncioExchange:
        """Return what to await until something happens; after `timeout_s` without anything, `timed_out` is set.

        To be awaited (or yielded to the task) at once, and by one task at a time.
        """
        if self._callback is not None:
            raise RuntimeError("This answer is being read by another task.")
        self._is_woken = self.timed_out = False
        self._asyncio_future_blocking = True
        if self._patience is not None:
            timeout_s = self._patience.within(timeout_s, now_ns())
        if timeout_s is None:
            self._until_ns = None
        else:
            self._until_ns = until_ns = now_ns() + int(timeout_s * 1e9)
            if self._timer is None or until_ns < self._timer_ns:
                self.done()
                self._set_timer(timeout_s)
        return self

    def __await__(self) -> Generator[Any, None, bool]:
        """Wait; return whether something happened within the time."""
        yield self
        return not self.timed_out

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """As a future has it."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: contextvars.Context) -> None:
        """Register the waiting task's callback, as a future does."""
        self._callback = callback
        self._context = context

    def cancel(self, msg: object = None) -> bool:
        """Take the cancellation of the waiting task, as a future does. Return False if the task is about to resume."""
        if self._callback is None or self._is_woken:
            return False
        # With its message, by which the canceller recognises its cancellation.
        self._cancellation = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._is_woken = True
        self._loop.call_soon(self.resume)
        return True

    def result(self) -> None:
        """As a future has it."""
        cancellation, self._cancellation = self._cancellation, None
        if cancellation is not None:
            raise cancellation

    def resume(self) -> None:
        """Resume the waiting task. Not to be called from within a task."""
        callback, context = self._callback, self._context
        self._callback = self._context = None
        if callback is not None and context is not None:
            context.run(callback, self)

    # Time

    def _set_timer(self, left_s: float) -> None:
        self._timer_ns = now_ns() + int(left_s * 1e9)
        self._timer = self._loop.call_later(left_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._callback is None or self._is_woken or self._until_ns is None:
            return
        left_s = (self._until_ns - now_ns()) / 1e9
        if left_s <= 0:
            self.timed_out = True
            self.resume()
        else:
            self._set_timer(left_s)

    def done(self) -> None:
        """End the wait: no task waits any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def give_up(self) -> None:
        """End a request that was given up, and wake its waiter. Takes no lock."""
        # In a turn of its own: the garbage collector may come here amid the connection's work, and in any thread.
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the connection with it
            self._loop.call_soon_threadsafe(cast("AsyncioConnection", self.connection).drop, self, True)


_READ_BYTES = 65_536


class AsyncioConnection(ClientConnection, asyncio.BufferedProtocol):
    """One connection on an event loop."""

    def __init__(self, owner: LoopPool, origin: ServerOrigin) -> None:
        super().__init__(origin, owner.settings)
        self.loop = owner.loop
        # The loop's timers must not keep a pool alive that everybody else has dropped.
        self._owner = weakref.ref(owner)
        self.ready: asyncio.Future[None] = self.loop.create_future()
        """The peer has said what it allows, or the connection is gone."""
        self.gone: asyncio.Future[None] = self.loop.create_future()
        """The socket is closed."""
        self._transport: asyncio.Transport | None = None
        self._shaken: asyncio.Future[None] | None = None
        self.opening_task: asyncio.Task[None] | None = None
        self._dead = False
        self._stalled: deque[AsyncioExchange] = deque()
        """Those whose requests wait for room in the socket."""
        self._paused = False
        self.woken: deque[AsyncioExchange] = deque()
        """Those that are resumed at the end of the read that is going on."""
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._timer: asyncio.TimerHandle | None = None

    # Opening

    async def open(self) -> None:
        """Connect, and tell the pool how it went."""
        failure: TransportError | None = None
        try:
            async with asyncio.timeout(MOST_OPENING_S):
                await self._open()
        except TransportError as error:
            failure = error
        except TimeoutError:
            server = f"{self.origin.host}:{self.origin.port}"
            failure = self.of_proxy(TransportError("ConnectTimeout", f"No connection to {server} in time."))
        except OSError as error:
            failure = TransportError("ConnectError", str(error))
            failure.__cause__ = error
        except BaseException as error:
            self._opening_failed(TransportError("ConnectError", f"{type(error).__name__} while connecting"))
            raise
        if failure is not None:
            self._opening_failed(failure)

    def opening_ended(self, task: asyncio.Task[None]) -> None:
        """Report a task that was cancelled before it began to open the connection."""
        if task.cancelled() and not self._dead:
            self._opening_failed(TransportError("ConnectError", CLOSED))
        if self._transport is None:
            self._be_gone()

    def _opening_failed(self, error: TransportError) -> None:
        self._dead = True
        self._layers = None
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
        self.begin_handshakes(owner.context)
        del owner
        try:
            sock, opening = await connect_asyncio(*self.connects_to)
        except TransportError as error:
            raise self.of_proxy(error) from error.__cause__
        self._socket = sock
        try:
            await self.loop.create_connection(lambda: self, sock=sock)
        except BaseException:
            sock.close()
            raise
        self._shaken = self.loop.create_future()
        self._shake(b"")
        try:
            await self._shaken
        finally:
            self._shaken = None
        owner = self._owner()
        if owner is None or self._dead or self._transport is None or self._transport.is_closing():
            raise TransportError("ConnectError", CLOSED)
        self.establish(opening, now_ns())
        self._write()
        self._timer = self.loop.call_later(self.tick_s, self._look)
        self._be_ready()
        owner.opened(self)

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

    # What the loop calls

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for received bytes: always the same, because a new one costs more than a small piece."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were received."""
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
                if tls.error is not None:
                    raise tls.error.again()
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
        """Resume the tasks that waited for the received bytes."""
        woken = self.woken
        if "nest_asyncio" in sys.modules:
            # The loops that it patches, in notebooks, run within their own callbacks: they need a turn for each task.
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
            shaken.set_exception(self.cut_off())
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
            shaken.set_exception(self.of_proxy(TransportError("ConnectError", text)))
        else:
            self._end(TransportError("ReadError", text), by_peer=True)
        self._be_gone()

    def _read_what_is_left(self) -> None:
        """Read a response that arrived before a write failed: the loop reads no more, but still has the socket."""
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
        """Send replies after bytes were received, and tell the pool what changed."""
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
        """Check timeouts, pings and idle time."""
        owner = self._owner()
        if self._dead:
            return
        if owner is None:
            if self.is_busy:  # answers that are still read keep their pool alive
                self._timer = self.loop.call_later(self.tick_s, self._look)
            else:
                self._end(None, by_peer=False)
            return
        if self.tick(now_ns(), may_ping=owner.pool.allows_pings(self.origin)) is not None:
            self._end(None, by_peer=False)
            return
        self._timer = self.loop.call_later(self.tick_s, self._look)
        self._write()
        owner.changed(self)  # calls may wait that a failure to open a further connection has left waiting

    def _end(self, error: TransportError | None, *, by_peer: bool) -> None:
        """Close the connection, and fail its exchanges."""
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
            # Do not wait for what a peer does not take.
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
        (data, last), begin = first, True
        while True:
            transport, http = self._transport, self.http
            # (Before it has begun, too: another task may have given it up.)
            if exchange.error is not None or exchange.answer_ended or exchange.answer_head is not None:
                return
            if self._dead or http is None or transport is None or transport.is_closing():
                self.is_closed = True  # the pool learns it in a later turn of the loop, and would give it to others
                raise TransportError("ReadError", CLOSED, unprocessed=begin)
            if begin:
                clean = not transport.get_write_buffer_size()
                self.begin(exchange, end=last and not data)
            position = 0
            while True:
                if not begin and (exchange.is_over or exchange.answer_head is not None):
                    return
                if not exchange.request_ended:
                    position = self.push(exchange, data, position, last=last)
                self._write()
                if begin:
                    begin = False
                    if transport.is_closing() and clean:
                        # Not a byte of the request has left this machine: the server cannot have processed it.
                        self.is_closed = True
                        exchange.phases.send_started_ns = None
                        raise TransportError("WriteError", CLOSED, unprocessed=True)
                if self._paused:
                    self._stalled.append(exchange)
                elif position >= len(data):
                    break
                elif http.room(exchange):
                    continue
                if not await exchange.expect(write_timeout_s):
                    raise TransportError("WriteTimeout", "The server did not take the request in time.")
            if last:
                exchange.phases.send_ended_ns = now_ns()
            if last or rest is None:
                return
            data, last = await anext(rest)

    def drop(self, exchange: AsyncioExchange, given_up: bool = False) -> None:
        """Drop an exchange that is no longer read, or that was given up."""
        exchange.done()
        if self._dead:
            exchange.leave()
        elif not self.cancel(exchange, now_ns(), given_up=given_up):
            self._end(TransportError("ReadError", CLOSED), by_peer=False)
        else:
            self._after()
            self._read_on()

    def abandon(self, exchange: AsyncioExchange) -> None:
        """Drop the exchange of a response that was garbage-collected, in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the connection with it
            self.loop.call_soon_threadsafe(self.drop, exchange)

    def took(self, exchange: AsyncioExchange, count: int) -> None:
        """Credit the peer with bytes that the application has read."""
        if not self._dead and self.http is not None:
            self.http.took(exchange, count)
            self._write()
            self._read_on()

    def _read_on(self) -> None:
        """Pause or resume reading an HTTP/1.1 response, depending on what its reader has left unread."""
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
        """Return whether the socket holds bytes or an end that the loop has not read yet."""
        return self._socket is not None and is_ready(self._socket, 0.0, write=False)

    def forget(self) -> None:
        """Release the socket without closing the protocol: its loop has ended, or belongs to the parent process."""
        self._dead = True
        self.is_reading = True  # nothing can be resumed on a loop that has ended
        self.tls = None
        if self._socket is not None:
            self._socket.close()
        self.fail(TransportError("ReadError", "The connection belongs to an event loop that has ended."))


# How long `aclose()` waits for the sockets to be closed.
_CLOSE_S = 5.0


class LoopWaiter(PoolWaiter[AsyncioConnection]):
    """A task that waits for a connection."""

    def __init__(self, pool: Pool, origin: ServerOrigin, timeouts: Timeouts, patience: Patience | None) -> None:
        super().__init__(pool, origin, timeouts, patience)
        self._woken = asyncio.get_running_loop().create_future()
        if patience is not None:
            patience.attend(self)

    def wake(self) -> None:
        """Wake the task."""
        if not self._woken.done():
            self._woken.set_result(None)

    def give_up(self) -> None:
        """Wake the task of a request that was given up. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._woken.get_loop().call_soon_threadsafe(self.wake)

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait to be woken; return whether an answer has come."""
        await asyncio.wait([self._woken], timeout=timeout_s)
        return self.is_answered


class LoopPool:
    """The connections on one event loop. To be used on that loop only."""

    def __init__(self, settings: PoolSettings, context: TlsContexts) -> None:
        self.settings = settings
        self.context = context
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._until_the_end: Any = None
        self._closed = False
        self.pool = Pool(settings, self._make)

    def _make(self, origin: ServerOrigin) -> AsyncioConnection:
        return AsyncioConnection(self, origin)

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
        self, origin: ServerOrigin, timeouts: Timeouts, phases: Phases | None = None, patience: Patience | None = None
    ) -> AsyncioConnection:
        """Return a connection with room for one exchange. Raises TransportError."""
        member = self.pool.claim(origin, now_ns(), None if patience is None else patience.avoid)
        if member is None:
            if phases is not None:
                phases.connection_wait_started_ns = now_ns()
            waiter = LoopWaiter(self.pool, origin, timeouts, patience)
            self.pool.wait(origin, waiter, now_ns())
            self._start()
            return await self._wait(waiter)
        assert isinstance(member, AsyncioConnection)
        if not member.is_busy and member.looks_stale():
            try:
                # The loop reads in the turn after next: what asked to be called goes before what has come.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            except BaseException:
                self.unclaim(member)
                raise
        return member

    async def _wait(self, waiter: LoopWaiter) -> AsyncioConnection:
        try:
            while not waiter.is_answered and not await waiter.wait(waiter.timeout_s()):
                if waiter.expire():
                    self.pool.withdraw(waiter.origin, waiter)
                    for unwanted in self.pool.take_unwanted(waiter.origin):
                        assert isinstance(unwanted, AsyncioConnection)
                        unwanted.hang_up(TransportError("ConnectTimeout", "No call waits for the connection any more."))
                self._serve()
        except BaseException:
            self.pool.withdraw(waiter.origin, waiter)
            if waiter.connection is not None:
                self.unclaim(waiter.connection)
            raise
        return waiter.take()

    def _start(self) -> None:
        new, surplus = self.pool.take_orders()
        for member in new:
            assert isinstance(member, AsyncioConnection)
            # In a context of its own: a connection outlives the call that happened to need it first.
            # (Task factories of applications need not know of `context`.)
            task = contextvars.Context().run(self.loop.create_task, member.open())
            member.opening_task = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(member.opening_ended)
        for member in surplus:
            assert isinstance(member, AsyncioConnection)
            member.hang_up(TransportError("ReadError", "The connection was closed."))

    def unclaim(self, connection: AsyncioConnection) -> None:
        """Release the place of a call that did not begin."""
        self.pool.unclaim(connection, now_ns())
        self._start()

    def opened(self, connection: AsyncioConnection) -> None:
        """Hand a connection that has opened to the pool."""
        if self._closed:
            connection.hang_up(TransportError("ReadError", "The transport was closed."))
            return
        self.pool.opened(connection, now_ns())
        self._start()

    def failed(self, connection: AsyncioConnection, error: TransportError) -> None:
        """Tell the pool that a connection could not be opened."""
        self.pool.failed(connection, error, now_ns())
        self._start()
        if self.pool.has_waiters and not self._closed:
            # They go on waiting for a place on another connection: for them it is tried again.
            self.loop.call_later(GROW_AGAIN_NS / 1e9, self._serve)

    def _serve(self) -> None:
        if not self._closed:
            self.pool.serve(now_ns())
            self._start()

    def changed(self, connection: AsyncioConnection) -> None:
        """Tell the pool that a connection's free places changed."""
        self.pool.changed(connection, now_ns())
        self._start()

    def closed(self, connection: AsyncioConnection, *, by_idle_peer: bool) -> None:
        """Tell the pool that a connection is closed."""
        self.pool.closed(
            connection, now_ns(), by_idle_peer=by_idle_peer, unwelcome_pings=connection.pings_are_unwelcome
        )
        if not self._closed:
            self._start()

    async def warm(self, origin: ServerOrigin, timeouts: Timeouts) -> None:
        """Have a connection to the origin open, its SETTINGS exchanged, and keep it so. Raises TransportError."""
        connection = await self.acquire(origin, timeouts)
        try:
            await asyncio.wait([connection.ready], timeout=timeouts.connect)
            if not connection.ready.done():
                raise TransportError("ConnectTimeout", "The server did not say what it allows in time.")
            connection.check_ready()
        finally:
            self.unclaim(connection)
        self.pool.keep_warm(origin)

    async def aclose(self) -> None:
        """Close every connection; exchanges that are open fail."""
        self._closed = True
        connections = [member for member in self.pool.members() if isinstance(member, AsyncioConnection)]
        self.pool.refuse_all(TransportError("ConnectError", "The transport was closed."))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for connection in connections:
            connection.hang_up(TransportError("ReadError", "The transport was closed."))
        if connections or tasks:
            await asyncio.wait([*tasks, *(connection.gone for connection in connections)], timeout=_CLOSE_S)
        until_the_end, self._until_the_end = self._until_the_end, None
        if until_the_end is not None:
            await until_the_end.aclose()

    def forget(self) -> None:
        """Release the sockets without closing the protocol: the loop has ended, or belongs to the parent process."""
        for member in list(self.pool.members()):
            assert isinstance(member, AsyncioConnection)
            member.forget()
