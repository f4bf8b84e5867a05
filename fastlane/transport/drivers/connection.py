"""One connection without its sockets: TLS and protocol, its exchanges, its idle time and its end."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, Generic, NoReturn, TypeVar, cast

from fastlane._clock import now_ns

from ..pool.pool import Pool, PooledConnection
from ..pool.settings import PoolSettings, ProxyServer, ServerOrigin, tick_s
from ..protocols.exchange import (
    GIVEN_UP,
    Exchange,
    Opening,
    Patience,
    RequestHead,
    TransportError,
    authority_of,
    avoidance_wait_s,
    ends_soon,
)
from ..protocols.h1 import Http1Connection
from ..protocols.h2 import Http2Connection
from ..protocols.limits import STREAM_WINDOW
from ..protocols.tunnel import http_tunnel, merged_headers, socks5_tunnel
from .requests import Timeouts


def opening_round_trip_ns(opening: Opening) -> int:
    """Return the first estimate of the round trip: TCP takes one, and TLS two (1.2) or one (RFC 8446, 2)."""
    started_ns, round_trips = opening.connect_started_ns, 1
    if opening.tls_ended_ns is not None:
        round_trips = 2 if opening.tls_version == "TLSv1.3" else 3
        if opening.tls_started_ns is not None and opening.proxy is not None:
            # What came before says how far the proxy is.
            started_ns, round_trips = opening.tls_started_ns, round_trips - 1
    return max(0, opening.ended_ns - started_ns) // round_trips


def is_ready(sock: socket.socket, timeout_s: float | None, *, write: bool) -> bool:
    """Return whether the socket can be read from or written to without waiting."""
    try:
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(sock, select.POLLOUT if write else select.POLLIN)
            return bool(poller.poll(None if timeout_s is None else timeout_s * 1e3))
        reading, writing = ([], [sock]) if write else ([sock], [])
        return any(select.select(reading, writing, [], timeout_s))
    except (OSError, ValueError):
        return True  # closed: the next use says so


TlsContexts = Callable[[ProxyServer | None], ssl.SSLContext]
"""Gives the TLS context for a proxy, or for servers (None)."""

# A connection and its requests


# More than a record can hold (RFC 8446, 5.1), of which a read gives one at most.
_READ_BYTES = 16_384


class Tls:
    """One TLS connection, from the client's side. Not thread-safe.

    After each call, `data_to_send()` has what must go to the peer, also after one that raised: the alert that says why.
    """

    def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        """What `data_to_send()` takes from: to be asked whether anything is pending."""
        if ":" in server_hostname:
            # An IPv6 address is certified without the zone, which is known to this machine only.
            server_hostname = server_hostname.partition("%")[0]
        try:
            self._tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname=server_hostname)
        except ValueError as error:  # no name that TLS can ask for
            raise TransportError("ConnectError", str(error)) from error
        self._is_open = False
        self.error: TransportError | None = None
        """Why nothing more can be decrypted. What came before it in the same bytes has been returned."""
        self.ended = False
        """The peer has said, under the protection of TLS, that it sends nothing more (close_notify)."""

    def handshake(self) -> bool:
        """Continue the handshake with received bytes; return whether it is done. Raises TransportError if it fails."""
        if self._is_open:
            return True
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TransportError("ConnectError", str(error)) from error
        self._is_open = True
        return True

    def feed(self, data: bytes | memoryview) -> bytes:
        """Decrypt bytes from the peer, and continue the handshake; the result may be empty."""
        if self.error is not None:
            raise self.error.again()
        if self.ended:
            return b""
        incoming = self._incoming
        incoming.write(data)
        if not self._is_open and not self.handshake():
            return b""
        tls = self._tls
        try:
            first = tls.read(_READ_BYTES)
        except ssl.SSLWantReadError:
            first = None
        except ssl.SSLError as error:
            self._read_failed(error)
            if self.error is not None:
                raise self.error from error
            return b""
        if first is None:
            return b""
        if not first:
            self.ended = True
            return b""
        # OpenSSL takes a whole record out of what has come before it gives any of it, and no byte more.
        if not incoming.pending and not tls.pending():
            return first
        return self._read_rest(first)

    def _read_rest(self, first: bytes) -> bytes:
        pieces = [first]
        tls = self._tls
        incoming = self._incoming
        try:
            while incoming.pending or tls.pending():
                piece = tls.read(_READ_BYTES)
                if not piece:
                    self.ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            # What came before it was sent by the peer and counts.
            self._read_failed(error)
        return b"".join(pieces)

    def _read_failed(self, error: ssl.SSLError) -> None:
        if isinstance(error, ssl.SSLZeroReturnError):  # close_notify, after ours
            self.ended = True
        else:
            self.error = TransportError("ReadError", str(error))

    def wrap(self, plaintext: bytes) -> None:
        """Encrypt bytes for the peer, once the handshake is done."""
        try:
            self._tls.write(plaintext)
        except ssl.SSLError as error:
            raise TransportError("WriteError", str(error)) from error

    def data_to_send(self) -> bytes:
        """Take the bytes to send to the peer; empty if there are none."""
        return self.outgoing.read()

    def close(self) -> None:
        """Send close_notify. What the peer still sends can be fed."""
        # The peer's own goodbye is not waited for; before the end of the handshake there is none to say.
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()

    @property
    def alpn(self) -> str | None:
        """The negotiated protocol, once the handshake is done; None if the server named none."""
        return self._tls.selected_alpn_protocol()

    @property
    def version(self) -> str | None:
        """Such as "TLSv1.3", once the handshake is done."""
        return self._tls.version()

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """The `ssl.SSLObject`, which has the peer's certificate."""
        return self._tls


