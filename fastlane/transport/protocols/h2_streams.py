"""The streams of a connection over HTTP/2, and what its listening and its speaking half share."""

from __future__ import annotations

import logging
from collections import deque
from typing import NoReturn

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings

from . import frames as wire, limits as limits
from .errors import TransportError
from .exchange import Exchange
from .h2_heads import AnswerHeads, Heads

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

    __slots__ = ("body_bytes", "exchange", "is_begun", "received", "room", "stream_id", "uncredited", "window")

    def __init__(self, stream_id: int, exchange: Exchange, room: int) -> None:
        self.stream_id = stream_id
        self.exchange = exchange
        self.room = room
        """Bytes that we may still send on it; below zero where the peer has made its window smaller after the fact."""
        self.is_begun = False
        """The server has said that it works on the request (a head with a status of 1xx)."""
        self.window = limits.STREAM_WINDOW
        """Bytes that the peer may still send."""
        self.uncredited = 0
        """Bytes that are read and that the peer has not been told of yet."""
        self.body_bytes: int | None = None
        """Length of the body, where the head states it."""
        self.received = 0
        """Bytes of the body that have come."""


class Http2Streams:
    """What a connection over HTTP/2 remembers."""

    def __init__(self) -> None:
        self.is_ready = False
        self.has_news = False
        self.ping_sent_ns: int | None = None
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
        self._unsent_control = 0
        # Bytes that may still come for streams that are over: those that were allowed before the peer knew.
        self._late_window = limits.STREAM_WINDOW
        self._control = limits.ControlFrames()
        self._ping = b""
        self._now_ns = 0
        self._error: TransportError | None = None

    def _fail(self, code: ErrorCodes, message: str) -> NoReturn:
        """The connection cannot go on."""
        self._error = TransportError("RemoteProtocolError", message)
        self.outgoing.append(wire.goaway(code))
        raise self._error.again() from None  # what it came from may have content in its text

    def _count(self, what: str) -> None:
        if self._control.flood(self._now_ns):
            self._fail(ErrorCodes.ENHANCE_YOUR_CALM, f"The server flooded the connection with {what} frames")

    def _credit(self, stream: Stream, count: int) -> None:
        # Never more than there was at first, whatever is said to have been read.
        stream.uncredited = min(stream.uncredited + count, limits.STREAM_WINDOW - stream.window)
        if stream.uncredited >= limits.STREAM_WINDOW // 2:
            self.outgoing.append(wire.window_update(stream.stream_id, stream.uncredited))
            stream.window += stream.uncredited
            stream.uncredited = 0

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.stream_id, None) is not None:
            self._late_window += stream.window

    def _reset(self, stream: Stream, code: ErrorCodes) -> None:
        # In this order: Ctrl-C may come in between, and a stream that is known is reset once more.
        self.outgoing.append(wire.rst_stream(stream.stream_id, code))
        self._forget(stream)

    def _break_off(self, stream: Stream, message: str) -> None:
        """The answer cannot be used; the connection's other answers can."""
        self._reset(stream, ErrorCodes.PROTOCOL_ERROR)
        stream.exchange.fail(TransportError("RemoteProtocolError", message))

    def _take_from_h2(self) -> int:
        data = self._h2.data_to_send()
        if data:
            self.outgoing.append(data)
        return len(data)
