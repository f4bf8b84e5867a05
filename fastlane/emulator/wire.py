"""A TCP proxy that puts distance between a client and a server: round trips, a finite rate and TCP slow start."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections import deque
from typing import NamedTuple, Self, cast

from fastlane.emulator.settings import Wire

__all__ = ["RunningWire", "Wire", "serve"]

# Linux's smallest variance term in the retransmission timeout, which is also what "idle" means: RTO = RTT + 200 ms.
_RTO_MIN_NS = 200_000_000
# IPv4 and TCP headers with timestamps: they take time on the link too.
_HEADER_BYTES = 52
# An Ethernet MTU of 1500 less those headers.
_SEGMENT_BYTES = 1_448
# RFC 6928; what Linux, macOS and Windows use.
_INITIAL_WINDOW_SEGMENTS = 10
# A Linux receiver offers 64 KiB at first (tcp_rmem's default, halved) and at most half of tcp_rmem's usual maximum.
# Once bulk data comes (more than two slow-start rounds) and one more round trip has been measured, it offers two bytes
# more for each byte that arrived (tcp_rcv_space_adjust(), tcp_grow_window()).
_RECEIVE_WINDOW_BYTES = 65_536
_RECEIVE_WINDOW_MAX_BYTES = 3 << 20
_BULK_SEGMENTS = 30
# Winsock's struct linger has two shorts, everybody else's two ints.
_LINGER_AT_ONCE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
# Bytes on their way per direction before the sender is no longer read: room for a fast download, not for a leak.
_MOST_BYTES_UNDER_WAY = 4 << 20
# How often an end that is not read is asked whether its peer has reset it.
_PROBE_S = 0.1


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
        self._congestion_window = _INITIAL_WINDOW_SEGMENTS
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
        while size:
            first_bytes = min(size, _SEGMENT_BYTES)
            while self._segments_that_fit(first_bytes) < 1:
                departs_ns = max(departs_ns, self._flight[0].acknowledged_ns)
                self._acknowledge(departs_ns)
            segments = min(-(-size // _SEGMENT_BYTES), self._segments_that_fit(first_bytes))
            sent = min(size, segments * _SEGMENT_BYTES)
            size -= sent
            self._tail_room = segments * _SEGMENT_BYTES - sent
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
            bulk_bytes = max(0, self._received_bytes - _BULK_SEGMENTS * _SEGMENT_BYTES)
            offered = min(_RECEIVE_WINDOW_BYTES + 2 * bulk_bytes, _RECEIVE_WINDOW_MAX_BYTES) - self._flight_bytes
            room = min(room, offered // _SEGMENT_BYTES or int(offered >= first_segment_bytes))
        return room if self._wire.rate_bits_per_s is None else min(room, 1)

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
        if self._flight or not self._segments_sent:
            return
        # As Linux's tcp_cwnd_restart(): halve the window for each timeout of silence, down to the initial one.
        time_out_ns = self._round_trip_ns + _RTO_MIN_NS
        idle_ns = departs_ns - self._departed_ns - time_out_ns
        while idle_ns > 0 and self._congestion_window > _INITIAL_WINDOW_SEGMENTS:
            self._congestion_window = max(self._congestion_window >> 1, _INITIAL_WINDOW_SEGMENTS)
            idle_ns -= time_out_ns


class End(asyncio.Protocol):
    """One of the two sockets of a proxied connection. What is read here is written at the peer when the flow says."""

    peer: End

    def __init__(self, link: ProxiedConnection, flow: Flow) -> None:
        self._link = link
        self._loop = link.loop
        self._flow = flow
        self._queue: deque[tuple[int, bytes | None]] = deque()  # by arrival; b"" is the end of the stream, None a reset
        self._queued_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._resetting = False
        self._transport: asyncio.Transport | None = None
        self._write_paused = False
        self._held = False
        self._probe_timer: asyncio.TimerHandle | None = None
        self._finished = False  # the end of the stream has arrived at the peer
        self._closed = False  # nothing goes to the peer any more
        self.lost = False

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self.lost

    def _now_ns(self) -> int:
        """Return the time of the loop's own clock, which its timers go by."""
        return int(self._loop.time() * 1e9)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio has set TCP_NODELAY already: small packets leave at once.
        self._transport = cast(asyncio.Transport, transport)
        if self._link.aborted:
            self.abort()
        self.peer.arm()

    def data_received(self, data: bytes) -> None:
        if self._closed or self._resetting:
            return
        start = 0
        for arrives_ns, size in self._flow.send(self._now_ns(), len(data)):
            self._queue.append((arrives_ns, data[start : start + size]))
            start += size
        self._queued_bytes += len(data)
        if self._queued_bytes > _MOST_BYTES_UNDER_WAY and self._transport is not None and not self._held:
            self._held = True
            self._transport.pause_reading()
            if self._probe_timer is None:
                self._probe_timer = self._loop.call_later(_PROBE_S, self._probe)
        self.arm()

    def eof_received(self) -> bool:
        if not self._closed and not self._resetting:
            self._queue.append((self._flow.finish(self._now_ns()), b""))
            self.arm()
        return True  # half-closed: the other direction goes on

    def reset(self) -> None:
        """Send a reset: it overtakes what has not left yet, not what is already on its way."""
        if self._closed or self._resetting:
            return
        self._resetting = True
        arrives_ns = self._flow.reset(self._now_ns())
        while self._queue and self._queue[-1][0] > arrives_ns:
            self._queue.pop()
        self._queue.append((arrives_ns, None))
        self._disarm()
        self.arm()

    def discard(self) -> None:
        """Drop what is on its way."""
        self._closed = True
        self._queue.clear()
        self._disarm()

    def arm(self) -> None:
        """Set the timer to the next arrival, by an absolute deadline, so that late timers do not add up."""
        # A reset does not wait for a receiver that does not read.
        takes = self.peer.connected and (self._resetting or not self.peer._write_paused)
        if takes and self._queue and self._timer is None:
            self._timer = self._loop.call_at(self._queue[0][0] / 1e9, self._deliver)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _deliver(self) -> None:
        self._timer = None
        now_ns = self._now_ns() + 1_000  # forgive the rounding of nanoseconds to the loop's float seconds
        arrived: list[bytes] = []
        while self._queue and self._queue[0][0] <= now_ns and self._queue[0][1]:
            arrived.append(self._queue.popleft()[1] or b"")
        if arrived:
            data = b"".join(arrived)
            self._queued_bytes -= len(data)
            if self.peer._transport is not None and self.peer.connected and not self.peer._write_paused:
                self.peer._transport.write(data)
        if self._held and self._queued_bytes <= _MOST_BYTES_UNDER_WAY // 2 and self._transport and not self.lost:
            self._held = False
            self._transport.resume_reading()
        if self._queue and self._queue[0][0] <= now_ns:
            if self._queue.popleft()[1] is None:
                self.discard()
                self.peer.abort()
                return
            self._finished = True
            self._finish_peer()
        self.arm()

    def _finish_peer(self) -> None:
        """End the stream to the peer; close both sockets when both directions have ended."""
        if self.peer._finished:
            for end in (self, self.peer):
                end.discard()
                if end._transport is not None:
                    end._transport.close()  # after what was written has left
        elif self.peer._transport is not None:
            try:
                self.peer._transport.write_eof()
            except OSError:  # the peer has reset the connection, and asyncio has yet to notice
                self.peer.abort()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self.peer.arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.peer.discard()
        self.reset()
        self._link.end_lost()

    def _probe(self) -> None:
        # asyncio does not watch a socket that it does not read, so that a reset would go unnoticed until the receiver
        # reads on, which may be never.
        self._probe_timer = None
        if self._transport is None or not self._held or self.lost:
            return
        connection = self._transport.get_extra_info("socket")
        if connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
        else:
            self._probe_timer = self._loop.call_later(_PROBE_S, self._probe)

    def abort(self) -> None:
        """Close with a TCP reset."""
        if self._transport is not None and not self.lost:
            reset_when_closed(self._transport)
            self._transport.abort()


