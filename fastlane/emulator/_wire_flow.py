"""The model of one direction of a TCP connection in virtual time: bytes that are written at one time arrive when."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fastlane.emulator.settings import Wire

# Linux's smallest variance term in the retransmission time-out, which is also what "idle" means: RTO = RTT + 200 ms.
_RTO_MIN_NS = 200_000_000
# IPv4 and TCP headers with timestamps: they take time on the link too.
_HEADER_BYTES = 52
# A Linux receiver offers 64 KiB at first (tcp_rmem's default, halved) and at most half of tcp_rmem's usual maximum.
# Once bulk data comes (more than two slow-start rounds) and one more round trip has been measured, it offers two bytes
# more for each byte that arrived (tcp_rcv_space_adjust(), tcp_grow_window()).
_RECEIVE_WINDOW_BYTES = 65_536
_RECEIVE_WINDOW_MAX_BYTES = 3 << 20
_BULK_SEGMENTS = 30


class Delivery(NamedTuple):
    """So many bytes that arrive together."""

    arrives_ns: int
    size: int


class _Flight(NamedTuple):
    """Segments that were sent together and will be acknowledged together."""

    acknowledged_ns: int
    segments: int
    size: int


class Flow:
    """One direction of one connection: it counts time, but reads no clock and touches no socket."""

    __slots__ = (
        "_congestion_window",
        "_cwnd_limited",
        "_departed_ns",
        "_flight",
        "_flight_bytes",
        "_flight_segments",
        "_growth",
        "_last_arrival_ns",
        "_most_in_flight",
        "_one_way_ns",
        "_opens_ns",
        "_received_bytes",
        "_round_trip_ns",
        "_segments_acknowledged",
        "_segments_sent",
        "_tail_room",
        "_usage_mark",
        "_wire",
    )

    def __init__(self, wire: Wire, opens_ns: int) -> None:
        """Nothing leaves before `opens_ns`: until then the handshake is under way."""
        self._wire = wire
        self._round_trip_ns = round(wire.round_trip_time_s * 1e9)
        # Rounded up, so that two ways are never shorter than the round trip.
        self._one_way_ns = -(-self._round_trip_ns // 2)
        self._opens_ns = opens_ns
        self._departed_ns = opens_ns  # when the link was last done with a segment
        self._last_arrival_ns = opens_ns
        self._tail_room = 0  # bytes that still fit into the last segment
        self._flight: deque[_Flight] = deque()
        self._flight_segments = 0
        self._flight_bytes = 0
        self._segments_sent = 0
        self._segments_acknowledged = 0
        self._congestion_window = wire.initial_window_segments
        self._cwnd_limited = False
        self._most_in_flight = 0
        self._usage_mark = 0
        # What the receiver has measured, and what it has yet to: (when it will have, bytes).
        self._received_bytes = 0
        self._growth: deque[tuple[int, int]] = deque()

    def send(self, now_ns: int, size: int) -> list[Delivery]:
        """Take `size` bytes that the sender writes now; return when they arrive, in order."""
        deliveries: list[Delivery] = []
        if size <= 0:
            return deliveries
        if self._departed_ns > now_ns and self._tail_room:
            # A sender that has to wait fills its last segment up before it makes another.
            joined = min(size, self._tail_room)
            self._tail_room -= joined
            size -= joined
            self._departed_ns += self._serialisation_ns(joined)
            self._arrive(deliveries, joined)
        departs_ns = max(now_ns, self._departed_ns)
        self._acknowledge(departs_ns)
        self._restart_if_idle(departs_ns)
        segment_bytes = self._wire.segment_bytes
        while size:
            departs_ns = self._wait_for_window(departs_ns, min(size, segment_bytes))
            segments = min(-(-size // segment_bytes), self._segments_that_fit(min(size, segment_bytes)))
            sent = min(size, segments * segment_bytes)
            size -= sent
            self._tail_room = segments * segment_bytes - sent
            departs_ns += self._serialisation_ns(sent + segments * _HEADER_BYTES)
            self._departed_ns = departs_ns
            self._arrive(deliveries, sent)
            self._take_off(_Flight(departs_ns + self._round_trip_ns, segments, sent))
        return deliveries

    def finish(self, now_ns: int) -> int:
        """Return when the end of the stream arrives: behind all that was sent."""
        self._last_arrival_ns = max(self._last_arrival_ns, max(now_ns, self._opens_ns) + self._one_way_ns)
        return self._last_arrival_ns

    def reset(self, now_ns: int) -> int:
        """Return when a reset arrives: what has not left by now never does."""
        return now_ns + self._one_way_ns

    def _serialisation_ns(self, size: int) -> int:
        rate = self._wire.rate_bits_per_s
        return 0 if rate is None else round(size * 8e9 / rate)

    def _arrive(self, deliveries: list[Delivery], size: int) -> None:
        arrives_ns = self._departed_ns + self._one_way_ns
        self._last_arrival_ns = arrives_ns
        if deliveries and deliveries[-1].arrives_ns == arrives_ns:
            size += deliveries.pop().size
        deliveries.append(Delivery(arrives_ns, size))

    def _segments_that_fit(self, first_segment_bytes: int) -> int:
        """How many more segments may be on their way; the link's rate lets them leave one by one."""
        if not self._wire.slow_start:
            room = 1 << 62
        else:
            room = self._congestion_window - self._flight_segments
            offered = self._receive_window() - self._flight_bytes
            # With nothing on its way one segment always may, or a segment above the window would wait for ever.
            whole = offered // self._wire.segment_bytes or int(offered >= first_segment_bytes)
            room = min(room, whole if self._flight else max(whole, 1))
        return room if self._wire.rate_bits_per_s is None else min(room, 1)

    def _receive_window(self) -> int:
        bulk_bytes = self._received_bytes - _BULK_SEGMENTS * self._wire.segment_bytes
        return min(_RECEIVE_WINDOW_BYTES + 2 * max(0, bulk_bytes), _RECEIVE_WINDOW_MAX_BYTES)

    def _wait_for_window(self, departs_ns: int, first_segment_bytes: int) -> int:
        while self._segments_that_fit(first_segment_bytes) < 1:
            departs_ns = max(departs_ns, self._flight[0].acknowledged_ns)
            self._acknowledge(departs_ns)
        return departs_ns

    def _take_off(self, flight: _Flight) -> None:
        if not self._wire.slow_start:
            return
        self._flight.append(flight)
        self._flight_segments += flight.segments
        self._flight_bytes += flight.size
        self._segments_sent += flight.segments
        # As Linux's tcp_cwnd_validate(): remember for one window whether the congestion window was what limited.
        limited = self._flight_segments >= self._congestion_window
        if (
            limited
            or self._segments_acknowledged >= self._usage_mark
            or (not self._cwnd_limited and self._flight_segments > self._most_in_flight)
        ):
            self._cwnd_limited = limited
            self._most_in_flight = self._flight_segments
            self._usage_mark = self._segments_sent

    def _acknowledge(self, until_ns: int) -> None:
        while self._flight and self._flight[0].acknowledged_ns <= until_ns:
            acknowledged_ns, segments, size = self._flight.popleft()
            self._flight_segments -= segments
            self._flight_bytes -= size
            self._segments_acknowledged += segments
            # Slow start: one segment more for each that was acknowledged, but only while the window is in use.
            if self._cwnd_limited:
                self._congestion_window += segments
            else:
                self._congestion_window += max(0, min(segments, 2 * self._most_in_flight - self._congestion_window))
            self._growth.append((acknowledged_ns + self._round_trip_ns, size))
        while self._growth and self._growth[0][0] <= until_ns:
            self._received_bytes += self._growth.popleft()[1]

    def _restart_if_idle(self, departs_ns: int) -> None:
        if self._flight or not self._wire.restart_after_idle or not self._segments_sent:
            return
        # As Linux's tcp_cwnd_restart(): halve the window for each time-out of silence, down to the initial one.
        time_out_ns = self._round_trip_ns + _RTO_MIN_NS
        idle_ns = departs_ns - self._departed_ns - time_out_ns
        floor = min(self._wire.initial_window_segments, self._congestion_window)
        while idle_ns > 0 and self._congestion_window > floor:
            self._congestion_window >>= 1
            idle_ns -= time_out_ns
        self._congestion_window = max(self._congestion_window, floor)