class TlsInTls(Tls):
    """TLS with a server inside TLS with a proxy."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str, outer: Tls) -> None:
        super().__init__(context, server_hostname)
        self._outer = outer

    def feed(self, data: bytes | memoryview) -> bytes:
        """Decrypt bytes from the proxy, and then what is in them from the server."""
        outer = self._outer
        plain = super().feed(outer.feed(data))
        self.error = self.error or outer.error
        self.ended = self.ended or outer.ended
        return plain

    def data_to_send(self) -> bytes:
        """Take the bytes to send to the proxy."""
        data = self.outgoing.read()
        if data:
            self._outer.wrap(data)
        return self._outer.data_to_send()


# After `data: [DONE]`, or behind the head of a refusal, the end of the answer is in the same packet or right behind it.
# Waiting for it this long, and up to the next look at the time, spares the server a reset (HTTP/2).
LINGER_NS = 1_000_000_000

# A peer that does not answer a ping for this long is gone: RFC 9113 (6.7) asks for an answer before anything else.
_PING_TIMEOUT_NS = 15_000_000_000

# Body bytes that are given to the protocol at once: enough to fill a window, and not the whole of a large upload.
_WRITE_BYTES = 262_144

# A connection is opened for as long as a call waits for it, which has a timeout of its own. One that is opened for
# no call, or for calls without a timeout, is given up after this long.
MOST_OPENING_S = 600.0

CLOSED = "The connection was closed."
_CLOSED_EARLY = "The answer was closed before its end."
_CLOSED_BY_PROXY = "it closed the connection before it had answered"

_ENHANCE_YOUR_CALM = 11  # RFC 9113, 7


class PooledExchange(Exchange):
    """An exchange that gives its place on the connection back when it is over."""

    __slots__ = ("connection", "has_left")

    connection: ClientConnection
    has_left: bool
    """Whether its place was given back: it is over by both sides, or it is not wanted any more."""

    def leave(self) -> None:
        """Release the place, once."""
        if not self.has_left:
            self.has_left = True
            self.connection.ended.append(self)


class ClientConnection(PooledConnection):
    """One connection. Not thread-safe: a driver calls it where the connection's bytes are handled."""

    def __init__(self, origin: ServerOrigin, settings: PoolSettings) -> None:
        super().__init__(origin)
        self.opening: Opening | None = None
        self.is_http1 = False
        """Whether it carries one exchange after the other."""
        self.http_version = b"HTTP/2"
        """As the library's extensions have it."""
        self._opened_ns = 0
        self.proxy = settings.proxy_for(*origin[:3])
        """What is connected to instead of the server."""
        self._forwards = self.proxy is not None and self.proxy.forwards(origin)
        self._proxy_ended_ns: int | None = None
        self.tls: Tls | None = None
        """The innermost: with the server, or with the proxy that forwards to it."""
        self._tls_started_ns: int | None = None
        self._layers: Generator[None, bytes, bytes] | None = None
        self._to_proxy = b""
        self._http2 = settings.http2
        self._idle_ns = int(settings.idle_s * 1e9)
        self._ping_ns = None if settings.ping_s is None else int(settings.ping_s * 1e9)
        self._lingering: deque[tuple[int, Exchange]] = deque()
        self._early = b""
        self._heard_ns = 0
        self._exchange: Exchange | None = None
        """The one exchange of HTTP/1.1."""
        self.is_reading = False
        """Whether bytes of the peer's are being taken in at this moment."""
        self.error: TransportError | None = None
        """Why it was closed; None while it is open."""
        self.tick_s = tick_s(settings)
        """Seconds between two looks at the time."""
        self._socket: socket.socket | None = None

    # Opening

    @property
    def connects_to(self) -> tuple[str, int]:
        """Host and port to which TCP is opened."""
        end = self.proxy or self.origin
        return end.host, end.port

    def begin_handshakes(self, context: TlsContexts) -> None:
        """Prepare what comes after TCP."""
        proxy = self.proxy
        to_proxy = context(proxy) if proxy is not None and proxy.scheme == "https" else None
        to_server = context(None) if self.origin.scheme == "https" else None
        self._layers = self._open_layers(to_proxy, to_server)
        next(self._layers)

    def _open_layers(
        self, to_proxy: ssl.SSLContext | None, to_server: ssl.SSLContext | None
    ) -> Generator[None, bytes, bytes]:
        """Take what the peer sends, until the server can be spoken to; return what came behind the last handshake."""
        data, proxy = (yield), self.proxy
        if proxy is not None:
            try:
                if to_proxy is not None:
                    self.tls = Tls(to_proxy, proxy.host)
                    data = yield from self._agree(self.tls, data)
                if not self._forwards:
                    data = yield from self._open_tunnel(proxy, data)
                elif self._http2 == "require":
                    why = 'it forwards plain http:// over HTTP/1.1, and http2="require" asks for HTTP/2'
                    raise TransportError("ConnectError", why)
                if data and to_server is not None:
                    raise TransportError("ProxyError", "it sent bytes that the server cannot have sent")
            except TransportError as error:
                raise self.of_proxy(error) from error.__cause__
            self._proxy_ended_ns = now_ns()
        if to_server is not None:
            outer, name = self.tls, self.origin.server_hostname
            self._tls_started_ns = now_ns()
            self.tls = Tls(to_server, name) if outer is None else TlsInTls(to_server, name, outer)
            data = yield from self._agree(self.tls, data)
        return data

    @staticmethod
    def _agree(tls: Tls, data: bytes) -> Generator[None, bytes, bytes]:
        # The flight that ends the handshake may bring the server's SETTINGS along.
        early = b""
        while True:
            if data:
                early += tls.feed(data)
            if tls.handshake():
                return early
            data = yield

    def _open_tunnel(self, proxy: ProxyServer, data: bytes) -> Generator[None, bytes, bytes]:
        host, port, tls = self.origin.host, self.origin.port, self.tls
        if proxy.scheme.startswith("http"):
            tunnel = http_tunnel(host, port, proxy.all_headers)
        else:
            tunnel = socks5_tunnel(host, port, proxy.credentials)
        outgoing = next(tunnel)
        while True:
            if tls is None:
                self._to_proxy += outgoing
            elif outgoing:
                tls.wrap(outgoing)
            while not data:
                data = yield
                if tls is not None and data:
                    data = tls.feed(data)
                    if tls.ended:
                        raise TransportError("ProxyError", _CLOSED_BY_PROXY)
            try:
                outgoing, data = tunnel.send(data), b""
            except StopIteration as end:
                return cast("bytes", end.value)

    def of_proxy(self, error: TransportError) -> TransportError:
        """Return an error of opening the connection, with the proxy's name where it is the proxy's."""
        if self.proxy is None or self._proxy_ended_ns is not None:
            return error
        made = TransportError(error.name, f"The proxy {self.proxy.address} failed: {error.message}")
        made.__cause__ = error.__cause__
        return made

    def cut_off(self) -> TransportError:
        """Return the error for the peer's end of the stream amid a handshake."""
        if self.proxy is not None and self._proxy_ended_ns is None:
            return self.of_proxy(TransportError("ProxyError", _CLOSED_BY_PROXY))
        return TransportError("ConnectError", "The server closed the connection during the TLS handshake.")

    def handshake(self, data: bytes = b"") -> bool:
        """Continue the handshakes; return whether they are done. Send `handshake_output()` in any case."""
        if self._layers is None:
            self._early += data if self.tls is None else self.tls.feed(data)
            return True
        try:
            self._layers.send(data)
        except StopIteration as end:
            self._layers, self._early = None, end.value
            return True
        return False

    def handshake_output(self) -> bytes:
        """Take the bytes that the handshakes have to send."""
        data, self._to_proxy = self._to_proxy, b""
        return data if self.tls is None else self.tls.data_to_send()

    def establish(self, opening: Opening, time_ns: int) -> None:
        """Start the negotiated protocol. Raises TransportError if it is not one of those allowed."""
        tls = None if self._tls_started_ns is None else self.tls
        if self.proxy is not None:
            opening = replace(opening, proxy=self.proxy.address, proxy_ended_ns=self._proxy_ended_ns)
        if tls is not None:
            opening = replace(
                opening,
                tls_started_ns=self._tls_started_ns,
                tls_ended_ns=time_ns,
                alpn=tls.alpn,
                tls_version=tls.version,
            )
        self.opening = opening
        wants_http2 = opening.alpn == "h2" if tls is not None else self._http2 == "require"
        if self._http2 == "require" and not wants_http2:
            offered = opening.alpn or "none"
            raise TransportError(
                "ConnectError",
                f'{self.origin.host}:{self.origin.port} does not speak HTTP/2 (it chose ALPN "{offered}"), which '
                'http2="require" asks for; "prefer" would use HTTP/1.1 here',
            )
        http: Http1Connection | Http2Connection = Http2Connection() if wants_http2 else Http1Connection()
        self.is_http1, self.http_version = not wants_http2, http.http_version.encode()
        self._opened_ns = opening.ended_ns
        http.start(time_ns)
        self._heard_ns = time_ns
        self.http = http
        early, self._early = self._early, b""
        if early:
            http.receive(early, time_ns)

    # Bytes

    def receive(self, data: bytes | memoryview, time_ns: int) -> None:
        """Take received bytes. Raises TransportError if the connection cannot go on."""
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
        if tls.error is not None:
            raise tls.error.again()

    def receive_end(self, time_ns: int) -> NoReturn:
        """Take the peer's end of the stream. Always raises TransportError."""
        assert self.http is not None
        self.http.receive_end(time_ns)
        raise TransportError("ReadError", "The server closed the connection.")

    def output(self) -> bytes:
        """Take the bytes to send to the peer."""
        http, tls = self.http, self.tls
        data = http.data_to_send() if http is not None and http.outgoing else b""
        if tls is not None:
            if data:
                tls.wrap(data)
            data = tls.data_to_send()
        return data

    def has_changed(self) -> bool:
        """Return whether the pool has to update: exchanges have ended, or the peer's limits may have changed."""
        http = self.http
        if http is None:
            return False
        changed = bool(self.ended) or http.has_news
        if http.has_news:
            http.has_news = False
        return changed

    @property
    def is_used_up(self) -> bool:
        """Whether no exchange is open and none can begin any more."""
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
        """Whether reading should pause, because too much of an HTTP/1.1 response is unread. HTTP/2 has windows."""
        exchange = self._exchange
        if exchange is None or exchange.arrived_bytes - exchange.taken_bytes < STREAM_WINDOW:
            return False
        return not exchange.is_over and not exchange.discarding

    # Exchanges

    def begin(self, exchange: PooledExchange, *, end: bool) -> None:
        """Begin to send a request; `end` if it has no body. Raises TransportError."""
        http, phases = self.http, exchange.phases
        assert http is not None
        if self._forwards:
            exchange.request_head = self._forwarded(exchange.request_head)
        http.begin(exchange, end=end)
        if self.is_http1:
            self._exchange = exchange
        phases.opening = self.opening
        phases.reused = self._opened_ns <= (phases.started_ns or 0)
        phases.send_started_ns = now_ns()
        assert self.opening is not None
        # The smallest that was seen of late: each takes as long as the server takes to answer, too.
        phases.round_trip_time_ns = min((opening_round_trip_ns(self.opening), *http.round_trips_ns))

    def _forwarded(self, head: RequestHead) -> RequestHead:
        """Return the head of a request as the proxy that forwards it gets it."""
        assert self.proxy is not None
        target = head.target
        if target.startswith(b"/"):
            authority = authority_of(self.origin.host, self.origin.port).removesuffix(":80")
            target = f"http://{authority}".encode("ascii") + target
        return replace(head, target=target, headers=merged_headers(self.proxy.all_headers, head.headers))

    @property
    def local_address(self) -> str | None:
        """The local host and port; None while the connection is being opened."""
        return None if self.opening is None else self.opening.local_address

    def push(self, exchange: PooledExchange, data: bytes, position: int, *, last: bool) -> int:
        """Give the protocol as much of a piece of the body as it takes now; return the new position."""
        http = self.http
        assert http is not None
        if not data:
            if last:
                http.send(exchange, b"", end=True)
        else:
            room = min(http.room(exchange), _WRITE_BYTES)
            if room > 0:
                piece = data if not position and room >= len(data) else data[position : position + room]
                position += len(piece)
                http.send(exchange, piece, end=last and position == len(data))
        if exchange.request_ended and (exchange.answer_ended or exchange.error is not None):
            exchange.leave()  # the answer came earlier
        return position

    def cancel(self, exchange: PooledExchange, time_ns: int, *, given_up: bool = False) -> bool:
        """Cancel an exchange that is no longer read. Return False if the connection has to be closed for that.

        `given_up`: it may still be read, and the reader gets the error. An answer that has come to its end can be read.
        """
        if given_up and (exchange.is_over or exchange.discarding):
            return True
        http, stays, lingers = self.http, True, False
        if http is not None and not (exchange.is_over and exchange.request_ended) and exchange.error is None:
            # (Over HTTP/1.1 its reader has waited for the end, and no call can use the connection before it.)
            lingers = ends_soon(exchange) and not self.is_http1 and not given_up
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
        """Raise TransportError unless the connection is open and the peer has announced its limits."""
        if self.error is not None or self.http is None or not self.http.is_ready:
            raise TransportError("ConnectError", "The server closed the connection before it said what it allows.")

    def fail(self, error: TransportError) -> None:
        """Fail the open exchanges, because the connection is lost."""
        self.error = error
        if self.http is not None:
            self.http.lost(error)
        self._lingering.clear()

    # Time

    def tick(self, time_ns: int, *, may_ping: bool) -> str | None:
        """Check timeouts; return why the connection has to be closed now, or None."""
        http = self.http
        if http is None:
            return None
        while self._lingering and (self._lingering[0][1].is_over or self._lingering[0][0] <= time_ns):
            _, exchange = self._lingering.popleft()
            if not exchange.is_over:
                http.cancel(exchange)
                exchange.fail(TransportError("ReadError", _CLOSED_EARLY))
            if isinstance(exchange, PooledExchange):
                exchange.leave()
        ping_sent_ns = http.ping_sent_ns
        if ping_sent_ns is not None and time_ns - max(ping_sent_ns, self._heard_ns) > _PING_TIMEOUT_NS:
            return "a ping was not answered"
        if self.claimed:
            return None
        if time_ns - self.idle_since_ns >= self._idle_ns:
            return "idle"
        silent_ns = time_ns - max(self._heard_ns, self.idle_since_ns)
        if may_ping and self._ping_ns is not None and ping_sent_ns is None and silent_ns >= self._ping_ns:
            http.ping(time_ns)
        return None

    def get_extra_info(self, info: str) -> Any:
        """Return a value of the library's `network_stream` extension.

        `client_addr`, `server_addr`, `ssl_object`, `socket` or `is_readable`; None for anything else.
        """
        sock = self._socket
        if sock is None:
            return None
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


