"""A TCP proxy that puts distance between a client and a server: round trips, a finite rate and TCP slow start."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self, cast

from fastlane.emulator.settings import Wire

__all__ = ["RunningWire", "Wire", "serve"]

# Linux's smallest variance term in the retransmission time-out, which is also what "idle" means: RTO = RTT + 200 ms.
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
LINGER_AT_ONCE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
# Bytes on their way per direction before the sender is no longer read: room for a fast download, not for a leak.
_PIPE_BYTES = 4 << 20
# How often an end that is not read is asked whether its peer has reset it.
_PROBE_S = 0.1
# struct tcp_info of Linux 4.6 and later: the number of segments with data that have come in.
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_DATA_SEGMENTS_IN = slice(152, 156)
_TLS_CONTENT_TYPES = range(20, 24)
_RECORD_HEADER_BYTES = 5


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
        # As Linux's tcp_cwnd_restart(): halve the window for each time-out of silence, down to the initial one.
        time_out_ns = self._round_trip_ns + _RTO_MIN_NS
        idle_ns = departs_ns - self._departed_ns - time_out_ns
        while idle_ns > 0 and self._congestion_window > _INITIAL_WINDOW_SEGMENTS:
            self._congestion_window = max(self._congestion_window >> 1, _INITIAL_WINDOW_SEGMENTS)
            idle_ns -= time_out_ns


class Writes:
    """Tells writes apart that the proxy reads together, which a client with TCP_NODELAY sends as packets of their own.

    On loopback a write is a segment, and the kernel counts segments. If as many have come as there are TLS records,
    every record was a write. What cannot be told stays one write: without TLS, and anywhere but on Linux.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._socket = transport.get_extra_info("socket") if _TCP_INFO is not None else None
        self._segments = 0
        self._head = b""  # the beginning of a record's header that a read has cut off
        self._missing = 0  # bytes of the last record that have yet to come

    def split(self, data: bytes) -> list[bytes]:
        """Cut what was read into what was written."""
        if self._socket is None:
            return [data]
        begun = bool(self._head or self._missing)
        try:
            ends = list(self._ends(data))
        except ValueError:
            self._socket = None
            return [data]
        before, self._segments = self._segments, self._count()
        # The segment of a record that had begun before was counted then.
        if len(ends) < 2 or self._segments - before < len(ends) - begun:
            return [data]
        return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _ends(self, data: bytes) -> Iterator[int]:
        """Where the records in it end; its own end is one too. Raises ValueError for what is not TLS."""
        known = self._head + data
        at = self._missing
        while at < len(known):
            if known[at] not in _TLS_CONTENT_TYPES:
                raise ValueError("not a TLS record")
            if at > len(self._head):
                yield at - len(self._head)
            if at + _RECORD_HEADER_BYTES > len(known):
                break
            at += _RECORD_HEADER_BYTES + int.from_bytes(known[at + 3 : at + _RECORD_HEADER_BYTES], "big")
        self._head = known[at:]
        self._missing = max(0, at - len(known))
        yield len(data)

    def _count(self) -> int:
        assert self._socket is not None
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _DATA_SEGMENTS_IN.stop)
        except OSError:  # the connection has just gone
            return 0
        return int.from_bytes(info[_DATA_SEGMENTS_IN], sys.byteorder) if len(info) == _DATA_SEGMENTS_IN.stop else 0


class _Signal(Enum):
    """What travels through a pipe beside bytes."""

    FINISH = "finish"
    RESET = "reset"


