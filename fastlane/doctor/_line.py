"""One connection opened step by step, for what no call shows: each step's time, the server's settings, its goodbye."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import h2.connection
import h2.events
import h11
from h2.config import H2Configuration
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from .._clock import now_ns
from ..transport import certificates_now
from ..transport.drivers.connect import ssl_context
from ..transport.pool.settings import Http2
from .target import Target

_READ_BYTES = 65_536

Goodbye = Literal["goaway", "closed", "reset"]
"""How a server left: with HTTP/2's word for it, by closing in good order, or by breaking off (RST)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """One address of the host."""

    family: int
    sockaddr: tuple[Any, ...]

    @property
    def ip(self) -> str:
        """The address without the port."""
        return str(self.sockaddr[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Settings:
    """What an HTTP/2 server says first."""

    most_streams: int | None
    """Requests at once on one connection; None where the server sets no limit."""
    stream_window: int
    """Bytes of one request's body that may be on their way."""
    connection_window: int
    """Bytes of all requests' bodies that may be on their way."""
    frame_bytes: int
    header_list_bytes: int | None


class LineError(Exception):
    """The peer broke the protocol, or ended the connection where an answer was due."""


def resolve(target: Target) -> tuple[HostAddress, ...]:
    """Ask for the host's addresses. Raises socket.gaierror; waits as long as the system's resolver does."""
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    return tuple(
        dict.fromkeys(HostAddress(family=family, sockaddr=tuple(sockaddr)) for family, _, _, _, sockaddr in found)
    )


def connect(address: HostAddress, timeout_s: float) -> socket.socket:
    """Open a TCP connection. Raises OSError."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(address.sockaddr)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def secure(sock: socket.socket, target: Target, http2: Http2) -> ssl.SSLSocket:
    """Shake hands as the clients of this package do, with their trust. Raises OSError, of which ssl.SSLError is one."""
    try:
        return ssl_context(True, certificates_now(), http2).wrap_socket(sock, server_hostname=target.host)
    except BaseException:
        sock.close()
        raise


class Http1Line:
    """HTTP/1.1 on a connection."""

    http_version = "HTTP/1.1"

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._http = h11.Connection(h11.CLIENT)

    def get(self, path: str, headers: Mapping[str, str], timeout_s: float) -> int:
        """Ask for a path and read the whole answer, of which the status is given. Raises OSError and LineError."""
        deadline = now_ns() + int(timeout_s * 1e9)
        request = h11.Request(method="GET", target=path, headers=list(headers.items()))
        try:
            self.sock.sendall(self._http.send(request) + self._http.send(h11.EndOfMessage()))
            status = 0
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(_receive(self.sock, deadline))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.EndOfMessage):
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    raise LineError("the server closed the connection without an answer")
            if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
                self._http.start_next_cycle()
        except h11.ProtocolError as error:
            raise LineError("the server does not speak HTTP/1.1 as it should") from error
        return status

    @property
    def stays_open(self) -> bool:
        """Whether the server is willing to take another request on this connection."""
        return self._http.our_state is h11.IDLE

    def goodbye_within(self, seconds: float) -> Goodbye | None:
        """Wait for the server to leave; None if it does not."""
        try:
            for _data in _arriving(self.sock, seconds):
                return "closed"  # whatever a server says unasked, no request can follow it
        except OSError:
            return "reset"
        return None


class Http2Line:
    """HTTP/2 on a connection."""

    http_version = "HTTP/2"
    stays_open = True

    def __init__(self, sock: socket.socket, target: Target) -> None:
        self.sock = sock
        self._target = target
        self._http = h2.connection.H2Connection(H2Configuration(header_encoding="utf-8"))
        self._pings = 0

    def greet(self, timeout_s: float) -> Http2Settings:
        """Exchange settings. Raises OSError and LineError."""
        self._http.initiate_connection()
        self._flush()
        self._until(h2.events.RemoteSettingsChanged, timeout_s)
        # What widens the connection's window comes after the settings, and before the answer to what we ask now.
        self.ping(timeout_s)
        said = self._http.remote_settings
        # h2 has a number of its own where the peer says nothing, which is not the peer's.
        streams = said.max_concurrent_streams if SettingCodes.MAX_CONCURRENT_STREAMS in said else None
        return Http2Settings(
            most_streams=streams,
            stream_window=said.initial_window_size,
            connection_window=self._http.outbound_flow_control_window,
            frame_bytes=said.max_frame_size,
            header_list_bytes=said.max_header_list_size,
        )

    def ping(self, timeout_s: float) -> int:
        """Nanoseconds to the server's HTTP and back. Raises OSError and LineError."""
        self._pings += 1
        started = now_ns()
        self._http.ping(self._pings.to_bytes(8, "big"))
        self._flush()
        self._until(h2.events.PingAckReceived, timeout_s)
        return now_ns() - started

    def get(self, path: str, headers: Mapping[str, str], timeout_s: float) -> int:
        """Ask for a path and read the whole answer, of which the status is given. Raises OSError and LineError."""
        stream = self._http.get_next_available_stream_id()
        own = {"host", "connection"}
        fields = [(name.lower(), value) for name, value in headers.items() if name.lower() not in own]
        try:
            self._http.send_headers(
                stream,
                [
                    (":method", "GET"),
                    (":scheme", self._target.scheme),
                    (":authority", self._target.authority),
                    (":path", path),
                    *fields,
                ],
                end_stream=True,
            )
        except ProtocolError as error:
            raise LineError("the server takes no further request") from error
        self._flush()
        status = 0
        for event in self._events(timeout_s):
            if isinstance(event, h2.events.ResponseReceived) and event.stream_id == stream:
                status = next(int(value) for name, value in event.headers or () if name in (":status", b":status"))
            elif isinstance(event, h2.events.DataReceived):
                self._http.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                self._flush()
            elif isinstance(event, h2.events.StreamEnded) and event.stream_id == stream:
                return status
            elif isinstance(event, h2.events.StreamReset) and event.stream_id == stream:
                raise LineError("the server reset the request")
        raise LineError("the server closed the connection without an answer")

    def goodbye_within(self, seconds: float) -> Goodbye | None:
        """Wait for the server to leave; None if it does not."""
        try:
            for data in _arriving(self.sock, seconds):
                if not data:
                    return "closed"
                events = self._http.receive_data(data)
                self._flush()
                if any(isinstance(event, h2.events.ConnectionTerminated) for event in events):
                    return "goaway"
        except (ProtocolError, OSError):
            return "reset"
        return None

    def _until(self, kind: type[h2.events.Event], timeout_s: float) -> None:
        for event in self._events(timeout_s):
            if isinstance(event, kind):
                return
        raise LineError("the server closed the connection without an answer")

    def _events(self, timeout_s: float) -> Iterator[h2.events.Event]:
        deadline = now_ns() + int(timeout_s * 1e9)
        try:
            while data := _receive(self.sock, deadline):
                events = self._http.receive_data(data)
                self._flush()
                for event in events:
                    if isinstance(event, h2.events.ConnectionTerminated):
                        raise LineError("the server said goodbye (GOAWAY)")
                    yield event
        except ProtocolError as error:
            raise LineError("the server does not speak HTTP/2 as it should") from error

    def _flush(self) -> None:
        data = self._http.data_to_send()
        if data:
            self.sock.sendall(data)


Line = Http1Line | Http2Line


@contextlib.contextmanager
def opened(target: Target, address: HostAddress, http2: Http2, timeout_s: float) -> Iterator[Line]:
    """A connection that is ready for a request, closed at the end. Raises OSError and LineError."""
    sock = connect(address, timeout_s)
    if target.is_secure:
        sock = secure(sock, target, http2)
    with sock:
        if isinstance(sock, ssl.SSLSocket) and sock.selected_alpn_protocol() == "h2":
            line = Http2Line(sock, target)
            line.greet(timeout_s)
            yield line
        else:
            yield Http1Line(sock)


def _receive(sock: socket.socket, deadline_ns: int) -> bytes:
    """What comes next; empty at the end. Raises TimeoutError at the deadline."""
    left = (deadline_ns - now_ns()) / 1e9
    if left <= 0:
        raise TimeoutError("no answer in time")
    sock.settimeout(left)
    try:
        return sock.recv(_READ_BYTES)
    except ssl.SSLEOFError:  # closed without TLS's goodbye, as many servers do
        return b""


def _arriving(sock: socket.socket, seconds: float) -> Iterator[bytes]:
    """What comes unasked within so many seconds, the end as empty bytes; nothing more after the end."""
    deadline = now_ns() + int(seconds * 1e9)
    while True:
        try:
            data = _receive(sock, deadline)
        except TimeoutError:
            return
        yield data
        if not data:
            return
