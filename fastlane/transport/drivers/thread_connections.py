"""Connections for threads: each has a thread that reads, so that no call waits for another's answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns

from ..pool.origin import GROW_AGAIN_NS
from ..pool.settings import Origin, tick_s
from ..protocols.errors import TransportError
from .link import CLOSED
from .sockets import is_ready
from .thread_exchange import ThreadExchange
from .thread_opening import READ_BYTES, OpeningLink

if TYPE_CHECKING:
    from .thread_pool import ThreadPool


# How often a thread that waits for room in the socket looks whether an answer has come already.
_LOOK_S = 0.1
_AT_ONCE = (False,)


class ThreadLink(OpeningLink):
    """One connection, its lock, and the thread that reads from it."""

    def __init__(self, owner: ThreadPool, origin: Origin) -> None:
        super().__init__(owner, origin)
        self.ready = threading.Event()
        """The peer has said what it allows, or the connection is gone."""
        self.dropped: deque[tuple[ThreadExchange, bool]] = deque()
        """Exchanges that nobody reads any more; whether they were given up. Whoever lets go of the lock looks here."""
        self._by_us = False
        self._has_room = threading.Event()
        """The application has made room for more of an answer over HTTP/1.1."""
        self.reads = 0

    # The reading thread

    def _run(self) -> None:
        try:
            self._open()
        except BaseException as error:  # noqa: BLE001 - whoever waits has to be told, whatever it was
            failure = (
                error if isinstance(error, TransportError) else TransportError("ConnectError", type(error).__name__)
            )
            if self.is_left:
                return
            self._let_go()
            self._tell(lambda owner: owner.failed(self, failure))
            if self.error is not None:
                return  # nobody wanted it any more
            # Calls may go on waiting for a place on another connection: for them it is tried again.
            threading.Event().wait(GROW_AGAIN_NS / 1e9)
            self._tell(lambda owner: owner.serve())
            return
        if self.is_left:
            return
        self._tell(lambda owner: owner.opened(self))
        ended_by: TransportError | None
        try:
            ended_by = self._read()
        except BaseException as error:  # noqa: BLE001 - as above
            ended_by = TransportError("ReadError", type(error).__name__)
        if not self.is_left:
            self._finish(ended_by)

    def _read(self) -> TransportError | None:
        """Read until the connection is at its end; what broke it off, or None where nothing was harmed."""
        sock = self._socket
        assert sock is not None
        tick_ns = int(tick_s(self._settings) * 1e9)
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
                    self._has_room.clear()
                # (Calls may wait that a failure to open a further connection has left waiting.)
                changed = self.has_changed() or data is None
                used_up = changed and self.is_used_up
                http = self.http
                if http is not None and http.is_ready and not self.ready.is_set():
                    self.ready.set()
            if self.dropped:
                self.sweep()
            if changed:
                self._tell(lambda owner: owner.changed(self))
            if used_up:
                return None
            while full and not self._dead and not self._has_room.wait(_LOOK_S):
                pass

    def _time_is_up(self, time_ns: int) -> bool:
        owner = self._owner()
        if owner is None:
            # (Answers that are still read keep their pool alive.)
            self._by_us = not self.is_busy
            return self._by_us
        settings = self._settings
        ping_ns = None if settings.ping_s is None else owner.ping_interval_ns(self.origin, int(settings.ping_s * 1e9))
        if self.tick(time_ns, idle_ns=int(settings.idle_s * 1e9), ping_ns=ping_ns) is None:
            return False
        self._by_us = True
        return True

    def _finish(self, error: TransportError | None) -> None:
        """The connection is at its end: say goodbye, tell everybody, and let go of the socket."""
        http = self.http
        with self.lock:
            by_peer = not self._dead and not self._by_us
            self._dead = self.is_closed = True  # the pool is told in a moment, and would give it to others
            idle = not self.claimed
            if http is not None and not by_peer:
                self._say_goodbye()
            self.fail(error or TransportError("ReadError", CLOSED))
        if self.dropped:
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
                except BaseException:  # Ctrl-C amid it: nobody knows what of the frames has been sent
                    self.hang_up(TransportError("ReadError", CLOSED))
                    raise
                finally:
                    if self.dropped:
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
                # Not a byte of the request has left this machine: nobody can have processed it.
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
        """Nobody reads the exchange any more, or whoever does is told that it was given up. Waits for no lock.

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
        self._has_room.set()
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
        """Drop what nobody reads, unless somebody holds the lock, who does so when they let go of it."""
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
                if taken and taken[0]:
                    self.lock.release()

    def took(self, exchange: ThreadExchange, count: int) -> None:
        """The application has read this much of the body: let the peer send more."""
        try:
            with self.lock:
                if not self._dead and self.http is not None:
                    self.http.took(exchange, count)
                    if not self.is_full:
                        self._has_room.set()
                    with contextlib.suppress(TransportError):  # the reader will find out
                        self._flush()
        finally:
            if self.dropped:
                self.sweep()

    def hang_up(self, error: TransportError) -> None:
        """Close the connection now."""
        try:
            with self.lock:
                self._hang_up(error)
        finally:
            if self.dropped:
                self.sweep()

    def _hang_up(self, error: TransportError) -> None:
        """Under the lock. The reading thread does the rest: nobody else may give its socket's number away."""
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
        before = self.reads
        pause = threading.Lock()  # (Ctrl-C amid the waiting of an Event may come out as an error over its lock.)
        with pause:
            for _ in range(1_000):
                if self._dead or self.reads != before or not self.looks_stale():
                    return
                pause.acquire(timeout=0.001)

    def network_info(self, info: str) -> Any:
        """What the library's `network_stream` extension tells."""
        sock = self._socket
        return None if sock is None else self.extra_info(info, sock)

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
