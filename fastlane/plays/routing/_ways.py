"""How long a request takes to reach an origin from here, by what is known of the connection to it."""

from __future__ import annotations

from functools import lru_cache

from fastlane.transport.pool.pool import ConnectionForecast
from fastlane.transport.protocols.upload import Path, upload_s

from ._question import Way

# TCP takes one round trip before anything may be sent, and TLS 1.3 one more (RFC 9293, 3.5; RFC 8446, 2).
_TCP_ROUND_TRIPS = 1
_TLS_ROUND_TRIPS = 1
_ASSUMED_ROUND_TRIP_S = Path().round_trip_time_s

# What is worked out is remembered by its inputs, which are rounded to so many binary digits: to within 3 %.
_DIGITS = 5
_MOST_REMEMBERED = 4_096
_LEAST_STEP = 8
_SLOWEST, _FASTEST = 1_000.0, 1e11

_Known = tuple[int | None, int | None, int | None, int | None, int | None, int | None, int | None]


def way_of(outlook: ConnectionForecast, body_bytes: int, *, encoded_ratio: float | None, tls: bool = True) -> Way:
    """Return what lies between this process and an origin, for a body of so many bytes of JSON. Seconds.

    `connect_s` is the round trips of TCP and TLS (RFC 9293, RFC 8446) where no connection is open, 50 ms each where
    nothing is known of the origin, and 0 where one is open; `upload_s` is that of `transport.protocols.upload`.
    Everything is rounded to within 3 % first. `encoded_ratio` is the share of its bytes that encoding is expected to
    leave of the body; None where it goes out as it is, as it does too where encoding would make it longer. A longer
    body never arrives sooner.
    """
    exact_ns = outlook.round_trip_time_ns
    round_trip_ns = _near(exact_ns) if exact_ns is not None and exact_ns > 0 else exact_ns
    known: _Known | None = None
    if outlook.is_open:
        receive, rate = outlook.receive_window_bytes, outlook.delivery_rate_bytes_per_s
        stream, connection = outlook.peer_stream_window, outlook.peer_connection_window
        known = (
            outlook.congestion_window,
            outlook.in_flight_segments,
            outlook.segment_bytes,
            _near(receive) if receive else receive,
            _near(stream) if stream else stream,
            _near(connection) if connection else connection,
            _near(int(rate)) if rate is not None and _SLOWEST <= rate <= _FASTEST else None,
        )
    return _way_of(known, round_trip_ns, outlook.http_version != "HTTP/1.1", tls, _up(body_bytes), encoded_ratio)


@lru_cache(maxsize=_MOST_REMEMBERED)
def _way_of(
    known: _Known | None, round_trip_ns: int | None, http2: bool, tls: bool, body_bytes: int, ratio: float | None
) -> Way:
    """`known`: of an open connection; None where none is open."""
    round_trip_s = _ASSUMED_ROUND_TRIP_S if round_trip_ns is None else max(0, round_trip_ns) / 1e9
    fields: dict[str, int] = {}
    if known is not None:
        fields = {name: value for name, value in zip(_FIELDS, known, strict=True) if value is not None and value >= 0}
    path = Path(round_trip_time_s=round_trip_s, http2=http2, tls=tls, **fields)
    sent_bytes = int(body_bytes * ratio) if ratio is not None and 0 < ratio < 1 else body_bytes
    connect_s = round_trip_s * (_TCP_ROUND_TRIPS + _TLS_ROUND_TRIPS * tls) if known is None else 0.0
    return Way(connect_s=connect_s, upload_s=upload_s(sent_bytes, path), round_trip_s=round_trip_s)


_FIELDS = (
    "congestion_window",
    "in_flight_segments",
    "segment_bytes",
    "receive_window_bytes",
    "stream_window_bytes",
    "connection_window_bytes",
    "uplink_bytes_per_s",
)


def _near(number: int) -> int:
    """A number with its first binary digits only."""
    shift = number.bit_length() - _DIGITS
    return (number >> shift) + (number >> shift - 1 & 1) << shift if shift > 0 else number


def _up(size: int) -> int:
    """A size, rounded up to the next of few."""
    shift = max(_LEAST_STEP, size.bit_length() - _DIGITS - 1)
    return -(-size >> shift) << shift if size > 0 else 0
