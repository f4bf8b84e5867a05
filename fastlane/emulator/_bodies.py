"""Request bodies as they come over the wire: JSON or MessagePack, gzipped or not."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]

from fastlane.emulator._errors import ApiError
from fastlane.emulator.settings import Dialect

_MESSAGEPACK_TYPES = ("application/vnd.msgpack", "application/msgpack", "application/x-msgpack")
_JSON_TYPES = ("application/json", "text/json")
MAXIMUM_BYTES = 256 * 1_048_576
"""Of a body as received, and after decompression: a small bomb must not fill the memory."""


def is_encoded(headers: Mapping[str, str]) -> bool:
    """Return whether a body's headers say that it is compressed or MessagePack."""
    return _coding(headers) != "identity" or _media_type(headers) in _MESSAGEPACK_TYPES


def _coding(headers: Mapping[str, str]) -> str:
    return headers.get("content-encoding", "identity").strip().lower()


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "application/json").partition(";")[0].strip().lower()


def decompress(body: bytes, headers: Mapping[str, str], dialect: Dialect) -> bytes:
    """Undo a body's Content-Encoding. Raises ApiError for one that is not accepted, broken or too large."""
    name = _coding(headers)
    if name == "identity":
        return body
    if name != "gzip" or "gzip" not in dialect.accepted_encodings:
        raise _refused("encoding", name)
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        decoded = inflater.decompress(body, MAXIMUM_BYTES)
    except zlib.error as error:
        raise ApiError(400, f"The body is not valid gzip: {error}.", code="invalid_gzip") from error
    if inflater.unconsumed_tail:
        raise ApiError(413, f"The decompressed body exceeds {MAXIMUM_BYTES} bytes.", code="body_too_large")
    if not inflater.eof:
        raise ApiError(400, "The gzip body ends too early.", code="invalid_gzip")
    return decoded


def parse(body: bytes, headers: Mapping[str, str], dialect: Dialect) -> dict[str, Any]:
    """Read a decompressed body as an object. Raises ApiError for a type that is not accepted or a broken body."""
    media_type = _media_type(headers)
    is_messagepack = media_type in _MESSAGEPACK_TYPES
    name = "MessagePack" if is_messagepack else "JSON"
    accepted = ("msgpack" if is_messagepack else "json") in dialect.accepted_encodings
    if not accepted or media_type not in (*_MESSAGEPACK_TYPES, *_JSON_TYPES):
        raise _refused("type", media_type)
    try:
        value = _as_json(msgpack.unpackb(body)) if is_messagepack else json.loads(body)
    # Besides their own errors both raise RecursionError, UnicodeDecodeError and, msgpack, plain ValueError.
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise ApiError(
            400,
            f"We could not parse the {name} body of your request. (HINT: This likely means that what was sent is not "
            f"valid {name}: {type(error).__name__}.)",
        ) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ApiError(400, "The body of the request must be an object.")
    return value


def _refused(what: str, got: str) -> ApiError:
    message = f"Unsupported content {what}: {got!r}."
    return ApiError(415, message, code=f"unsupported_content_{what}")


def _as_json(value: Any) -> Any:
    """Write binary parts of MessagePack as JSON would: in base64, so that a prompt counts alike in either."""
    if isinstance(value, dict):
        return {key: _as_json(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_as_json(member) for member in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
