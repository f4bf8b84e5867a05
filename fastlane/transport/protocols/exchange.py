"""One request and its response on one connection: its errors, its patience, the stamps of its bytes."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol
from weakref import ref

ErrorName = Literal[
    "ConnectError",
    "ConnectTimeout",
    "LocalProtocolError",
    "PoolTimeout",
    "ProxyError",
    "ReadError",
    "ReadTimeout",
    "RemoteProtocolError",
    "UnsupportedProtocol",
    "WriteError",
    "WriteTimeout",
]
"""Classes that httpx2 and legacy httpx have under the same names."""


class TransportError(Exception):
    """A failure inside the transport. Its text may name hosts, ports and protocol terms, and nothing that was sent."""

    def __init__(self, name: ErrorName, message: str, *, unprocessed: bool = False) -> None:
        super().__init__(message)
        self.name: ErrorName = name
        self.message = message
        self.unprocessed = unprocessed
        """The server has not begun to process the request, and said so: it may be sent again (RFC 9113, 8.7)."""

    def again(self) -> TransportError:
        """Return a copy: an exception that is raised twice mixes up two tracebacks."""
        made = TransportError(self.name, self.message, unprocessed=self.unprocessed)
        made.__cause__ = self.__cause__  # such as the `ssl.SSLCertVerificationError` that applications look for
        return made


def authority_of(host: str, port: int) -> str:
    """Return host and port, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def as_library_error(error: TransportError, library: ModuleType, request: Any) -> Exception:
    """Return the error as the HTTP library (httpx2, or legacy httpx) would raise it for this request."""
    made: Exception = getattr(library, error.name)(error.message, request=request)
    return made


PATIENCE = "fastlane.patience"
"""The extension by which a request brings its `Patience` along."""

GIVEN_UP = "The request was given up."

ELSEWHERE_S = 1.0
"""How long a request waits for a connection other than the one that it avoids: as long as opening one takes over a
distance of some 300 ms, and no longer, because the same one is better than none."""


class PendingRequest(Protocol):
    """A request that waits: in the queue for a connection, or for its exchange."""

    def give_up(self) -> None:
        """End a request that was given up, and wake its waiter. Takes no lock."""


class Patience:
    """How long one request waits for each step. Other transports ignore it."""

    __slots__ = ("_waiting", "avoid", "given_up", "silence_ns", "until_ns")

    def __init__(self, *, until_ns: int | None = None, avoid: str | None = None) -> None:
        self.until_ns = until_ns
        """When every wait for the request ends with a timeout (a connection, the head, each piece of the body), in
        nanoseconds of the one clock; None: it has only the timeouts of its own. Any thread may change it at any time,
        which counts from the next wait on."""
        self.silence_ns: int | None = None
        """Nanoseconds after which waits time out without `until_ns`, which the next wait sets to them. A reader that
        sets `until_ns` to None with each event is not taken for a silent server while it does something else."""
        self.avoid = avoid
        """Local address (`Opening.local_address`) of a connection that is not to carry the request where another is to
        be had without a long wait."""
        self.given_up = False
        """Whether the request is not wanted any more."""
        # Weakly, because an exchange knows its patience: its holder keeps no connection, and there is no cycle.
        self._waiting: ref[Any] | None = None

    def give_up(self) -> None:
        """Give up the request: its current or next wait raises the library's ReadError.

        Asks the server to stop. From any thread, any number of times, from finalisers too; without effect on an
        answer that has come to its end.
        """
        self.given_up = True
        waiting = None if self._waiting is None else self._waiting()
        if waiting is not None:
            waiting.give_up()

    def attend(self, waiting: PendingRequest) -> None:
        """Set what the request waits in; give it up at once if the request was given up already."""
        # In this order, and in the other in `give_up`: one of the two sees what the other has done.
        self._waiting = ref(waiting)
        if self.given_up:
            waiting.give_up()

    def check(self) -> None:
        """Raise TransportError where the request was given up."""
        if self.given_up:
            raise TransportError("ReadError", GIVEN_UP)

    def within(self, timeout_s: float | None, now_ns: int) -> float | None:
        """Return the seconds that a wait beginning now may last; None for no limit."""
        until_ns = self.until_ns
        if until_ns is None:
            if self.silence_ns is None:
                return timeout_s
            until_ns = self.until_ns = now_ns + self.silence_ns
        left_s = max(0.0, (until_ns - now_ns) / 1e9)
        return left_s if timeout_s is None else min(left_s, timeout_s)


