"""One proxied connection: the client's socket and the server's, with a pipe for each direction between them."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import cast

from fastlane.emulator._connection import LINGER_AT_ONCE
from fastlane.emulator._wire_flow import Flow
from fastlane.emulator._wire_writes import Writes
from fastlane.emulator.settings import Wire

# Bytes on their way per direction before the sender is no longer read: room for a fast download, not for a leak.
_PIPE_BYTES = 4 << 20
# How often an end that is not read is asked whether its peer has reset it.
_PROBE_S = 0.1


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
