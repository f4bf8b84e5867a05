"""A small HTTP/1.1 server on real sockets that answers with the bytes it is given, in the pieces it is given."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Script:
    """One answer: bytes are sent in a write of their own, a number is a pause in seconds, an event is awaited."""

    pieces: Sequence[bytes | float | threading.Event]
    closes: bool = False
    """End the connection after the answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came."""

    connection: int
    path: str
    body: bytes


Respond = Callable[[Seen], Script]


def chunked(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(data: str) -> bytes:
    """One server-sent event in a chunk of its own."""
    return chunked(f"data: {data}\n\n".encode())


class ScriptedServer:
    """Answers each request by the script that `respond` gives for it, one thread for each connection."""

    def __init__(self, respond: Respond) -> None:
        self.requests: list[Seen] = []
        self.connections = 0
        self.lost = threading.Event()
        """A client went away while it was answered."""
        self._respond = respond
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in (self._acceptor, *self._threads):
            thread.join(5)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as incoming, contextlib.suppress(OSError):
            while request := incoming.readline():
                length = 0
                while (line := incoming.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                seen = Seen(number, request.split()[1].decode(), incoming.read(length))
                self.requests.append(seen)
                script = self._respond(seen)
                if not self._send(connection, script) or script.closes:
                    return

    def _send(self, connection: socket.socket, script: Script) -> bool:
        for piece in script.pieces:
            if isinstance(piece, bytes):
                try:
                    connection.sendall(piece)
                except OSError:
                    self.lost.set()
                    return False
            elif isinstance(piece, threading.Event):
                piece.wait(30)
            elif self._closing.wait(piece):
                return False
        return True
