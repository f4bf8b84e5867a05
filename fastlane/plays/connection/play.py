"""02 Shorten the wire: one pooled set of connections for the whole process, kept open between calls."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PlainValidator

from fastlane.compat.proxies import proxy_setting
from fastlane.engine.play import Play, Stage
from fastlane.engine.settings import settings
from fastlane.transport import ProxyServer

from .section import ConnectionSection


@settings
class Connection(Play):
    """Send calls over connections that all clients with equal settings share and that stay open between calls.

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
    idle_s: Annotated[float, Field(ge=0, le=86_400)] = 300.0
    """Seconds for which a connection without a call is kept before it is closed."""
    max_connections: Annotated[int, Field(ge=1)] = 1_000
    """Connections open at once in one pool, to all providers together: the stock client's own limit. Synchronous calls,
    and those of each event loop, have a pool of their own."""
    # Below the idle timeouts of common load balancers (60 s), and far below what flood limits of HTTP servers count.
    # Only gRPC's own servers want fewer without an open stream (more than two within two hours are too many,
    # https://github.com/grpc/grpc/blob/master/doc/keepalive.md); they say so (ENHANCE_YOUR_CALM), which ends the pings.
    ping_s: Annotated[float, Field(ge=1, le=86_400)] | None = 45.0
    """Seconds between two HTTP/2 pings on a connection without a call; None for none."""
    proxy: Annotated[str | ProxyServer | Literal[False] | None, PlainValidator(proxy_setting)] = None
    """The URL of a proxy for all calls (`http://`, `https://`, `socks5://` or `socks5h://`), with its username and
    password if it needs them; False: no proxy. None: what the environment says for each host. It is shown without its
    username and password."""

    @property
    def needs_transport(self) -> bool:
        """True: the play is the settings of that transport."""
        return True
