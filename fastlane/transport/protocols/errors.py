"""What can go wrong on a connection, said in the HTTP library's own error types where it reaches the application."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal

ErrorName = Literal[
    "ConnectError",
    "ConnectTimeout",
    "LocalProtocolError",
    "PoolTimeout",
    "ReadError",
    "ReadTimeout",
    "RemoteProtocolError",
    "UnsupportedProtocol",
    "WriteError",
    "WriteTimeout",
]
"""Classes that httpx2 and legacy httpx have under the same names."""


class TransportError(Exception):
    """A failure inside the transport. Its text may name hosts, ports and protocol terms, and nothing that was sent."""

    def __init__(self, name: ErrorName, message: str, *, unprocessed: bool = False) -> None:
        super().__init__(message)
        self.name: ErrorName = name
        self.message = message
        self.unprocessed = unprocessed
        """The server has not begun to process the request, and said so: it may be sent again (RFC 9113, 8.7)."""

    def again(self) -> TransportError:
        """The same failure for one more exchange: an exception that is raised twice mixes up two tracebacks."""
        made = TransportError(self.name, self.message, unprocessed=self.unprocessed)
        made.__cause__ = self.__cause__  # such as the `ssl.SSLCertVerificationError` that applications look for
        return made


def as_library_error(error: TransportError, library: ModuleType, request: Any) -> Exception:
    """The error as the HTTP library (httpx2, or legacy httpx) would raise it for this request."""
    made: Exception = getattr(library, error.name)(error.message, request=request)
    return made
