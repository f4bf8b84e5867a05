"""Opening a connection for threads, and sending on it without waiting."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastlane._clock import now_ns

from ..pool.settings import Origin, tick_s
from ..protocols.errors import TransportError
from .connect import connect_sync
from .link import CLOSED, MOST_OPENING_NS, Link
from .starting import start
from .tls import Tls

if TYPE_CHECKING:
    from .thread_pool import ThreadPool

READ_BYTES = 65_536


class OpeningLink(Link):
    """A connection for threads: its socket, its lock, and how it is opened."""

    def __init__(self, owner: ThreadPool, origin: Origin) -> None:
        settings = owner.settings
        super().__init__(origin, http2=settings.http2)
        # The thread must not keep a pool alive that everybody else has dropped.
        self._owner = weakref.ref(owner)
        self._settings = settings
        self._deadline_ns = 0
        self.lock = threading.Lock()
        self._writer: socket.socket | None = None
        self._unsent = b""
        self._sent_bytes = 0
        self._dead = False
        self.is_left = False
        """The process ends, and nobody is told any more what becomes of the connection."""
        self.thread: threading.Thread | None = None
        """Reads from it."""
        self._unstarted = {0: True}

    def start(self) -> None:
        """Have it opened, and read from. Raises RuntimeError where there is no thread to be had.

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

    def _run(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        """The process ends: say goodbye, unless calls are on it."""
        with self.lock:
            if self.is_busy:
                return
            self.is_left = True
            if self.http is not None and not self._dead:
                self._dead = True
                self._say_goodbye()

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
        if self.origin.scheme == "https":
            self.tls = Tls(owner.context(), self.origin.server_hostname)
        del owner
        self._deadline_ns = now_ns() + MOST_OPENING_NS
        connected = connect_sync(
            self.origin.host, self.origin.port, deadline_ns=self._deadline_ns, cancelled=lambda: self._dead
        )
        sock = self._socket = connected.socket
        if self._dead:  # since nobody wanted it any more, and there was no socket to be closed yet
            raise TransportError("ConnectError", CLOSED)
        tls_started_ns = tls_ended_ns = None
        if self.tls is not None:
            tls_started_ns = now_ns()
            self._handshake(sock)
            tls_ended_ns = now_ns()
        tls = self.tls
        opening = connected.opening(
            tls_started_ns=tls_started_ns,
            tls_ended_ns=tls_ended_ns,
            alpn=None if tls is None else tls.alpn,
            tls_version=None if tls is None else tls.version,
        )
        # Two views of one socket, because a time-out belongs to the view: the reader waits, writers do not.
        self._writer = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.fileno())
        self._writer.settimeout(0)
        sock.settimeout(tick_s(self._settings))
        with self.lock:
            self.establish(opening, now_ns())
            if self._dead:
                raise TransportError("ConnectError", CLOSED)
            self._flush()

    def _handshake(self, sock: socket.socket) -> None:
        data = b""
        while True:
            try:
                done = self.handshake(data)
            finally:
                output = self.handshake_output()
                if output:
                    self._with_deadline(sock, sock.sendall, output)
            if done:
                return
            data = self._with_deadline(sock, sock.recv, READ_BYTES)
            if not data:
                raise TransportError("ConnectError", "The server closed the connection during the TLS handshake.")

    def _with_deadline(self, sock: socket.socket, act: Callable[[Any], Any], argument: Any) -> Any:
        sock.settimeout(max(0.000_001, (self._deadline_ns - now_ns()) / 1e9))
        try:
            return act(argument)
        except TimeoutError:
            raise TransportError("ConnectTimeout", "The TLS handshake took too long.") from None
        except OSError as error:
            raise TransportError("ConnectError", str(error)) from error

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
        """Send what there is, without waiting. Raises TransportError where the socket is broken."""
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
