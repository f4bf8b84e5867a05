"""HTTP/1.1 and HTTP/2 on an accepted connection: bytes to requests, responses to bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import h11
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from fastlane._clock import now_ns
from fastlane.emulator._log import RequestLog
from fastlane.emulator._provider import Provider
from fastlane.emulator._request import MAXIMUM_BYTES
from fastlane.emulator.wire import LINGER_AT_ONCE

Headers = Sequence[tuple[str, str]]
Stamp = Callable[[int], None]
CONTROL_PREFIX = "/emulator/"
"""Of the paths of the emulator's own endpoints, whose requests leave no record."""
_MAXIMUM_HEAD_BYTES = 256 * 1024
# With which every HTTP/2 connection begins (RFC 9113, 6.9.2).
_DEFAULT_WINDOW_BYTES = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request whose body has come in whole; header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class ServedExchange:
    """One request and its response on a connection: a stream of HTTP/2, or the current turn of HTTP/1.1."""

    def __init__(self, protocol: Http1 | Http2, record: RequestLog, headers: Mapping[str, str]) -> None:
        self.record = record
        self.connection = protocol.connection
        self.gone = False
        """Whether nothing more can be sent."""
        self._protocol = protocol
        self._id = record.stream_id
        self._headers = headers
        self._body: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._unsent: deque[tuple[memoryview, Stamp | None]] = deque()
        self._ending = False

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
        self._unsent.clear()
        self._room.set()
        if self._task:
            self._task.cancel()

    @property
    def writable(self) -> bool:
        """Whether what was sent so far has left: no closed window, no full socket."""
        return not self._unsent and not self.connection.socket_full and not self.gone

    async def drained(self) -> None:
        """Wait until it is writable. Raises ConnectionError if the client went away."""
        while not self.writable:
            if self.gone:
                raise ConnectionError("the client went away")
            self._room.clear()
            await self._room.wait()

    def send_headers(self, status: int, headers: Headers) -> None:
        """Send the status and the headers."""
        if not self.gone:
            self.record.status = status
            self._protocol.send_head(self._id, status, headers)
            self.connection.flush_soon(self.record.stamp_headers)

    def send(self, data: bytes, stamp: Stamp | None = None) -> None:
        """Send some of the body; `stamp` gets the time at which it was handed to the socket."""
        if not self.gone and data:
            self._unsent.append((memoryview(data), stamp))
            self.pump()

    def pump(self) -> None:
        """Send as much as the windows and the socket let through."""
        while self._unsent and not self.connection.socket_full and not self.gone:
            data, stamp = self._unsent[0]
            sent = data[: self._protocol.window(self._id)]
            if not sent:
                return
            self._protocol.send_data(self._id, sent)
            self.record.bytes_out += len(sent)
            if len(sent) < len(data):
                self._unsent[0] = (data[len(sent) :], stamp)
                self.connection.flush_soon()
            else:
                self._unsent.popleft()
                self.connection.flush_soon(stamp)
        if not self._unsent:
            self._room.set()
            if self._ending:
                self.end()

    def end(self) -> None:
        """End the response, when all of it has left."""
        self._ending = True
        if not self._unsent and not self.gone:
            self.gone = True
            self._protocol.end_data(self._id)
            self.connection.flush_soon(self.record.stamp_finished)
            self._protocol.forget(self._id)

    def abort(self) -> None:
        """Break the connection off, as a crashed peer would."""
        self.gone = True
        self.connection.flush()
        self.connection.abort()

    def reset(self, code: int) -> None:
        """Reset the stream; on HTTP/1.1 abort the connection."""
        if isinstance(self._protocol, Http1):
            self.abort()
        elif not self.gone:
            self.gone = True
            self._unsent.clear()
            # The client has reset it, or left, in what came together with its head.
            with contextlib.suppress(ProtocolError):
                self._protocol.h2.reset_stream(self._id, code)
            self.connection.flush_soon(self.record.stamp_finished)
            self._protocol.forget(self._id)

    def go_away(self, manner: Literal["graceful", "hard"], last: int | None) -> None:
        """Announce that no stream after `last` (default: this one) is served; hard: and close at once."""
        is_hard = manner == "hard"
        self.gone = self.gone or is_hard
        self._protocol.go_away(self._id if last is None else last, hard=is_hard)
        if is_hard:
            self.connection.close()


