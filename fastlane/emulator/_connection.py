"""One accepted connection, and one request on it with the way its response leaves: the same for both protocols."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from fastlane._clock import now_ns
from fastlane.emulator._bodies import MAXIMUM_BYTES
from fastlane.emulator._log import OpenRecord
from fastlane.emulator.settings import Dialect

Headers = Sequence[tuple[str, str]]
Stamp = Callable[[int], None]
# Winsock's struct linger has two shorts, everybody else's two ints.
LINGER_AT_ONCE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request whose body has come in whole; header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class Service(Protocol):
    """What a connection needs of the server behind it."""

    @property
    def dialect(self) -> Dialect:
        """What the server announces to its clients."""

    def open_record(
        self, connection: ServerConnection, *, method: str, path: str, headers: Mapping[str, str], stream_id: int
    ) -> OpenRecord:
        """Begin the record of a request whose headers came in."""

    async def answer(self, exchange: ServerExchange, request: Request) -> None:
        """Answer a request whose body has come in."""


class ServerProtocol(Protocol):
    """HTTP/2 or HTTP/1.1 on one connection."""

    http_version: str

    def start(self) -> None:
        """Send what the protocol begins with."""

    def receive(self, data: bytes) -> None:
        """Take bytes of the socket."""

    def outgoing(self) -> bytes:
        """Return the bytes to send."""

    def writable_again(self) -> None:
        """Take note that the socket has room again."""

    def lost(self) -> None:
        """Take note that the connection is gone."""


class ServerExchange(ABC):
    """One request and its response on a connection."""

    def __init__(self, connection: ServerConnection, record: OpenRecord, headers: Mapping[str, str]) -> None:
        self.record = record
        self.connection = connection
        self.room = asyncio.Event()
        self.gone = False
        """Whether nothing more can be sent."""
        self._headers = headers
        self._body: list[bytes] = []
        self._task: asyncio.Task[None] | None = None

    def receive(self, data: bytes) -> None:
        """Take some of the body."""
        self.record.bytes_in += len(data)
        if self.record.bytes_in <= MAXIMUM_BYTES:
            self._body.append(data)
        else:
            self._body.clear()

    def run(self) -> None:
        """Answer: the body is whole."""
        self.record.body_complete_ns = now_ns()
        path, _, query = self.record.path.partition("?")
        body, self._body = b"".join(self._body), []
        request = Request(method=self.record.method, path=path, query=query, headers=self._headers, body=body)
        self._task = self.connection.run(self, request)

    def client_left(self, code: int | None = None) -> None:
        """Stop at once: the client reset the stream (`code`) or the connection is gone."""
        if self.gone:
            return
        self.gone = True
        if self.record.reset_ns is None:
            self.record.reset_ns = now_ns()
            self.record.reset_code = code
        self.room.set()
        if self._task:
            self._task.cancel()

    @property
    def writable(self) -> bool:
        """Whether what was sent so far has left: no closed window, no full socket."""
        return not self.connection.socket_full and not self.gone

    async def drained(self) -> None:
        """Wait until it is writable. Raises ConnectionError if the client went away."""
        while not self.writable:
            if self.gone:
                raise ConnectionError("the client went away")
            self.room.clear()
            await self.room.wait()

    def abort(self) -> None:
        """Break the connection off, as a crashed peer would."""
        self.gone = True
        self.connection.flush()
        self.connection.abort()

    @abstractmethod
    def send_headers(self, status: int, headers: Headers) -> None:
        """Send the status and the headers."""

    @abstractmethod
    def send(self, data: bytes, stamp: Stamp | None = None) -> None:
        """Send some of the body; `stamp` gets the time at which it was handed to the socket."""

    @abstractmethod
    def end(self) -> None:
        """End the response."""

    @abstractmethod
    def reset(self, code: int) -> None:
        """Reset the stream; on HTTP/1.1 abort the connection."""

    @abstractmethod
    def go_away(self, manner: Literal["graceful", "hard"], last: int | None) -> None:
        """Announce that no stream after `last` (default: this one) is served."""

    @abstractmethod
    def close_when_idle(self, seconds: float, *, silently: bool) -> None:
        """Close the connection once it has been idle for so long; silently: without a GOAWAY on HTTP/2."""


def joined_headers(pairs: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name, those of one name joined by commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("ascii", "replace"), raw_value.decode("utf-8", "replace")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class ServerConnection(asyncio.Protocol):
    """Gathers what all streams send in one turn of the event loop into one write."""

    def __init__(
        self,
        connection_id: str,
        service: Service,
        open_connections: set[ServerConnection],
        choose: Callable[[ServerConnection, bool], ServerProtocol],
    ) -> None:
        self.connection_id = connection_id
        self.service = service
        self.requests = 0
        self.closed = False
        self.last_record: OpenRecord | None = None
        self.socket_full = False
        self._open_connections = open_connections
        self._client_left = False
        self._choose = choose
        self._engine: ServerProtocol | None = None
        self._transport: asyncio.Transport | None = None
        self._flush_scheduled = False
        self._stamps: list[Stamp] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def http_version(self) -> str:
        """The protocol spoken, as the log names it."""
        return self._engine.http_version if self._engine else "HTTP/1.1"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Choose the protocol."""
        self._open_connections.add(self)
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            # Without it the kernel holds small writes back until the client has acknowledged the ones before.
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = transport.get_extra_info("ssl_object")
        self._engine = self._choose(self, tls is not None and tls.selected_alpn_protocol() == "h2")
        self._engine.start()
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the protocol."""
        if self._engine and not self.closed:
            self._engine.receive(data)
            self.flush()

    def pause_writing(self) -> None:
        """Take note that the socket's buffer is full."""
        self.socket_full = True

    def resume_writing(self) -> None:
        """Take note that the socket's buffer has room again."""
        self.socket_full = False
        if self._engine:
            self._engine.writable_again()

    def eof_received(self) -> None:
        """Send nothing more: with the client's end of TLS the connection closes, and what is written then is lost."""
        self._client_left = True
        self._closed_by("client")

    def _closed_by(self, who: Literal["client", "server"]) -> None:
        if self.last_record is not None and self.last_record.connection_closed_by is None:
            self.last_record.connection_closed_by = who

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop every response."""
        self._open_connections.discard(self)
        self.closed = True
        self._closed_by("client")
        if self._engine:
            self._engine.lost()
        for task in self._tasks:
            task.cancel()

    def run(self, exchange: ServerExchange, request: Request) -> asyncio.Task[None]:
        """Begin to answer a request."""
        task = asyncio.get_running_loop().create_task(self.service.answer(exchange, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def flush_soon(self, stamp: Stamp | None = None) -> None:
        """Send at the end of this turn of the event loop; `stamp` gets the time."""
        if stamp is not None:
            self._stamps.append(stamp)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send now."""
        self._flush_scheduled = False
        if self.closed or self._engine is None:
            self._stamps.clear()
            return
        self._write(self._engine.outgoing())
        if self._stamps:
            stamps, self._stamps = self._stamps, []
            now = now_ns()
            for stamp in stamps:
                stamp(now)

    def write_raw(self, data: bytes) -> None:
        """Send bytes that the protocol's state shall not know of, after what it has to send."""
        self.flush()
        if not self.closed:
            self._write(data)

    def _write(self, data: bytes) -> None:
        if data and self._transport and not self._client_left and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Send what is left and close."""
        self._closed_by("server")
        self.flush()
        if self._transport:
            self._transport.close()

    def abort(self) -> None:
        """Break the connection off with a TCP reset."""
        if self._transport is None or self.closed:
            return
        self._closed_by("server")
        # (One that is being closed, under TLS, no longer says which socket it has.)
        raw = None if self._transport.is_closing() else self._transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_AT_ONCE)
        self._transport.abort()
