"""How long a request takes to reach an origin from here, by what is known of the connection to it."""

from __future__ import annotations

from functools import lru_cache

from .._upload import Path, upload_s
from ..transport._outlook import Outlook
from ._question import Way

# TCP takes one round trip, and TLS 1.3 one (RFC 9293, 3.5; RFC 8446, 2).
_TCP_ROUND_TRIPS = 1
_TLS_ROUND_TRIPS = 1
# What is assumed of a way that nothing is known of.
_ASSUMED = Path()
# What is worked out is remembered by its inputs, rounded to so many binary digits: to within 3 %.
_DIGITS = 5
_MOST_REMEMBERED = 4_096


def way_of(outlook: Outlook, body_bytes: int, *, encoded_ratio: float | None, tls: bool = True) -> Way:
    """Return what lies between this process and an origin, for a body of so many bytes of JSON. Seconds.

    `connect_s` is the round trips of TCP and TLS (RFC 9293, RFC 8446) where no connection is open, and 0 where one is;
    `upload_s` is that of `fastlane._upload`, rounded to within 3 %. `encoded_ratio` is the share of its bytes that
    encoding is expected to leave of the body; None where it goes out as it is. An encoded body is never taken for
    slower than the plain one, because it is not sent then. A longer body never arrives sooner.
    """
    round_trip_ns = outlook.round_trip_time_ns
    round_trip_s = _ASSUMED.round_trip_time_s if round_trip_ns is None else max(0, round_trip_ns) / 1e9
    connect_s = 0.0
    path: tuple[int | None, ...] = ()
    if outlook.is_open:
        rate = outlook.delivery_rate_bytes_per_s
        path = (
            _near(outlook.congestion_window),
            _near(outlook.in_flight_segments),
            outlook.segment_bytes,
            _near(outlook.receive_window_bytes),
            _near(outlook.peer_stream_window),
            _near(outlook.peer_connection_window),
            None if rate is None or not 1 <= rate < 1e12 else _near(int(rate)),
        )
    else:
        connect_s = round_trip_s * (_TCP_ROUND_TRIPS + (_TLS_ROUND_TRIPS if tls else 0))
    rest = (_near(round(round_trip_s * 1e9)), outlook.http_version != "HTTP/1.1", tls)
    seconds = _upload_s(_up(body_bytes), path, *rest)
    if encoded_ratio is not None and 0 < encoded_ratio < 1:
        seconds = min(seconds, _upload_s(_up(int(body_bytes * encoded_ratio)), path, *rest))
    return Way(connect_s=connect_s, upload_s=seconds, round_trip_s=round_trip_s)


@lru_cache(maxsize=_MOST_REMEMBERED)
def _upload_s(body_bytes: int, known: tuple[int | None, ...], round_trip_ns: int, http2: bool, tls: bool) -> float:
    fields = zip(_PATH_FIELDS, known, strict=False)
    path = Path(
        round_trip_time_s=round_trip_ns / 1e9,
        http2=http2,
        tls=tls,
        **{name: value for name, value in fields if value is not None},
    )
    return upload_s(body_bytes, path)


_PATH_FIELDS = (
    "congestion_window",
    "in_flight_segments",
    "segment_bytes",
    "receive_window_bytes",
    "stream_window_bytes",
    "connection_window_bytes",
    "uplink_bytes_per_s",
)


def _near(number: int | None) -> int | None:
    """A number with its first binary digits only; what is not known stays so."""
    if number is None or number < 1 << _DIGITS:
        return number if number is None else max(0, number)
    shift = number.bit_length() - _DIGITS
    return number >> shift << shift


def _up(size: int) -> int:
    """A size, rounded up: to a segment's fraction where it is small, so that the rounds it takes stay the same."""
    if size <= 0:
        return 0
    step = max(256, 1 << max(0, size.bit_length() - _DIGITS - 1))
    return -(-size // step) * step