Connection = TypeVar("Connection", bound=ClientConnection)


class PoolWaiter(Generic[Connection]):
    """A call that waits for a connection. A driver says how it waits, and how it is woken."""

    def __init__(self, pool: Pool, origin: ServerOrigin, timeouts: Timeouts, patience: Patience | None) -> None:
        self.origin = origin
        self.avoid = None if patience is None else patience.avoid
        self.connection: Connection | None = None
        self._error: TransportError | None = None
        self._pool = pool
        self._timeouts = timeouts
        self._patience = patience
        self._opening = True
        """Whether a connection to the origin has been opened for all the time."""

    def grant(self, member: PooledConnection) -> None:
        """Take a connection on which a place is claimed for the call."""
        self.connection = cast("Connection", member)
        self.wake()

    def refuse(self, error: TransportError) -> None:
        """Take the reason why there is no connection."""
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Wake the call. Drivers override it."""

    @property
    def is_answered(self) -> bool:
        """Whether the wait is over."""
        return self.connection is not None or self._error is not None

    def timeout_s(self) -> float | None:
        """Return the seconds that a wait beginning now may last."""
        self._opening = self._opening and self._pool.is_opening(self.origin)
        timeout_s = self._timeouts.connect if self._opening else self._timeouts.pool
        if self._patience is not None:
            timeout_s = self._patience.within(timeout_s, now_ns())
        return timeout_s if self.avoid is None else avoidance_wait_s(timeout_s)

    def expire(self) -> bool:
        """End the wait with an error, because nothing came in time; False if another wait is to follow."""
        if self._patience is not None and self._patience.given_up:
            self._error = TransportError("ReadError", GIVEN_UP)
        elif self.avoid is not None:
            self.avoid = None  # no other connection is to be had soon
        elif not self._opening:
            self._error = TransportError("PoolTimeout", "No connection became free in time.")
        elif self._pool.is_opening(self.origin):
            route = self._pool.settings.route_to(self.origin)
            self._error = TransportError("ConnectTimeout", f"No connection to {route} in time.")
        # Otherwise the connection came, and has no place: from here on it is the pool's time.
        return self._error is not None

    def take(self) -> Connection:
        """Return the connection. Raises the error that came instead."""
        if self.connection is not None:
            return self.connection
        error, self._error = self._error, None
        assert error is not None
        try:
            raise error
        finally:
            # Its traceback leads here, and from here to the request: neither would go before a garbage collection.
            del error
