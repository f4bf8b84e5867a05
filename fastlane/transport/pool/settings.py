"""What makes two clients share connections."""

from __future__ import annotations

import importlib
import os
import ssl
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, NamedTuple

Http2 = Literal["prefer", "require", "never"]

# How often a connection without traffic looks at the time, at most and at least.
LONGEST_TICK_S = 5.0
_SHORTEST_TICK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Settings of a pool of connections, which clients with equal settings share. Raises ValueError."""

    library: str = "httpx2"
    """The HTTP library whose requests and answers are spoken: "httpx2", or "httpx" for openai 2."""
    http2: Http2 = "prefer"
    idle_s: float = 300.0
    max_connections: int = 1_000
    ping_s: float | None = 45.0
    verify: bool | ssl.SSLContext = True
    certificates: tuple[str | None, str | None] = (None, None)
    """SSL_CERT_FILE and SSL_CERT_DIR, as they were when the client was made."""

    def __post_init__(self) -> None:
        if self.http2 not in ("prefer", "require", "never"):
            raise ValueError(f'http2 is "prefer", "require" or "never", not {self.http2!r}')
        if self.max_connections < 1:
            raise ValueError(f"max_connections is at least 1, not {self.max_connections!r}")
        if not self.idle_s >= 0:
            raise ValueError(f"idle_s is a number of seconds from 0, not {self.idle_s!r}")
        if self.ping_s is not None and not self.ping_s > 0:
            raise ValueError(f"ping_s is a number of seconds above 0, or None for no pings, not {self.ping_s!r}")


def tick_s(settings: PoolSettings) -> float:
    """Seconds after which a connection without traffic looks at the time."""
    wanted = min(LONGEST_TICK_S, settings.idle_s / 4, (settings.ping_s or LONGEST_TICK_S) / 4)
    return max(_SHORTEST_TICK_S, wanted)


class ServerOrigin(NamedTuple):
    """The scheme, host, port and certificate name of a server."""

    scheme: str
    host: str
    port: int
    server_hostname: str
    """The name that the certificate has to carry, and that TLS asks for."""


def certificates_now() -> tuple[str | None, str | None]:
    """Return the certificates that the environment names now."""
    return os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


def library_of(settings: PoolSettings) -> ModuleType:
    """Return the HTTP library, such as httpx2."""
    return importlib.import_module(settings.library)  # imported by openai already


def core_name(settings: PoolSettings) -> str:
    """Return the name of the library underneath it, such as httpcore2."""
    return settings.library.replace("httpx", "httpcore")
