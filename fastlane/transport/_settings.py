"""What makes two clients share connections."""

from __future__ import annotations

import importlib
import os
import ssl
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, NamedTuple

Http2 = Literal["prefer", "require", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """The settings of one pool of connections: clients with equal settings share it."""

    library: str = "httpx2"
    """The HTTP library whose requests and answers are spoken: "httpx2", or "httpx" for openai 2."""
    http2: Http2 = "prefer"
    idle_s: float = 300.0
    max_connections: int = 1_000
    ping_s: float | None = 45.0
    verify: bool | ssl.SSLContext = True
    certificates: tuple[str | None, str | None] = (None, None)
    """SSL_CERT_FILE and SSL_CERT_DIR, as they were when the client was made."""


class Origin(NamedTuple):
    """Where connections lead to."""

    scheme: str
    host: str
    port: int
    server_hostname: str
    """The name that the certificate has to carry, and that TLS asks for."""


def certificates_now() -> tuple[str | None, str | None]:
    """The certificates that the environment names at this moment."""
    return os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


def library_of(settings: PoolSettings) -> ModuleType:
    """The HTTP library, such as httpx2."""
    return importlib.import_module(settings.library)  # imported by openai already


def core_of(settings: PoolSettings) -> ModuleType:
    """The library underneath it, such as httpcore2."""
    return importlib.import_module(settings.library.replace("httpx", "httpcore"))
