"""HTTP/2 without I/O (RFC 9113): the requests that we send, and what the peer sends."""

from __future__ import annotations

import logging
from collections import deque
from functools import lru_cache
from typing import NamedTuple, NoReturn

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hpack.exceptions import HPACKDecodingError, HPACKError, InvalidTableIndexError, OversizedHeaderListError
from hpack.hpack import Decoder, Encoder, encode_integer
from hpack.table import HeaderTable

from . import frames as wire, limits as limits
from .exchange import Exchange, TransportError
from .frames import Fields

# Different in every call by their nature: indexing them would push out of the table what stays the same.
_VARYING = frozenset({b"content-length", b"idempotency-key", b"traceparent", b"tracestate", b"x-request-id"})

_STATIC_FIELDS = len(HeaderTable.STATIC_TABLE)

_MOST_KEPT = 32
_MOST_LEARNED = 64


class Heads:
    """Packs the heads of one connection."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._packed: dict[tuple[tuple[bytes, bytes], ...], bytes] = {}
        """How steady fields are packed while the table stays as it is."""
        self._varying = _VARYING
        self._last: dict[bytes, bytes] = {}

    def pack(self, fields: Fields) -> bytes:
        """Return the header block of a request."""
        table = self._encoder.header_table
        changes = self._encoder.table_size_changes
        if changes:
            # The lowest and the last (RFC 7541, 4.2): the peer need not take one that is above its last word. Where it
            # has said the same size twice, the library forgets that there is anything to announce.
            changes[:] = sorted({min(changes), changes[-1]})
            table.resized = True
        varying = self._varying
        steady = tuple([field for field in fields if field[0] not in varying])
        packed = None if table.resized else self._packed.get(steady)
        if packed is None:
            self._learn(steady)
            if varying is not self._varying:
                varying = self._varying
                steady = tuple([field for field in fields if field[0] not in varying])
            packed = self._pack(steady)
        return packed + b"".join([_literal(*field) for field in fields if field[0] in varying])

    def _pack(self, steady: tuple[tuple[bytes, bytes], ...]) -> bytes:
        entries = self._encoder.header_table.dynamic_entries
        resized = self._encoder.header_table.resized
        before, first = len(entries), entries[0] if entries else None
        packed = self._encoder.encode(steady)
        if resized or len(entries) != before or (entries and entries[0] is not first):
            self._packed.clear()  # every index means another field now
        elif len(self._packed) < _MOST_KEPT:
            self._packed[steady] = packed
        return packed

    def _learn(self, steady: tuple[tuple[bytes, bytes], ...]) -> None:
        """Take note of fields that have another value than last time: they are no longer indexed."""
        last = self._last
        changed = {name for name, value in steady if last.get(name, value) != value and not name.startswith(b":")}
        if changed and len(self._varying) + len(changed) < _MOST_LEARNED:
            self._varying = self._varying | changed
        self._last = dict(steady)


@lru_cache(maxsize=256)
def _name(name: bytes) -> bytes:
    # A literal without indexing, and with its name in full (RFC 7541, 6.2.2).
    return b"\0" + bytes(encode_integer(len(name), 7)) + name


def _literal(name: bytes, value: bytes) -> bytes:
    length = len(value)
    if name == b"content-length" and length < 127:  # number 28 of the static table, in four bits
        return b"\x0f\x0d" + bytes((length,)) + value
    return _name(name) + (bytes((length,)) if length < 127 else bytes(encode_integer(length, 7))) + value


class AnswerHeads(Decoder):
    """Unpacks the heads of answers: the library's decoder, with less around the fields that are known already."""

    def unpack(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """Return the fields of a header block. Raises what the library's decoder raises."""
        table = self.header_table
        entries = table.dynamic_entries
        fields: list[tuple[bytes, bytes]] = []
        position, size, list_bytes = 0, len(block), 0
        most = self.max_header_list_size
        while position < size:
            byte = block[position]
            index = byte & 0x7F
            if byte > 0x80 and index < 0x7F:  # a field of either table, its number in one byte
                number = index - _STATIC_FIELDS - 1
                if number < 0:
                    field = HeaderTable.STATIC_TABLE[index - 1]
                elif number < len(entries):
                    field = entries[number]
                else:
                    raise InvalidTableIndexError("a number that no field has")
                position += 1
            elif byte & 0xE0 == 0x20:  # the size of the table
                if fields:
                    raise HPACKDecodingError("the size of the table is said too late")
                position += self._update_encoding_context(block[position:])
                continue
            elif byte >= 0x80:
                header, taken = self._decode_indexed(block[position:])
                field = (header[0], header[1])
                position += taken
            else:
                header, taken = self._decode_literal(block[position:], bool(byte & 0x40))
                field = (header[0], header[1])
                position += taken
            fields.append(field)
            list_bytes += len(field[0]) + len(field[1]) + 32
            if list_bytes > most:
                raise OversizedHeaderListError("a head larger than allowed")
        self._assert_valid_table_size()
        return fields


# The library that packs heads writes every field into its log at DEBUG, credentials included. An application that logs
# everything at DEBUG would get its API keys there; one that asks for this logger by name still does.
_hpack_log = logging.getLogger("hpack")
if _hpack_log.level == logging.NOTSET:
    _hpack_log.setLevel(logging.INFO)

_CONFIGURATION = H2Configuration(
    client_side=True,
    header_encoding=None,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)


class Stream:
    """An exchange that is not over by both sides."""

    __slots__ = ("body_bytes", "exchange", "received", "room", "stream_id", "uncredited", "window")

    def __init__(self, stream_id: int, exchange: Exchange, room: int) -> None:
        self.stream_id = stream_id
        self.exchange = exchange
        self.room = room
        """Bytes that we may still send on it; below zero where the peer has made its window smaller after the fact."""
        self.window = limits.STREAM_WINDOW
        """Bytes that the peer may still send."""
        self.uncredited = 0
        """Bytes that are read and that were not acknowledged to the peer yet."""
        self.body_bytes: int | None = None
        """Length of the body, where the head states it."""
        self.received = 0
        """Bytes of the body that have come."""


class PeerLimits(NamedTuple):
    """What a peer allows on one connection."""

    most_streams: int | None
    """Requests at once; None if it sets no limit."""
    stream_window: int
    """Bytes of one request's body that may be unacknowledged."""
    connection_window: int


class Http2Connection:
    """HTTP/2 on one connection without its I/O: bytes in, bytes out, exchanges filled in. Not thread-safe.

    After each call, `data_to_send()` has what must go to the peer. Where `receive` or `receive_end` raises
    `TransportError`, the connection cannot go on: send what `data_to_send()` gives, call `lost()` with the error, and
    close the connection.
    """

    http_version = "HTTP/2"

    def __init__(self) -> None:
        self.is_ready = False
        """The peer has sent its SETTINGS."""
        self.has_news = False
        """More than pieces of answers have come since it was last set to False: the peer's limits may have changed."""
        self.ping_sent_ns: int | None = None
        """When the unanswered ping was sent."""
        self._settings_sent_ns: int | None = None
        """When our SETTINGS were sent, until they are acknowledged."""
        self.round_trips_ns: deque[int] = deque(maxlen=limits.ROUND_TRIPS)
        """From our SETTINGS and PINGs to their acknowledgements, which a peer sends at once."""
        self.goaway_code: int | None = None
        """Why the peer is going away (0: no error); None while it is not."""
        self.goaway_last_stream_id = limits.HIGHEST_STREAM_ID
        """The last stream that the peer goes on with."""
        self._h2 = H2Connection(_CONFIGURATION)
        self._h2.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.HEADER_LIST_BYTES,
            },
        )
        del self._h2.local_settings[SettingCodes.ENABLE_CONNECT_PROTOCOL]
        self._heads = Heads(self._h2.encoder)
        # The peer's settings as plain numbers: each request asks for them.
        self._streams_allowed = limits.ASSUMED_STREAMS
        self._first_room = limits.FIRST_WINDOW
        """Bytes that we may send at first on a stream."""
        self._room = limits.FIRST_WINDOW
        """Bytes that we may still send on the whole connection."""
        self._decoder = AnswerHeads(max_header_list_size=limits.HEADER_LIST_BYTES)
        self._streams: dict[int, Stream] = {}
        self._next_stream_id = 1
        self.outgoing: list[bytes] = []
        self._control_frames = 0
        """Frames in a row that carried nothing."""
        self._ping = b""
        self._now_ns = 0
        self._error: TransportError | None = None
        self._rest = b""
        self._window = limits.CONNECTION_WINDOW
        # The one type of frame that may come: SETTINGS at first, CONTINUATION within a head.
        self._only: int | None = wire.SETTINGS
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._block_flags = 0
        self._block_stream_id = 0
        self._pings = 0
        self._said_goodbye = False

    def _fail(self, code: ErrorCodes, message: str) -> NoReturn:
        """Fail the connection."""
        self._error = TransportError("RemoteProtocolError", message)
        self.outgoing.append(wire.goaway(code))
        raise self._error.again() from None  # what it came from may have content in its text

    def _count(self, what: str) -> None:
        self._control_frames += 1
        if self._control_frames > limits.CONTROL_FRAMES:
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, f"The server flooded the connection with {what} frames")

    def _credit(self, stream: Stream, count: int) -> None:
        # Never more than there was at first, whatever is said to have been read.
        stream.uncredited = min(stream.uncredited + count, limits.STREAM_WINDOW - stream.window)
        if stream.uncredited >= limits.STREAM_WINDOW // 2:
            self.outgoing.append(wire.window_update(stream.stream_id, stream.uncredited))
            stream.window += stream.uncredited
            stream.uncredited = 0

    def _forget(self, stream: Stream) -> None:
        self._streams.pop(stream.stream_id, None)

    def _reset(self, stream: Stream, code: ErrorCodes) -> None:
        # In this order: Ctrl-C may come in between, and a stream that is known is reset once more.
        self.outgoing.append(wire.rst_stream(stream.stream_id, code))
        self._forget(stream)

    def _break_off(self, stream: Stream, message: str) -> None:
        """Fail one exchange; the others on the connection go on."""
        self._reset(stream, ErrorCodes.PROTOCOL_ERROR)
        stream.exchange.fail(TransportError("RemoteProtocolError", message))

    def _take_from_h2(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self.outgoing.append(data)

    # What the peer sends

    def receive(self, data: bytes, now_ns: int) -> None:
        """Take bytes from the peer."""
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
        """Accept a late frame for a stream that is over; fail on one for a stream that never was."""
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
            self._control_frames = 0
            exchange.arrived(payload, self._now_ns)
        if flags & wire.END_STREAM:
            self._answer_ended(stream)

    def _answer_ended(self, stream: Stream) -> None:
        if stream.body_bytes is not None and stream.received != stream.body_bytes:
            self._break_off(stream, "The server sent a body shorter than its content-length")
            return
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
            wire.checked_fields(fields)
            if not ends:
                raise wire.MalformedError("a second head")
        else:
            head = wire.answer_head(fields)
            if head.status < 200:
                if ends or head.status == 101:
                    raise wire.MalformedError("an informational head where none may be")
                self._count("informational HEADERS")
                return
            self._control_frames = 0
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
        self._forget(stream)
        unprocessed = code == ErrorCodes.REFUSED_STREAM
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
        self._to_h2(wire.SETTINGS, flags, stream_id, payload)
        if acknowledged and self._settings_sent_ns is not None:
            self.round_trips_ns.append(self._now_ns - self._settings_sent_ns)
            self._settings_sent_ns = None
        if not acknowledged:
            settings = self._h2.remote_settings
            self._resize(settings.initial_window_size - self._first_room)
            self._first_room = settings.initial_window_size
            self._streams_allowed = settings.max_concurrent_streams
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
        """Change the windows of all streams with the initial window setting (RFC 9113, 6.9.2)."""
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
            self._take_from_h2()

    # What we send

    @property
    def capacity(self) -> int:
        """Exchanges that the peer allows at once; 0 once the connection takes no new ones."""
        if (
            self._error is not None
            or self._said_goodbye
            or self.goaway_code is not None
            or self._next_stream_id > limits.HIGHEST_STREAM_ID
        ):
            return 0
        return self._streams_allowed

    @property
    def peer_limits(self) -> PeerLimits:
        """What the peer has allowed so far."""
        said = self._h2.remote_settings
        # h2 has a number of its own where the peer sets none.
        most = said.max_concurrent_streams if SettingCodes.MAX_CONCURRENT_STREAMS in said else None
        return PeerLimits(most, self._first_room, self._room)

    @property
    def open_exchanges(self) -> int:
        """Exchanges begun whose end, by both sides, has not come."""
        return len(self._streams)

    def start(self, now_ns: int) -> None:
        """Send the preface and our settings in one write."""
        self._settings_sent_ns = now_ns
        self._h2.initiate_connection()
        self._take_from_h2()
        # A connection's window is as small as this at first, whatever the settings say (RFC 9113, 6.9.2).
        self.outgoing.append(wire.window_update(0, limits.CONNECTION_WINDOW - limits.FIRST_WINDOW))

    def data_to_send(self) -> bytes:
        """Take what is to be sent to the peer now."""
        out = self.outgoing
        if not out:
            return b""
        self.outgoing = []
        return out[0] if len(out) == 1 else b"".join(out)

    def begin(self, exchange: Exchange, *, end: bool) -> None:
        """Send the head of a request; `end` if it has no body.

        Raises TransportError, unprocessed, where the connection takes no further exchange, and LocalProtocolError where
        the head cannot be sent.
        """
        if len(self._streams) >= self.capacity:
            raise self._refusal()
        fields = wire.request_fields(exchange.request_head)
        most = self._h2.remote_settings.max_header_list_size
        if most is not None and wire.list_bytes(fields) > most:
            raise TransportError("LocalProtocolError", f"The request's head is larger than the server takes ({most:,})")
        stream_id = self._next_stream_id
        self._next_stream_id += 2
        exchange.phases.http_version = self.http_version
        block = self._heads.pack(fields)
        self.outgoing += wire.head_frames(stream_id, block, self._h2.max_outbound_frame_size, end=end)
        self._control_frames = 0
        exchange.stream_id = stream_id
        exchange.request_ended = end
        self._streams[stream_id] = Stream(stream_id, exchange, self._first_room)

    def _refusal(self) -> TransportError:
        if self._error is not None:
            return TransportError(self._error.name, self._error.message, unprocessed=True)
        message = "The server takes no further request on this connection"
        return TransportError("RemoteProtocolError", message, unprocessed=True)

    def room(self, exchange: Exchange) -> int:
        """Return the bytes of the request's body that may be sent now."""
        stream = self._stream_of(exchange)
        if stream is None or exchange.request_ended:
            return 0
        return max(0, min(stream.room, self._room))

    def send(self, exchange: Exchange, data: bytes, *, end: bool) -> None:
        """Send bytes of the request's body, at most `room()` of them; `end` with the last, which may be empty."""
        stream = self._stream_of(exchange)
        if stream is None or exchange.request_ended:
            return  # the peer has ended it in the meantime
        size = len(data)
        if size > max(0, min(stream.room, self._room)):
            raise TransportError("LocalProtocolError", "More was to be sent than the server has room for")
        stream.room -= size
        self._room -= size
        most = self._h2.max_outbound_frame_size
        last = max(0, size - 1) // most * most
        for start in range(0, last, most):
            self.outgoing.append(wire.frame(wire.DATA, 0, stream.stream_id, data[start : start + most]))
        if end or data:
            flags = wire.END_STREAM if end else 0
            self.outgoing.append(wire.frame(wire.DATA, flags, stream.stream_id, data[last:] if last else data))
        self._control_frames = 0
        if end:
            exchange.request_ended = True
            if exchange.answer_ended:
                self._forget(stream)

    def took(self, exchange: Exchange, count: int) -> None:
        """Credit the peer with `count` bytes of the response's body that the application has read."""
        stream = self._stream_of(exchange)
        if stream is not None and not exchange.answer_ended:
            self._credit(stream, count)

    def cancel(self, exchange: Exchange) -> bool:
        """Cancel an exchange, and have the peer stop. Return True: the connection can go on."""
        stream = self._stream_of(exchange)
        if stream is not None:
            self._reset(stream, ErrorCodes.CANCEL)
        return True

    def _stream_of(self, exchange: Exchange) -> Stream | None:
        if self._error is not None:
            return None  # nothing can be said any more
        stream = self._streams.get(exchange.stream_id)
        return stream if stream is not None and stream.exchange is exchange else None

    def ping(self, now_ns: int) -> bool:
        """Send a ping; return False if the connection cannot."""
        if self._error is not None:
            return False
        if self.ping_sent_ns is None:
            self._pings += 1
            self._ping = self._pings.to_bytes(8)
            self.outgoing.append(wire.frame(wire.PING, 0, 0, self._ping))
            self.ping_sent_ns = now_ns
        return True

    def goodbye(self) -> None:
        """Announce that we are about to close: send GOAWAY."""
        if self._error is None and not self._said_goodbye:
            self._said_goodbye = True
            self.outgoing.append(wire.goaway(ErrorCodes.NO_ERROR))

    def receive_end(self, now_ns: int) -> None:
        """Take the peer's end of the stream."""
        if self._error is None:
            self._error = TransportError("RemoteProtocolError", "The server closed the connection")
        if any(not stream.exchange.is_over for stream in self._streams.values()):
            raise self._error.again()

    def lost(self, error: TransportError) -> None:
        """Fail every exchange that is not over, because the connection is lost."""
        self._error = self._error or error
        streams = list(self._streams.values())
        for stream in streams:
            self._forget(stream)
        for stream in streams:
            stream.exchange.fail(error.again())
