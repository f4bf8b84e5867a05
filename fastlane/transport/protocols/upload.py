"""Estimate how many round trips, and how long, a request's body takes to reach the provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# What Linux, macOS and Windows begin with (RFC 6928).
INITIAL_WINDOW = 10

# An Ethernet MTU of 1500 less the IPv4 and TCP headers and the timestamp option.
SEGMENT_BYTES = 1_448

# A Linux receiver offers 64 KiB at first (half of tcp_rmem's default). Once bulk data comes (more than 30 segments: two
# rounds of slow start) and one more round trip was measured, it offers two bytes more for each byte that came, up to
# half of tcp_rmem's usual maximum (tcp_rcv_space_adjust() and tcp_grow_window() in net/ipv4/tcp_input.c).
FIRST_RECEIVE_WINDOW = 65_536
_LARGEST_RECEIVE_WINDOW = 3 << 20
_BULK_SEGMENTS = 30

# The least that Linux adds to the round-trip time before it sends again (TCP_RTO_MIN), which is also what "idle" means.
_LEAST_VARIANCE_NS = 200_000_000

# A TLS 1.3 record: header (5), content type (1) and authentication tag (16) around at most 2^14 bytes (RFC 8446, 5.2).
_RECORD_BYTES = 16_384
_RECORD_OVERHEAD = 22
# An HTTP/2 DATA frame: its header, and what a peer takes in one frame unless it says otherwise (RFC 9113, 4.1, 6.5.2).
_FRAME_BYTES = 16_384
_FRAME_OVERHEAD = 9
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


def wire_bytes(body_bytes: int, path: Path, *, head_bytes: int | None = None) -> int:
    """Return a request's bytes of TCP payload: head, body, and the overhead of HTTP/2 and TLS.

    A request leaves in one write, HEADERS, DATA and END_STREAM together, so that no frame has a packet of its own.
    `head_bytes` is its head as it is on the wire; None for what is usual.
    """
    if head_bytes is None:
        head_bytes = _HTTP2_HEAD_BYTES if path.http2 else _HTTP1_HEAD_BYTES
    plain = head_bytes + body_bytes
    if path.http2:
        plain += _FRAME_OVERHEAD * -(-body_bytes // _FRAME_BYTES)
    return plain + _RECORD_OVERHEAD * -(-plain // _RECORD_BYTES) if path.tls else plain


def rounds(body_bytes: int, path: Path, *, head_bytes: int | None = None) -> int:
    """Return the round trips until the last byte of a request is sent: 1 if all of it is sent at once.

    In each round leave as many segments as the smallest of these allows:

    - the congestion window, which slow start doubles in each round (RFC 5681, 3.1): IW x 2^r;
    - the peer's receive window, 64 KiB at first, which grows behind what comes;
    - over HTTP/2 the peer's stream and connection windows (RFC 9113, 5.2), which are credited as the body comes.

    `head_bytes` is as in `wire_bytes()`. Source: RFC 5681 and 6928 for the congestion window, Linux for the receive
    window and for a congestion window that is not in use. tests/test_upload.py compares it with the wire emulator and
    with Linux's own TCP at a distance.
    """
    # What is on its way already came before the request in the same order: as if it were a part of it.
    size = wire_bytes(body_bytes, path, head_bytes=head_bytes) + path.in_flight_segments * path.segment_bytes
    number, _, _ = _slow_start(size, max(1, path.congestion_window), path.receive_window_bytes, path.segment_bytes)
    known = [window for window in (path.stream_window_bytes, path.connection_window_bytes) if window is not None]
    if known and path.http2:
        # A window that is used up opens by at least a frame.
        number = max(number, -(-body_bytes // max(_FRAME_BYTES, min(known))))
    return number


def upload_s(body_bytes: int, path: Path, *, head_bytes: int | None = None) -> float:
    """Return the seconds from sending a request's first byte to its last byte arriving at the provider.

    RTT / 2 + (rounds - 1) x RTT, or RTT / 2 and the time that all bytes take on the link where that is longer.
    """
    waiting_s = (rounds(body_bytes, path, head_bytes=head_bytes) - 1) * path.round_trip_time_s
    if path.uplink_bytes_per_s is not None:
        waiting_s = max(waiting_s, wire_bytes(body_bytes, path, head_bytes=head_bytes) / path.uplink_bytes_per_s)
    return waiting_s + path.round_trip_time_s / 2


def _slow_start(size: int, window: int, offered: int, segment_bytes: int) -> tuple[int, int, int]:
    """Send `size` bytes; return the rounds, and the congestion and the receive window afterwards.

    `window` is the congestion window in segments, and `offered` the receive window in bytes.
    """
    first = offered
    # A connection that is offered more than at first has had its bulk data already.
    bulk_bytes = _BULK_SEGMENTS * segment_bytes if offered <= FIRST_RECEIVE_WINDOW else 0
    number = sent = largest = before = measured = 0
    while True:
        left = size - sent
        # Whole segments only: a short one leaves where it is the last.
        burst = left if left <= offered else max(1, offered // segment_bytes) * segment_bytes
        burst = min(burst, window * segment_bytes)
        segments = -(-burst // segment_bytes)
        number += 1
        sent += burst
        # One segment more for each that was acknowledged, but a window that is not in use grows to twice what was on
        # its way at most (Linux: tcp_is_cwnd_limited()).
        largest = max(largest, segments)
        window += segments if segments >= window else max(0, min(segments, 2 * largest - window))
        is_over = sent >= size
        measured, before = sent if is_over else before, sent  # the receiver measures for a round trip
        offered = max(first, min(first + 2 * max(0, measured - bulk_bytes), _LARGEST_RECEIVE_WINDOW))
        if is_over:
            return number, window, offered


def window_after_silence(window: int, silent_ns: int, time_out_ns: int) -> int:
    """Return the congestion window after silence: it halves for each retransmission timeout.

    As Linux's tcp_cwnd_restart() does it at the next send (RFC 2861), down to the initial window.
    """
    floor = min(INITIAL_WINDOW, window)
    silent_ns -= time_out_ns
    while silent_ns > 0 and window > floor:
        window >>= 1
        silent_ns -= time_out_ns
    return max(window, floor)


class EstimatedWindows(NamedTuple):
    """The windows of a connection whose kernel does not tell them, such as behind a proxy: slow start without loss."""

    congestion_window: int = INITIAL_WINDOW
    """In segments, once all that was sent is acknowledged."""
    receive_window: int = FIRST_RECEIVE_WINDOW
    """Bytes that the receiver offers to have on their way to it."""
    sent_segments: int = 0
    acknowledged_ns: int = 0
    """When all that was sent is acknowledged."""
    round_trip_ns: int = 0

    def after(self, now_ns: int, size: int, round_trip_ns: int) -> EstimatedWindows:
        """Return the windows after `size` bytes that were sent together."""
        window = self.window_at(now_ns)
        number, window, offered = _slow_start(size, window, self.receive_window, SEGMENT_BYTES)
        acknowledged_ns = max(now_ns, self.acknowledged_ns - self.round_trip_ns) + number * round_trip_ns
        return EstimatedWindows(window, offered, -(-size // SEGMENT_BYTES), acknowledged_ns, round_trip_ns)

    def in_flight_at(self, now_ns: int) -> int:
        """Return the segments that are not acknowledged yet."""
        return self.sent_segments if now_ns < self.acknowledged_ns else 0

    def window_at(self, now_ns: int) -> int:
        """Return the congestion window in segments for what is sent now."""
        silent_ns = now_ns - self.acknowledged_ns + self.round_trip_ns
        return window_after_silence(self.congestion_window, silent_ns, self.round_trip_ns + _LEAST_VARIANCE_NS)
