"""A connection over HTTP/2, spoken to by h2 and, where h2 is too polite, by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import (
    GoAwayFrame,
    PushPromiseFrame,
)

from fastlane.transport import Phases
from fastlane.transport.protocols import limits as limits
from fastlane.transport.protocols.exchange import Exchange, TransportError
from tests.transport.h2_peer import Pair, frames_of, head_bytes, raw_frame, request_head


def refused(pair: Pair, data: bytes) -> tuple[str, ErrorCodes]:
    """What the connection says of these bytes, and with which code it leaves."""
    with pytest.raises(TransportError) as raised:
        pair.receive(data)
    assert raised.value.name == "RemoteProtocolError"
    assert not raised.value.unprocessed
    assert pair.client.capacity == 0
    last = frames_of(pair.client.data_to_send())[-1]
    assert isinstance(last, GoAwayFrame)
    return raised.value.message, ErrorCodes(last.error_code)


def test_exhausted_stream_ids_refuse_new_requests() -> None:
    pair = Pair()
    pair.client._next_stream_id = pair.client._h2.highest_outbound_stream_id = 2**31 - 1
    pair.client._h2.highest_outbound_stream_id -= 2
    pair.client.begin(Exchange(request_head(), Phases()), end=True)

    assert pair.client.capacity == 0
    with pytest.raises(TransportError) as raised:
        pair.client.begin(Exchange(request_head(), Phases()), end=True)
    assert raised.value.unprocessed


FLOODS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "PING": lambda _: iter([raw_frame(6, 0, 0, b"12345678")]),
    "SETTINGS": lambda _: iter([raw_frame(4, 0, 0)]),
    "PRIORITY": lambda stream: iter([raw_frame(2, 0, stream, bytes(5))]),
    "empty DATA": lambda stream: iter([raw_frame(0, 0, stream)]),
    "RST_STREAM": lambda _: iter([raw_frame(3, 0, 1, bytes(4))]),
    "unknown": lambda stream: iter([raw_frame(0x77, 0, stream, b"x" * 100)]),
    "informational HEADERS": lambda stream: iter([head_bytes(stream, [(b":status", b"103")])]),
    "late HEADERS": lambda _: iter([head_bytes(1)]),
    "WINDOW_UPDATE": lambda _: iter([raw_frame(8, 0, 0, (1).to_bytes(4))]),
    "GOAWAY": lambda _: iter([GoAwayFrame(0, 2**31 - 1).serialize()]),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_flood_ends_the_connection(kind: str) -> None:
    pair = Pair()
    pair.answer(pair.begun())
    exchange = pair.begun()
    data = b"".join(FLOODS[kind](exchange.stream_id))
    if kind == "empty DATA":
        pair.receive(head_bytes(exchange.stream_id))
    pair.receive(data * 9_000)

    message, code = refused(pair, data * 2_000)

    assert message == f"The server flooded the connection with {kind} frames"
    assert code is ErrorCodes.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("kind", [kind for kind in FLOODS if kind != "GOAWAY"])
def test_many_frames_between_requests_are_no_flood(kind: str) -> None:
    pair = Pair()
    pair.answer(pair.begun())
    exchange = pair.begun()
    if kind == "empty DATA":
        pair.receive(head_bytes(exchange.stream_id))
    data = b"".join(FLOODS[kind](exchange.stream_id))
    for _ in range(3):
        pair.receive(data * 9_000)
        pair.begun()

    assert not exchange.is_over


# One field of 4,000 bytes into the table, and then a byte for each time that it is named.
BOMB = b"\x88\x40\x01a\x7f\xa1\x1e" + b"v" * 4_000 + b"\xbe" * 10_000


@pytest.mark.parametrize(
    ("begin", "data", "message"),
    [
        (b"", raw_frame(1, 4, 1, BOMB), "The server sent a head larger than we allow"),
        (
            raw_frame(1, 0, 1, b"x"),
            raw_frame(9, 0, 1, b"x" * 16_384) * 6,
            "The server sent a head larger than we allow",
        ),
        (
            raw_frame(1, 0, 1, b"x"),
            raw_frame(9, 0, 1) * 10_100,
            "The server flooded the connection with CONTINUATION frames",
        ),
    ],
    ids=["bomb", "endless", "empty frames"],
)
def test_head_without_bounds_ends_the_connection(begin: bytes, data: bytes, message: str) -> None:
    pair = Pair()
    pair.begun()
    pair.receive(begin)

    assert refused(pair, data) == (message, ErrorCodes.ENHANCE_YOUR_CALM)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x00\x40\x01" + raw_frame(0, 0, 1)[3:], ErrorCodes.FRAME_SIZE_ERROR),
        (raw_frame(0, 8, 1, b"\x05pad"), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(0, 8, 1, b"\x04pad"), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(0, 8, 1), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(1, 0x2C, 1, b"\x00abc"), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff"), ErrorCodes.COMPRESSION_ERROR),
        (raw_frame(1, 0, 1, b"\x88") + raw_frame(6, 0, 0, bytes(8)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(1, 0, 1, b"\x88") + raw_frame(9, 4, 3), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(9, 4, 1, b"\x88"), ErrorCodes.PROTOCOL_ERROR),
        (PushPromiseFrame(1, 2, b"\x88").serialize(), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(3, 0, 1, bytes(5)), ErrorCodes.FRAME_SIZE_ERROR),
        (raw_frame(7, 0, 1, bytes(8)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(7, 0, 0, bytes(7)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(4, 0, 0, bytes(5)), ErrorCodes.FRAME_SIZE_ERROR),
        (raw_frame(4, 0, 1), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(4, 0, 0, b"\x00\x05" + bytes(4)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(4, 0, 0, b"\x00\x04" + b"\xff" * 4), ErrorCodes.FLOW_CONTROL_ERROR),
        (raw_frame(6, 0, 0, bytes(7)), ErrorCodes.FRAME_SIZE_ERROR),
        (raw_frame(8, 0, 0, bytes(4)), ErrorCodes.PROTOCOL_ERROR),
        (raw_frame(8, 0, 0, (2**31 - 1).to_bytes(4)), ErrorCodes.FLOW_CONTROL_ERROR),
        (raw_frame(8, 0, 1, bytes(4)), ErrorCodes.PROTOCOL_ERROR),
    ],
)
def test_protocol_violation_closes_the_connection(data: bytes, code: ErrorCodes) -> None:
    pair = Pair()
    pair.begun()

    assert refused(pair, data)[1] is code
    with pytest.raises(TransportError):
        pair.receive(raw_frame(6, 0, 0, bytes(8)))
