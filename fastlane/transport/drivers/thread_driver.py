"""Connections for threads: each has a thread that reads, so that no call waits for another's response."""

from __future__ import annotations

import _thread
import contextlib
import socket
import ssl
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from threading import TIMEOUT_MAX
from typing import cast

from fastlane._clock import now_ns

from ..pool.pool import GROW_AGAIN_NS, Pool, PooledConnection
from ..pool.settings import PoolSettings, ServerOrigin
from ..protocols.exchange import Exchange, Patience, Phases, RequestHead, TransportError
from .connect import connect_sync
from .connection import CLOSED, MOST_OPENING_S, ClientConnection, PooledExchange, PoolWaiter, TlsContexts, is_ready
from .requests import Timeouts


def start(thread: threading.Thread) -> None:
    """Start it. Raises RuntimeError if there is no thread to be had, and what a signal raises.

    `threading` waits for a new thread with a lock of its own. What a signal raises amid that may be followed by an
    error over this lock, which is a RuntimeError too, though the thread has begun.
    """
    handled = sys.exception()
    try:
        thread.start()
    except RuntimeError as error:
        raised = error.__context__
        if raised is None or raised is handled:
            raise
        raise raised from None


class ThreadExchange(PooledExchange):
    """An exchange that a thread waits for."""

    __slots__ = ("__weakref__", "_patience", "_signal", "is_awaited")

    def __init__(
        self,
        request_head: RequestHead,
        phases: Phases,
        connection: ClientConnection,
        patience: Patience | None = None,
    ) -> None:
        Exchange.__init__(self, request_head, phases)
        self.connection = connection
        self.has_left = False
        self._signal = threading.Lock()
        self._signal.acquire()
        self.is_awaited = False
        """Whether a thread waits."""
        self._patience = patience
        if patience is not None:
            patience.attend(self)

    def wake(self) -> None:
        """Wake the thread that waits; if the exchange is over, release its place first."""
        if (self.answer_ended and self.request_ended) or self.error is not None:
            self.leave()
        self.notify()

    def notify(self) -> None:
        """Wake the thread that waits."""
        # Only the holder of the connection's lock gets here, so that no two release it at once.
        if self._signal.locked():
            self._signal.release()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something has happened; False where nothing did within the time."""
        if self._patience is not None:
            timeout_s = self.within(timeout_s)
        self.is_awaited = True
        try:
            return self._signal.acquire(True, -1 if timeout_s is None else max(0.0, min(timeout_s, TIMEOUT_MAX)))
        finally:
            self.is_awaited = False

    def within(self, timeout_s: float | None) -> float | None:
        """Return the seconds for which a wait that begins now may last."""
        return timeout_s if self._patience is None else self._patience.within(timeout_s, now_ns())

    def give_up(self) -> None:
        """End a request that was given up, and wake its waiter. Takes no lock."""
        cast("ThreadConnection", self.connection).drop(self, given_up=True)


READ_BYTES = 65_536


# How often a thread that waits for room in the socket looks whether an answer has come already.
_LOOK_S = 0.1
_AT_ONCE = (False,)


class ThreadConnection(ClientConnection):
    """One connection, its lock, and the thread that opens it and reads from it."""

    def __init__(self, owner: ThreadPool, origin: ServerOrigin) -> None:
        super().__init__(origin, owner.settings)
        # The thread must not keep a pool alive that everybody else has dropped.
        self._owner = weakref.ref(owner)
        self.lock = threading.Lock()
        self._writer: socket.socket | None = None
        self._unsent = b""
        self._sent_bytes = 0
        self._dead = False
        self.thread: threading.Thread | None = None
        """Reads from it."""
        self._unstarted = {0: True}
        self.ready = threading.Event()
        """The peer has said what it allows, or the connection is gone."""
        self.dropped: deque[tuple[ThreadExchange, bool]] = deque()
        """Exchanges that are no longer read; whether they were given up. Read by the thread that releases the lock."""
        self._by_us = False
        # No Event: an interrupt within its `set()` would leave the lock inside it taken.
        self._has_room = threading.Lock()
        """Locked while the reading thread waits for room. Taken and released with the connection's lock held."""
        """The application has made room for more of an answer over HTTP/1.1."""
        self.reads = 0

    def start(self) -> None:
        """Have it opened, and read from. Raises RuntimeError if there is no thread to be had.

        Ctrl-C may come amid it, and then it is to be called again: of several threads one does it.
        """
        if 0 in self._unstarted:
            name = f"fastlane {self.origin.host}:{self.origin.port}"
            thread = threading.Thread(target=self._run_once, name=name, daemon=True)
            if self.thread is None:
                self.thread = thread
            try:
                start(thread)
            except RuntimeError:
                self._unstarted.clear()
                raise

    def _run_once(self) -> None:
        if self._unstarted.pop(0, False):
            self.thread = threading.current_thread()
            self._run()

    def _say_goodbye(self) -> None:
        """Under the lock: the last words, as far as the socket takes them."""
        with contextlib.suppress(TransportError, OSError, ssl.SSLError):
            if self.http is not None:
                self.http.goodbye()
            self._flush()
            if self.tls is not None:
                self.tls.close()
                self._flush()

    def _open(self) -> None:
        owner = self._owner()
        if owner is None:
            raise TransportError("ConnectError", CLOSED)
        self.begin_handshakes(owner.context)
        del owner
        try:
            sock, opening = connect_sync(*self.connects_to, cancelled=lambda: self._dead)
        except TransportError as error:
            raise self.of_proxy(error) from error.__cause__
        self._socket = sock
        if self._dead:  # it was not wanted any more, and there was no socket to be closed yet
            raise TransportError("ConnectError", CLOSED)
        self._handshake(sock)
        established_ns = now_ns()
        # Two views of one socket, because a timeout belongs to the view: the reader waits, writers do not.
        self._writer = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.fileno())
        self._writer.settimeout(0)
        sock.settimeout(self.tick_s)
        with self.lock:
            self.establish(opening, established_ns)
            if self._dead:
                raise TransportError("ConnectError", CLOSED)
            self._flush()

    def _handshake(self, sock: socket.socket) -> None:
        data = b""
        sock.settimeout(MOST_OPENING_S)
        try:
            while True:
                try:
                    done = self.handshake(data)
                finally:
                    output = self.handshake_output()
                    if output:
                        sock.sendall(output)
                if done:
                    return
                data = sock.recv(READ_BYTES)
                if not data:
                    raise self.cut_off()
        except TimeoutError:
            raise self.of_proxy(TransportError("ConnectTimeout", "The handshake took too long.")) from None
        except OSError as error:
            raise self.of_proxy(TransportError("ConnectError", str(error))) from error

    def _let_go(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.detach()
        sock, self._socket = self._socket, None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _tell(self, tell: Callable[[ThreadPool], None]) -> None:
        owner = self._owner()
        if owner is not None:
            tell(owner)

    def _flush(self) -> None:
        """Send what there is, without waiting. Raises TransportError if the socket is broken."""
        data = self.output()
        if self._unsent:
            data = self._unsent + data
        writer = self._writer
        if not data or writer is None:
            return
        try:
            sent = writer.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            raise TransportError("WriteError", str(error)) from error
        self._sent_bytes += sent
        self._unsent = data[sent:] if sent < len(data) else b""

    # The reading thread

    def _run(self) -> None:
        try:
            self._open()
        except BaseException as error:  # noqa: BLE001 - the waiting thread must get it, whatever it is
            failure = (
                error if isinstance(error, TransportError) else TransportError("ConnectError", type(error).__name__)
            )
            self._layers = None
            self._let_go()
            self._tell(lambda owner: owner.failed(self, failure))
            if self.error is not None:
                return  # not wanted any more
            # Calls may go on waiting for a place on another connection: for them it is tried again.
            threading.Event().wait(GROW_AGAIN_NS / 1e9)
            self._tell(lambda owner: owner.serve())
            return
        self._tell(lambda owner: owner.opened(self))
        ended_by: TransportError | None
        try:
            ended_by = self._read()
        except BaseException as error:  # noqa: BLE001 - as above
            ended_by = TransportError("ReadError", type(error).__name__)
        self._finish(ended_by)

    def _read(self) -> TransportError | None:
        """Read until the connection is at its end; what broke it off, or None if nothing was harmed."""
        sock = self._socket
        assert sock is not None
        tick_ns = int(self.tick_s * 1e9)
        ticked_ns = now_ns()
        if self.http is not None and self.http.is_ready:
            self.ready.set()  # over HTTP/1.1 a server says nothing before it is asked
        while True:
            data: bytes | None
            try:
                data = sock.recv(READ_BYTES)
            except TimeoutError:
                data = None
            except OSError as error:
                return TransportError("ReadError", str(error))
            arrived_ns = now_ns()
            with self.lock:
                if self._dead:
                    return self.error
                try:
                    if data:
                        self.receive(data, arrived_ns)
                    elif data is not None:
                        self.receive_end(arrived_ns)
                except TransportError as error:
                    with contextlib.suppress(TransportError):
                        self._flush()
                    return error
                if data is None or arrived_ns - ticked_ns >= tick_ns:
                    ticked_ns = arrived_ns
                    if self._time_is_up(arrived_ns):
                        return None
                try:
                    self._flush()
                except TransportError as error:
                    return error
                self.reads += 1
                full = self.is_full
                if full:
                    self._has_room.acquire(blocking=False)
                # (Calls may wait that a failure to open a further connection has left waiting.)
                changed = self.has_changed() or data is None
                used_up = changed and self.is_used_up
                http = self.http
                if http is not None and http.is_ready and not self.ready.is_set():
                    self.ready.set()
            self.sweep()
            if changed:
                self._tell(lambda owner: owner.changed(self))
            if used_up:
                return None
            while full and not self._dead and self.is_full and not self._has_room.acquire(timeout=_LOOK_S):
                pass

    def _time_is_up(self, time_ns: int) -> bool:
        owner = self._owner()
        if owner is None:
            # (Answers that are still read keep their pool alive.)
            self._by_us = not self.is_busy
            return self._by_us
        if self.tick(time_ns, may_ping=owner.pool.allows_pings(self.origin)) is None:
            return False
        self._by_us = True
        return True

    def _finish(self, error: TransportError | None) -> None:
        """The connection is at its end: say goodbye, tell everybody, and let go of the socket."""
        http = self.http
        with self.lock:
            by_peer = not self._dead and not self._by_us
            self._dead = self.is_closed = True  # the pool learns it in a moment, and would give it to others
            idle = not self.claimed
            if http is not None and not by_peer:
                self._say_goodbye()
            self.fail(error or TransportError("ReadError", CLOSED))
        self.sweep()
        self._let_go()
        self.ready.set()
        self._tell(
            lambda owner: owner.closed(self, by_idle_peer=by_peer and idle, unwelcome_pings=self.pings_are_unwelcome)
        )

    # The calling threads

    def send_request(
        self, exchange: ThreadExchange, body: Iterable[tuple[bytes, bool]], write_timeout_s: float | None
    ) -> None:
        """Send a request; an answer that comes earlier ends it. Raises TransportError."""
        begun = False
        for data, last in body:
            position = 0
            while True:
                try:
                    with self.lock:
                        position, goes_on = self._send(exchange, data, position, begin=not begun, last=last)
                        blocked = bool(self._unsent)
                        complete = position >= len(data) and not blocked
                        if complete and last and goes_on:
                            exchange.phases.send_ended_ns = now_ns()
                except TransportError:
                    raise
                except BaseException:  # Ctrl-C amid it: it is unknown which frames were sent
                    self.hang_up(TransportError("ReadError", CLOSED))
                    raise
                finally:
                    self.sweep()
                begun = True
                if not goes_on:
                    return
                if complete:
                    break
                if not (self._wait_writable(exchange, write_timeout_s) if blocked else exchange.wait(write_timeout_s)):
                    raise TransportError("WriteTimeout", "The server did not take the request in time.")

    def _send(
        self, exchange: ThreadExchange, data: bytes, position: int, *, begin: bool, last: bool
    ) -> tuple[int, bool]:
        """Under the lock: send as much of a piece as goes; the new position, and whether to go on."""
        # (Before it has begun, too: another thread may have given it up.)
        if exchange.error is not None or exchange.answer_ended or exchange.answer_head is not None:
            return position, False
        if self._dead or self.http is None:
            raise TransportError("ReadError", CLOSED, unprocessed=begin)
        sent_bytes, clean = self._sent_bytes, not self._unsent
        if begin:
            self.begin(exchange, end=last and not data)
        try:
            if not begin:
                self._flush()
            while not exchange.request_ended and not self._unsent:
                before = position
                position = self.push(exchange, data, position, last=last)
                if position == before:
                    break
                if position < len(data):
                    self._flush()
            self._flush()
        except TransportError as error:
            if error.name != "WriteError":
                raise
            self.is_closed = True
            if begin and clean and self._sent_bytes == sent_bytes:
                # Not a byte of the request has left this machine: the server cannot have processed it.
                error.unprocessed = True
                exchange.phases.send_started_ns = None
                raise
            return position, False  # an answer may have come before the server closed: the reading thread says so
        return position, True

    def _wait_writable(self, exchange: ThreadExchange, timeout_s: float | None) -> bool:
        """Wait until the socket takes more, or an answer makes that needless; False where neither came in time."""
        timeout_s = exchange.within(timeout_s)
        until_ns = None if timeout_s is None else now_ns() + timeout_s * 1e9
        while (writer := self._writer) is not None and exchange.answer_head is None and not exchange.is_over:
            if is_ready(writer, _LOOK_S, write=True):
                return True
            if until_ns is not None and now_ns() >= until_ns:
                return False
        return True

    def drop(self, exchange: ThreadExchange, *, given_up: bool = False) -> None:
        """Drop an exchange that is no longer read, or that was given up. Waits for no lock.

        The garbage collector may get here, by way of an answer that was dropped or of a generator that closes one, in a
        thread that holds the very lock.
        """
        self.dropped.append((exchange, given_up))
        self.sweep()
        owner = self._owner()
        if owner is not None:
            owner.changed(self)

    abandon = drop

    def _drop(self, exchange: ThreadExchange, given_up: bool) -> None:
        if self._has_room.locked():
            self._has_room.release()
        if self._dead:
            exchange.leave()
        elif not self.cancel(exchange, now_ns(), given_up=given_up):
            self._hang_up(TransportError("ReadError", CLOSED))
        else:
            with contextlib.suppress(TransportError):  # the reader will find out
                self._flush()
            if self.is_used_up:
                self._hang_up(TransportError("ReadError", CLOSED))
        exchange.notify()  # another thread may be reading it

    def sweep(self) -> None:
        """Drop what is not read, unless another thread holds the lock: it does so when it releases it."""
        while self.dropped:
            taken: list[bool] = []
            try:
                taken += map(self.lock.acquire, _AT_ONCE)  # in one step: Ctrl-C cannot come before it is known
                if not taken[0]:
                    return
                while self.dropped:
                    self._drop(*self.dropped[0])  # which may be done again
                    self.dropped.popleft()
            finally:
                if taken and taken[0]:  # any() would be a call, and let Ctrl-C in before the release
                    self.lock.release()

    def took(self, exchange: ThreadExchange, count: int) -> None:
        """Credit the peer with bytes that the application has read."""
        try:
            with self.lock:
                if not self._dead and self.http is not None:
                    self.http.took(exchange, count)
                    if not self.is_full and self._has_room.locked():
                        self._has_room.release()
                    with contextlib.suppress(TransportError):  # the reader will find out
                        self._flush()
        finally:
            self.sweep()

    def hang_up(self, error: TransportError) -> None:
        """Close the connection now."""
        try:
            with self.lock:
                self._hang_up(error)
        finally:
            self.sweep()

    def _hang_up(self, error: TransportError) -> None:
        """Under the lock. The reading thread does the rest: no other thread may give its socket's number away."""
        if self._dead:
            return
        self._dead = self.is_closed = True
        self.error = error
        if self.http is not None:
            self._say_goodbye()
        self.fail(error)
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def looks_stale(self) -> bool:
        """Whether bytes or an end have come that the reading thread has not looked at yet."""
        sock = self._writer
        return sock is not None and is_ready(sock, 0.0, write=False)

    def let_reader_catch_up(self) -> None:
        """Give the reading thread the time to see what has come."""
        enough = self.reads + 3  # one that is not counted yet, one of bytes, and one of the end behind them
        pause = threading.Lock()  # (Ctrl-C amid the waiting of an Event may come out as an error over its lock.)
        with pause:
            for _ in range(1_000):
                if self._dead or self.reads >= enough or not self.looks_stale():
                    return
                pause.acquire(timeout=0.001)

    def forget(self) -> None:
        """In a child process: the connection is the parent's; leave it alone."""
        self.lock = threading.Lock()
        self._dead = True
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.detach()
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
        self.tls = None
        self.fail(TransportError("ReadError", "The connection belongs to the parent process."))


# How long `close()` waits for the threads to end. One that waits for the resolver cannot be interrupted.
_JOIN_NS = 5_000_000_000


class ThreadWaiter(PoolWaiter[ThreadConnection]):
    """A thread that waits for a connection."""

    def __init__(self, pool: Pool, origin: ServerOrigin, timeouts: Timeouts, patience: Patience | None) -> None:
        super().__init__(pool, origin, timeouts, patience)
        self._signal = threading.Lock()
        self._signal.acquire()
        if patience is not None:
            patience.attend(self)

    def wake(self) -> None:
        """Wake the thread. From any thread."""
        try:
            self._signal.release()
        except RuntimeError:  # another thread has woken it
            pass

    give_up = wake

    def wait(self, timeout_s: float | None) -> bool:
        """Wait to be woken; return whether an answer has come."""
        self._signal.acquire(True, -1 if timeout_s is None else max(0.0, min(timeout_s, TIMEOUT_MAX)))
        return self.is_answered


class ThreadPool:
    """The connections of a synchronous transport."""

    def __init__(self, settings: PoolSettings, context: TlsContexts) -> None:
        self.settings = settings
        self.context = context
        self._lock = threading.Lock()
        self._changed: deque[ThreadConnection] = deque()
        """Connections that have other places than before. The thread that releases the lock looks here."""
        self._start_over()

    def _start_over(self) -> None:
        self.pool = Pool(self.settings, self._make)

    def _make(self, origin: ServerOrigin) -> ThreadConnection:
        return ThreadConnection(self, origin)

    def acquire(
        self, origin: ServerOrigin, timeouts: Timeouts, phases: Phases | None = None, patience: Patience | None = None
    ) -> ThreadConnection:
        """Return a connection with room for one exchange. Raises TransportError."""
        member = waiter = None
        new, surplus = list[PooledConnection](), list[PooledConnection]()
        avoid = None if patience is None else patience.avoid
        try:
            with self._lock:
                member = self.pool.claim(origin, now_ns(), avoid)
                if member is None:
                    waiter = ThreadWaiter(self.pool, origin, timeouts, patience)
                    self.pool.wait(origin, waiter, now_ns())
                if self.pool.new or self.pool.surplus:
                    new, surplus = self.pool.take_orders()
            if self._changed or self.pool.new or self.pool.surplus:
                self._catch_up()
            if waiter is not None:
                if phases is not None:
                    phases.connection_wait_started_ns = now_ns()
                self._start(new, surplus)
                return self._wait(waiter)
            assert isinstance(member, ThreadConnection)
            if new or surplus:
                self._start(new, surplus)
            if not member.is_busy and member.looks_stale():
                member.let_reader_catch_up()
        except BaseException:
            # Ctrl-C comes anywhere, and others may wait for what was to be opened.
            self._start(new, surplus)
            if isinstance(member, ThreadConnection):
                self.unclaim(member)
            elif waiter is not None:
                self._give_up(waiter)
            raise
        return member

    def _wait(self, waiter: ThreadWaiter) -> ThreadConnection:
        while not waiter.wait(waiter.timeout_s()):
            if waiter.expire():
                for unwanted in self._withdraw(waiter):
                    unwanted.hang_up(TransportError("ConnectTimeout", CLOSED))
            self.serve()
            if waiter.is_answered:
                break
        return waiter.take()

    def _withdraw(self, waiter: ThreadWaiter) -> list[ThreadConnection]:
        """Wait no longer; the connections that were being opened and that no call waits for any more."""
        try:
            with self._lock:
                self.pool.withdraw(waiter.origin, waiter)
                return [
                    connection
                    for connection in self.pool.take_unwanted(waiter.origin)
                    if isinstance(connection, ThreadConnection)
                ]
        finally:
            self._catch_up()

    def _give_up(self, waiter: ThreadWaiter) -> None:
        for opening in self._withdraw(waiter):
            opening.hang_up(TransportError("ConnectError", CLOSED))
        self.serve()  # their places are others' now
        connection, waiter.connection = waiter.connection, None
        if connection is not None:
            self.unclaim(connection)

    def _start(self, new: Iterable[PooledConnection], surplus: Iterable[PooledConnection]) -> None:
        try:
            self._carry_out(new, surplus)
        except BaseException:
            # Ctrl-C, and others wait for what was to be opened: what was done already is not done again.
            self._carry_out(new, surplus)
            raise

    def _carry_out(self, new: Iterable[PooledConnection], surplus: Iterable[PooledConnection]) -> None:
        for member in new:
            assert isinstance(member, ThreadConnection)
            try:
                member.start()
            except RuntimeError as error:  # no further thread to be had
                self.failed(member, TransportError("ConnectError", str(error)))
        for member in surplus:
            assert isinstance(member, ThreadConnection)
            member.hang_up(TransportError("ReadError", CLOSED))

    def _do(self, act: Callable[[Pool, int], None]) -> None:
        new, surplus = list[PooledConnection](), list[PooledConnection]()
        try:
            with self._lock:
                act(self.pool, now_ns())
                new, surplus = self.pool.take_orders()
            self._catch_up()
            if new or surplus:
                self._start(new, surplus)
        except BaseException:
            self._start(new, surplus)
            self._catch_up()
            raise

    def _catch_up(self) -> None:
        """Take note of connections that have changed, unless another thread holds the lock: it does so on release."""
        try:
            self._note_changes()
        except BaseException:
            # Ctrl-C, and others may wait for the places that there are now.
            self._note_changes()
            raise

    def _note_changes(self) -> None:
        while self._changed or self.pool.new or self.pool.surplus:
            new, surplus = list[PooledConnection](), list[PooledConnection]()
            taken: list[bool] = []
            try:
                try:
                    taken += map(self._lock.acquire, _AT_ONCE)  # in one step: Ctrl-C cannot come before it is known
                    if not taken[0]:
                        return
                    while self._changed:
                        self.pool.changed(self._changed[0], now_ns())  # which may be done again
                        self._changed.popleft()
                    new, surplus = self.pool.take_orders()
                finally:
                    if taken and taken[0]:
                        self._lock.release()
                self._order(new, surplus)
            except BaseException:
                self._order(new, surplus)  # which may be done again too
                raise

    def _order(self, new: list[PooledConnection], surplus: list[PooledConnection]) -> None:
        """Have another thread carry it out: the garbage collector may call this in a thread that holds any lock.

        A bare thread, because starting one of `threading` takes locks too.
        """
        if new or surplus:
            try:
                _thread.start_new_thread(self._start, (new, surplus))
            except RuntimeError:  # no further thread to be had: `_start` says so to whom it concerns
                self._start(new, surplus)

    def unclaim(self, connection: ThreadConnection) -> None:
        """Release the place of a call that did not begin."""
        connection.ended.append(None)
        self.changed(connection)

    def opened(self, connection: ThreadConnection) -> None:
        """Hand a connection that has opened to the pool."""
        self._do(lambda pool, time_ns: pool.opened(connection, time_ns))

    def failed(self, connection: ThreadConnection, error: TransportError) -> None:
        """Tell the pool that a connection could not be opened."""
        connection.ready.set()
        self._do(lambda pool, time_ns: pool.failed(connection, error, time_ns))

    def serve(self) -> None:
        """Look after those who wait."""
        self._do(lambda pool, time_ns: pool.serve(time_ns))

    def changed(self, connection: ThreadConnection) -> None:
        """Tell the pool that a connection's free places changed. Waits for no lock."""
        self._changed.append(connection)
        self._catch_up()

    def closed(self, connection: ThreadConnection, *, by_idle_peer: bool, unwelcome_pings: bool) -> None:
        """Tell the pool that a connection is closed."""
        self._do(
            lambda pool, time_ns: pool.closed(
                connection, time_ns, by_idle_peer=by_idle_peer, unwelcome_pings=unwelcome_pings
            )
        )

    def warm(self, origin: ServerOrigin, timeouts: Timeouts) -> None:
        """Have a connection to the origin open, its SETTINGS exchanged, and keep it so. Raises TransportError."""
        connection = self.acquire(origin, timeouts)
        try:
            if not connection.ready.wait(timeouts.connect):
                raise TransportError("ConnectTimeout", "The server did not say what it allows in time.")
            connection.check_ready()
        finally:
            self.unclaim(connection)
        self._do(lambda pool, _: pool.keep_warm(origin))

    def close(self) -> None:
        """Close every connection; exchanges that are open fail."""
        with self._lock:
            connections = [member for member in self.pool.members() if isinstance(member, ThreadConnection)]
            pool = self.pool
            self._start_over()
            pool.refuse_all(TransportError("ConnectError", "The transport was closed."))
        for connection in connections:
            connection.hang_up(TransportError("ReadError", "The transport was closed."))
        until_ns = now_ns() + _JOIN_NS
        for connection in connections:
            thread = connection.thread
            if thread is not None and thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, (until_ns - now_ns()) / 1e9))

    def forget(self) -> None:
        """Release the parent's connections in a child process."""
        self._lock = threading.Lock()
        connections = [member for member in self.pool.members() if isinstance(member, ThreadConnection)]
        self._start_over()
        for connection in connections:
            connection.forget()
