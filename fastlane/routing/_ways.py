"""How long a request takes to reach an origin from here, by what is known of the connection to it."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from .._upload import Path, upload_s
from ..transport._outlook import Outlook
from ._question import Way

# TCP takes one round trip before anything may be sent, and TLS 1.3 one more (RFC 9293, 3.5; RFC 8446, 2).
_TCP_ROUND_TRIPS = 1
_TLS_ROUND_TRIPS = 1
_ASSUMED_ROUND_TRIP_NS = round(Path().round_trip_time_s * 1e9)

# What is worked out is remembered by its inputs, which are rounded to so many binary digits: to within 3 %.
_DIGITS = 5
_MOST_REMEMBERED = 4_096
_SLOWEST, _FASTEST = 1_000.0, 1e11

_Known = tuple[int | None, int | None, int | None, int | None, int | None, int | None, int | None]


def way_of(outlook: Outlook, body_bytes: int, *, encoded_ratio: float | None, tls: bool = True) -> Way:
    """Return what lies between this process and an origin, for a body of so many bytes of JSON. Seconds.

    `connect_s` is the round trips of TCP and TLS (RFC 9293, RFC 8446) where no connection is open, 50 ms each where
    nothing is known of the origin, and 0 where one is open; `upload_s` is that of `fastlane._upload`, for inputs that
    are rounded to within 3 %. `encoded_ratio` is the share of its bytes that encoding is expected to leave of the body;
    None where it goes out as it is. An encoded body is never taken for slower than the plain one, because it would not
    be sent then. A longer body never arrives sooner.
    """
    # Of a connection that is not busy, the next call finds what the last one did. When it last sent is in its window.
    key = (outlook[:_IDLE], outlook[_IDLE + 1 :], _up(body_bytes), encoded_ratio, tls)
    way = _ways.get(key)
    if way is None:
        if len(_ways) >= _MOST_REMEMBERED:
            _ways.clear()
        way = _ways[key] = _way_of(outlook, body_bytes, encoded_ratio, tls)
    return way


_IDLE = Outlook._fields.index("idle_ns")
_ways: dict[Hashable, Way] = {}


def _way_of(outlook: Outlook, body_bytes: int, encoded_ratio: float | None, tls: bool) -> Way:
    exact_ns = outlook.round_trip_time_ns
    exact_ns = _ASSUMED_ROUND_TRIP_NS if exact_ns is None else max(0, exact_ns)
    connect_s = 0.0
    known: _Known | None = None
    if outlook.is_open:
        rate = outlook.delivery_rate_bytes_per_s
        known = (
            outlook.congestion_window,
            outlook.in_flight_segments,
            outlook.segment_bytes,
            _near(outlook.receive_window_bytes),
            _near(outlook.peer_stream_window),
            _near(outlook.peer_connection_window),
            _near(int(rate)) if rate is not None and _SLOWEST <= rate <= _FASTEST else None,
        )
    else:
        connect_s = exact_ns / 1e9 * (_TCP_ROUND_TRIPS + _TLS_ROUND_TRIPS * tls)
    round_trip_ns, http2 = _near(exact_ns) or 0, outlook.http_version != "HTTP/1.1"
    seconds = _upload_s(_up(body_bytes), known, round_trip_ns, http2, tls)
    if encoded_ratio is not None and 0 < encoded_ratio < 1:
        encoded_bytes = _up(int(_up(body_bytes) * encoded_ratio))
        seconds = min(seconds, _upload_s(encoded_bytes, known, round_trip_ns, http2, tls))
    return Way(connect_s=connect_s, upload_s=seconds, round_trip_s=exact_ns / 1e9)


@lru_cache(maxsize=_MOST_REMEMBERED)
def _upload_s(body_bytes: int, known: _Known | None, round_trip_ns: int, http2: bool, tls: bool) -> float:
    fields: dict[str, int] = {}
    if known is not None:
        fields = {name: value for name, value in zip(_FIELDS, known, strict=True) if value is not None and value >= 0}
    return upload_s(body_bytes, Path(round_trip_time_s=round_trip_ns / 1e9, http2=http2, tls=tls, **fields))


_FIELDS = (
    "congestion_window",
    "in_flight_segments",
    "segment_bytes",
    "receive_window_bytes",
    "stream_window_bytes",
    "connection_window_bytes",
    "uplink_bytes_per_s",
)


def _near(number: int | None) -> int | None:
    """A number with its first binary digits only."""
    if number is None or number < 1 << _DIGITS:
        return number
    shift = number.bit_length() - _DIGITS
    return number >> shift << shift


def _up(size: int) -> int:
    """A size, rounded up to the next of few."""
    if size <= 0:
        return 0
    step = max(256, 1 << max(0, size.bit_length() - _DIGITS - 1))
    return -(-size // step) * step
