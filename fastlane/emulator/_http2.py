"""HTTP/2 on one connection: frames to requests, answers to frames."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Literal

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

from fastlane.emulator._connection import Headers, ServerConnection, ServerExchange, Stamp, joined_headers
from fastlane.emulator._log import OpenRecord

# With which every HTTP/2 connection begins (RFC 9113, 6.9.2).
_DEFAULT_WINDOW_BYTES = 65_535


class Http2:
    """The connection; its streams are `_Stream`s."""

    http_version = "HTTP/2"

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.streams: dict[int, _Stream] = {}
        self._last_served: int | None = None
        self._idle_s: float | None = None
        self._leaves_silently = False
        self._idle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        window = self.connection.service.dialect.initial_window_bytes
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
        return Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: self.connection.service.dialect.max_concurrent_streams,
                SettingCodes.INITIAL_WINDOW_SIZE: window_bytes,
            },
        )

    def receive(self, data: bytes) -> None:
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
        elif isinstance(event, DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            stream = self.streams.get(event.stream_id or 0)
            if stream:
                stream.receive(event.data or b"")
        elif isinstance(event, StreamEnded):
            stream = self.streams.get(event.stream_id or 0)
            if stream:
                stream.run()
        elif isinstance(event, StreamReset):
            stream = self.streams.get(event.stream_id or 0)
            if stream:
                stream.client_left(int(event.error_code or 0))
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            self.writable_again()
        elif isinstance(event, ConnectionTerminated):
            self._client_says_goodbye()

    def _client_says_goodbye(self) -> None:
        if not self.streams:
            self.connection.close()
            return
        # The client opens no more streams, but those open are answered; h2 by itself would send nothing any more.
        self._last_served = max(self.streams)
        self.h2.state_machine.state = ConnectionState.SERVER_OPEN

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id or 0
        headers = joined_headers(event.headers or ())
        if self._idle:
            self._idle.cancel()
        record = self.connection.service.open_record(
            self.connection,
            method=headers.pop(":method", "GET"),
            path=headers.pop(":path", "/"),
            headers={name: value for name, value in headers.items() if not name.startswith(":")},
            stream_id=stream_id,
        )
        stream = self.streams[stream_id] = _Stream(self, stream_id, record, headers)
        if self._last_served is not None and stream_id > self._last_served:
            record.fault = "refused after goaway"
            stream.reset(int(ErrorCodes.REFUSED_STREAM))

    def outgoing(self) -> bytes:
        return self.h2.data_to_send()

    def writable_again(self) -> None:
        """Send what waited for a window or for the socket."""
        for stream in tuple(self.streams.values()):
            stream.pump()

    def lost(self) -> None:
        if self._idle:
            self._idle.cancel()
        for stream in tuple(self.streams.values()):
            stream.client_left(None)

    def forget(self, stream_id: int) -> None:
        """Drop a finished stream, and close a connection that has no more to do."""
        self.streams.pop(stream_id, None)
        if self.streams:
            return
        if self._last_served is not None:
            asyncio.get_running_loop().call_soon(self.connection.close)
        elif self._idle_s is not None:
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._close_idle)

    def _close_idle(self) -> None:
        if not self._leaves_silently:
            self.h2.close_connection()
        self.connection.close()

    def close_when_idle(self, seconds: float, *, silently: bool) -> None:
        """Close once no stream has been open for so long."""
        self._idle_s = seconds
        self._leaves_silently = silently

    def go_away(self, last: int) -> None:
        """Send GOAWAY(NO_ERROR) and serve the streams up to `last` to their end."""
        self._last_served = last
        # Past the h2 library, whose state would otherwise close the streams that are still to be served.
        self.connection.write_raw(GoAwayFrame(0, last_stream_id=last, error_code=0).serialize())

    def go_away_hard(self, last: int) -> None:
        """Send GOAWAY(INTERNAL_ERROR) and close at once."""
        frame = GoAwayFrame(0, last_stream_id=last, error_code=int(ErrorCodes.INTERNAL_ERROR))
        self.connection.write_raw(frame.serialize())
        self.connection.close()


class _Stream(ServerExchange):
    """One stream."""

    def __init__(self, http2: Http2, stream_id: int, record: OpenRecord, headers: Mapping[str, str]) -> None:
        super().__init__(http2.connection, record, headers)
        self._http2 = http2
        self._stream_id = stream_id
        self._unsent: deque[tuple[memoryview, Stamp | None]] = deque()
        self._ending = False

    def client_left(self, code: int | None = None) -> None:
        if not self.gone:
            super().client_left(code)
            self._unsent.clear()
            self._http2.forget(self._stream_id)

    @property
    def writable(self) -> bool:
        return not self._unsent and super().writable

    def send_headers(self, status: int, headers: Headers) -> None:
        if self.gone:
            return
        self.record.status = status
        self._http2.h2.send_headers(self._stream_id, [(":status", str(status)), *headers])
        self.connection.flush_soon(self.record.stamp_headers)

    def send(self, data: bytes, stamp: Stamp | None = None) -> None:
        if not self.gone and data:
            self._unsent.append((memoryview(data), stamp))
            self.pump()

    def pump(self) -> None:
        """Send as much as the windows and the socket let through."""
        h2, stream_id, connection = self._http2.h2, self._stream_id, self.connection
        while self._unsent and not connection.socket_full and not self.gone:
            data, stamp = self._unsent[0]
            room = min(h2.local_flow_control_window(stream_id), h2.max_outbound_frame_size)
            if room <= 0:
                return
            sent = data[:room]
            h2.send_data(stream_id, sent)
            self.record.bytes_out += len(sent)
            if len(sent) < len(data):
                self._unsent[0] = (data[len(sent) :], stamp)
                connection.flush_soon()
            else:
                self._unsent.popleft()
                connection.flush_soon(stamp)
        if not self._unsent:
            self.room.set()
            if self._ending and not self.gone:
                self._finish()

    def end(self) -> None:
        """End the answer, when all of it has left."""
        self._ending = True
        if not self._unsent and not self.gone:
            self._finish()

    def _finish(self) -> None:
        self.gone = True
        self._http2.h2.end_stream(self._stream_id)
        self.connection.flush_soon(self.record.stamp_finished)
        self._http2.forget(self._stream_id)

    def reset(self, code: int) -> None:
        if self.gone:
            return
        self.gone = True
        self._unsent.clear()
        # The client has reset it, or left, in what came together with its head.
        with contextlib.suppress(ProtocolError):
            self._http2.h2.reset_stream(self._stream_id, code)
        self.connection.flush_soon(self.record.stamp_finished)
        self._http2.forget(self._stream_id)

    def go_away(self, manner: Literal["graceful", "hard"], last: int | None) -> None:
        """Announce that no stream after `last` (default: this one) is served."""
        last = self._stream_id if last is None else last
        if manner == "hard":
            self.gone = True
            self._http2.go_away_hard(last)
        else:
            self._http2.go_away(last)

    def close_when_idle(self, seconds: float, *, silently: bool) -> None:
        """Close the connection once it has been idle for so long."""
        self._http2.close_when_idle(seconds, silently=silently)
