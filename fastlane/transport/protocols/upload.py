"""Estimate how many round trips, and how long, a request's body takes to reach the provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .congestion import (
    BULK_SEGMENTS,
    FIRST_RECEIVE_WINDOW,
    INITIAL_WINDOW,
    LARGEST_RECEIVE_WINDOW,
    SEGMENT_BYTES,
)

# A TLS 1.3 record: header (5), content type (1) and authentication tag (16) around at most 2^14 bytes (RFC 8446, 5.2).
_RECORD_BYTES = 16_384
_RECORD_OVERHEAD = 22
# An HTTP/2 DATA frame: its header, and what a peer takes in one frame unless it says otherwise (RFC 9113, 4.1, 6.5.2).
_FRAME_BYTES = 16_384
_FRAME_OVERHEAD = 9
# What a link carries beside each segment's bytes: the headers of IPv4 and of TCP with timestamps.
_SEGMENT_OVERHEAD = 52
# A request's head with openai's headers: 40 bytes over HTTP/2, where a connection names by number what was sent before
# (RFC 7541), here with room for one more header, and 430 the first time; 700 bytes over HTTP/1.1.
_HTTP2_HEAD_BYTES = 100
_HTTP1_HEAD_BYTES = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """What is known of the network path to the provider when a request is about to be sent."""

    round_trip_time_s: float = 0.05
    congestion_window: int = INITIAL_WINDOW
    """Segments that may leave at once now. 10 is what RFC 6928 gives a new connection and, after an idle spell, an old
    one."""
    in_flight_segments: int = 0
    """How many segments are on their way already, and leave room when they have been acknowledged."""
    segment_bytes: int = SEGMENT_BYTES
    """Payload of a TCP segment: an Ethernet MTU of 1,500 without the headers of IPv4 and of TCP with timestamps."""
    receive_window_bytes: int = FIRST_RECEIVE_WINDOW
    """What the peer's TCP offers now; it grows while data comes."""
    stream_window_bytes: int | None = None
    """Body bytes that the peer takes at once for one request over HTTP/2; None where it is not known to limit."""
    connection_window_bytes: int | None = None
    """The same for all requests of the connection together."""
    uplink_bytes_per_s: float | None = None
    """What the link carries; None where the link itself is not known to limit."""
    http2: bool = True
    tls: bool = True


class _Round(NamedTuple):
    """What is sent between one wave of acknowledgements and the next."""

    segments: int
    size: int
    """Bytes of TCP's payload."""


