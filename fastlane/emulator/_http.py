"""HTTP/1.1 and HTTP/2 on an accepted connection: bytes to requests, responses to bytes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import h11
from h2 import events as h2_events
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from fastlane._clock import now_ns
from fastlane.emulator._log import RequestLog
from fastlane.emulator._provider import Provider
from fastlane.emulator._request import MAXIMUM_BYTES
from fastlane.emulator.wire import reset_when_closed

Headers = Sequence[tuple[str, str]]
Stamp = Callable[[int], None]
CONTROL_PREFIX = "/emulator/"
"""Of the paths of the emulator's own endpoints, whose requests leave no record."""
_MAXIMUM_HEAD_BYTES = 256 * 1024
# With which every HTTP/2 connection begins (RFC 9113, 6.9.2).
_DEFAULT_WINDOW_BYTES = 65_535


class ServedExchange:
    """One request and its response: a stream of HTTP/2, or the current cycle of HTTP/1.1."""

    def __init__(self, connection: Http1 | Http2, record: RequestLog, headers: Mapping[str, str]) -> None:
        self.connection = connection
        self.record = record
        self.headers = headers
        self.path, _, self.query = record.path.partition("?")
        self.body = b""
        self.gone = False
        self._id = record.stream_id
        self._received: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._unsent: deque[tuple[memoryview, Stamp | None]] = deque()
        self._ending = False

    def receive(self, data: bytes) -> None:
        self.record.bytes_in += len(data)
        if self.record.bytes_in <= MAXIMUM_BYTES:
            self._received.append(data)
        else:
            self._received.clear()

    def run(self) -> None:
        self.record.body_complete_ns = now_ns()
        self.body, self._received = b"".join(self._received), []
        self._task = asyncio.get_running_loop().create_task(self.connection.answer(self))

    def client_left(self, code: int | None = None) -> None:
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
        """Whether everything sent so far has left: no closed window, no full socket."""
        return not self._unsent and not self.connection.socket_full and not self.gone

    async def drained(self) -> None:
        """Wait until it is writable. Raises ConnectionError if the client went away."""
        while not self.writable:
            if self.gone:
                raise ConnectionError("the client went away")
            self._room.clear()
            await self._room.wait()

    def send_headers(self, status: int, headers: Headers) -> None:
        if not self.gone:
            self.record.status = status
            self.connection.send_head(self._id, status, headers)
            self.connection.flush_soon(self.record.stamp_headers)

    def send(self, data: bytes, stamp: Stamp | None = None) -> None:
        """Send some of the body; `stamp` gets the time at which it was handed to the socket."""
        if not self.gone and data:
            self._unsent.append((memoryview(data), stamp))
            self.pump()

    def pump(self) -> None:
        while self._unsent and not self.connection.socket_full and not self.gone:
            data, stamp = self._unsent[0]
            sent = data[: self.connection.window(self._id)]
            if not sent:
                return
            self.connection.send_data(self._id, sent)
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
            self.connection.end_data(self._id)
            self.gone = True
            self.connection.flush_soon(self.record.stamp_finished)
            self.connection.forget(self._id)

    def abort(self) -> None:
        self.gone = True
        self.connection.flush()
        self.connection.abort()

    def reset(self, code: int) -> None:
        if isinstance(self.connection, Http1):
            self.abort()
        elif not self.gone:
            self._unsent.clear()
            # The client may have reset it, or left, together with its head.
            with contextlib.suppress(ProtocolError):
                self.connection.h2.reset_stream(self._id, code)
            self.gone = True
            self.connection.flush_soon(self.record.stamp_finished)
            self.connection.forget(self._id)

    def go_away(self, last: int | None, *, hard: bool) -> None:
        """Announce that no stream after `last` (default: this one) is served; hard: and close at once."""
        self.gone = self.gone or hard
        self.connection.go_away(self._id if last is None else last, hard=hard)
        if hard:
            self.connection.close()