class Pipe:
    """One direction of a connection: what one end reads is written at the other end when the flow says it arrives."""

    def __init__(self, loop: asyncio.AbstractEventLoop, flow: Flow, source: End, sink: End) -> None:
        self._loop = loop
        self._flow = flow
        self._queue: deque[tuple[int, bytes | _Signal]] = deque()
        self._queued_bytes = 0
        self._resetting = False
        self._timer: asyncio.TimerHandle | None = None
        self.source = source
        self.sink = sink
        self.finished = False  # the end of the stream has arrived
        self.closed = False  # nothing goes in or comes out any more

    def feed(self, data: bytes) -> None:
        if self.closed or self._resetting:
            return
        start = 0
        for arrives_ns, size in self._flow.send(loop_ns(self._loop), len(data)):
            self._queue.append((arrives_ns, data[start : start + size]))
            start += size
        self._queued_bytes += len(data)
        if self._queued_bytes > _PIPE_BYTES:
            self.source.hold()
        self.arm()

    def finish(self) -> None:
        if not self.closed and not self._resetting:
            self._queue.append((self._flow.finish(loop_ns(self._loop)), _Signal.FINISH))
            self.arm()

    def reset(self) -> None:
        """Send a reset: it overtakes what has not left yet, not what is already on its way."""
        if self.closed or self._resetting:
            return
        self._resetting = True
        arrives_ns = self._flow.reset(loop_ns(self._loop))
        while self._queue and self._queue[-1][0] > arrives_ns:
            self._queue.pop()
        self._queue.append((arrives_ns, _Signal.RESET))
        self._disarm()
        self.arm()

    def discard(self) -> None:
        """Throw away what is on its way: nobody is there to take it."""
        self.closed = True
        self._queue.clear()
        self._disarm()

    def arm(self) -> None:
        """Set the timer to the next arrival, by an absolute deadline, so that late timers do not add up."""
        # A reset does not wait for a receiver that does not read.
        takes = self.sink.connected if self._resetting else self.sink.writable
        if takes and self._queue and self._timer is None:
            self._timer = self._loop.call_at(self._queue[0][0] / 1e9, self._deliver)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _deliver(self) -> None:
        self._timer = None
        now_ns = loop_ns(self._loop) + 1_000  # forgive the rounding of nanoseconds to the loop's float seconds
        arrived: list[bytes] = []
        signal: _Signal | None = None
        while self._queue and self._queue[0][0] <= now_ns and signal is None:
            item = self._queue.popleft()[1]
            if isinstance(item, _Signal):
                signal = item
            else:
                arrived.append(item)
        if arrived and self.sink.writable:
            data = arrived[0] if len(arrived) == 1 else b"".join(arrived)
            self._queued_bytes -= len(data)
            self.sink.write(data)
        if self._queued_bytes <= _PIPE_BYTES // 2:
            self.source.release()
        if signal is _Signal.RESET:
            self.discard()
            self.sink.abort()
            return
        if signal is _Signal.FINISH:
            self.finished = True
            self.sink.finish()
        self.arm()  # a reset may follow the end of the stream


def loop_ns(loop: asyncio.AbstractEventLoop) -> int:
    """The loop's own clock, which its timers go by, in nanoseconds."""
    return int(loop.time() * 1e9)


class End(asyncio.Protocol):
    """One of the two sockets of a proxied connection."""

    incoming: Pipe  # what is written here
    outgoing: Pipe  # what is read here

    def __init__(self, link: ProxiedConnection) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._write_paused = False
        self._held = False
        self._probe_timer: asyncio.TimerHandle | None = None
        self.lost = False

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self.lost

    @property
    def writable(self) -> bool:
        return self.connected and not self._write_paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writes = Writes(self._transport)
        # asyncio has set TCP_NODELAY already: small packets leave at once.
        if self._link.aborted:
            self.abort()
        self.incoming.arm()

    def data_received(self, data: bytes) -> None:
        for written in self._writes.split(data):
            self.outgoing.feed(written)

    def eof_received(self) -> bool:
        self.outgoing.finish()
        return True  # half-closed: the other direction goes on

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self.incoming.arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        self.incoming.discard()
        self.outgoing.reset()
        self._link.end_lost()

    def hold(self) -> None:
        """Stop to read: the pipe is full."""
        if self._transport is not None and not self._held:
            self._held = True
            self._transport.pause_reading()
            if self._probe_timer is None:
                self._probe_timer = self._link.loop.call_later(_PROBE_S, self._probe)

    def release(self) -> None:
        """Read on."""
        if self._transport is not None and self._held and not self.lost:
            self._held = False
            self._transport.resume_reading()

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
            self._probe_timer = self._link.loop.call_later(_PROBE_S, self._probe)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def finish(self) -> None:
        """End the stream; close both sockets when both directions have ended."""
        if self.outgoing.finished:
            self._link.close()
        else:
            assert self._transport is not None
            try:
                self._transport.write_eof()
            except OSError:  # the peer has reset the connection, and asyncio has yet to notice
                self.abort()

    def close(self) -> None:
        """Close after what was written has left."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close with a reset, not with a FIN."""
        if self._transport is None or self.lost:
            return
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            try:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_AT_ONCE)
            except OSError:  # the socket is gone already, which is what is wanted
                pass
        self._transport.abort()


