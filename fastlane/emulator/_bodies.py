"""Request bodies as they come over the wire: JSON or MessagePack, gzipped or not."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any, Literal

import msgpack  # type: ignore[import-untyped]

from fastlane.emulator._errors import ApiError

from ..errors import ConfigurationError

Encoding = Literal["json", "msgpack", "gzip"]
ALL_ENCODINGS: tuple[Encoding, ...] = ("json", "msgpack", "gzip")
MESSAGEPACK_TYPES = frozenset({"application/vnd.msgpack", "application/msgpack", "application/x-msgpack"})
_SHOWN = {"json": "JSON", "msgpack": "MessagePack"}
MAXIMUM_BYTES = 64 * 1_048_576
"""Of a body as received."""
MAXIMUM_UPLOAD_BYTES = 513 * 1_048_576
"""Of the body of an upload: OpenAI's largest file, and room for what frames it."""
MAXIMUM_DECODED_BYTES = 256 * 1_048_576
"""Of a body after decompression: a small bomb must not fill the memory."""


def is_upload(method: str, path: str) -> bool:
    """Return whether a request uploads a file."""
    return method == "POST" and path.partition("?")[0].rstrip("/").endswith("/files")


def checked_refusal(status: int) -> int:
    """Return the status that refuses an encoding. Raises ConfigurationError for one that is no refusal."""
    if not 400 <= status <= 599:
        raise ConfigurationError(f"encoding_refusal_status must be from 400 to 599, got {status}: 415 is usual")
    return status


def is_encoded(content_type: str | None, content_encoding: str | None) -> bool:
    """Return whether a body's headers say that it is compressed or MessagePack."""
    return _coding(content_encoding) != "identity" or _media_type(content_type) in MESSAGEPACK_TYPES


def _coding(content_encoding: str | None) -> str:
    return (content_encoding or "identity").strip().lower()


def _media_type(content_type: str | None) -> str:
    return (content_type or "application/json").partition(";")[0].strip().lower()


def checked_encodings(names: Iterable[str]) -> tuple[str, ...]:
    """Return the encodings a server accepts. Raises ConfigurationError for an unknown one."""
    accepted = tuple(names)
    unknown = [name for name in accepted if name not in ALL_ENCODINGS]
    if unknown:
        raise ConfigurationError(f"accepted_encodings must be of {', '.join(ALL_ENCODINGS)}, got {unknown[0]!r}")
    return accepted


def decompress(body: bytes, content_encoding: str | None, *, accepted: tuple[str, ...], refusal_status: int) -> bytes:
    """Undo a body's Content-Encoding. Raises ApiError for one that is not accepted, broken or too large."""
    name = _coding(content_encoding)
    if name == "identity":
        return body
    if name != "gzip" or "gzip" not in accepted:
        raise ApiError(refusal_status, f"Unsupported content encoding: {name!r}.", code="unsupported_content_encoding")
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        decoded = inflater.decompress(body, MAXIMUM_DECODED_BYTES)
    except zlib.error as error:
        raise ApiError(400, f"The body is not valid gzip: {error}.", code="invalid_gzip") from error
    if inflater.unconsumed_tail:
        raise ApiError(413, f"The decompressed body exceeds {MAXIMUM_DECODED_BYTES} bytes.", code="body_too_large")
    if not inflater.eof:
        raise ApiError(400, "The gzip body ends too early.", code="invalid_gzip")
    return decoded


def parse(body: bytes, content_type: str | None, *, accepted: tuple[str, ...], refusal_status: int) -> dict[str, Any]:
    """Read a decompressed body as an object. Raises ApiError for a type that is not accepted or a broken body."""
    media_type = _media_type(content_type)
    encoding = "msgpack" if media_type in MESSAGEPACK_TYPES else "json"
    if encoding not in accepted or (encoding == "json" and media_type not in ("application/json", "text/json")):
        raise ApiError(refusal_status, f"Unsupported content type: {media_type!r}.", code="unsupported_content_type")
    try:
        value = _as_json(msgpack.unpackb(body)) if encoding == "msgpack" else json.loads(body)
    # Besides their own errors both raise RecursionError, UnicodeDecodeError and, msgpack, plain ValueError.
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise ApiError(
            400,
            f"We could not parse the {_SHOWN[encoding]} body of your request. (HINT: This likely means that what was "
            f"sent is not valid {_SHOWN[encoding]}: {type(error).__name__}.)",
        ) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ApiError(400, "The body of the request must be an object.")
    return value


def _as_json(value: Any) -> Any:
    """Write binary parts of MessagePack as JSON would: in base64, so that a prompt counts alike in either."""
    if isinstance(value, dict):
        return {key: _as_json(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_as_json(member) for member in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
