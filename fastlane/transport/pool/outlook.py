"""What is known of the connection that a request would be sent on now."""

from __future__ import annotations

from typing import NamedTuple

from ..protocols.phases import Opening

# How much longer a round trip takes than the kernel says before somebody must stand in between: our own TLS and the
# server's, a busy event loop and a queue on the way all take their time without anybody there.
_FARTHER = 2
_FARTHER_BY_NS = 2_000_000


class Outlook(NamedTuple):  # made in a fifth of the time that a frozen dataclass takes
    """What a request that was sent now would find. None for what is not known."""

    is_open: bool = False
    """An open connection has room for it; False where one would have to be opened, or waited for."""
    http_version: str | None = None
    """"HTTP/2" or "HTTP/1.1"."""
    round_trip_time_ns: int | None = None
    """To the server's end of HTTP; where no connection is open, that of the last one to this origin."""
    congestion_window: int | None = None
    """Segments that TCP lets be on their way at once, after what silence has taken."""
    in_flight_segments: int | None = None
    """How many of them are on their way already."""
    segment_bytes: int | None = None
    """Bytes that a segment takes."""
    receive_window_bytes: int | None = None
    """Bytes that the peer's TCP offers to have on their way to it."""
    peer_stream_window: int | None = None
    """Body bytes that the peer takes at once for one request (HTTP/2)."""
    peer_connection_window: int | None = None
    """Body bytes that the peer takes at once on the whole connection (HTTP/2)."""
    idle_ns: int | None = None
    """Since the last byte was sent."""
    delivery_rate_bytes_per_s: float | None = None
    """What the kernel has measured, where that was not limited by what there was to send."""


UNKNOWN = Outlook()


def opening_round_trip_ns(opening: Opening) -> int:
    """The first estimate of the round-trip time: TCP takes one, and TLS two (1.2) or one (RFC 8446, 2).

    The time for all of them together counts: a proxy may take the connection at once, and hold back what follows.
    """
    round_trips = 1
    if opening.tls_ended_ns is not None:
        round_trips = 2 if opening.tls_version == "TLSv1.3" else 3
    return max(0, opening.ended_ns - opening.connect_started_ns) // round_trips


def is_farther(round_trip_ns: int, near_ns: int) -> bool:
    """Whether the server is farther away than the end of the kernel's connection: a proxy stands in between."""
    return round_trip_ns > _FARTHER * near_ns + _FARTHER_BY_NS
