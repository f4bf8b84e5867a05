"""A scripted HTTP/1.1 server, with TLS or without, which sends the bytes of a test and records what it gets."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from tests.transport import peer
from tests.transport.peer import LOCAL_NAMES, GoneError, Listener, Stream, server_context

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

    def answer(self, body: bytes, kind: str = "application/json") -> None:
        """A whole answer of this content type."""
        self.send(HEAD + f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

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


class PeerH1(Listener):
    """Answers the requests of a connection by `respond`, one after the other."""

    def __init__(
        self,
        respond: Callable[[Request1], None] = say_ok,
        *,
        tls: bool = False,
        names: tuple[str, ...] = LOCAL_NAMES,
        host: str = "127.0.0.1",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.respond = respond
        self.requests: list[Request1] = []
        self.connections = 0
        self.left = threading.Semaphore(0)
        """Released once for each connection that has ended."""
        self._context = context or (server_context(names, ("http/1.1",)) if tls else None)
        self._open: list[socket.socket] = []
        super().__init__(host)
        self.start(self._accept)

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://{self._host}:{self.port}"

    def end_connections(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self.closing:
            connection, _ = self._listener.accept()
            self.connections += 1
            self.start(self._serve, connection, self.connections)

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


class SlowAnswer:
    """Begins an answer over either protocol, and ends it when the test says."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def h2(self, stream: Stream) -> None:
        stream.head()
        stream.data(b"first ")
        stream.hold(self.release)
        stream.data(b"last", end=True)

    def h1(self, request: Request1) -> None:
        request.send(HEAD + b"content-length: 10\r\n\r\nfirst ")
        request.hold(self.release)
        request.send(b"last")
