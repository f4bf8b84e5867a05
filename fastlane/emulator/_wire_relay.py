"""One proxied connection: the client's socket and the server's, with a pipe for each direction between them."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from typing import cast

from fastlane.emulator._wire_flow import Flow
from fastlane.emulator._wire_pipe import Pipe, loop_ns
from fastlane.emulator._wire_writes import Writes
from fastlane.emulator.settings import Wire

# How often an end that is not read is asked whether its peer has reset it.
_PROBE_S = 0.1
# Winsock's struct linger has two shorts, everybody else's two ints.
_LINGER_AT_ONCE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


class End(asyncio.Protocol):
    """One of the two sockets of a proxied connection."""

    __slots__ = (
        "_held",
        "_link",
        "_probe_timer",
        "_transport",
        "_write_paused",
        "_writes",
        "incoming",
        "lost",
        "outgoing",
    )

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
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_AT_ONCE)
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
