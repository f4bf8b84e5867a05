"""A request as it comes in: errors in OpenAI's shape, encoded bodies, and the `x-emulator-…` headers."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import msgpack  # type: ignore[import-untyped]

from fastlane.emulator._faults import Fault, parse_faults
from fastlane.emulator.settings import Dialect, Manner, parse_manners

from ..errors import ConfigurationError

_MESSAGEPACK_TYPES = ("application/vnd.msgpack", "application/msgpack", "application/x-msgpack")
_JSON_TYPES = ("application/json", "text/json")
MAXIMUM_BYTES = 256 * 1_048_576
"""Of a body as received, and after decompression: a small bomb must not fill the memory."""


@dataclass(eq=False)
class ApiError(Exception):
    """Stops the handling of a request; becomes its answer."""

    status: int
    message: str
    type: str = field(default="invalid_request_error", kw_only=True)
    param: str | None = field(default=None, kw_only=True)
    code: str | None = field(default=None, kw_only=True)
    headers: Sequence[tuple[str, str]] = field(default=(), kw_only=True)
    refused: str | None = field(default=None, kw_only=True)
    """`RequestLog.refused` of a request that is refused for load."""

    def __str__(self) -> str:
        return self.message

    def body(self) -> bytes:
        error = {"message": str(self), "type": self.type, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()


def retry_after(seconds: float | None) -> tuple[tuple[str, str], ...]:
    return () if seconds is None else (("retry-after", f"{seconds:g}"), ("retry-after-ms", f"{seconds * 1_000:g}"))


def is_encoded(headers: Mapping[str, str]) -> bool:
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
        if is_messagepack:
            # Binary parts as JSON would have them, in base64, so that a prompt counts alike in either.
            body = json.dumps(msgpack.unpackb(body), default=lambda part: base64.b64encode(part).decode()).encode()
        value = json.loads(body)
    # Besides their own errors both raise RecursionError, UnicodeDecodeError and, msgpack, plain ValueError.
    except (TypeError, ValueError, RecursionError, msgpack.UnpackException) as error:
        raise ApiError(
            400,
            f"We could not parse the {name} body of your request. (HINT: This likely means that what was sent is not "
            f"valid {name}: {type(error).__name__}.)",
        ) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ApiError(400, "The body of the request must be an object.")
    return value


def _refused(what: str, got: str) -> ApiError:
    return ApiError(415, f"Unsupported content {what}: {got!r}.", code=f"unsupported_content_{what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What one request asks of the emulator: the values of its `x-emulator-…` headers; None if it has none."""

    tag: str | None = None
    fault: tuple[Fault, ...] = ()
    manner: tuple[Manner, ...] | None = None
    output_text: str | None = None
    tool_call: str | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    prefill_ms: float | None = None
    token_ms: float | None = None
    draw: int | None = None


def _number(kind: type[int | float], most: float, text: str) -> float:
    value = kind(text)
    if not 0 <= value <= most:
        raise ValueError(f"must be a number from 0 to {most}, got {value}")
    return value


_READERS: Mapping[str, Callable[[str], object]] = {
    "fault": parse_faults,
    "manner": parse_manners,
    # More tokens would only fill the memory of the machine that tests with them.
    "output_tokens": partial(_number, int, 1_000_000),
    "reasoning_tokens": partial(_number, int, 1_000_000),
    "prefill_ms": partial(_number, float, 3_600_000),
    "token_ms": partial(_number, float, 3_600_000),
    "draw": partial(_number, int, 2**63),
}


def read_overrides(headers: Mapping[str, str]) -> Overrides:
    """Read a request's overrides. Raises ApiError (400) for a value that cannot be."""
    values: dict[str, Any] = {}
    for each in fields(Overrides):
        header = f"x-emulator-{each.name.replace('_', '-')}"
        if header in headers:
            try:
                values[each.name] = _READERS.get(each.name, str)(headers[header])
            except (ConfigurationError, ValueError) as error:
                raise ApiError(400, f"{header}: {error}", param=header, code="invalid_value") from error
    return Overrides(**values)