Answer: TypeAlias = Callable[[ServedExchange], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Handshake(asyncio.Protocol):
    number: int
    provider: Provider
    answer: Answer
    open_connections: set[AcceptedConnection]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        kind = Http2 if tls is not None and tls.selected_alpn_protocol() == "h2" else Http1
        connection = kind(cast(asyncio.Transport, transport), self)
        transport.set_protocol(connection)
        connection.flush()


class AcceptedConnection(asyncio.Protocol):
    """An accepted connection. Gathers what all streams send in one turn of the event loop into one write."""

    http_version: str

    def __init__(self, transport: asyncio.Transport, handshake: Handshake) -> None:
        self.provider, self.answer = handshake.provider, handshake.answer
        self.requests = 0
        self.exchanges: dict[int, ServedExchange] = {}
        self.closed = False
        self.socket_full = False
        self._id = f"c{handshake.number}"
        self._open_connections = handshake.open_connections
        self._client_left = False
        self._last_record: RequestLog | None = None
        self._transport = transport
        self._flush_scheduled = False
        self._stamps: list[Stamp] = []
        self._idle: asyncio.TimerHandle | None = None
        self.idle_close: tuple[float, bool] | None = None
        """After how many seconds without a request it closes, and whether silently: without a GOAWAY on HTTP/2."""
        self._open_connections.add(self)

    def begin(self, method: str, path: str, headers: Mapping[str, str], stream_id: int) -> ServedExchange:
        """Begin an exchange, with a record unless it is a control request."""
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
            http_version=self.http_version,
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
        exchange = self.exchanges[stream_id] = ServedExchange(cast(Http1 | Http2, self), record, headers)
        return exchange

    def pause_writing(self) -> None:
        self.socket_full = True

    def resume_writing(self) -> None:
        self.socket_full = False
        self.pump()

    def pump(self) -> None:
        for exchange in tuple(self.exchanges.values()):
            exchange.pump()

    def eof_received(self) -> None:
        # The connection closes with the client's end of TLS; what is written then is lost.
        self._client_left = True
        self._closed_by("client")

    def _closed_by(self, who: Literal["client", "server"]) -> None:
        if self._last_record is not None and self._last_record.connection_closed_by is None:
            self._last_record.connection_closed_by = who

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.discard(self)
        self.closed = True
        self._closed_by("client")
        for exchange in tuple(self.exchanges.values()):
            exchange.client_left()
        if self._idle:
            self._idle.cancel()

    def flush_soon(self, stamp: Stamp | None = None) -> None:
        """Send at the end of this turn of the event loop; `stamp` gets the time."""
        if stamp is not None:
            self._stamps.append(stamp)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._flush_scheduled = False
        if self.closed:
            self._stamps.clear()
            return
        self.write(cast(Http1 | Http2, self).outgoing())
        stamps, self._stamps = self._stamps, []
        now = now_ns()
        for stamp in stamps:
            stamp(now)

    def write(self, data: bytes) -> None:
        if data and not self._client_left and not self._transport.is_closing():
            self._transport.write(data)

    def idle(self) -> None:
        if self.idle_close is not None:
            seconds, silently = self.idle_close

            def close() -> None:
                if isinstance(self, Http2) and not silently:
                    self.h2.close_connection()
                self.close()

            self._idle = asyncio.get_running_loop().call_later(seconds, close)

    def close(self) -> None:
        self._closed_by("server")
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        if not self.closed:
            self._closed_by("server")
            reset_when_closed(self._transport)
            self._transport.abort()


def _joined(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("ascii", "replace"), raw_value.decode("utf-8", "replace")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class Http1(AcceptedConnection):
    http_version = "HTTP/1.1"

    def __init__(self, transport: asyncio.Transport, handshake: Handshake) -> None:
        super().__init__(transport, handshake)
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAXIMUM_HEAD_BYTES)
        self._close_after_exchange = False
        self._outgoing: list[bytes] = []
        self.socket: Any = None
        """The WebSocket that the connection was upgraded to."""

    def data_received(self, data: bytes) -> None:
        if self.socket is not None:
            self.socket.receive(data)
            return
        self._h11.receive_data(data)
        self._read()
        self.flush()

    def _read(self) -> None:
        while not self.closed:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    self._send(h11.Response(status_code=error.error_status_hint, headers=[("content-length", "0")]))
                    self._send(h11.EndOfMessage())
                self.close()
                return
            exchange = next(iter(self.exchanges.values()), None)
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data) and exchange:
                exchange.receive(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and exchange:
                exchange.run()
                return
            else:
                if isinstance(event, h11.ConnectionClosed):
                    self.close()
                return

    def _begin(self, event: h11.Request) -> None:
        headers = _joined(event.headers)
        method, path = event.method.decode("ascii"), event.target.decode("ascii", "replace")
        exchange = self.begin(method, path, headers, self.requests + 1)
        if headers.get("connection", "").lower() == "close":
            exchange.record.connection_closed_by = "client"
        if self._h11.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def _send(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._outgoing.append(self._h11.send(event) or b"")

    def pause_reading(self, seconds: float) -> None:
        self._transport.pause_reading()
        asyncio.get_running_loop().call_later(seconds, self._transport.resume_reading)

    def outgoing(self) -> bytes:
        data, self._outgoing = b"".join(self._outgoing), []
        return data

    def send_head(self, stream_id: int, status: int, headers: Headers) -> None:
        closing = [("connection", "close")] if self._close_after_exchange else []
        self._send(h11.Response(status_code=status, headers=[*headers, *closing]))

    def window(self, stream_id: int) -> int:
        return sys.maxsize

    def send_data(self, stream_id: int, data: memoryview) -> None:
        self._send(h11.Data(data=bytes(data)))

    def end_data(self, stream_id: int) -> None:
        try:
            self._send(h11.EndOfMessage())
        except h11.LocalProtocolError:
            # A fault has cut the body short of its content-length: only closing can end it.
            self._close_after_exchange = True

    def go_away(self, last: int, *, hard: bool) -> None:
        self._close_after_exchange = True

    def forget(self, stream_id: int) -> None:
        self.exchanges.clear()
        if self._close_after_exchange or self._h11.our_state is h11.MUST_CLOSE or self._h11.their_state is not h11.DONE:
            self.close()
            return
        self._h11.start_next_cycle()
        self.idle()
        asyncio.get_running_loop().call_soon(self._read)


class Http2(AcceptedConnection):
    http_version = "HTTP/2"

    def __init__(self, transport: asyncio.Transport, handshake: Handshake) -> None:
        super().__init__(transport, handshake)
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        # The last stream that is served, once either side has sent a GOAWAY.
        self._last_served: int | None = None
        dialect = self.provider.model.dialect
        window = dialect.initial_window_bytes
        values = {
            SettingCodes.MAX_CONCURRENT_STREAMS: dialect.max_concurrent_streams,
            SettingCodes.INITIAL_WINDOW_SIZE: max(window, _DEFAULT_WINDOW_BYTES),
        }
        self.h2.local_settings = Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        if window < _DEFAULT_WINDOW_BYTES:
            # Until a client has acknowledged a smaller window it may count on the default one (RFC 9113, 6.9.2).
            self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        elif window > _DEFAULT_WINDOW_BYTES:
            # All bodies together may take as much as one.
            self.h2.increment_flow_control_window(window - _DEFAULT_WINDOW_BYTES)

    def data_received(self, data: bytes) -> None:
        # A GOAWAY makes h2 throw away what it still has to send.
        self.flush()
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:
            # h2 has already queued the GOAWAY that says what was wrong.
            self.close()
            return
        # A GOAWAY first: with it h2 stops sending, which the other events may need.
        for event in sorted(events, key=lambda event: not isinstance(event, h2_events.ConnectionTerminated)):
            self._handle(event)
        self.flush()

    def _handle(self, event: h2_events.Event) -> None:
        if isinstance(event, h2_events.RequestReceived):
            self._begin(event)
        elif isinstance(event, h2_events.WindowUpdated | h2_events.RemoteSettingsChanged):
            self.pump()
        elif isinstance(event, h2_events.ConnectionTerminated):
            if not self.exchanges:
                self.close()
                return
            # The client opens no more streams, but open ones are answered; h2 by itself would send nothing any more.
            self._last_served = max(self.exchanges)
            self.h2.state_machine.state = ConnectionState.SERVER_OPEN
        elif isinstance(event, h2_events.DataReceived | h2_events.StreamEnded | h2_events.StreamReset):
            if isinstance(event, h2_events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            stream = self.exchanges.get(event.stream_id or 0)
            if stream is None:
                return
            if isinstance(event, h2_events.DataReceived):
                stream.receive(event.data or b"")
            elif isinstance(event, h2_events.StreamEnded):
                stream.run()
            else:
                stream.client_left(int(event.error_code or 0))
                self.forget(event.stream_id or 0)

    def _begin(self, event: h2_events.RequestReceived) -> None:
        stream_id = event.stream_id or 0
        headers = _joined(event.headers or ())
        method, path = headers.get(":method", "GET"), headers.get(":path", "/")
        headers = {name: value for name, value in headers.items() if not name.startswith(":")}
        stream = self.begin(method, path, headers, stream_id)
        if self._last_served is not None and stream_id > self._last_served:
            stream.record.fault = "refused after goaway"
            stream.reset(int(ErrorCodes.REFUSED_STREAM))

    def outgoing(self) -> bytes:
        return self.h2.data_to_send()

    def forget(self, stream_id: int) -> None:
        self.exchanges.pop(stream_id, None)
        if self.exchanges:
            return
        if self._last_served is not None:
            asyncio.get_running_loop().call_soon(self.close)
        else:
            self.idle()

    def send_head(self, stream_id: int, status: int, headers: Headers) -> None:
        self.h2.send_headers(stream_id, [(":status", str(status)), *headers])

    def window(self, stream_id: int) -> int:
        return max(0, min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size))

    def send_data(self, stream_id: int, data: memoryview) -> None:
        self.h2.send_data(stream_id, data)

    def end_data(self, stream_id: int) -> None:
        self.h2.end_stream(stream_id)

    def go_away(self, last: int, *, hard: bool) -> None:
        if not hard:
            self._last_served = last
        code = int(ErrorCodes.INTERNAL_ERROR if hard else ErrorCodes.NO_ERROR)
        # Past the h2 library, whose state would otherwise close the streams that are still to be served.
        self.flush()
        self.write(GoAwayFrame(0, last_stream_id=last, error_code=code).serialize())