class ProxiedConnection:
    """One proxied connection: the client's socket, the server's socket and the two pipes between them."""

    def __init__(
        self, wire: Wire, loop: asyncio.AbstractEventLoop, on_closed: Callable[[ProxiedConnection], None]
    ) -> None:
        self._on_closed = on_closed
        self.loop = loop
        self.aborted = False
        self._one_way_s = wire.round_trip_time_s / 2
        round_trip_ns = round(wire.round_trip_time_s * 1e9)
        # The SYN left when the client connected. The client may send after one round trip; its acknowledgement lets
        # the server's accept() return half a round trip later. Loopback hides both, so the flows hold them back.
        connected_ns = loop_ns(loop)
        self.client = End(self)
        self.server = End(self)
        self.up = Pipe(loop, Flow(wire, connected_ns + round_trip_ns), self.client, self.server)
        self.down = Pipe(loop, Flow(wire, connected_ns + round_trip_ns * 3 // 2), self.server, self.client)
        self.client.outgoing = self.server.incoming = self.up
        self.client.incoming = self.server.outgoing = self.down

    async def dial(self, host: str, port: int) -> None:
        """Connect to the server when the client's SYN gets there; a refusal gets back to the client as a reset."""
        await asyncio.sleep(self._one_way_s)
        try:
            if self.client.lost:
                raise ConnectionAbortedError("the client went away before its SYN arrived")
            await self.loop.create_connection(lambda: self.server, host, port)
        except OSError:
            self.server.lost = True
            self.up.discard()
            self.down.reset()
            self.end_lost()

    def close(self) -> None:
        """Close both sockets: both directions have ended."""
        self.up.discard()
        self.down.discard()
        self.client.close()
        self.server.close()

    def abort(self) -> None:
        """Reset both sockets now; one that asyncio has yet to hand over is reset when it comes."""
        self.aborted = True
        self.up.discard()
        self.down.discard()
        self.client.abort()
        if self.server.connected:
            self.server.abort()
        else:
            self.server.lost = True
        self.end_lost()

    def end_lost(self) -> None:
        """Leave the wire's books when both ends are gone."""
        if self.client.lost and self.server.lost:
            self._on_closed(self)


class RunningWire:
    """A wire that accepts connections; close it, or use it as an asynchronous context manager."""

    def __init__(self, wire: Wire, upstream_host: str, upstream_port: int, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._upstream = (upstream_host, upstream_port)
        self._server: asyncio.Server | None = None
        self._links: set[ProxiedConnection] = set()
        self._dials: set[asyncio.Task[None]] = set()
        self._no_link = asyncio.Event()
        self._no_link.set()
        self._closing = False
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
        self._closing = True
        if self._server is not None:
            self._server.close()
        for dial in self._dials:
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        for link in list(self._links):
            link.abort()
        await self._no_link.wait()
        if self._server is not None:
            await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _listen(self, host: str, port: int) -> None:
        # Bursts of connections must not meet a full accept queue, which would cost them a second.
        self._server = await self._loop.create_server(self._accept, host, port, backlog=1_024)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def _accept(self) -> End:
        link = ProxiedConnection(self.wire, self._loop, self._forget)
        self.connections += 1
        self._links.add(link)
        self._no_link.clear()
        if self._closing:  # a connection that was accepted in the same moment
            link.abort()
            return link.client
        dial = self._loop.create_task(link.dial(*self._upstream))
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)
        return link.client

    def _forget(self, link: ProxiedConnection) -> None:
        if link not in self._links:
            return
        self._links.remove(link)
        if not self._links:
            self._no_link.set()


async def serve(
    wire: Wire, upstream_host: str, upstream_port: int, host: str = "127.0.0.1", port: int = 0
) -> RunningWire:
    """Listen on `host` and pass every connection on to the upstream server, over the wire."""
    running = RunningWire(wire, upstream_host, upstream_port, asyncio.get_running_loop())
    await running._listen(host, port)
    return running
