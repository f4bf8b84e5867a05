"""A TCP proxy that puts distance between a client and a server: round trips, a finite rate and TCP slow start."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from fastlane.emulator._wire_relay import End, ProxiedConnection
from fastlane.emulator.settings import Wire

__all__ = ["RunningWire", "Wire", "serve"]


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
