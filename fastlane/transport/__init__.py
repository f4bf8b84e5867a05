"""Connections: HTTP/2 and HTTP/1.1 as transports of httpx2, and the pools that clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .pool.settings import (
    PoolSettings as PoolSettings,
    ProxyRule as ProxyRule,
    ProxyServer as ProxyServer,
    certificates_now as certificates_now,
    proxy_server as proxy_server,
)
from .protocols.exchange import (
    PATIENCE as PATIENCE,
    PHASES as PHASES,
    Opening as Opening,
    Patience as Patience,
    Phases as Phases,
)

if TYPE_CHECKING:
    from .drivers.transports import AsyncTransport as AsyncTransport, Transport as Transport

__all__ = [
    "PATIENCE",
    "PHASES",
    "AsyncTransport",
    "Opening",
    "Patience",
    "Phases",
    "PoolSettings",
    "Transport",
]


def __getattr__(name: str) -> Any:
    # The first client loads the protocols' libraries, not `import fastlane`.
    if name in ("AsyncTransport", "Transport"):
        from .drivers import transports as _transports

        return getattr(_transports, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