def reset_when_closed(transport: asyncio.Transport) -> None:
    """Have the kernel close this connection with a reset, not with a FIN."""
    # A transport that is being closed may have lost its socket already.
    connection = None if transport.is_closing() else transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_AT_ONCE)


class ProxiedConnection:
    """One proxied connection: the client's socket and the server's."""

    def __init__(self, running: RunningWire) -> None:
        self._running = running
        self.loop = asyncio.get_running_loop()
        self.aborted = False
        round_trip_ns = round(running.wire.round_trip_time_s * 1e9)
        # The SYN left when the client connected. The client may send after one round trip; its acknowledgement lets
        # the server's accept() return half a round trip later. Loopback hides both, so the flows hold them back.
        connected_ns = int(self.loop.time() * 1e9)
        self.client = End(self, Flow(running.wire, connected_ns + round_trip_ns))
        self.server = End(self, Flow(running.wire, connected_ns + round_trip_ns * 3 // 2))
        self.client.peer, self.server.peer = self.server, self.client
        self.dialing = self.loop.create_task(self._dial())

    async def _dial(self) -> None:
        """Connect to the server when the client's SYN gets there; a refusal gets back to the client as a reset."""
        await asyncio.sleep(self._running.wire.round_trip_time_s / 2)
        try:
            if self.client.lost:
                raise ConnectionAbortedError("the client went away before its SYN arrived")
            await self.loop.create_connection(lambda: self.server, *self._running.upstream)
        except OSError:
            self.server.lost = True
            self.client.discard()
            self.server.reset()
            self.end_lost()

    def abort(self) -> None:
        """Reset both sockets now; one that asyncio has yet to hand over is reset when it comes."""
        self.aborted = True
        self.dialing.cancel()
        for end in (self.client, self.server):
            end.discard()
            end.abort()
        self.server.lost = self.server.lost or not self.server.connected
        self.end_lost()

    def end_lost(self) -> None:
        """Leave the wire when both ends are gone."""
        if self.client.lost and self.server.lost:
            self._running.forget(self)


class RunningWire:
    """A wire that accepts connections; close it, or use it as an asynchronous context manager."""

    def __init__(self, wire: Wire, upstream_host: str, upstream_port: int) -> None:
        self.upstream = (upstream_host, upstream_port)
        self._server: asyncio.Server | None = None
        self._links: set[ProxiedConnection] = set()
        self._no_link = asyncio.Event()
        self._no_link.set()
        self.wire = wire
        self.port = 0
        """The port that stands for the far server."""
        self.connections = 0
        """Connections accepted so far."""

    @property
    def open_connections(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    async def close(self) -> None:
        """Stop to accept, reset what is open, and return when no socket and no task is left."""
        if self._server is not None:
            self._server.close()
        links = list(self._links)
        for link in links:
            link.abort()
        await asyncio.gather(*(link.dialing for link in links), return_exceptions=True)
        await self._no_link.wait()
        if self._server is not None:
            await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _listen(self, host: str, port: int) -> Self:
        # Bursts of connections must not meet a full accept queue, which would cost them a second.
        self._server = await asyncio.get_running_loop().create_server(self._accept, host, port, backlog=1_024)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def _accept(self) -> End:
        link = ProxiedConnection(self)
        self.connections += 1
        self._links.add(link)
        self._no_link.clear()
        if self._server is not None and not self._server.is_serving():  # accepted as the wire was closed
            link.abort()
        return link.client

    def forget(self, link: ProxiedConnection) -> None:
        """Drop a connection that is gone."""
        self._links.discard(link)
        if not self._links:
            self._no_link.set()


async def serve(
    wire: Wire, upstream_host: str, upstream_port: int, host: str = "127.0.0.1", port: int = 0
) -> RunningWire:
    """Listen on `host` and pass every connection on to the upstream server, over the wire."""
    return await RunningWire(wire, upstream_host, upstream_port)._listen(host, port)
