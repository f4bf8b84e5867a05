"""What one connection is measured to be like: by the kernel, by HTTP's own round trips, and by what was sent when."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from ..pool.outlook import Outlook, is_farther, opening_round_trip_ns
from ..protocols.congestion import INITIAL_WINDOW, SEGMENT_BYTES, FarLeg, after_silence
from ..protocols.phases import Opening
from .sockets import TcpInfo, starts_over_after_idle, tcp_info

# The kernel is asked once for all requests of a moment, and what they send counts as sent together.
_MOMENT_NS = 5_000_000


class Gauge:
    """Measures one connection. `begin` and `note` where its bytes are handled; `outlook` from anywhere, without a lock.

    (What is asked without a lock changes nothing but by assigning it as a whole.)
    """

    __slots__ = (
        "_followed",
        "_initial_window",
        "_is_farther",
        "_opening_ns",
        "_round_trips_ns",
        "_starts_over",
        "_told",
        "_upload",
        "congestion_window",
        "round_trip_ns",
    )

    def __init__(self) -> None:
        self.round_trip_ns: int | None = None
        """To the server's end of HTTP: the kernel's where it sees that far."""
        self.congestion_window: int | None = None
        """In segments, for what is sent now."""
        self._opening_ns = 0
        self._round_trips_ns: Sequence[int] = ()
        self._told: tuple[int, TcpInfo | None] = (0, None)
        """When the kernel was asked, and what it said."""
        self._is_farther = False
        """Whether the kernel's connection ends at a proxy, or nobody tells of it: the rest is worked out here."""
        self._initial_window = INITIAL_WINDOW
        self._starts_over: bool | None = None
        self._upload: tuple[FarLeg, int, int] = (FarLeg(), 0, 0)
        """The far leg without what was sent last; when that was; and how many bytes had been sent before."""
        self._followed: tuple[tuple[FarLeg, int, int], int, FarLeg] | None = None
        """Of what upload; at how many bytes; and the far leg with what was sent last."""

    def opened(self, opening: Opening, round_trips_ns: Sequence[int], now_ns: int) -> None:
        """The connection stands. `round_trips_ns`: what the protocol measures, growing."""
        self._opening_ns = self.round_trip_ns = opening_round_trip_ns(opening)
        self.congestion_window = self._initial_window
        self._round_trips_ns = round_trips_ns
        leg = FarLeg()
        if opening.tls_version == "TLSv1.3":
            leg.sent(now_ns, 1, self._opening_ns)  # the end of the handshake, which nobody has acknowledged yet
        self._upload = (leg, now_ns, 0)

    def begin(self, sock: socket.socket | None, now_ns: int, sent_bytes: int) -> None:
        """A request is about to be sent, after so many bytes."""
        if now_ns - self._told[0] > _MOMENT_NS:
            self._ask(sock, now_ns)
        if self._is_farther and now_ns - self._upload[1] > _MOMENT_NS:
            self.note(now_ns, sent_bytes)

    def note(self, now_ns: int, sent_bytes: int) -> None:
        """Something is about to be sent, after so many bytes."""
        if self._is_farther:
            leg = self._leg(now_ns, sent_bytes)
            self._upload = (leg, now_ns, sent_bytes)
            self.congestion_window = leg.window_at(now_ns)

    def outlook(self, http: Any, sock: socket.socket | None, now_ns: int, sent_bytes: int) -> Outlook:
        """What a request that was sent now would find."""
        if now_ns - self._told[0] > _MOMENT_NS:
            self._ask(sock, now_ns)
        told_ns, told = self._told
        stream_window, connection_window = http.peer_windows
        if not self._is_farther and told is not None:
            window, in_flight = self.congestion_window, told.in_flight
            segment_bytes, receive_window = told.segment_bytes, told.receive_window
            rate = told.delivery_rate
        else:
            leg = self._leg(now_ns, sent_bytes)
            window, in_flight = leg.window_at(now_ns), leg.in_flight
            segment_bytes = SEGMENT_BYTES if told is None else min(SEGMENT_BYTES, told.segment_bytes)
            receive_window, rate = leg.receive_window, None
        return Outlook(
            True,  # (By place: naming them costs half as much again.)
            http.http_version,
            self.round_trip_ns,
            window,
            in_flight,
            segment_bytes,
            receive_window,
            stream_window,
            connection_window,
            now_ns - self._upload[1] if told is None else told.idle_ns + now_ns - told_ns,
            rate,
        )

    @property
    def far_round_trip_ns(self) -> int:
        """To the server's end of HTTP, as HTTP measures it: the smallest that was seen of late."""
        return min((self._opening_ns, *self._round_trips_ns))

    def _ask(self, sock: socket.socket | None, now_ns: int) -> None:
        told = None if sock is None else tcp_info(sock)
        self._told = now_ns, told
        far_ns = self.far_round_trip_ns
        if sock is None or told is None or is_farther(far_ns, told.least_round_trip_time_ns):
            self._is_farther = True
            self.round_trip_ns = far_ns
            return
        self._is_farther = False
        self.round_trip_ns = told.round_trip_time_ns
        window = told.congestion_window
        if self._starts_over is None:
            # Nothing but the handshake was sent so far: this is what the window falls back to.
            self._initial_window = max(INITIAL_WINDOW, window)
            self._starts_over = starts_over_after_idle(sock)
        if self._starts_over and not told.in_flight:
            window = after_silence(window, told.idle_ns, told.time_out_ns, self._initial_window)
        self.congestion_window = window

    def _leg(self, now_ns: int, sent_bytes: int) -> FarLeg:
        """The far leg with what was sent last, as it is now."""
        upload, round_trip_ns = self._upload, self.round_trip_ns or 0
        before, noted_ns, noted_bytes = upload
        followed = self._followed
        if followed is not None and followed[0] is upload and followed[1] == sent_bytes:
            leg = followed[2].at(now_ns)
        else:
            leg = before.copy()
            leg.sent(noted_ns, sent_bytes - noted_bytes, round_trip_ns)
            leg.look(now_ns)
        self._followed = (upload, sent_bytes, leg)
        told_ns, told = self._told
        if told is not None and told_ns - told.idle_ns > noted_ns + _MOMENT_NS:
            # Something small that nobody noted, such as an acknowledgement of HTTP/2's.
            leg = leg.copy()
            leg.sent(told_ns - told.idle_ns, 1, round_trip_ns)
            leg.look(now_ns)
        return leg
