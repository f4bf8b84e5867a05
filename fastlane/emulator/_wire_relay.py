"""The plumbing of one proxied connection: two sockets and, between them, two pipes that deliver when the model says."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import cast

from fastlane.emulator._wire_flow import Flow
from fastlane.emulator._wire_settings import Wire

# Bytes on their way per direction before the sender is no longer read: room for a fast download, not for a leak.
_PIPE_BYTES = 1 << 20
# Winsock's struct linger has two shorts, everybody else's two ints.
_LINGER_AT_ONCE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class _Signal(Enum):
    """What travels through a pipe beside bytes."""

    FINISH = "finish"
    RESET = "reset"


class Pipe:
    """One direction of a connection: what one end reads is written at the other end when the flow says it arrives."""

    __slots__ = (
        "_flow",
        "_loop",
        "_queue",
        "_queued_bytes",
        "_resetting",
        "_timer",
        "delivered_bytes",
        "finished",
        "sink",
        "source",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, flow: Flow, source: End, sink: End) -> None:
        self._loop = loop
        self._flow = flow
        self._queue: deque[tuple[int, bytes | _Signal]] = deque()
        self._queued_bytes = 0
        self._resetting = False
        self._timer: asyncio.TimerHandle | None = None
        self.source = source
        self.sink = sink
        self.delivered_bytes = 0
        self.finished = False  # nothing more will come out

    def feed(self, data: bytes) -> None:
        if self.finished or self._resetting:
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
        if not self.finished and not self._resetting:
            self._queue.append((self._flow.finish(loop_ns(self._loop)), _Signal.FINISH))
            self.arm()

    def reset(self) -> None:
        """Send a reset: it overtakes what has not left yet, not what is already on its way."""
        if self.finished or self._resetting:
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
        self.finished = True
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
            self.delivered_bytes += len(data)
            self.sink.write(data)
        if self._queued_bytes <= _PIPE_BYTES // 2:
            self.source.release()
        if signal is None:
            self.arm()
        else:
            self.discard()
            self.sink.end(reset=signal is _Signal.RESET)


class End(asyncio.Protocol):
    """One of the two sockets of a proxied connection."""

    __slots__ = ("_held", "_link", "_transport", "_write_paused", "incoming", "lost", "outgoing")

    incoming: Pipe  # what is written here
    outgoing: Pipe  # what is read here

    def __init__(self, link: Link) -> None:
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._write_paused = False
        self._held = False
        self.lost = False

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self.lost

    @property
    def writable(self) -> bool:
        return self.connected and not self._write_paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.incoming.arm()

    def data_received(self, data: bytes) -> None:
        self.outgoing.feed(data)

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
        self.incoming.discard()
        self.outgoing.reset()
        self._link.end_lost()

    def hold(self) -> None:
        """Stop to read: the pipe is full."""
        if self._transport is not None and not self._held:
            self._held = True
            self._transport.pause_reading()

    def release(self) -> None:
        if self._transport is not None and self._held and not self.lost:
            self._held = False
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def end(self, *, reset: bool) -> None:
        """Pass on what the other side did: end the stream, or reset the connection."""
        if self._transport is None or self.lost:
            return
        if reset:
            self.abort()
        elif self.outgoing.finished:
            self._link.close()
        else:
            self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close with a reset, not with a FIN."""
        if self._transport is None or self.lost:
            return
        connection = self._transport.get_extra_info("socket")
        if connection is not None:
            try:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_AT_ONCE)
            except OSError:  # the socket is gone already, which is what is wanted
                pass
        self._transport.abort()


class Link:
    """One proxied connection: the client's socket, the server's socket and the two pipes between them."""

    def __init__(self, wire: Wire, loop: asyncio.AbstractEventLoop, on_closed: Callable[[Link], None]) -> None:
        self._on_closed = on_closed
        self._loop = loop
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
            await self._loop.create_connection(lambda: self.server, host, port)
        except OSError:
            self.server.lost = True
            self.up.discard()
            self.down.reset()
            self.end_lost()

    def close(self) -> None:
        self.client.close()
        self.server.close()

    def abort(self) -> None:
        self.up.discard()
        self.down.discard()
        self.client.abort()
        if self.server.connected:
            self.server.abort()
        else:
            self.server.lost = True

    def end_lost(self) -> None:
        """Leave the wire's books when both ends are gone."""
        if self.client.lost and self.server.lost:
            self._on_closed(self)


def loop_ns(loop: asyncio.AbstractEventLoop) -> int:
    """The loop's own clock, which its timers go by, in nanoseconds."""
    return int(loop.time() * 1e9)
