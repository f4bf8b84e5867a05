"""One request and the way its answer leaves, the same for HTTP/2 and HTTP/1.1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fastlane.emulator._log import OpenRecord

Headers = Sequence[tuple[str, str]]
Stamp = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request whose body has come in whole; header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    upload: Sequence[bytes] = ()
    """An upload's body in the pieces in which it came, instead of `body`: to join them would hold all others up."""


class ServerExchange(Protocol):
    """What the provider needs of a connection to answer one request."""

    @property
    def record(self) -> OpenRecord:
        """The request's open record."""

    @property
    def writable(self) -> bool:
        """Whether what was sent so far has left: no closed window, no full socket."""

    async def drained(self) -> None:
        """Wait until it is writable. Raises ConnectionError if the client went away."""

    def send_headers(self, status: int, headers: Headers) -> None:
        """Send the status and the headers."""

    def send(self, data: bytes, stamp: Stamp | None = None) -> None:
        """Send some of the body; `stamp` gets the time at which it was handed to the socket."""

    def end(self) -> None:
        """End the answer."""

    def reset(self, code: int) -> None:
        """Reset the stream; on HTTP/1.1 abort the connection."""

    def abort(self) -> None:
        """Break the connection off, as a crashed peer would."""

    def go_away(self, manner: Literal["graceful", "hard"], last: int | None) -> None:
        """Announce that no stream after `last` (default: this one) is served."""

    def close_when_idle(self, seconds: float, *, silently: bool) -> None:
        """Close the connection once it has been idle for so long; silently: without a GOAWAY on HTTP/2."""
