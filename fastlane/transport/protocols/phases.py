"""The stamps of one attempt, taken where its bytes pass."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import NamedTuple

PHASES = "fastlane.phases"
"""The extension by which a request brings its `Phases` along, and by which the answer shows them."""

FALLBACK_TRACE = "fastlane.trace"
"""The extension by which a request brings the `trace` that another transport gets if that one carries the request."""


class Loser(NamedTuple):
    """An address that was tried for a connection and not taken."""

    address: str
    """Host and port."""
    outcome: str
    """Class name of the error, or "slower" for one that was given up because another had answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a connection was opened. Stamps are monotonic nanoseconds; None for what did not happen."""

    dns_started_ns: int | None
    """None where the host is an address already."""
    dns_ended_ns: int | None
    connect_started_ns: int
    connect_ended_ns: int
    tls_started_ns: int | None
    tls_ended_ns: int | None
    local_address: str
    """Host and port of our end: tells connections apart while they are open."""
    peer_address: str
    """Host and port of the address that won the race."""
    losers: tuple[Loser, ...]
    alpn: str | None
    """The protocol that TLS agreed on ("h2", "http/1.1"); None without TLS or where the server named none."""
    tls_version: str | None

    @property
    def ended_ns(self) -> int:
        """When the connection could be used."""
        return self.connect_ended_ns if self.tls_ended_ns is None else self.tls_ended_ns


class Phases:
    """One attempt on the wire, filled in by the transport. Monotonic nanoseconds; None for what has not happened."""

    __slots__ = (
        "answer_ended_ns",
        "chunk_ns",
        "congestion_window",
        "connection_wait_started_ns",
        "data_ns",
        "first_byte_ns",
        "http_version",
        "opening",
        "peer_connection_window",
        "peer_stream_window",
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
        self.peer_stream_window: int | None = None
        """Body bytes that the peer takes at once for one request (HTTP/2), when the request was sent."""
        self.peer_connection_window: int | None = None
        """Body bytes that the peer took at once for the whole connection (HTTP/2), when the request was sent."""
        self.round_trip_time_ns: int | None = None
        """To the server's end of HTTP when the request was sent: the kernel's smoothed time (TCP_INFO on Linux), or
        where a proxy stands in between, or the kernel does not say, the smallest that HTTP itself has seen of late."""
        self.congestion_window: int | None = None
        """The congestion window in segments when the request was sent, after what silence had taken of it: the
        kernel's, or where a proxy stands in between, or the kernel does not say, the one that slow start leads to."""
        self.connection_wait_started_ns: int | None = None
        """The attempt began to wait for a connection; None where one could be used at once."""

    @property
    def first_data_ns(self) -> int | None:
        """Arrival of the first piece of the answer's body."""
        return self.data_ns[0] if len(self.data_ns) else None

    def begin(self, now_ns: int) -> None:
        """The transport is given the request. A redirect hands on what the first request brought along."""
        if self.started_ns is not None:
            self.begin_again(resent=False)
            self.resent = 0
            self.connection_wait_started_ns = None
        self.started_ns = now_ns

    def begin_again(self, *, resent: bool) -> None:
        """Another connection is looked for: forget the first one's stamps. `resent`: the request was sent on it."""
        self.resent += resent
        self.opening = self.reused = self.http_version = None
        self.send_started_ns = self.send_ended_ns = self.first_byte_ns = self.answer_ended_ns = None
        self.peer_stream_window = self.peer_connection_window = None
        self.round_trip_time_ns = self.congestion_window = None
        del self.data_ns[:]
