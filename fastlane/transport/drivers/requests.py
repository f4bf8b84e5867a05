"""Convert the HTTP library's requests and responses to and from those of a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from threading import TIMEOUT_MAX
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from fastlane._clock import now_ns

from ..pool.settings import ServerOrigin
from ..protocols.exchange import PATIENCE, PHASES, Patience, Phases, RequestHead, TransportError

Headers = list[tuple[bytes, bytes]]

ROUTE = "fastlane.route"
"""The extension by which a request brings its `RequestTarget` along."""

_PORTS = {"http": 80, "https": 443}
_LARGEST_PORT = 65_535

# What a server may expand one answer to in memory before it counts as a decompression bomb: more than any answer of an
# API, and a ratio that only bombs reach (gzip's limit is 1,032; real text and JSON stay far below 300).
_MOST_EXPANDED_BYTES = 64 * 1024 * 1024
_MOST_EXPANSION = 300


class Timeouts(NamedTuple):
    """Seconds, None for no limit, as the request's `timeout` extension gives them."""

    connect: float | None
    read: float | None
    write: float | None
    pool: float | None


def origin_of(request: Any) -> ServerOrigin:
    """Return a request's origin. Raises TransportError, with the stock transport's class, if the URL is not HTTP."""
    url = request.url
    scheme, port = url.scheme, url.port
    if scheme not in _PORTS:
        message = (
            f"Request URL has an unsupported protocol '{scheme}://'."
            if scheme
            else "Request URL is missing an 'http://' or 'https://' protocol."
        )
        raise TransportError("UnsupportedProtocol", message)
    if not url.host:
        raise TransportError("ConnectError", "The URL names no host.")
    if port is not None and not 0 <= port <= _LARGEST_PORT:
        raise TransportError("ConnectError", f"The port must be from 0 to {_LARGEST_PORT}, not {port}.")
    host = url.raw_host.decode("ascii")
    return ServerOrigin(
        scheme, host, _PORTS[scheme] if port is None else port, request.extensions.get("sni_hostname") or host
    )


class RequestTarget(NamedTuple):
    """A request's method, URL and origin. A request may carry one made for another request with the same URL object."""

    url: Any
    method: Any
    origin: ServerOrigin
    raw_method: bytes
    scheme: bytes
    target: bytes


def target_of(request: Any) -> RequestTarget:
    """Return a request's target. Raises TransportError if its URL is not HTTP."""
    extensions, url, method = request.extensions, request.url, request.method
    known = extensions.get(ROUTE)
    named = "target" in extensions or "sni_hostname" in extensions
    if isinstance(known, RequestTarget) and known.url is url and known.method is method and not named:
        return known
    target = extensions.get("target") or url.raw_path
    return RequestTarget(url, method, origin_of(request), method.encode("ascii"), url.raw_scheme, target)


class OutgoingRequest(NamedTuple):
    """A request in the terms of a connection."""

    route: RequestTarget
    timeouts: Timeouts
    head: RequestHead
    body: bytes | None
    """None if it is produced on the way: such a request cannot be sent twice."""
    phases: Phases
    """Those that the request brought along, or new ones."""
    patience: Patience | None
    """How the request is to be waited for, where it says so."""


def read_request(request: Any, library: ModuleType) -> OutgoingRequest:
    """Read a request of the HTTP library, and stamp its start. Raises TransportError if its URL is not HTTP."""
    extensions = request.extensions
    phases, patience = extensions.get(PHASES), extensions.get(PATIENCE)
    if not isinstance(phases, Phases):
        phases = Phases()
    phases.begin(now_ns())
    route = target_of(request)
    given = extensions.get("timeout") or {}
    timeouts = Timeouts(given.get("connect"), given.get("read"), given.get("write"), given.get("pool"))
    for seconds in timeouts:
        # TypeError for what is no number: before anything is sent, and not when the first wait is over.
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"a timeout is 0 or more seconds, or None for no limit; got {seconds!r}")
        if seconds is not None and seconds > TIMEOUT_MAX:  # longer than a thread can wait, such as infinity
            timeouts = Timeouts(*[None if each is not None and each > TIMEOUT_MAX else each for each in timeouts])
    headers = request.headers.raw
    if headers and headers[0][0] == b"Host":
        authority = headers[0][1]
    else:
        authority = next((value for name, value in headers if name.lower() == b"host"), route.url.netloc)
    return OutgoingRequest(
        route,
        timeouts,
        RequestHead(
            method=route.raw_method, scheme=route.scheme, authority=authority, target=route.target, headers=headers
        ),
        b"".join(request.stream) if isinstance(request.stream, library.ByteStream) else None,
        phases,
        patience if isinstance(patience, Patience) else None,
    )


def response_of(library: ModuleType, status: int, headers: Headers, stream: Any, extensions: dict[str, Any]) -> Any:
    """Make a response of the library with its body unread."""
    response = library.Response(status, headers=headers, stream=stream, extensions=extensions)
    if "content-encoding" in response.headers:
        bound_expansion(response, library)
    return response


def body_pieces(request: Any) -> Iterator[tuple[bytes, bool]]:
    """Yield a streamed request body, each piece with whether it is the last."""
    for piece in request.stream:
        if piece:
            yield piece, False
    yield b"", True


async def async_body_pieces(request: Any) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield an asynchronous streamed request body, each piece with whether it is the last."""
    async for piece in request.stream:
        if piece:
            yield piece, False
    yield b"", True


def bound_expansion(response: Any, library: ModuleType) -> None:
    """Limit how far a compressed response may expand: reading past the limit raises DecodingError."""
    # Where a library of another version looks for its decoder elsewhere, it goes on as it would without this.
    if hasattr(response, "_get_content_decoder"):
        response._decoder = _BoundedDecoder(response._get_content_decoder(), library)


class _BoundedDecoder:
    """The library's decoder, counted. Legacy httpx gives bytes for each piece, httpx2 several."""

    def __init__(self, decoder: Any, library: ModuleType) -> None:
        self._decoder = decoder
        self._library = library
        self._taken = 0
        self._given = 0

    def decode(self, data: bytes) -> Any:
        self._taken += len(data)
        decoded = self._decoder.decode(data)
        if isinstance(decoded, bytes):
            self._count(decoded)
            return decoded
        return self._counted(decoded)

    def flush(self) -> Any:
        return self._decoder.flush()

    def _counted(self, decoded: Iterator[bytes]) -> Iterator[bytes]:
        for piece in decoded:
            self._count(piece)
            yield piece

    def _count(self, piece: bytes) -> None:
        self._given += len(piece)
        if self._given > _MOST_EXPANDED_BYTES and self._given > self._taken * _MOST_EXPANSION:
            raise self._library.DecodingError(
                f"The answer's {self._taken:,} compressed bytes have grown to more than {self._given:,}: it was broken "
                "off as a decompression bomb."
            )


def is_library_method(owner: type[Any], name: str) -> bool:
    """Return whether a method of a class of the HTTP library is the library's own code."""
    return is_library_function(owner, name, owner.__dict__.get(name))


def is_library_function(owner: type[Any], name: str, found: Any) -> bool:
    """Return whether a function is the library's own code for a method of a class."""
    # A wrapper takes over name and module of what it wraps; whose code it is, its globals say.
    return (
        type(found) is FunctionType
        and found.__qualname__ == f"{owner.__name__}.{name}"
        and str(found.__globals__.get("__name__")).partition(".")[0] == owner.__module__.partition(".")[0]
    )
