"""Our connections as transports of httpx2, for any client of it."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Self

import httpx2

from ..pool.outlook import Outlook
from ..pool.settings import Http2, PoolSettings, certificates_now
from .engines import AsyncEngine, SyncEngine


def _settings(
    http2: Http2, max_connections: int, idle_s: float, ping_s: float | None, verify: bool | ssl.SSLContext
) -> PoolSettings:
    return PoolSettings(
        http2=http2,
        max_connections=max_connections,
        idle_s=float(idle_s),
        ping_s=None if ping_s is None else float(ping_s),
        verify=verify,
        certificates=certificates_now(),
    )


class Transport(httpx2.BaseTransport):
    """A pool of connections of its own: `httpx2.Client(transport=Transport())`.

    `http2`: "prefer" (HTTP/2 where the server speaks it), "require" or "never". `max_connections`: open at once.
    `idle_s`: seconds for which a connection without a request is kept. `ping_s`: seconds between pings on a connection
    without a request; None for none. `verify`: False for no verification at all, or the application's own context.
    """

    def __init__(
        self,
        *,
        http2: Http2 = "prefer",
        max_connections: int = 1_000,
        idle_s: float = 300.0,
        ping_s: float | None = 45.0,
        verify: bool | ssl.SSLContext = True,
    ) -> None:
        self._engine = SyncEngine(_settings(http2, max_connections, idle_s, ping_s, verify))
        self._engine.context()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises httpx2's errors."""
        response: httpx2.Response = self._engine.handle(request)
        return response

    def warm(self, request: httpx2.Request) -> bool:
        """Open a connection that such a request could be sent on, and keep one open; the request is not sent.

        True once the connection stands. Raises httpx2's errors.
        """
        self._engine.warm(request)
        return True

    def outlook(self, request: httpx2.Request) -> Outlook:
        """What is known of the connection that such a request would be sent on now.

        Opens nothing, waits for nothing, and raises nothing.
        """
        return self._engine.outlook(request)

    def close(self) -> None:
        """Close every connection; the transport can be used again and opens new ones."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """A pool of connections of its own on each event loop: `httpx2.AsyncClient(transport=AsyncTransport())`.

    For asyncio; settings as for `Transport`.
    """

    def __init__(
        self,
        *,
        http2: Http2 = "prefer",
        max_connections: int = 1_000,
        idle_s: float = 300.0,
        ping_s: float | None = 45.0,
        verify: bool | ssl.SSLContext = True,
    ) -> None:
        self._engine = AsyncEngine(_settings(http2, max_connections, idle_s, ping_s, verify))
        self._engine.context()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises httpx2's errors."""
        response: httpx2.Response = await self._engine.handle(request)
        return response

    async def warm(self, request: httpx2.Request) -> bool:
        """Open a connection on this event loop that such a request could be sent on; see `Transport.warm`."""
        await self._engine.warm(request)
        return True

    def outlook(self, request: httpx2.Request) -> Outlook:
        """What is known of the connection that such a request would be sent on now, on this event loop.

        Opens nothing, waits for nothing, and raises nothing.
        """
        return self._engine.outlook(request)

    async def aclose(self) -> None:
        """Close every connection of this event loop; the transport can be used again and opens new ones."""
        await self._engine.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()
