"""A JSON body written in another form, as MessagePack, gzipped, or both; and the request that carries it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from fastlane._clock import thread_cpu_ns
from fastlane.compat.requests import has_float_beyond

if TYPE_CHECKING:
    from fastlane.records.attempts import Form

# An integer beyond 64 bits is a float to orjson, and so large a float may have been one: the standard library knows.
_BEYOND_64_BITS = 2.0**63

# A gzip member: raw deflate with gzip's own header, whose time is 0 so that equal bodies are equal bytes.
_GZIP = zlib.MAX_WBITS | 16

# Of the levels that both libraries have, isal's are meant for speed: its highest compresses about as well as zlib's 2.
_ISAL_MOST_LEVEL = 3

# Headers that say how long a body is and how it is written.
_OF_THE_BODY = frozenset({b"content-length", b"content-type", b"content-encoding", b"transfer-encoding"})

# Headers that were made from the bytes of the body, by a signature such as AWS's or by a digest.
_MADE_FROM_THE_BODY = re.compile(rb"signature|digest|hmac|md5|sha-?256|sha-?512", re.IGNORECASE)


class Writing(NamedTuple):
    """How bodies are written."""

    gzip_level: int = 1
    msgpack_type: str = "application/vnd.msgpack"
    """The content type of MessagePack."""


@cache
def _isal() -> Callable[..., bytes] | None:
    try:
        from isal import igzip
    except ImportError:  # it has no wheels for Windows on ARM
        return None
    return igzip.compress


def write(plain: bytes, form: Form, writing: Writing) -> tuple[bytes, float]:
    """Write a JSON body in another form. Returns it and the CPU seconds of this thread that it took.

    Raises for what MessagePack cannot hold (integers beyond 64 bits).
    """
    started_ns = thread_cpu_ns()
    body = _messagepack(plain) if form.startswith("msgpack") else plain
    if form.endswith("gzip"):
        body = gzip(body, writing.gzip_level)
    return body, (thread_cpu_ns() - started_ns) / 1e9


def gzip(data: bytes, level: int) -> bytes:
    """Gzip at a level from 1 to 9, by isal for 1 to 3 where that is installed."""
    compress = _isal() if level <= _ISAL_MOST_LEVEL else None
    if compress is not None:
        return compress(data, level, mtime=0)
    return zlib.compress(data, level, wbits=_GZIP)


def _messagepack(plain: bytes) -> bytes:
    import msgpack  # type: ignore[import-untyped]

    value = orjson.loads(plain)
    if has_float_beyond(value, _BEYOND_64_BITS):
        value = json.loads(plain)
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def in_form(request: Any, plain: bytes, form: Form, writing: Writing) -> Any:
    """Return a request like this one, with the JSON `plain` as its body, written in `form`."""
    body = plain if form == "json" else write(plain, form, writing)[0]
    return with_body(request, body, form, writing)


def with_body(request: Any, body: bytes, form: Form, writing: Writing) -> Any:
    """Return a request like this one, with a body that is written in `form`."""
    lines = [(name, value) for name, value in request.headers.raw if name.lower() not in _OF_THE_BODY]
    media_type = writing.msgpack_type if form.startswith("msgpack") else "application/json"
    if not media_type.isprintable():
        raise ValueError("a media type has no control characters")
    lines.append((b"Content-Type", media_type.encode("ascii")))
    if form.endswith("gzip"):
        lines.append((b"Content-Encoding", b"gzip"))
    return type(request)(request.method, request.url, headers=lines, content=body, extensions=dict(request.extensions))


def json_of(request: Any) -> bytes | None:
    """Return the body of a request that is JSON and is there as bytes; None for any other."""
    headers = request.headers
    if headers.get("content-encoding") is not None:
        return None
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return None
    try:
        content = request.content
    except Exception:  # noqa: BLE001 - a body that is produced on the way raises an error of its library
        return None
    return content if isinstance(content, bytes) else None


def is_signed(request: Any) -> bool:
    """Return whether a header stands for the very bytes of the body: another form would be refused as a forgery."""
    headers = request.headers
    if headers.get("authorization", "").startswith("AWS4-"):
        return True
    return _MADE_FROM_THE_BODY.search(b"\n".join([name for name, _ in headers.raw])) is not None
