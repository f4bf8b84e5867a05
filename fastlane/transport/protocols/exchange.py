"""One request and its answer on one connection, and what a connection of either protocol can do with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from .errors import TransportError
from .phases import Phases

# "data: [DONE]" and the line ends that may follow it.
TAIL_BYTES = 16
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Nobody reads the rest: what still comes is counted and thrown away."""
        self.tail = b""
        """The last bytes of the body that have come, 16 or more: whether it said that it is done."""

    def wake(self) -> None:
        """What a waiter may wait for has happened: head, data, end, error, or room to send. Drivers override it."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come from the peer."""
        return self.answer_ended or self.error is not None

    def arrived(self, data: bytes, now_ns: int) -> None:
        """A piece of the body, not empty, has arrived."""
        self.phases.data_ns.append(now_ns)
        self.arrived_bytes += len(data)
        self.tail = data if len(data) >= TAIL_BYTES else self.tail[-TAIL_BYTES:] + data
        if not self.discarding:
            self.chunks.append((now_ns, data))
        self.wake()

    def end(self, now_ns: int) -> None:
        """The answer has come to its proper end."""
        self.answer_ended = True
        self.phases.answer_ended_ns = now_ns
        self.wake()

    def fail(self, error: TransportError) -> None:
        """The exchange is broken off; the first failure counts, and none after the proper end."""
        if not self.is_over:
            self.error = error
            self.wake()


def worth_lingering(exchange: Exchange) -> bool:
    """Whether the rest of an answer that nobody reads is about to end by itself."""
    head = exchange.answer_head
    if head is None or exchange.is_over or not exchange.request_ended:
        return False
    return exchange.tail[-TAIL_BYTES:].rstrip().endswith(_DONE) or head.status >= 400


class HttpConnection(Protocol):
    """The protocol of one connection without its I/O: bytes in, bytes out, exchanges filled in.

    Not thread-safe. After each call, `data_to_send()` has what must go to the peer. Where `receive` or `receive_end`
    raises `TransportError`, the connection cannot go on: what `data_to_send()` gives is still to be sent, `lost()` to
    be called with the error, and the connection to be closed.
    """

    http_version: str
    """"HTTP/2" or "HTTP/1.1"."""

    has_news: bool
    """Whether more than pieces of answers have come since it was last set to False: the peer's limits may be others.
    (Exchanges that end say so themselves.) Not looked at, and not set, where the protocol has no such thing."""

    outgoing: list[bytes]
    """What `data_to_send()` takes: to be asked whether there is anything."""

    @property
    def capacity(self) -> int:
        """Exchanges that the peer allows at once; 0 once the connection takes no new ones (closed, going away)."""
        ...

    @property
    def open_exchanges(self) -> int:
        """Exchanges begun whose end, by both sides, has not come."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the peer has said what it allows (SETTINGS over HTTP/2)."""
        ...

    @property
    def round_trips_ns(self) -> Sequence[int]:
        """The last few that the protocol itself has measured; the object stays the same, and grows."""
        ...

    @property
    def peer_windows(self) -> tuple[int | None, int | None]:
        """Body bytes that the peer takes at once now: for a further request, and on the connection (HTTP/2)."""
        ...

    def start(self, now_ns: int) -> None:
        """The connection is open: say what comes first."""
        ...

    def receive(self, data: bytes, now_ns: int) -> None:
        """Bytes have come from the peer. Raises TransportError where the connection cannot go on."""
        ...

    def receive_end(self, now_ns: int) -> None:
        """The peer will send nothing more (FIN or close_notify). Raises TransportError where exchanges are open."""
        ...

    def data_to_send(self) -> bytes:
        """Take what is to be sent to the peer now; empty where there is nothing."""
        ...

    def begin(self, exchange: Exchange, *, end: bool) -> None:
        """Send the head of a request; `end` where it has no body.

        Raises TransportError, unprocessed, where the connection takes no further exchange, and LocalProtocolError where
        the head cannot be sent.
        """
        ...

    def room(self, exchange: Exchange) -> int:
        """Bytes of the request's body that may be sent now; 0 where the peer's windows are exhausted."""
        ...

    def send(self, exchange: Exchange, data: bytes, *, end: bool) -> None:
        """Send bytes of the request's body, at most `room()` of them; `end` with the last, which may be empty."""
        ...

    def took(self, exchange: Exchange, count: int) -> None:
        """The application has read `count` bytes of the answer's body: the peer may send as many more."""
        ...

    def cancel(self, exchange: Exchange) -> bool:
        """Nobody waits for this exchange any more: have the peer stop.

        True where the connection can go on; False where closing it is the only way to say so.
        """
        ...

    def ping(self, now_ns: int) -> bool:
        """Ask the peer for a sign of life; False where the protocol has no way to ask."""
        ...

    @property
    def ping_sent_ns(self) -> int | None:
        """When the ping was sent that has not been answered yet; None where none is out."""
        ...

    def goodbye(self) -> None:
        """We are about to close: say so where the protocol has words for it."""
        ...

    def lost(self, error: TransportError) -> None:
        """The connection is gone: break off every exchange that is not over."""
        ...
