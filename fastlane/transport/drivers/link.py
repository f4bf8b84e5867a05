"""One connection without its I/O: TLS and protocol on top of each other, its exchanges, its idle time and its end."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, NoReturn

from fastlane._clock import now_ns

from ..pool.outlook import Outlook
from ..pool.pool import Member
from ..pool.settings import LONGEST_TICK_S, Http2, Origin
from ..protocols.errors import TransportError
from ..protocols.exchange import Exchange, HttpConnection, RequestHead, worth_lingering
from ..protocols.h1 import Http1Connection
from ..protocols.h2 import Http2Connection
from ..protocols.limits import STREAM_WINDOW
from ..protocols.patience import GIVEN_UP
from ..protocols.phases import Opening, Phases
from .gauge import Gauge
from .tls import Tls

# After `data: [DONE]`, or behind the head of a refusal, the end of the answer is in the same packet or right behind it.
# Waiting for it this long, and up to the next look at the time, spares the server a reset (HTTP/2).
LINGER_NS = 1_000_000_000

# A peer that does not answer a ping for this long is gone: RFC 9113 (6.7) asks for an answer before anything else.
_PING_TIMEOUT_NS = 15_000_000_000

# Body bytes that are given to the protocol at once: enough to fill a window, and not the whole of a large upload.
_WRITE_BYTES = 262_144

# A connection is opened for as long as a call waits for it, which has a time-out of its own. One that is opened for
# nobody, or for calls without a time-out, is given up after this long.
MOST_OPENING_NS = 600_000_000_000

CLOSED = "The connection was closed."
_CLOSED_EARLY = "The answer was closed before its end."

_ENHANCE_YOUR_CALM = 11  # RFC 9113, 7


class LinkedExchange(Exchange):
    """An exchange that gives its place on the connection back when it is over."""

    __slots__ = ("_left", "link")

    def __init__(self, request_head: RequestHead, phases: Phases, link: Link) -> None:
        super().__init__(request_head, phases)
        self.link = link
        self._left = False

    def wake(self) -> None:
        """Wake the caller, after giving back the place if the exchange is over."""
        if (self.answer_ended and self.request_ended) or self.error is not None:
            self.leave()
        self.notify()

    @property
    def has_left(self) -> bool:
        """Whether its place was given back: it is over by both sides, or nobody wants it any more."""
        return self._left

    def settle(self) -> None:
        """The request may have been the last to end: the answer came earlier."""
        if self.is_over and self.request_ended:
            self.leave()

    def leave(self) -> None:
        """Give the place back, once."""
        if not self._left:
            self._left = True
            self.link.ended.append(self)

    def notify(self) -> None:
        """Wake whoever waits. Drivers override it."""


class Link(Member):
    """One connection. Not thread-safe: a driver calls it where the connection's bytes are handled."""

    def __init__(self, origin: Origin, *, http2: Http2) -> None:
        super().__init__(origin)
        self.opening: Opening | None = None
        self.tls: Tls | None = None
        self._http2 = http2
        self._lingering: deque[tuple[int, Exchange]] = deque()
        self._early = b""
        self._heard_ns = 0
        self._exchange: Exchange | None = None
        """The one exchange of HTTP/1.1."""
        self.is_reading = False
        """Whether bytes of the peer's are being taken in at this moment."""
        self.error: TransportError | None = None
        """Why it was closed; None while it is open."""
        self.tick_s = LONGEST_TICK_S
        """Seconds between two looks at the time."""
        self.waiting: set[Any] = set()
        """Exchanges whose waits may end some looks from now."""
        self._gauge = Gauge()
        self._output_bytes = 0
        """What was given out to be sent, so far."""
        self._socket: socket.socket | None = None

    @property
    def is_http1(self) -> bool:
        """Whether it carries one exchange after the other."""
        return isinstance(self.http, Http1Connection)

    @property
    def http_version(self) -> bytes:
        """As the library's extensions have it."""
        return b"HTTP/1.1" if self.is_http1 else b"HTTP/2"

    # Opening

    def handshake(self, data: bytes = b"") -> bool:
        """Go on with the TLS handshake; True once it is done. `handshake_output()` is to be sent in any case."""
        tls = self.tls
        if tls is None:
            return True
        if data:
            # The flight that ends the handshake may bring the server's SETTINGS along.
            self._early += tls.feed(data)
        return tls.handshake()

    def handshake_output(self) -> bytes:
        """What the handshake wants sent."""
        return b"" if self.tls is None else self.tls.data_to_send()

    def establish(self, opening: Opening, time_ns: int) -> None:
        """The connection stands: speak what was agreed on. Raises TransportError where that is the wrong protocol."""
        self.opening = opening
        wants_http2 = opening.alpn == "h2" if self.tls is not None else self._http2 == "require"
        if self._http2 == "require" and not wants_http2:
            offered = opening.alpn or "none"
            raise TransportError(
                "ConnectError",
                f'{self.origin.host}:{self.origin.port} does not speak HTTP/2 (it chose ALPN "{offered}"), which '
                'http2="require" asks for; "prefer" would use HTTP/1.1 here',
            )
        http: HttpConnection = Http2Connection() if wants_http2 else Http1Connection()
        http.start(time_ns)
        self._gauge.opened(opening, http.round_trips_ns, time_ns)
        self._heard_ns = time_ns
        self.http = http
        early, self._early = self._early, b""
        if early:
            http.receive(early, time_ns)

    # Bytes

    def receive(self, data: bytes | memoryview, time_ns: int) -> None:
        """Bytes have come. Raises TransportError where the connection cannot go on."""
        self._heard_ns = time_ns
        http, tls = self.http, self.tls
        assert http is not None
        if tls is None:
            http.receive(bytes(data), time_ns)
            return
        plain = tls.feed(data)
        if plain:
            http.receive(plain, time_ns)
        if tls.ended:
            self.receive_end(time_ns)

    def receive_end(self, time_ns: int) -> NoReturn:
        """The peer sends nothing more. Raises TransportError: the connection cannot go on."""
        self._open_http().receive_end(time_ns)
        raise TransportError("ReadError", "The server closed the connection.")

    def output(self) -> bytes:
        """What is to go to the peer now."""
        http, tls = self.http, self.tls
        data = http.data_to_send() if http is not None else b""
        if tls is not None:
            if data:
                tls.wrap(data)
            data = tls.data_to_send()
        self._output_bytes += len(data)
        return data

    def has_changed(self) -> bool:
        """Whether the pool has to look: exchanges have ended, or the peer may allow more or fewer than it did."""
        http = self.http
        if http is None:
            return False
        changed = bool(self.ended) or http.has_news
        if http.has_news:
            http.has_news = False
        return changed

    @property
    def is_used_up(self) -> bool:
        """Whether it can only be closed: no exchange is open, and none can be begun any more."""
        http = self.http
        if http is None or http.open_exchanges or http.capacity > 0:
            return False
        # A server that allows no streams at the moment may allow some later.
        return not isinstance(http, Http2Connection) or http.goaway_code is not None

    @property
    def pings_are_unwelcome(self) -> bool:
        """Whether the server has closed the connection because it counts pings as a flood."""
        http = self.http
        return isinstance(http, Http2Connection) and http.goaway_code == _ENHANCE_YOUR_CALM

    @property
    def is_busy(self) -> bool:
        """Whether an exchange is open."""
        return self.http is not None and self.http.open_exchanges > 0

    @property
    def is_full(self) -> bool:
        """Whether so much of an answer over HTTP/1.1 is unread that no more should be taken in for now.

        HTTP/2 has windows for that.
        """
        exchange = self._exchange
        if exchange is None or exchange.arrived_bytes - exchange.taken_bytes < STREAM_WINDOW:
            return False
        return not exchange.is_over and not exchange.discarding

    # Exchanges

    def begin(self, exchange: LinkedExchange, *, end: bool) -> None:
        """Begin to send a request; `end` where it has no body. Raises TransportError."""
        http = self._open_http()
        http.begin(exchange, end=end)
        if not isinstance(http, Http2Connection):
            self._exchange = exchange
        phases = exchange.phases
        opening = self.opening
        phases.opening = opening
        phases.reused = opening is not None and opening.ended_ns <= (phases.started_ns or 0)
        started_ns, gauge = now_ns(), self._gauge
        gauge.begin(self._socket, started_ns, self._output_bytes)
        phases.round_trip_time_ns, phases.congestion_window = gauge.round_trip_ns, gauge.congestion_window
        phases.send_started_ns = started_ns

    def outlook(self, now_ns: int) -> Outlook:
        """What a request that was sent on it now would find. May be asked from anywhere."""
        return self._gauge.outlook(self._open_http(), self._socket, now_ns, self._output_bytes)

    @property
    def round_trip_ns(self) -> int | None:
        """As it was measured last."""
        return self._gauge.round_trip_ns

    @property
    def local_address(self) -> str | None:
        """Our end of it; None while it is being opened."""
        return None if self.opening is None else self.opening.local_address

    def push(self, exchange: LinkedExchange, data: bytes, position: int, *, last: bool) -> int:
        """Give the protocol as much of a piece of the body as it takes now, within reason; the new position."""
        http = self._open_http()
        if not data:
            if last:
                http.send(exchange, b"", end=True)
        else:
            room = min(http.room(exchange), _WRITE_BYTES)
            if room > 0:
                piece = data if not position and room >= len(data) else data[position : position + room]
                position += len(piece)
                http.send(exchange, piece, end=last and position == len(data))
        exchange.settle()
        return position

    def cancel(self, exchange: LinkedExchange, time_ns: int, *, given_up: bool = False) -> bool:
        """Nobody reads the exchange any more. False where the connection has to be closed to tell the server.

        `given_up`: somebody may be reading it still, who is told. An answer that has come to its end can be read.
        """
        if given_up and (exchange.is_over or exchange.discarding):
            return True
        http, stays, lingers = self.http, True, False
        if http is not None and not (exchange.is_over and exchange.request_ended) and exchange.error is None:
            # (Over HTTP/1.1 its reader has waited for the end, and nobody else can use the connection until it comes.)
            lingers = worth_lingering(exchange) and not self.is_http1 and not given_up
            if lingers:
                if not any(other is exchange for _, other in self._lingering):
                    self._lingering.append((time_ns + LINGER_NS, exchange))
            else:
                stays = http.cancel(exchange)
                # Another thread may be reading it.
                exchange.fail(TransportError("ReadError", GIVEN_UP if given_up else _CLOSED_EARLY))
        exchange.chunks.clear()
        if not lingers:
            exchange.leave()
        # Last of all: where Ctrl-C comes before, all of it is done again.
        exchange.discarding = True
        return stays

    def check_ready(self) -> None:
        """Raise TransportError unless the peer has said what it allows, and the connection stands."""
        if self.error is not None or self.http is None or not self.http.is_ready:
            raise TransportError("ConnectError", "The server closed the connection before it said what it allows.")

    def fail(self, error: TransportError) -> None:
        """The connection is gone: break off what is open."""
        self.error = error
        if self.http is not None:
            self.http.lost(error)
        self._lingering.clear()

    # Time

    def tick(self, time_ns: int, *, idle_ns: int, ping_ns: int | None) -> str | None:
        """Look at the time; why the connection is to be closed now, or None."""
        http = self.http
        if http is None:
            return None
        while self._lingering and (self._lingering[0][1].is_over or self._lingering[0][0] <= time_ns):
            _, exchange = self._lingering.popleft()
            if not exchange.is_over:
                http.cancel(exchange)
                exchange.fail(TransportError("ReadError", _CLOSED_EARLY))
            if isinstance(exchange, LinkedExchange):
                exchange.leave()
        ping_sent_ns = http.ping_sent_ns
        if ping_sent_ns is not None and time_ns - max(ping_sent_ns, self._heard_ns) > _PING_TIMEOUT_NS:
            return "a ping was not answered"
        if self.claimed:
            return None
        if time_ns - self.idle_since_ns >= idle_ns:
            return "idle"
        silent_ns = time_ns - max(self._heard_ns, self.idle_since_ns)
        if ping_ns is not None and ping_sent_ns is None and silent_ns >= ping_ns:
            self._gauge.note(time_ns, self._output_bytes)
            http.ping(time_ns)
        return None

    def _open_http(self) -> HttpConnection:
        if self.http is None:
            raise TransportError("LocalProtocolError", "The connection is not open.")
        return self.http

    def extra_info(self, info: str, sock: Any) -> Any:
        """What the library's `network_stream` extension tells about a connection."""
        if info == "ssl_object":
            return None if self.tls is None else self.tls.ssl_object
        if info == "socket":
            return sock
        if info == "client_addr":
            return sock.getsockname()
        if info == "server_addr":
            return sock.getpeername()
        if info == "is_readable":
            return self.looks_stale()
        return None
