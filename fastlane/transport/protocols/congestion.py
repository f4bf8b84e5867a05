"""Estimate TCP's congestion window if no kernel reports it: slow start, and the decay while idle."""

from __future__ import annotations

from collections import deque

# What Linux, macOS and Windows begin with (RFC 6928).
INITIAL_WINDOW = 10

# An Ethernet MTU of 1500 less the IPv4 and TCP headers and the timestamp option.
SEGMENT_BYTES = 1_448

# The least that Linux adds to the round-trip time before it sends again (TCP_RTO_MIN), which is also what "idle" means.
_LEAST_VARIANCE_NS = 200_000_000

# A Linux receiver offers 64 KiB at first (half of tcp_rmem's default). Once bulk data comes (more than 30 segments: two
# rounds of slow start) and one more round trip was measured, it offers two bytes more for each byte that came, up to
# half of tcp_rmem's usual maximum (tcp_rcv_space_adjust() and tcp_grow_window() in net/ipv4/tcp_input.c).
FIRST_RECEIVE_WINDOW = 65_536
LARGEST_RECEIVE_WINDOW = 3 << 20
BULK_SEGMENTS = 30
_BULK_BYTES = BULK_SEGMENTS * SEGMENT_BYTES

# What one burst is taken for at most: a window that large limits no request.
_MOST_BYTES = 8 << 20


def window_after_silence(window: int, silent_ns: int, time_out_ns: int, initial: int = INITIAL_WINDOW) -> int:
    """Return the congestion window after silence: it halves for each retransmission timeout.

    As Linux's tcp_cwnd_restart() does it at the next send (RFC 2861), down to the initial window.
    """
    floor = min(initial, window)
    silent_ns -= time_out_ns
    while silent_ns > 0 and window > floor:
        window >>= 1
        silent_ns -= time_out_ns
    return max(window, floor)


class SlowStartModel:
    """A model of the sender's TCP where the kernel's state is not known, such as behind a proxy.

    From what was sent and when, it derives what has been acknowledged since, one round trip after each departure, and
    how the windows have grown: as Linux in slow start, without loss and on a link without a limit of its own.
    """

    __slots__ = (
        "_acknowledged",
        "_bytes_in_flight",
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
        self._bytes_in_flight = 0

    def copy(self) -> SlowStartModel:
        """Return an independent copy."""
        copy = SlowStartModel()
        copy._window = self._window
        if self._flights:
            copy._flights = self._flights.copy()
            copy.in_flight = self.in_flight
            copy._bytes_in_flight = self._bytes_in_flight
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

    def advanced_to(self, now_ns: int) -> SlowStartModel:
        """Return the model at a later time; the same object if nothing can have changed."""
        if not self._flights and not self._growth:
            return self
        later = self.copy()
        later.advance(now_ns)
        return later

    def sent(self, now_ns: int, size: int, round_trip_ns: int) -> None:
        """Add `size` bytes that were sent together; what exceeds the windows waits for acknowledgements."""
        self._round_trip_ns = round_trip_ns
        if size > 0:
            self._go_on(now_ns, min(size, _MOST_BYTES))

    def advance(self, now_ns: int) -> None:
        """Advance to `now_ns`: apply the acknowledgements that are due."""
        if self._flights or self._growth:
            self._go_on(now_ns, 0)

    def _go_on(self, now_ns: int, left: int) -> None:
        """Acknowledge what is due, and send what is left as the windows open."""
        # In local names, because a request may ask for this, and attributes make it take twice the time.
        flights, growth, round_trip_ns, received = (
            self._flights,
            self._growth,
            self._round_trip_ns,
            self._received_bytes,
        )
        window, in_flight, bytes_in_flight = self._window, self.in_flight, self._bytes_in_flight
        sent, acknowledged, mark = self._sent, self._acknowledged, self._mark
        most, limited = self._most_in_flight, self._is_limited
        may_restart = left > 0
        if may_restart and self._departed_ns is not None:
            now_ns = max(now_ns, self._departed_ns)  # behind what has been waiting
        while True:
            while flights and flights[0][0] <= now_ns:
                acknowledged_ns, segments, size = flights.popleft()
                in_flight -= segments
                bytes_in_flight -= size
                acknowledged += segments
                # Slow start (RFC 5681, 3.1): a segment more for each acknowledged one, while the window is in use.
                window += segments if limited else max(0, min(segments, 2 * most - window))
                growth.append((acknowledged_ns + round_trip_ns, size))
            while growth and growth[0][0] <= now_ns:
                received += growth.popleft()[1]
            if left <= 0:
                break
            if may_restart:
                may_restart = False
                self._window = window
                window = self.window_at(now_ns)
            offered = _receive_window(received) - bytes_in_flight
            # With nothing on its way a segment always fits.
            room = min(window - in_flight, offered // SEGMENT_BYTES or int(offered >= left))
            if room < 1:
                now_ns = flights[0][0]
                continue
            segments = min(room, -(-left // SEGMENT_BYTES))
            size = min(left, segments * SEGMENT_BYTES)
            flights.append((now_ns + round_trip_ns, segments, size))
            in_flight += segments
            bytes_in_flight += size
            sent += segments
            left -= size
            self._departed_ns = now_ns
            # As tcp_cwnd_validate(): whether the congestion window was what limited counts for one window.
            if in_flight >= window or acknowledged >= mark or (in_flight > most and not limited):
                limited, most, mark = in_flight >= window, in_flight, sent
        self._window, self.in_flight, self._bytes_in_flight = window, in_flight, bytes_in_flight
        self._sent, self._acknowledged, self._mark = sent, acknowledged, mark
        self._most_in_flight, self._is_limited, self._received_bytes = most, limited, received

    def window_at(self, now_ns: int) -> int:
        """Return the congestion window in segments for what is sent now, after `advance` to the same time."""
        if self._flights or self._departed_ns is None:
            return self._window
        return window_after_silence(self._window, now_ns - self._departed_ns, self._round_trip_ns + _LEAST_VARIANCE_NS)

    @property
    def receive_window(self) -> int:
        """Bytes that the receiver offers to have on their way to it."""
        return _receive_window(self._received_bytes)


def _receive_window(received_bytes: int) -> int:
    return min(FIRST_RECEIVE_WINDOW + 2 * max(0, received_bytes - _BULK_BYTES), LARGEST_RECEIVE_WINDOW)
