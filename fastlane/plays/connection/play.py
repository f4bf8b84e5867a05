"""02 Shorten the wire: one pooled set of connections for the whole process, kept open between calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fastlane.engine.play import Play, Stage
from fastlane.errors import ConfigurationError

from .section import ConnectionSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(Play):
    """Send calls over connections that all clients with equal settings share and that stay open while nobody calls.

    A client made with its own `http_client` keeps that client, and this play does nothing there.
    Raises ConfigurationError for a setting that cannot work.
    """

    stage: ClassVar[Stage] = Stage.ENCODE
    section = ConnectionSection

    http2: Literal["prefer", "require", "never"] = "prefer"
    """"prefer": HTTP/2 where the server speaks it, else HTTP/1.1; "require": HTTP/2 or an error; "never": HTTP/1.1.
    The record of a call says what it got."""
    # Load balancers forget idle connections silently (AWS NAT gateways and network load balancers after 350 s), so
    # five minutes is what can be promised; the stock client gives up after 5 s.
    idle_s: float = 300.0
    """Seconds for which a connection without a call is kept before it is closed."""
    max_connections: int = 1_000
    """Connections open at once in one pool, to all providers together: the stock client's own limit. Synchronous calls,
    and those of each event loop, have a pool of their own."""
    preconnect: bool = False
    """Whether a client connects as soon as it is made, in the background, and keeps a connection open through idle
    time: one that the server closes is replaced. An asynchronous client has to be made on the running event loop for
    that; elsewhere `await client.warm()` does the same."""
    # Below the idle time-outs of common load balancers (60 s), and far below what flood limits of HTTP servers count.
    # Only gRPC's own servers want fewer without an open stream (more than two within two hours are too many,
    # https://github.com/grpc/grpc/blob/master/doc/keepalive.md); they say so (ENHANCE_YOUR_CALM), which ends the pings.
    ping_s: float | None = 45.0
    """Seconds between two HTTP/2 pings on a connection without a call; None for none."""

    @property
    def needs_transport(self) -> bool:
        """True: the play is the settings of that transport."""
        return True

    def __post_init__(self) -> None:
        if self.http2 not in ("prefer", "require", "never"):
            raise ConfigurationError(f'Connection(http2=...) takes "prefer", "require" or "never", got {self.http2!r}')
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
        if not isinstance(self.preconnect, bool):
            raise ConfigurationError(f"Connection(preconnect=...) takes True or False, got {self.preconnect!r}")
        if self.ping_s is not None and (
            not isinstance(self.ping_s, int | float) or isinstance(self.ping_s, bool) or not 1 <= self.ping_s <= 86_400
        ):
            raise ConfigurationError(
                f"Connection(ping_s=...) takes seconds from 1 to 86,400, or None for no pings, got {self.ping_s!r}"
            )