class ServerConnection(asyncio.Protocol):
    """An accepted connection; gathers what all streams send in one turn of the event loop into one write."""

    def __init__(
        self,
        number: int,
        provider: Provider,
        answer: Callable[[ServedExchange, Request], Coroutine[Any, Any, None]],
        open_connections: set[ServerConnection],
    ) -> None:
        self.provider = provider
        self.requests = 0
        self.closed = False
        self.socket_full = False
        self._id = f"c{number}"
        self._answer = answer
        self._open_connections = open_connections
        self._client_left = False
        self._last_record: RequestLog | None = None
        self._protocol: Http1 | Http2
        self._transport: asyncio.Transport
        self._flush_scheduled = False
        self._stamps: list[Stamp] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_s: float | None = None
        self._leaves_silently = False
        self._idle: asyncio.TimerHandle | None = None

    def open_record(self, *, method: str, path: str, headers: Mapping[str, str], stream_id: int) -> RequestLog:
        """Begin the record of a request whose headers came in; the emulator's own control requests leave none."""
        if self._idle:
            self._idle.cancel()
        logged = not path.startswith(CONTROL_PREFIX)
        self.requests += logged
        number = self.provider.next_number() if logged else -1
        record = RequestLog(
            sequence_number=number,
            request_id=f"req_{self.provider.seed:x}_" + (f"{number:012d}" if logged else "control"),
            method=method,
            path=path,
            http_version=self._protocol.http_version,
            connection_id=self._id,
            stream_id=stream_id,
            connection_request_number=self.requests,
            header_names=tuple(headers),
            received_ns=now_ns(),
            tag=headers.get("x-emulator-tag"),
            content_type=headers.get("content-type"),
            content_encoding=headers.get("content-encoding"),
        )
        if logged:
            self.provider.records.append(record)
            self._last_record = record
        return record

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Choose the protocol."""
        self._open_connections.add(self)
        self._transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            # Without it the kernel holds small writes back until the client has acknowledged the ones before.
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = transport.get_extra_info("ssl_object")
        self._protocol = Http2(self) if tls is not None and tls.selected_alpn_protocol() == "h2" else Http1(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the protocol."""
        if not self.closed:
            self._protocol.receive(data)
            self.flush()

    def pause_writing(self) -> None:
        """Take note that the socket's buffer is full."""
        self.socket_full = True

    def resume_writing(self) -> None:
        """Take note that the socket's buffer has room again."""
        self.socket_full = False
        self._protocol.writable_again()

    def eof_received(self) -> None:
        """Send nothing more: with the client's end of TLS the connection closes, and what is written then is lost."""
        self._client_left = True
        self._closed_by("client")

    def _closed_by(self, who: Literal["client", "server"]) -> None:
        if self._last_record is not None and self._last_record.connection_closed_by is None:
            self._last_record.connection_closed_by = who

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop every response."""
        self._open_connections.discard(self)
        self.closed = True
        self._closed_by("client")
        self._protocol.lost()
        if self._idle:
            self._idle.cancel()
        for task in self._tasks:
            task.cancel()

    def run(self, exchange: ServedExchange, request: Request) -> asyncio.Task[None]:
        """Begin to answer a request."""
        task = asyncio.get_running_loop().create_task(self._answer(exchange, request))
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
        if self.closed:
            self._stamps.clear()
            return
        self._write(self._protocol.outgoing())
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
        if data and not self._client_left and not self._transport.is_closing():
            self._transport.write(data)

    def close_when_idle(self, seconds: float, *, silently: bool) -> None:
        """Close once it has been idle for so long; silently: without a GOAWAY on HTTP/2."""
        self._idle_s = seconds
        self._leaves_silently = silently

    def idle(self) -> None:
        """Take note that no request is open."""
        if self._idle_s is not None:
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._close_idle)

    def _close_idle(self) -> None:
        if isinstance(self._protocol, Http2) and not self._leaves_silently:
            self._protocol.h2.close_connection()
        self.close()

    def close(self) -> None:
        """Send what is left and close."""
        self._closed_by("server")
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Break the connection off with a TCP reset."""
        if self.closed:
            return
        self._closed_by("server")
        # (One that is being closed, under TLS, no longer says which socket it has.)
        raw = None if self._transport.is_closing() else self._transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_AT_ONCE)
        self._transport.abort()


