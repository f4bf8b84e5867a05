"""How many segments TCP lets leave at once: slow start where no kernel tells of it, and what silence leaves."""

from __future__ import annotations

from collections import deque

# What Linux, macOS and Windows begin with (RFC 6928).
INITIAL_WINDOW = 10

# An Ethernet MTU of 1500 less the IPv4 and TCP headers and the timestamp option.
SEGMENT_BYTES = 1_448

# The least that Linux adds to the round-trip time before it sends again (TCP_RTO_MIN), which is also what "idle" means.
_LEAST_VARIANCE_NS = 200_000_000

# A Linux receiver offers 64 KiB at first (half of tcp_rmem's default). Once bulk data comes, two bytes more for each
# that arrived (tcp_rcv_space_adjust), up to half of what tcp_rmem usually allows.
_RECEIVE_WINDOW = 65_536
_RECEIVE_WINDOW_MOST = 3 << 20
_BULK_BYTES = 30 * SEGMENT_BYTES

# What one burst is taken for at most: a window that large limits no request.
_MOST_BYTES = 8 << 20


def after_silence(window: int, silent_ns: int, time_out_ns: int, initial: int = INITIAL_WINDOW) -> int:
    """The congestion window that is left when nothing was sent for so long: half for each retransmission time-out.

    As Linux's tcp_cwnd_restart() does it at the next send (RFC 2861), down to the initial window.
    """
    floor = min(initial, window)
    silent_ns -= time_out_ns
    while silent_ns > 0 and window > floor:
        window >>= 1
        silent_ns -= time_out_ns
    return max(window, floor)


class FarLeg:
    """The sender's side of a connection that somebody else's kernel keeps: behind a proxy, or where ours tells nothing.

    Told what was sent and when, it works out what has been acknowledged since, one round trip after each departure, and
    how the windows have grown: as Linux in slow start, without loss and on a link without a limit of its own.
    """

    __slots__ = (
        "_acknowledged",
        "_departed_ns",
        "_flights",
        "_growth",
        "_is_limited",
        "_mark",
        "_most_in_flight",
        "_received_bytes",
        "_round_trip_ns",
        "_sent",
        "_window",
        "in_flight",
        "in_flight_bytes",
    )

    def __init__(self) -> None:
        self._window = INITIAL_WINDOW
        self._flights: deque[tuple[int, int, int]] = deque()
        """When what was sent together is acknowledged, and its segments and bytes."""
        self._growth: deque[tuple[int, int]] = deque()
        """When the receiver has measured how much more has come, and how much."""
        self._received_bytes = 0
        self._round_trip_ns = 0
        self._departed_ns: int | None = None
        self._sent = self._acknowledged = self._mark = self._most_in_flight = 0
        self._is_limited = False
        self.in_flight = 0
        """Segments that are not acknowledged yet."""
        self.in_flight_bytes = 0

    def copy(self) -> FarLeg:
        """One that can be told more without changing this one."""
        copy = FarLeg()
        copy._window = self._window
        if self._flights:
            copy._flights = self._flights.copy()
            copy.in_flight = self.in_flight
            copy.in_flight_bytes = self.in_flight_bytes
        if self._growth:
            copy._growth = self._growth.copy()
        copy._received_bytes = self._received_bytes
        copy._round_trip_ns = self._round_trip_ns
        copy._departed_ns = self._departed_ns
        copy._sent = self._sent
        copy._acknowledged = self._acknowledged
        copy._mark = self._mark
        copy._most_in_flight = self._most_in_flight
        copy._is_limited = self._is_limited
        return copy

    def sent(self, now_ns: int, size: int, round_trip_ns: int) -> None:
        """So many bytes were handed over together; what the windows do not take waits for acknowledgements."""
        self._round_trip_ns = round_trip_ns
        left = min(size, _MOST_BYTES)
        if left <= 0:
            return
        self.look(now_ns)
        self._window = self.window_at(now_ns)
        departs_ns = now_ns
        while left > 0:
            while (room := self._room()) < 1:
                departs_ns = max(departs_ns, self._flights[0][0])
                self.look(departs_ns)
            segments = min(room, -(-left // SEGMENT_BYTES))
            flight_bytes = min(left, segments * SEGMENT_BYTES)
            left -= flight_bytes
            self._departed_ns = departs_ns
            self._take_off((departs_ns + round_trip_ns, segments, flight_bytes))

    def look(self, now_ns: int) -> None:
        """It is so late now: take note of what has been acknowledged."""
        flights, growth = self._flights, self._growth
        while flights and flights[0][0] <= now_ns:
            acknowledged_ns, segments, size = flights.popleft()
            self.in_flight -= segments
            self.in_flight_bytes -= size
            self._acknowledged += segments
            # Slow start (RFC 5681, 3.1): a segment more for each acknowledged one, as long as the window is in use.
            more = segments if self._is_limited else min(segments, 2 * self._most_in_flight - self._window)
            self._window += max(0, more)
            growth.append((acknowledged_ns + self._round_trip_ns, size))
        while growth and growth[0][0] <= now_ns:
            self._received_bytes += growth.popleft()[1]

    def window_at(self, now_ns: int) -> int:
        """The congestion window in segments for what is sent now, after `look` at the same time."""
        if self._flights or self._departed_ns is None:
            return self._window
        return after_silence(self._window, now_ns - self._departed_ns, self._round_trip_ns + _LEAST_VARIANCE_NS)

    @property
    def receive_window(self) -> int:
        """Bytes that the receiver offers to have on their way to it."""
        return min(_RECEIVE_WINDOW + 2 * max(0, self._received_bytes - _BULK_BYTES), _RECEIVE_WINDOW_MOST)

    def _room(self) -> int:
        offered = (self.receive_window - self.in_flight_bytes) // SEGMENT_BYTES
        return min(self._window - self.in_flight, offered)

    def _take_off(self, flight: tuple[int, int, int]) -> None:
        self._flights.append(flight)
        self.in_flight += flight[1]
        self.in_flight_bytes += flight[2]
        self._sent += flight[1]
        # As tcp_cwnd_validate(): whether the congestion window was what limited counts for one window.
        limited = self.in_flight >= self._window
        if (
            limited
            or self._acknowledged >= self._mark
            or (not self._is_limited and self.in_flight > self._most_in_flight)
        ):
            self._is_limited = limited
            self._most_in_flight = self.in_flight
            self._mark = self._sent
