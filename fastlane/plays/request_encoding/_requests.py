"""The same request with its body in another form."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ._bodies import write

if TYPE_CHECKING:
    from fastlane.records.attempts import Form

    from .plan import Encode

# What says how long a body is and how it is written, or would have it served from somewhere else.
_OF_THE_BODY = frozenset({b"content-length", b"content-type", b"content-encoding", b"transfer-encoding"})

# Headers that were made from the bytes of the body, by a signature such as AWS's or by a digest.
_MADE_FROM_THE_BODY = re.compile(rb"signature|digest|hmac|md5|sha-?256|sha-?512", re.IGNORECASE)

# What stands before the endpoint in most addresses, and says nothing of anybody.
_USUAL_PREFIXES = frozenset({"", "/v1", "/openai/v1", "/api/v1"})


def in_form(request: Any, plain: bytes, form: Form, encode: Encode) -> Any:
    """A request like this one, with the JSON `plain` as its body, written in `form`."""
    body = plain if form == "json" else write(plain, form, encode).body
    return with_body(request, body, form, encode)


def with_body(request: Any, body: bytes, form: Form, encode: Encode) -> Any:
    """A request like this one, with a body that is written in `form`."""
    lines = [(name, value) for name, value in request.headers.raw if name.lower() not in _OF_THE_BODY]
    media_type = encode.msgpack_type if form.startswith("msgpack") else "application/json"
    if not media_type.isprintable():
        raise ValueError("a media type has no control characters")
    lines.append((b"Content-Type", media_type.encode("ascii")))
    if form.endswith("gzip"):
        lines.append((b"Content-Encoding", b"gzip"))
    return type(request)(request.method, request.url, headers=lines, content=body, extensions=dict(request.extensions))


def json_of(request: Any) -> bytes | None:
    """The body of a request that is JSON and is there as bytes; None for any other."""
    headers = request.headers
    if headers.get("content-encoding") is not None:
        return None
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return None
    try:
        content = request.content
    except Exception:  # noqa: BLE001 - a body that is produced on the way (the library's own error, of either library)
        return None
    return content if isinstance(content, bytes) else None


def is_signed(request: Any) -> bool:
    """Whether a header stands for the very bytes of the body: another form of it would be refused as a forgery."""
    headers = request.headers
    if headers.get("authorization", "").startswith("AWS4-"):
        return True
    return _MADE_FROM_THE_BODY.search(b"\n".join([name for name, _ in headers.raw])) is not None


def place_of(request: Any, endpoint: str) -> str:
    """The endpoint of a request as verdicts name it.

    One origin may lead to several servers, by what stands before the endpoint in the path. That may be a secret, and
    verdicts are written to a file.
    """
    before = request.url.path.removesuffix(endpoint)
    if before in _USUAL_PREFIXES:
        return f"{before}{endpoint}"
    return f"/#{sha256(before.encode()).hexdigest()[:16]}{endpoint}"
