"""What the peer of a connection over HTTP/2 sends: taken apart, guarded, and handed to the exchange that it is for."""

from __future__ import annotations

from typing import NoReturn

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hpack.exceptions import HPACKError, OversizedHeaderListError

from . import frames as wire, limits as limits
from .errors import TransportError
from .h2_streams import Http2Streams, Stream


class Http2Answers(Http2Streams):
    """The half of a connection that listens."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""
        self._window = limits.CONNECTION_WINDOW
        # The one type of frame that may come: SETTINGS at first, CONTINUATION within a head.
        self._only: int | None = wire.SETTINGS
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._block_flags = 0
        self._block_stream_id = 0

    def receive(self, data: bytes, now_ns: int) -> None:
        """Bytes have come from the peer."""
        if self._error is not None:
            raise self._error.again()
        if self._rest:
            data = self._rest + data
        self._now_ns = now_ns
        unpack = wire.FRAME_HEAD.unpack_from
        position = 0
        size = len(data)
        try:
            while size - position >= 9:
                length, flags, stream_id = unpack(data, position)
                kind = length & 0xFF
                length >>= 8
                if self._only is not None and kind != self._only:
                    self._not_expected()
                if length > limits.FRAME_BYTES:
                    self._fail(ErrorCodes.FRAME_SIZE_ERROR, "The server sent a frame larger than we allow")
                end = position + 9 + length
                if end > size:
                    break
                payload = data[position + 9 : end]
                position = end
                if kind == wire.DATA:
                    self._data(flags, stream_id & 0x7FFFFFFF, payload)
                else:
                    self.has_news = True
                    self._other(kind, flags, stream_id & 0x7FFFFFFF, payload)
        except wire.MalformedError as error:
            self._fail(ErrorCodes.PROTOCOL_ERROR, f"The server sent {error}")
        self._rest = data[position:]

    def _not_expected(self) -> NoReturn:
        if self._only == wire.SETTINGS:
            self._fail(ErrorCodes.PROTOCOL_ERROR, "The server does not speak HTTP/2")
        self._fail(ErrorCodes.PROTOCOL_ERROR, "The server sent another frame within a head")

    def _must_be_known(self, stream_id: int, what: str) -> None:
        """A frame for a stream that is over is late; one for a stream that never was is an error."""
        if not stream_id & 1 or stream_id >= self._next_stream_id:
            self._fail(ErrorCodes.PROTOCOL_ERROR, f"The server sent {what} on a stream that was never opened")

    # Bodies

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        length = len(payload)
        self._window -= length
        if self._window < limits.CONNECTION_WINDOW // 2:
            if self._window < 0:
                self._fail(ErrorCodes.FLOW_CONTROL_ERROR, "The server sent more than the connection's window")
            self.outgoing.append(wire.window_update(0, limits.CONNECTION_WINDOW - self._window))
            self._window = limits.CONNECTION_WINDOW
        if flags & wire.PADDED:
            payload = wire.unpadded(flags, payload)
        if not payload and not flags & wire.END_STREAM:
            self._count("empty DATA")
        stream = self._streams.get(stream_id)
        if stream is None or stream.exchange.answer_ended:
            self._must_be_known(stream_id, "DATA")
            self._late_window -= length
            if self._late_window < 0:
                self._fail(ErrorCodes.FLOW_CONTROL_ERROR, "The server goes on with answers that are over")
            return
        stream.window -= length
        if stream.window < 0:
            self._fail(ErrorCodes.FLOW_CONTROL_ERROR, "The server sent more than a stream's window")
        exchange = stream.exchange
        if exchange.answer_head is None:
            self._break_off(stream, "The server sent a body before its head")
            return
        stream.received += len(payload)
        if stream.body_bytes is not None and stream.received > stream.body_bytes:
            self._break_off(stream, "The server sent a body longer than its content-length")
            return
        if exchange.discarding:
            self._credit(stream, length)
        elif length != len(payload):
            self._credit(stream, length - len(payload))
        if payload:
            exchange.arrived(payload, self._now_ns)
        if flags & wire.END_STREAM:
            self._answer_ended(stream)

    def _answer_ended(self, stream: Stream) -> None:
        if stream.body_bytes is not None and stream.received != stream.body_bytes:
            self._break_off(stream, "The server sent a body shorter than its content-length")
            return
        stream.window = 0
        if stream.exchange.request_ended:
            self._forget(stream)
        stream.exchange.end(self._now_ns)

    # Heads

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._block = [wire.header_block(flags, payload)]
        self._block_bytes = 0
        self._block_flags = flags
        self._block_stream_id = stream_id
        if flags & wire.END_HEADERS:
            self._head()
        else:
            self._only = wire.CONTINUATION

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._only != wire.CONTINUATION or stream_id != self._block_stream_id:
            self._fail(ErrorCodes.PROTOCOL_ERROR, "The server continued a head that it had not begun")
        self._count("CONTINUATION")
        self._block.append(payload)
        self._block_bytes += len(payload)
        if self._block_bytes > limits.HEADER_BLOCK_BYTES:
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "The server sent a head larger than we allow")
        if flags & wire.END_HEADERS:
            self._only = None
            self._head()

    def _head(self) -> None:
        stream_id = self._block_stream_id
        self._must_be_known(stream_id, "a head")
        block = b"".join(self._block)
        self._block = []
        # Also for a stream that is over: the decoder has one table for all heads of a connection.
        try:
            fields = self._decoder.unpack(block)
        except OversizedHeaderListError:
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "The server sent a head larger than we allow")
        except (HPACKError, IndexError, TypeError, ValueError):
            self._fail(ErrorCodes.COMPRESSION_ERROR, "The server sent a head that cannot be unpacked")
        stream = self._streams.get(stream_id)
        if stream is None or stream.exchange.answer_ended:
            self._count("late HEADERS")
            return
        try:
            self._head_of(stream, fields, ends=bool(self._block_flags & wire.END_STREAM))
        except wire.MalformedError as error:
            self._break_off(stream, f"The server sent {error}")

    def _head_of(self, stream: Stream, fields: wire.Fields, *, ends: bool) -> None:
        exchange = stream.exchange
        if exchange.answer_head is not None:
            wire.checked(fields)
            if not ends:
                raise wire.MalformedError("a second head")
        else:
            head = wire.answer_head(fields)
            if head.status < 200:
                if ends or head.status == 101:
                    raise wire.MalformedError("an informational head where none may be")
                self._count("informational HEADERS")
                stream.is_begun = True
                return
            stream.body_bytes = wire.body_bytes(exchange.request_head.method, head)
            exchange.phases.first_byte_ns = self._now_ns
            exchange.answer_head = head
            exchange.wake()
        if ends:
            self._answer_ended(stream)

    # Everything else

    def _other(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == wire.HEADERS:
            self._headers(flags, stream_id, payload)
        elif kind == wire.CONTINUATION:
            self._continuation(flags, stream_id, payload)
        elif kind == wire.RST_STREAM:
            self._rst_stream(stream_id, payload)
        elif kind == wire.GOAWAY:
            self._goaway(stream_id, payload)
        elif kind == wire.PUSH_PROMISE:
            self._fail(ErrorCodes.PROTOCOL_ERROR, "The server pushes, which we have switched off")
        else:
            self._count(wire.NAMES[kind] if kind < len(wire.NAMES) else "unknown")
            if kind == wire.SETTINGS:
                self._settings(flags, stream_id, payload)
            elif kind == wire.PING:
                if flags & wire.ACK and payload == self._ping:
                    if self.ping_sent_ns is not None:
                        self.round_trips_ns.append(self._now_ns - self.ping_sent_ns)
                    self.ping_sent_ns = None
                self._to_h2(kind, flags, stream_id, payload)
            elif kind == wire.WINDOW_UPDATE:
                self._window_update(flags, stream_id, payload)

    def _rst_stream(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            self._fail(ErrorCodes.FRAME_SIZE_ERROR, "The server sent RST_STREAM of a wrong size")
        stream = self._streams.get(stream_id)
        if stream is None:
            self._must_be_known(stream_id, "RST_STREAM")
            self._count("RST_STREAM")
            return
        code = int.from_bytes(payload)
        stream.window = 0
        self._forget(stream)
        unprocessed = code == ErrorCodes.REFUSED_STREAM and not stream.is_begun
        message = f"The server reset the stream: {wire.error_name(code)}"
        stream.exchange.fail(TransportError("RemoteProtocolError", message, unprocessed=unprocessed))

    def _goaway(self, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) < 8:
            self._fail(ErrorCodes.PROTOCOL_ERROR, "The server sent GOAWAY in a wrong form")
        self._count("GOAWAY")
        last_stream_id, self.goaway_code = wire.goaway_numbers(payload)
        self.goaway_last_stream_id = min(last_stream_id, self.goaway_last_stream_id)
        message = f"The server is going away: {wire.error_name(self.goaway_code)}"
        for stream in list(self._streams.values()):
            if stream.stream_id > self.goaway_last_stream_id:
                self._forget(stream)
                stream.exchange.fail(TransportError("RemoteProtocolError", message, unprocessed=True))

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        acknowledged = flags & wire.ACK
        self._to_h2(wire.SETTINGS, flags, stream_id, payload if acknowledged else wire.harmless_settings(payload))
        if acknowledged and self._settings_sent_ns is not None:
            self.round_trips_ns.append(self._now_ns - self._settings_sent_ns)
            self._settings_sent_ns = None
        if not acknowledged:
            settings = self._h2.remote_settings
            self._resize(settings.initial_window_size - self._first_room)
            self._first_room = settings.initial_window_size
            self._streams_allowed = settings.max_concurrent_streams
            changes = self._h2.encoder.table_size_changes
            if len(changes) > 2:  # the lowest and the last are all that the next head must say (RFC 7541, 4.2)
                changes[:] = [min(changes), changes[-1]]
            if not self.is_ready:
                self.is_ready = True
                self._only = None
            self._wake_senders()

    def _window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id and stream_id not in self._streams:
            self._must_be_known(stream_id, "WINDOW_UPDATE")
            return
        if len(payload) != 4:
            self._fail(ErrorCodes.FRAME_SIZE_ERROR, "The server sent WINDOW_UPDATE of a wrong size")
        increment = int.from_bytes(payload) & limits.LARGEST_WINDOW
        if not increment:
            self._fail(ErrorCodes.PROTOCOL_ERROR, "The server opened a window by nothing")
        if not stream_id:
            self._room += increment
            if self._room > limits.LARGEST_WINDOW:
                self._fail(ErrorCodes.FLOW_CONTROL_ERROR, "The server opened the connection's window too far")
            self._wake_senders()
            return
        stream = self._streams[stream_id]
        stream.room += increment
        if stream.room > limits.LARGEST_WINDOW:
            self._reset(stream, ErrorCodes.FLOW_CONTROL_ERROR)
            message = "The server opened a stream's window too far"
            stream.exchange.fail(TransportError("RemoteProtocolError", message))
        elif not stream.exchange.request_ended:
            stream.exchange.wake()

    def _resize(self, change: int) -> None:
        """The windows of all streams change with the setting that they began with (RFC 9113, 6.9.2)."""
        for stream in self._streams.values():
            stream.room += change
            if stream.room > limits.LARGEST_WINDOW:
                self._fail(ErrorCodes.FLOW_CONTROL_ERROR, "The server opened a stream's window too far")

    def _wake_senders(self) -> None:
        for stream in list(self._streams.values()):
            if not stream.exchange.request_ended:
                stream.exchange.wake()

    def _to_h2(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        try:
            self._h2.receive_data(wire.frame(kind, flags, stream_id, payload))
        except ProtocolError:
            self._error = TransportError("RemoteProtocolError", f"The server sent {wire.NAMES[kind]} against the rules")
            raise self._error.again() from None
        finally:
            self._unsent_control += self._take_from_h2()
        if self._unsent_control > limits.UNSENT_CONTROL_BYTES:
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, "The server does not read what it makes us acknowledge")
