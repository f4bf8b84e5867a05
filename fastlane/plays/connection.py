"""02 Shorten the wire: one pooled set of connections for the whole process, kept open between calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .._exceptions import ConfigurationError
from ._base import Play, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(Play):
    """Send calls over connections that all clients with equal settings share and that stay open while nobody calls.

    A client made with its own `http_client` keeps that client, and this play does nothing there.
    """

    stage: ClassVar[Stage] = Stage.ENCODE

    http2: Literal["prefer", "never"] = "prefer"
    """Whether HTTP/2 is offered when a connection is opened; a server that does not speak it gets HTTP/1.1."""
    # Load balancers forget idle connections silently (AWS NAT gateways and network load balancers after 350 s), so
    # five minutes is what can be promised; the stock client gives up after 5 s.
    idle_s: float = 300.0
    """Seconds for which a connection without a call is kept; one that is older is closed when the pool is next used."""
    max_connections: int = 1_000
    """Connections open at once in one pool, to all providers together: the stock client's own limit. Synchronous calls,
    and those of each event loop, have a pool of their own."""

    def __post_init__(self) -> None:
        if self.http2 not in ("prefer", "never"):
            raise ConfigurationError(f'Connection(http2=...) takes "prefer" or "never", got {self.http2!r}')
        if not isinstance(self.idle_s, int | float) or isinstance(self.idle_s, bool) or not 0 <= self.idle_s <= 86_400:
            raise ConfigurationError(f"Connection(idle_s=...) takes seconds from 0 to 86,400, got {self.idle_s!r}")
        if (
            not isinstance(self.max_connections, int)
            or isinstance(self.max_connections, bool)
            or self.max_connections < 1
        ):
            raise ConfigurationError(
                f"Connection(max_connections=...) takes a whole number of at least 1, got {self.max_connections!r}"
            )
