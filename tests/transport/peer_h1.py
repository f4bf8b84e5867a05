"""A scripted HTTP/1.1 server, with TLS or without, which sends the bytes that a test says and records what it sees."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import BinaryIO, Self

from tests.transport import peer
from tests.transport.peer import HANG_S, LOCAL_NAMES, GoneError, server_context

HEAD = b"HTTP/1.1 200 OK\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Request1:
    """One request as it came, and what a script does with it."""

    def __init__(self, peer: PeerH1, number: int, sock: socket.socket, incoming: BinaryIO, line: bytes) -> None:
        self.connection = number
        self.method, self.target, self.version = line.decode().split()
        self.headers: list[tuple[bytes, bytes]] = []
        self.received: bytes | None = None
        self.closes = False
        """The script has ended the connection."""
        self._peer = peer
        self._socket = sock
        self._incoming = incoming
        while (field := incoming.readline()) not in (b"\r\n", b""):
            name, _, value = field.partition(b":")
            self.headers.append((name, value.strip()))

    def header(self, name: str) -> str | None:
        return next((value.decode() for key, value in self.headers if key.lower() == name.lower().encode()), None)

    def body(self) -> bytes:
        """Read the request to its end."""
        if self.received is None:
            if self.header("transfer-encoding") == "chunked":
                self.received = b""
                while size := int(self._incoming.readline() or b"0", 16):
                    self.received += self._incoming.read(size)
                    self._incoming.readline()
                self._incoming.readline()
            else:
                self.received = self._incoming.read(int(self.header("content-length") or 0))
        return self.received

    def send(self, *pieces: bytes) -> None:
        """Each piece in a write of its own."""
        for piece in pieces:
            self._socket.sendall(piece)

    def hold(self, event: threading.Event) -> None:
        """Do nothing until the test sets the event."""
        while not event.wait(0.02):
            if self._peer.closing:
                raise GoneError

    def left(self) -> bool:
        """Wait until the client closes the connection; False where it sends more instead."""
        self.closes = True
        try:
            return self._incoming.read(1) == b""
        except OSError:
            return True

    def close(self) -> None:
        """End the connection in good order."""
        self.closes = True

    def tcp_reset(self) -> None:
        """Break the connection off."""
        self.closes = True
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def say_ok(request: Request1) -> None:
    """Answer each request with two letters once it is there."""
    request.body()
    request.send(OK)


class PeerH1:
    """Listens on a port of its own; the requests of a connection are answered by `respond`, one after the other."""

    def __init__(
        self,
        respond: Callable[[Request1], None] = say_ok,
        *,
        tls: bool = False,
        alpn: Sequence[str] = ("http/1.1",),
        names: tuple[str, ...] = LOCAL_NAMES,
        host: str = "127.0.0.1",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.respond = respond
        self.requests: list[Request1] = []
        self.connections = 0
        self.left = threading.Semaphore(0)
        """Released once for each connection that has ended."""
        self.errors: list[BaseException] = []
        self.closing = False
        self._context = context or (server_context(names, alpn) if tls else None)
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=200)
        self._host = f"[{host}]" if ":" in host else host
        self._start(self._accept)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://{self._host}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        # First the one that starts the others: none begins behind its back.
        self._threads[0].join(HANG_S)
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(HANG_S)
        if error is None:
            assert self.errors == []

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=self._run, args=(target, *args), name="peer", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, target: Callable[..., None], *args: object) -> None:
        try:
            target(*args)
        except (GoneError, OSError):
            pass
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            if not self.closing:
                self.errors.append(error)

    def _accept(self) -> None:
        while not self.closing:
            connection, _ = self._listener.accept()
            self.connections += 1
            self._start(self._serve, connection, self.connections)

    def _serve(self, connection: socket.socket, number: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._context is not None:
                self._open.append(connection)
                time.sleep(peer.default_late_ms / 1_000)
                connection = self._context.wrap_socket(connection, server_side=True, suppress_ragged_eofs=True)
            self._open.append(connection)
            with connection, connection.makefile("rb") as incoming:
                while line := incoming.readline():
                    request = Request1(self, number, connection, incoming, line)
                    self.requests.append(request)
                    self.respond(request)
                    if request.closes:
                        return
                    request.body()
        except ssl.SSLError:
            pass
        finally:
            connection.close()
            self.left.release()
