"""One accepted connection: bytes of the socket to the protocol that ALPN chose, and its bytes back."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from fastlane._clock import now_ns
from fastlane.emulator._exchange import Request, ServerExchange, Stamp
from fastlane.emulator._log import OpenRecord

from ..errors import ConfigurationError

WINDOW_BYTES = 16 * 1_048_576
DEFAULT_WINDOW_BYTES = 65_535
"""With which every HTTP/2 connection begins (RFC 9113, 6.9.2)."""
_MAXIMUM_WINDOW_BYTES = 2**31 - 1


class Service(Protocol):
    """What a connection needs of the server behind it."""

    def open_record(
        self, connection: ServerConnection, *, method: str, path: str, headers: Mapping[str, str], stream_id: int
    ) -> OpenRecord:
        """Begin the record of a request whose headers came in."""

    async def answer(self, exchange: ServerExchange, request: Request) -> None:
        """Answer a request whose body has come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """What a connection announces to its client."""

    http2: bool = True
    max_concurrent_streams: int = 100
    # By default so large that no upload ever waits for our window: what one costs is the wire's doing, not ours.
    window_bytes: int = WINDOW_BYTES
    """SETTINGS_INITIAL_WINDOW_SIZE: how much of one request's body may come unasked."""
    connection_window_bytes: int | None = None
    """How much of all bodies together; None: as much as of one, and never less than HTTP/2's 65,535."""

    def __post_init__(self) -> None:
        if not 1 <= self.window_bytes <= _MAXIMUM_WINDOW_BYTES:
            raise ConfigurationError(
                f"initial_window_bytes must be from 1 to {_MAXIMUM_WINDOW_BYTES}, got {self.window_bytes}"
            )
        connection = self.connection_window_bytes
        if connection is not None and not DEFAULT_WINDOW_BYTES <= connection <= _MAXIMUM_WINDOW_BYTES:
            raise ConfigurationError(
                f"connection_window_bytes must be from {DEFAULT_WINDOW_BYTES} to {_MAXIMUM_WINDOW_BYTES}, got "
                f"{connection}: HTTP/2 knows no smaller one"
            )
        if self.max_concurrent_streams < 1:
            raise ConfigurationError(f"max_concurrent_streams must be at least 1, got {self.max_concurrent_streams}")

    @property
    def first_credit_bytes(self) -> int:
        """How much the connection's window is raised by at the start."""
        whole = self.window_bytes if self.connection_window_bytes is None else self.connection_window_bytes
        return max(0, whole - DEFAULT_WINDOW_BYTES)


class ServerProtocol(Protocol):
    """HTTP/2 or HTTP/1.1 on one connection."""

    http_version: str

    def start(self) -> None:
        """Say the first word, if the protocol has one."""

    def receive(self, data: bytes) -> None:
        """Take bytes of the socket."""

    def outgoing(self) -> bytes:
        """Return the bytes to send."""

    def writable_again(self) -> None:
        """Take note that the socket has room again."""

    def lost(self) -> None:
        """Take note that the connection is gone."""


class ServerConnection(asyncio.Protocol):
    """Gathers what all streams send in one turn of the event loop into one write."""

    def __init__(
        self,
        connection_id: str,
        service: Service,
        settings: ConnectionSettings,
        choose: Callable[[ServerConnection, bool], ServerProtocol],
    ) -> None:
        self.connection_id = connection_id
        self.service = service
        self.settings = settings
        self.requests = 0
        self.closed = False
        self.last_record: OpenRecord | None = None
        self._client_left = False
        self.socket_full = False
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
        """The socket's buffer is full."""
        self.socket_full = True

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
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
        """Stop every answer."""
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
        if self.closed or self._engine is None or self._transport is None:
            self._stamps.clear()
            return
        data = self._engine.outgoing()
        if data and not self._client_left and not self._transport.is_closing():
            self._transport.write(data)
        if self._stamps:
            stamps, self._stamps = self._stamps, []
            now = now_ns()
            for stamp in stamps:
                stamp(now)

    def write_raw(self, data: bytes) -> None:
        """Send bytes that the protocol's state shall not know of, after what it has to send."""
        self.flush()
        if self._transport and not self.closed and not self._client_left and not self._transport.is_closing():
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
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