def avoidance_wait_s(timeout_s: float | None) -> float:
    """Return the seconds for which a request waits for a connection other than the one that it avoids."""
    return ELSEWHERE_S if timeout_s is None else min(ELSEWHERE_S, timeout_s / 2)


PHASES = "fastlane.phases"
"""The extension by which a request brings its `Phases` along, and by which the answer shows them."""

FALLBACK_TRACE = "fastlane.trace"
"""The extension by which a request brings the `trace` that another transport gets if that one carries the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a connection was opened. Stamps are monotonic nanoseconds; None for what did not happen."""

    dns_started_ns: int | None
    """None if the host is an address already."""
    dns_ended_ns: int | None
    connect_started_ns: int
    """TCP, to the proxy where there is one."""
    connect_ended_ns: int
    local_address: str
    """Host and port of our end: tells connections apart while they are open."""
    peer_address: str
    """Host and port of the address that won the race."""
    tls_started_ns: int | None = None
    tls_ended_ns: int | None = None
    alpn: str | None = None
    """The protocol that TLS agreed on ("h2", "http/1.1"); None without TLS or where the server named none."""
    tls_version: str | None = None
    proxy: str | None = None
    """Host and port of the proxy that it goes through."""
    proxy_ended_ns: int | None = None
    """The proxy was ready to pass bytes on: TLS with it and its tunnel were open."""

    @property
    def ended_ns(self) -> int:
        """When the connection could be used."""
        return self.tls_ended_ns or self.proxy_ended_ns or self.connect_ended_ns


class Phases:
    """One attempt on the wire, filled in by the transport. Monotonic nanoseconds; None for what has not happened."""

    __slots__ = (
        "answer_ended_ns",
        "chunk_ns",
        "connection_wait_started_ns",
        "data_ns",
        "first_byte_ns",
        "http_version",
        "opening",
        "resent",
        "reused",
        "round_trip_time_ns",
        "send_ended_ns",
        "send_started_ns",
        "started_ns",
    )

    def __init__(self) -> None:
        self.started_ns: int | None = None
        """The transport was given the request; None if it never was, and another transport carried it."""
        self.opening: Opening | None = None
        """How the connection was opened that carried the request."""
        self.reused: bool | None = None
        """Whether the connection was open before this attempt asked for one."""
        self.http_version: str | None = None
        """"HTTP/2" or "HTTP/1.1"."""
        self.send_started_ns: int | None = None
        """The first byte of the request was handed to the socket."""
        self.send_ended_ns: int | None = None
        """The last byte of the request was handed to the socket."""
        self.first_byte_ns: int | None = None
        """The first byte of the answer, that is of its head, had arrived."""
        self.data_ns: array[int] = array("q")
        """Arrival of each piece of the answer's body: of each DATA frame, or of each read over HTTP/1.1."""
        self.answer_ended_ns: int | None = None
        """The end of the answer had arrived."""
        self.chunk_ns = 0
        """Arrival of the piece of the body that is being read by the application now."""
        self.resent = 0
        """How often the request was sent again because a server had certainly not processed it: 0 or 1."""
        self.round_trip_time_ns: int | None = None
        """To the server's end of HTTP, the smallest that its connection has seen of late: opening it, and over HTTP/2
        the acknowledgements of settings and pings."""
        self.connection_wait_started_ns: int | None = None
        """The attempt began to wait for a connection; None if one could be used at once."""

    def begin(self, now_ns: int) -> None:
        """Stamp the start of a request. A redirect passes on the phases of the first request."""
        if self.started_ns is not None:
            self.begin_again(resent=False)
            self.resent = 0
            self.connection_wait_started_ns = None
        self.started_ns = now_ns

    def begin_again(self, *, resent: bool) -> None:
        """Forget the stamps of a connection that failed. `resent`: the request was sent on it."""
        self.resent += resent
        self.opening = self.reused = self.http_version = None
        self.send_started_ns = self.send_ended_ns = self.first_byte_ns = self.answer_ended_ns = None
        self.round_trip_time_ns = None
        del self.data_ns[:]


