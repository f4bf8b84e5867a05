"""Pack and read HTTP/2 frames, and convert header fields."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache

from h2.errors import ErrorCodes

from .exchange import AnswerHead, RequestHead, TransportError

# Types and flags of RFC 9113, 6. Plain numbers: they are compared once per frame.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
NAMES = (
    "DATA HEADERS PRIORITY RST_STREAM SETTINGS PUSH_PROMISE PING GOAWAY WINDOW_UPDATE CONTINUATION".split()  # noqa: SIM905
)
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

FRAME_HEAD = struct.Struct("!IBI")
"""Length (24 bits) and type (8), flags, stream."""
_TWO_NUMBERS = struct.Struct("!II")
_FRAME_OF_ONE_NUMBER = struct.Struct("!IBII")

Fields = Sequence[tuple[bytes, bytes]]


class MalformedError(Exception):
    """What came is against the protocol; the text says what, and nothing of the content."""


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """Return one frame."""
    return FRAME_HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def head_frames(stream_id: int, block: bytes, most: int, *, end: bool) -> list[bytes]:
    """Return a request's HEADERS frame, and as many CONTINUATION frames as its size needs."""
    flags = END_STREAM if end else 0
    if len(block) <= most:
        return [frame(HEADERS, flags | END_HEADERS, stream_id, block)]
    pieces = [block[start : start + most] for start in range(0, len(block), most)]
    frames = [frame(HEADERS, flags, stream_id, pieces[0])]
    frames += [frame(CONTINUATION, 0, stream_id, piece) for piece in pieces[1:-1]]
    return [*frames, frame(CONTINUATION, END_HEADERS, stream_id, pieces[-1])]


def window_update(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame that lets the peer send `increment` more bytes."""
    return _FRAME_OF_ONE_NUMBER.pack(4 << 8 | WINDOW_UPDATE, 0, stream_id, increment)


def rst_stream(stream_id: int, code: ErrorCodes) -> bytes:
    """Return a RST_STREAM frame."""
    return _FRAME_OF_ONE_NUMBER.pack(4 << 8 | RST_STREAM, 0, stream_id, code)


def goaway(code: ErrorCodes) -> bytes:
    """Return a GOAWAY frame. Its last stream is 0: pushes are disabled."""
    return frame(GOAWAY, 0, 0, _TWO_NUMBERS.pack(0, code))


def goaway_numbers(payload: bytes) -> tuple[int, int]:
    """Return the last stream that the peer still processes, and its error code."""
    last_stream_id, code = _TWO_NUMBERS.unpack_from(payload)
    return last_stream_id & 0x7FFFFFFF, code


def error_name(code: int) -> str:
    """Return the name of an error code."""
    try:
        return ErrorCodes(code).name
    except ValueError:
        return f"code {code:#x}"


def unpadded(flags: int, payload: bytes) -> bytes:
    """Return the payload of a DATA or HEADERS frame without its padding (RFC 9113, 6.1)."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise MalformedError("padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def header_block(flags: int, payload: bytes) -> bytes:
    """Return the header block fragment of a HEADERS frame."""
    block = unpadded(flags, payload)
    if flags & HAS_PRIORITY:
        if len(block) < 5:
            raise MalformedError("a HEADERS frame too short for its priority")
        block = block[5:]
    return block


# Fields that speak of an HTTP/1.1 connection (RFC 9113, 8.2.2), and Host, which is :authority.
_OF_ANOTHER_PROTOCOL = frozenset(
    (b"host", b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
# What is remembered of fields that were sent is what most calls have in common, and never a credential.
_MOST_KEPT_BYTES = 64
_SECRETS = frozenset((b"authorization", b"proxy-authorization", b"api-key", b"x-api-key", b"cookie"))
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_BROKEN_VALUE = re.compile(rb"[\0\r\n]").search
_BROKEN_WORD = re.compile(rb"[\0-\x20\x7f]").search


def _sent_name(name: bytes) -> bytes | None:
    """Return the name as HTTP/2 sends it; None if it sends no such field."""
    lowered = name.lower()
    if not _NAME(lowered):
        raise TransportError("LocalProtocolError", "A header's name has characters that no name may have")
    return None if lowered in _OF_ANOTHER_PROTOCOL else lowered


@lru_cache(maxsize=1_000)
def _is_name(name: bytes) -> bool:
    return _NAME(name) is not None


def request_fields(head: RequestHead) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a request as HTTP/2 sends them."""
    fields = [
        (b":method", head.method),
        (b":authority", head.authority),
        (b":scheme", head.scheme),
        (b":path", head.target or b"/"),
    ]
    for _, value in fields:
        if _BROKEN_WORD(value):
            raise TransportError(
                "LocalProtocolError", "The request's method or URL has characters that it may not have"
            )
    for name, value in head.headers:
        kept = len(value) <= _MOST_KEPT_BYTES and name.lower() not in _SECRETS
        field = _sent_field(name, value) if kept else _sent_field.__wrapped__(name, value)
        if field is not None:
            fields.append(field)
    return fields


@lru_cache(maxsize=1_000)
def _sent_field(name: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """Return a field as HTTP/2 sends it; None if it sends no such field."""
    sent = _sent_name(name)
    if sent is None or (sent == b"te" and value.strip().lower() != b"trailers"):
        return None
    if _BROKEN_VALUE(value):
        raise TransportError("LocalProtocolError", "A header's value has a line end or a zero byte")
    return sent, value.strip(b" \t")


def list_bytes(fields: Fields) -> int:
    """Return a head's size as SETTINGS_MAX_HEADER_LIST_SIZE counts it (RFC 9113, 6.5.2)."""
    return sum(len(name) + len(value) + 32 for name, value in fields)


def answer_head(fields: Fields) -> AnswerHead:
    """Return the head of a response, final or informational. Raises MalformedError."""
    if not fields or fields[0][0] != b":status":
        raise MalformedError("a head without :status")
    status = fields[0][1]
    if len(status) != 3 or not status.isdigit() or status < b"100":
        raise MalformedError("a :status that is none")
    return AnswerHead(int(status), checked_fields(fields[1:]), b"")


def checked_fields(fields: Fields) -> list[tuple[bytes, bytes]]:
    """Return header fields, checked for forbidden names and values. Raises MalformedError."""
    for name, value in fields:
        if not _is_name(name) or _BROKEN_VALUE(value):
            raise MalformedError("a header that no header may be")
        if name in _OF_ANOTHER_PROTOCOL and name != b"host":
            raise MalformedError("a header that only HTTP/1.1 has")
    return list(fields)


def body_bytes(method: bytes, head: AnswerHead) -> int | None:
    """Return the length of a response's body as its head states it; None if it does not."""
    stated: int | None = None
    for name, value in head.headers:
        if name == b"content-length":
            # Longer than the digits of 2**63: nothing that anybody sends, and slow to read as a number.
            if not value.isdigit() or len(value) > 19 or stated not in (None, int(value)):
                raise MalformedError("a content-length that is none")
            stated = int(value)
    # No body, whatever length a body would have had (RFC 9110, 6.4.1).
    return 0 if method == b"HEAD" or head.status in (204, 304) else stated