def _joined(pairs: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by name, those of one name joined by commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("ascii", "replace"), raw_value.decode("utf-8", "replace")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class Http1:
    """HTTP/1.1 on one connection, with one exchange at a time."""

    http_version = "HTTP/1.1"

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAXIMUM_HEAD_BYTES)
        self.close_after_turn = False
        self._turn: ServedExchange | None = None
        self._outgoing: list[bytes] = []

    def receive(self, data: bytes) -> None:
        """Take bytes of the socket."""
        self.h11.receive_data(data)
        self._read()

    def _read(self) -> None:
        while not self.connection.closed:
            try:
                event = self.h11.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error)
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data) and self._turn:
                self._turn.receive(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and self._turn:
                self._turn.run()
                return
            elif isinstance(event, h11.ConnectionClosed):
                self.connection.close()
                return
            else:
                return

    def _begin(self, event: h11.Request) -> None:
        headers = _joined(list(event.headers))
        record = self.connection.open_record(
            method=event.method.decode("ascii"),
            path=event.target.decode("ascii", "replace"),
            headers=headers,
            stream_id=self.connection.requests + 1,
        )
        if headers.get("connection", "").lower() == "close":
            record.connection_closed_by = "client"
        self._turn = ServedExchange(self, record, headers)
        if self.h11.they_are_waiting_for_100_continue:
            self.write(h11.InformationalResponse(status_code=100, headers=[]))

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        if self.h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.write(h11.Response(status_code=error.error_status_hint, headers=[("content-length", "0")]))
            self.write(h11.EndOfMessage())
        self.connection.close()

    def write(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        """Queue an event's bytes."""
        self._outgoing.append(self.h11.send(event) or b"")

    def outgoing(self) -> bytes:
        """Return the bytes to send."""
        data, self._outgoing = b"".join(self._outgoing), []
        return data

    def writable_again(self) -> None:
        """Take note that the socket has room again."""
        if self._turn:
            self._turn.pump()

    def lost(self) -> None:
        """Take note that the connection is gone."""
        if self._turn:
            self._turn.client_left()

    def send_head(self, _: int, status: int, headers: Headers) -> None:
        """Queue the head of a response."""
        closing = [("connection", "close")] if self.close_after_turn else []
        self.write(h11.Response(status_code=status, headers=[*headers, *closing]))

    def window(self, _: int) -> int:
        """Return how many bytes of a body may be sent now."""
        return sys.maxsize

    def send_data(self, _: int, data: memoryview) -> None:
        """Queue a part of a body."""
        self.write(h11.Data(data=bytes(data)))

    def end_data(self, _: int) -> None:
        """Queue the end of a body."""
        try:
            self.write(h11.EndOfMessage())
        except h11.LocalProtocolError:
            # A body cut short of its content-length, as a fault asked: only closing can end it.
            self.close_after_turn = True

    def go_away(self, last: int, *, hard: bool) -> None:
        """Serve no further request."""
        self.close_after_turn = True

    def forget(self, _: int) -> None:
        """Make ready for the next request, or close."""
        self._turn = None
        if self.close_after_turn or self.h11.our_state is h11.MUST_CLOSE or self.h11.their_state is not h11.DONE:
            self.connection.close()
            return
        self.h11.start_next_cycle()
        self.connection.idle()
        asyncio.get_running_loop().call_soon(self._read)


class Http2:
    """HTTP/2 on one connection."""

    http_version = "HTTP/2"

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.streams: dict[int, ServedExchange] = {}
        self.last_served: int | None = None
        """The last stream that is served, once either side has said goodbye."""
        window = connection.provider.model.dialect.initial_window_bytes
        self.h2.local_settings = self._settings(window)
        self.h2.initiate_connection()
        if window < _DEFAULT_WINDOW_BYTES:
            # Until a client has seen a smaller window it may count on the default one (RFC 9113, 6.9.2).
            self.h2.local_settings = self._settings(_DEFAULT_WINDOW_BYTES)
            self.h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = window
        elif window > _DEFAULT_WINDOW_BYTES:
            # All bodies together may take as much as one.
            self.h2.increment_flow_control_window(window - _DEFAULT_WINDOW_BYTES)

    def _settings(self, window_bytes: int) -> Settings:
        streams = self.connection.provider.model.dialect.max_concurrent_streams
        values = {SettingCodes.MAX_CONCURRENT_STREAMS: streams, SettingCodes.INITIAL_WINDOW_SIZE: window_bytes}
        return Settings(client=False, initial_values=values)

    def receive(self, data: bytes) -> None:
        """Take bytes of the socket."""
        # A GOAWAY makes h2 throw away what it still has to send.
        self.connection.flush()
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:
            # h2 has already queued the GOAWAY that says what was wrong.
            self.connection.close()
            return
        # The goodbye first: with it, h2 has stopped to send, which what else has come may ask for.
        for event in sorted(events, key=lambda event: not isinstance(event, ConnectionTerminated)):
            self._handle(event)

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            self.writable_again()
        elif isinstance(event, ConnectionTerminated):
            if not self.streams:
                self.connection.close()
                return
            # The client opens no more streams, but those open are answered; h2 by itself would send nothing any more.
            self.last_served = max(self.streams)
            self.h2.state_machine.state = ConnectionState.SERVER_OPEN
        elif isinstance(event, DataReceived | StreamEnded | StreamReset):
            if isinstance(event, DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            stream = self.streams.get(event.stream_id or 0)
            if stream is None:
                return
            if isinstance(event, DataReceived):
                stream.receive(event.data or b"")
            elif isinstance(event, StreamEnded):
                stream.run()
            else:
                stream.client_left(int(event.error_code or 0))
                self.forget(event.stream_id or 0)

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id or 0
        headers = _joined(event.headers or ())
        record = self.connection.open_record(
            method=headers.pop(":method", "GET"),
            path=headers.pop(":path", "/"),
            headers={name: value for name, value in headers.items() if not name.startswith(":")},
            stream_id=stream_id,
        )
        stream = self.streams[stream_id] = ServedExchange(self, record, headers)
        if self.last_served is not None and stream_id > self.last_served:
            record.fault = "refused after goaway"
            stream.reset(int(ErrorCodes.REFUSED_STREAM))

    def outgoing(self) -> bytes:
        """Return the bytes to send."""
        return self.h2.data_to_send()

    def writable_again(self) -> None:
        """Send what waited for a window or for the socket."""
        for stream in tuple(self.streams.values()):
            stream.pump()

    def lost(self) -> None:
        """Take note that the connection is gone."""
        for stream_id, stream in tuple(self.streams.items()):
            stream.client_left()
            self.forget(stream_id)

    def forget(self, stream_id: int) -> None:
        """Drop a finished stream, and close a connection that has no more to do."""
        self.streams.pop(stream_id, None)
        if self.streams:
            return
        if self.last_served is not None:
            asyncio.get_running_loop().call_soon(self.connection.close)
        else:
            self.connection.idle()

    def send_head(self, stream_id: int, status: int, headers: Headers) -> None:
        """Queue the head of a response."""
        self.h2.send_headers(stream_id, [(":status", str(status)), *headers])

    def window(self, stream_id: int) -> int:
        """Return how many bytes of a body may be sent now."""
        return max(0, min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size))

    def send_data(self, stream_id: int, data: memoryview) -> None:
        """Queue a part of a body."""
        self.h2.send_data(stream_id, data)

    def end_data(self, stream_id: int) -> None:
        """Queue the end of a body."""
        self.h2.end_stream(stream_id)

    def go_away(self, last: int, *, hard: bool) -> None:
        """Say that no stream after `last` is served."""
        if not hard:
            self.last_served = last
        code = int(ErrorCodes.INTERNAL_ERROR if hard else ErrorCodes.NO_ERROR)
        # Past the h2 library, whose state would otherwise close the streams that are still to be served.
        self.connection.write_raw(GoAwayFrame(0, last_stream_id=last, error_code=code).serialize())