# "data: [DONE]" and the line ends that may follow it.
TAIL_BYTES = 16
_DONE = b"[DONE]"


@dataclass(slots=True, kw_only=True)  # not frozen: that takes three times as long to make
class RequestHead:
    """The head of a request, as the HTTP library gives it."""

    method: bytes
    scheme: bytes
    authority: bytes
    """The value of the Host header."""
    target: bytes
    """Path and query."""
    headers: list[tuple[bytes, bytes]] = field(repr=False)  # there are credentials in them
    """As the library sends them over HTTP/1.1: any case, Host and Transfer-Encoding included."""


class AnswerHead(NamedTuple):
    """The head of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    reason: bytes
    """The reason phrase of HTTP/1.1; empty over HTTP/2, which has none."""


class Exchange:
    """One request and its answer on one connection. The protocol fills it in, a driver waits for it.

    Everything is changed where the connection's bytes are handled (on the event loop, or under the connection's lock),
    apart from `chunks`, which the reader empties from the left.
    """

    __slots__ = (
        "answer_ended",
        "answer_head",
        "arrived_bytes",
        "chunks",
        "discarding",
        "error",
        "phases",
        "request_ended",
        "request_head",
        "stream_id",
        "tail",
        "taken_bytes",
    )

    def __init__(self, request_head: RequestHead, phases: Phases) -> None:
        self.request_head = request_head
        self.phases = phases
        self.stream_id = 0
        """The stream's number over HTTP/2."""
        self.answer_head: AnswerHead | None = None
        """The final head (not an informational 1xx), once it has come."""
        self.chunks: deque[tuple[int, bytes]] = deque()
        """Pieces of the body not read yet, each with its arrival; never an empty piece."""
        self.arrived_bytes = 0
        """Bytes of the body that have come. Written where the connection's bytes are handled only."""
        self.taken_bytes = 0
        """Bytes of the body that were read. Written by the reader only."""
        self.request_ended = False
        """The whole request was handed over."""
        self.answer_ended = False
        """The answer has come to its proper end. Pieces may still be unread."""
        self.error: TransportError | None = None
        """What broke the exchange off. Pieces that came before may still be unread."""
        self.discarding = False
        """Count and discard the rest of the response."""
        self.tail = b""
        """The last bytes of the body that have come, 16 or more: whether it said that it is done."""

    def wake(self) -> None:
        """Wake the waiter: a head, data, the end, an error or room to send has come. Drivers override it."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come from the peer."""
        return self.answer_ended or self.error is not None

    def arrived(self, data: bytes, now_ns: int) -> None:
        """Take a piece of the body, which is not empty."""
        self.phases.data_ns.append(now_ns)
        self.arrived_bytes += len(data)
        self.tail = data if len(data) >= TAIL_BYTES else self.tail[-TAIL_BYTES:] + data
        if not self.discarding:
            self.chunks.append((now_ns, data))
        self.wake()

    def end(self, now_ns: int) -> None:
        """End the response properly."""
        self.answer_ended = True
        self.phases.answer_ended_ns = now_ns
        self.wake()

    def fail(self, error: TransportError) -> None:
        """Fail the exchange. The first failure counts, and none after the proper end."""
        if not self.is_over:
            self.error = error
            self.wake()


def ends_soon(exchange: Exchange) -> bool:
    """Return whether a response that is no longer read is about to end by itself."""
    head = exchange.answer_head
    if head is None or exchange.is_over or not exchange.request_ended:
        return False
    return exchange.tail[-TAIL_BYTES:].rstrip().endswith(_DONE) or head.status >= 400
