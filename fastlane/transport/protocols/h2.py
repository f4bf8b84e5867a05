"""A connection over HTTP/2 without its I/O: requests and all that we say; `_h2_answers` is what we are told.

The h2 library speaks for the connection: it greets, keeps the peer's settings, and answers SETTINGS and PING. Streams
are ours in both directions, because h2 ends the connection over what concerns one stream (a GOAWAY that lets the others
end, a wrong content-length), answers each late frame of a stream that was reset with another reset, and takes several
times as long for a request and for a piece of an answer.
"""

from __future__ import annotations

from h2.errors import ErrorCodes

from . import frames as wire, limits as limits
from .errors import TransportError
from .exchange import Exchange
from .h2_answers import Http2Answers
from .h2_streams import Stream


class Http2Connection(Http2Answers):
    """An `HttpConnection` over HTTP/2."""

    http_version = "HTTP/2"

    def __init__(self) -> None:
        super().__init__()
        self._pings = 0
        self._said_goodbye = False

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
    def open_exchanges(self) -> int:
        """Exchanges begun whose end, by both sides, has not come."""
        return len(self._streams)

    @property
    def peer_windows(self) -> tuple[int, int]:
        """Body bytes that the peer takes at once now: for a further request, and on the connection."""
        return self._first_room, max(0, self._room)

    def start(self, now_ns: int) -> None:
        """Say what we allow, in one write."""
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
        self._unsent_control = 0
        return out[0] if len(out) == 1 else b"".join(out)

    def begin(self, exchange: Exchange, *, end: bool) -> None:
        """Send the head of a request; `end` where it has no body."""
        if len(self._streams) >= self.capacity:
            raise self._refusal()
        fields = wire.request_fields(exchange.request_head)
        most = self._h2.remote_settings.max_header_list_size
        if most is not None and wire.list_bytes(fields) > most:
            raise TransportError("LocalProtocolError", f"The request's head is larger than the server takes ({most:,})")
        stream_id = self._next_stream_id
        self._next_stream_id += 2
        phases = exchange.phases
        phases.http_version = self.http_version
        room = phases.peer_stream_window = self._first_room
        phases.peer_connection_window = self._room
        block = self._heads.pack(fields)
        self.outgoing += wire.head_frames(stream_id, block, self._h2.max_outbound_frame_size, end=end)
        self._control.sent(1)
        exchange.stream_id = stream_id
        exchange.request_ended = end
        self._streams[stream_id] = Stream(stream_id, exchange, room)

    def _refusal(self) -> TransportError:
        if self._error is not None:
            return TransportError(self._error.name, self._error.message, unprocessed=True)
        message = "The server takes no further request on this connection"
        return TransportError("RemoteProtocolError", message, unprocessed=True)

    def room(self, exchange: Exchange) -> int:
        """Bytes of the request's body that may be sent now."""
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
        self._control.sent(last // most + 1, size)
        if end:
            exchange.request_ended = True
            if exchange.answer_ended:
                self._forget(stream)

    def took(self, exchange: Exchange, count: int) -> None:
        """The application has read `count` bytes of the answer's body: the peer may send as many more."""
        stream = self._stream_of(exchange)
        if stream is not None and not exchange.answer_ended:
            self._credit(stream, count)

    def cancel(self, exchange: Exchange) -> bool:
        """Nobody waits for this exchange any more: have the peer stop."""
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
        """Ask the peer for a sign of life."""
        if self._error is not None:
            return False
        if self.ping_sent_ns is None:
            self._pings += 1
            self._ping = self._pings.to_bytes(8)
            self.outgoing.append(wire.frame(wire.PING, 0, 0, self._ping))
            self.ping_sent_ns = now_ns
        return True

    def goodbye(self) -> None:
        """We are about to close: say so."""
        if self._error is None and not self._said_goodbye:
            self._said_goodbye = True
            self.outgoing.append(wire.goaway(ErrorCodes.NO_ERROR))

    def receive_end(self, now_ns: int) -> None:
        """The peer will send nothing more."""
        if self._error is None:
            self._error = TransportError("RemoteProtocolError", "The server closed the connection")
        if any(not stream.exchange.is_over for stream in self._streams.values()):
            raise self._error.again()

    def lost(self, error: TransportError) -> None:
        """The connection is gone: break off every exchange that is not over."""
        self._error = self._error or error
        streams = list(self._streams.values())
        for stream in streams:
            self._forget(stream)
        for stream in streams:
            stream.exchange.fail(error.again())
