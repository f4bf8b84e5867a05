"""The HTTP library's requests and answers, in the terms of a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from ._errors import TransportError
from ._exchange import RequestHead
from ._phases import PHASES, Phases
from ._settings import Origin

_PORTS = {"http": 80, "https": 443}

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


def timeouts_of(request: Any) -> Timeouts:
    """The time-outs of a request."""
    given = request.extensions.get("timeout") or {}
    return Timeouts(given.get("connect"), given.get("read"), given.get("write"), given.get("pool"))


def phases_of(request: Any) -> Phases:
    """The stamps that the request brought along, or new ones."""
    phases = request.extensions.get(PHASES)
    return phases if isinstance(phases, Phases) else Phases()


def origin_of(request: Any) -> Origin:
    """Where the request goes. Raises TransportError where that is no HTTP address."""
    url = request.url
    scheme = url.scheme
    if scheme not in _PORTS or not url.host:
        given = f"{scheme}://" if scheme else "no scheme"
        raise TransportError(
            "UnsupportedProtocol",
            f"A request needs a URL that starts with https:// or http:// and names a host ({given}).",
        )
    host = url.raw_host.decode("ascii")
    return Origin(
        scheme, host, _PORTS[scheme] if url.port is None else url.port, request.extensions.get("sni_hostname") or host
    )


def request_head(request: Any) -> RequestHead:
    """The head of a request."""
    url, headers = request.url, request.headers.raw
    authority = next((value for name, value in headers if name.lower() == b"host"), url.netloc)
    return RequestHead(
        method=request.method.encode("ascii"),
        scheme=url.raw_scheme,
        authority=authority,
        target=request.extensions.get("target") or url.raw_path,
        headers=headers,
    )


def whole_body(request: Any, library: ModuleType) -> bytes | None:
    """The body of a request where it is there as bytes, and can be sent twice; None where it is produced on the way."""
    stream = request.stream
    if isinstance(stream, library.ByteStream):
        return b"".join(stream)
    return None


def _content_length(request: Any) -> int | None:
    given = request.headers.get("content-length", "")
    return int(given) if given.isdecimal() else None


def _too_long() -> TransportError:
    return TransportError("LocalProtocolError", "The request's body is longer than its Content-Length.")


def pieces(request: Any) -> Iterator[tuple[bytes, bool]]:
    """The body of a request that is produced on the way, each piece with whether it is the last."""
    left = _content_length(request)
    for piece in request.stream:
        if piece:
            if left is not None:
                left -= len(piece)
                if left < 0:
                    raise _too_long()
            yield piece, False
    yield b"", True


async def async_pieces(request: Any) -> AsyncIterator[tuple[bytes, bool]]:
    """The body of an asynchronous request that is produced on the way."""
    left = _content_length(request)
    async for piece in request.stream:
        if piece:
            if left is not None:
                left -= len(piece)
                if left < 0:
                    raise _too_long()
            yield piece, False
    yield b"", True


def bound_expansion(response: Any, library: ModuleType) -> None:
    """Keep a compressed answer from filling the memory: reading one that grows beyond reason raises DecodingError."""
    if "content-encoding" not in response.headers or not hasattr(response, "_get_content_decoder"):
        return
    # Where a library of another version looks for its decoder elsewhere, it goes on as it would without this.
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