def wire_bytes(body_bytes: int, path: Path, *, head_bytes: int | None = None) -> int:
    """Return a request's bytes of TCP payload: head, body, and the overhead of HTTP/2 and TLS.

    A request leaves in one write, HEADERS, DATA and END_STREAM together, so that no frame has a packet of its own.
    `head_bytes` is its head as it is on the wire; None for what is usual.
    """
    plain = (_head_bytes(path) if head_bytes is None else head_bytes) + body_bytes
    if path.http2:
        plain += _FRAME_OVERHEAD * -(-body_bytes // _FRAME_BYTES)
    return plain + _RECORD_OVERHEAD * -(-plain // _RECORD_BYTES) if path.tls else plain


def rounds(body_bytes: int, path: Path, *, head_bytes: int | None = None) -> int:
    """Return the round trips until the last byte of a request is sent: 1 if all of it is sent at once.

    In each round leave as many segments as the smallest of these allows:

    - the congestion window, which slow start doubles in each round (RFC 5681, 3.1): IW x 2^r;
    - the peer's receive window, 64 KiB at first, which grows behind what comes;
    - over HTTP/2 the peer's stream and connection windows (RFC 9113, 5.2): what has come is credited, so that at most
      one window of the body is on its way.

    `head_bytes` is as in `wire_bytes()`. Source: RFC 5681 and 6928 for the congestion window, Linux for the receive
    window and for a congestion window that is not in use. tests/test_upload.py compares it with the wire emulator and
    with Linux's own TCP at a distance.
    """
    return rounds_and_upload_s(body_bytes, path, head_bytes=head_bytes)[0]


def upload_s(body_bytes: int, path: Path, *, head_bytes: int | None = None) -> float:
    """Return the seconds from sending a request's first byte to its last byte arriving at the provider.

    RTT / 2 + (rounds - 1) x RTT, where the link does not limit. Where it does, each round takes its time on the link,
    and the next one begins with the first acknowledgement of this one, or when the link is done with it, whichever is
    later.
    """
    return rounds_and_upload_s(body_bytes, path, head_bytes=head_bytes)[1]


def _head_bytes(path: Path) -> int:
    return _HTTP2_HEAD_BYTES if path.http2 else _HTTP1_HEAD_BYTES


def rounds_and_upload_s(body_bytes: int, path: Path, *, head_bytes: int | None = None) -> tuple[int, float]:
    """Return `rounds()` and `upload_s()` of one request, for the price of one."""
    if head_bytes is None:
        head_bytes = _head_bytes(path)
    # What is on its way already came before the request in the same order: as if it were a part of its head.
    head_bytes += path.in_flight_segments * path.segment_bytes
    round_trip_s = path.round_trip_time_s
    rate = path.uplink_bytes_per_s
    number = 0
    begins_s = departed_s = 0.0
    for segments, size in _rounds(body_bytes, path, head_bytes):
        number += 1
        departed_s = begins_s
        first_s = 0.0
        if rate is not None:
            first_s = (min(size, path.segment_bytes) + _SEGMENT_OVERHEAD) / rate
            departed_s += (size + segments * _SEGMENT_OVERHEAD) / rate
        begins_s = max(begins_s + first_s + round_trip_s, departed_s)
    return number, departed_s + round_trip_s / 2


def _rounds(body_bytes: int, path: Path, head_bytes: int) -> Iterator[_Round]:
    segment_bytes = max(1, path.segment_bytes)
    congestion_window = max(1, path.congestion_window)
    # A connection that is offered more than at first has had its bulk data already.
    is_new = path.receive_window_bytes <= FIRST_RECEIVE_WINDOW
    bulk_bytes = BULK_SEGMENTS * segment_bytes if is_new else 0
    window = _body_window(path)
    total = wire_bytes(body_bytes, path, head_bytes=head_bytes)
    sent = 0
    most = 0  # segments that were on their way at once
    measured = before = 0  # bytes that came at least two rounds ago, and one
    while True:
        offered = path.receive_window_bytes + 2 * max(0, measured - bulk_bytes)
        offered = max(path.receive_window_bytes, min(offered, LARGEST_RECEIVE_WINDOW))
        ready = total
        if window is not None and window < body_bytes:
            # What was sent a round ago has come and was credited.
            allowed = min(body_bytes, _body_within(sent, path, head_bytes) + window)
            ready = wire_bytes(allowed, path, head_bytes=head_bytes)
        size = ready - sent
        if size > offered:
            # Whole segments only: a short one leaves where it is the last.
            size = max(1, offered // segment_bytes) * segment_bytes
        size = min(size, congestion_window * segment_bytes)
        segments = -(-size // segment_bytes)
        yield _Round(segments, size)
        measured, before = before, sent + size
        sent += size
        if sent >= total:
            return
        most = max(most, segments)
        # One segment more for each that was acknowledged, but a window that is not in use grows to twice what was on
        # its way at most (Linux: tcp_is_cwnd_limited()).
        if segments >= congestion_window:
            congestion_window += segments
        else:
            congestion_window += max(0, min(segments, 2 * most - congestion_window))


def _body_within(sent: int, path: Path, head_bytes: int) -> int:
    """Return the body bytes within the first `sent` bytes of an HTTP/2 request: the inverse of `wire_bytes()`."""
    plain = _without(sent, _RECORD_BYTES, _RECORD_OVERHEAD) if path.tls else sent
    return _without(max(0, plain - head_bytes), _FRAME_BYTES, _FRAME_OVERHEAD)


def _without(size: int, piece: int, overhead: int) -> int:
    """Return the payload within `size` bytes of pieces that each begin with an overhead."""
    whole, rest = divmod(size, piece + overhead)
    return whole * piece + max(0, rest - overhead)


def _body_window(path: Path) -> int | None:
    """Return the body bytes that may be in flight at once; a window that is used up opens by at least a frame."""
    if not path.http2:
        return None
    known = [window for window in (path.stream_window_bytes, path.connection_window_bytes) if window is not None]
    return max(_FRAME_BYTES, min(known)) if known else None
