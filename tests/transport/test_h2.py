"""What breaks HTTP/2 as a whole ends the connection with the right GOAWAY, and only floods are floods."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import GoAwayFrame, PushPromiseFrame

from fastlane.transport import Phases
from fastlane.transport.protocols.exchange import Exchange, TransportError
from fastlane.transport.protocols.h2 import Http2Connection
from tests.transport.faces import both_faces
from tests.transport.h2_peer import head_bytes, raw_frame, request_head
from tests.transport.peer import HEADER_TABLE_SIZE, Peer, Respond, Stream, by_path
from tests.transport.resources import resident
from tests.waiting import until


def test_exhausted_stream_ids_refuse_new_requests() -> None:
    client: Any = Http2Connection()
    client.start(0)
    client._next_stream_id = client._h2.highest_outbound_stream_id = 2**31 - 1
    client._h2.highest_outbound_stream_id -= 2
    client.begin(Exchange(request_head(), Phases()), end=True)

    assert client.capacity == 0
    with pytest.raises(TransportError) as raised:
        client.begin(Exchange(request_head(), Phases()), end=True)
    assert raised.value.unprocessed


FLOODS: dict[str, Callable[[int], bytes]] = {
    "PING": lambda _: raw_frame(6, 0, 0, b"12345678"),
    "SETTINGS": lambda _: raw_frame(4, 0, 0),
    "PRIORITY": lambda stream: raw_frame(2, 0, stream, bytes(5)),
    "empty DATA": lambda stream: raw_frame(0, 0, stream),
    "RST_STREAM": lambda _: raw_frame(3, 0, 1, bytes(4)),
    "unknown": lambda stream: raw_frame(0x77, 0, stream, b"x" * 100),
    "informational HEADERS": lambda stream: head_bytes(stream, [(b":status", b"103")]),
    "late HEADERS": lambda _: head_bytes(1),
    "WINDOW_UPDATE": lambda _: raw_frame(8, 0, 0, (1).to_bytes(4)),
    "GOAWAY": lambda _: GoAwayFrame(0, 2**31 - 1).serialize(),
}


def frames(stream: Stream, kind: str, count: int) -> None:
    """Send frames of a kind, and wait until the client has taken them."""
    connection, mark = stream.connection, b"end%05d" % len(stream.connection.pongs)
    connection.send_bytes(FLOODS[kind](stream.id) * count)
    connection.ping(mark)
    connection.wait(lambda: connection.pongs[-1:] == [mark])


def begins(kind: str, stream: Stream) -> None:
    if kind == "empty DATA":
        stream.head()


@both_faces
@pytest.mark.parametrize("kind", FLOODS)
def test_flood_ends_the_connection(make_face: Any, kind: str) -> None:
    def flood(stream: Stream) -> None:
        begins(kind, stream)
        frames(stream, kind, 9_000)
        frames(stream, kind, 2_000)

    with Peer(by_path(flood=flood)) as peer, make_face(peer.url) as face:
        face.get("/first")
        before = resident()
        with pytest.raises(httpx2.RemoteProtocolError, match=f"The server flooded the connection with {kind} frames"):
            face.get("/flood")

        assert left_with(peer) == ErrorCodes.ENHANCE_YOUR_CALM
        assert resident() - before < 96 << 20
        assert face.get("/next").content == b"ok"


@both_faces
@pytest.mark.parametrize("kind", [kind for kind in FLOODS if kind != "GOAWAY"])
def test_many_frames_between_requests_are_no_flood(make_face: Any, kind: str) -> None:
    sent = threading.Semaphore(0)

    def many(stream: Stream) -> None:
        begins(kind, stream)
        for number in range(3):
            frames(stream, kind, 9_000)
            sent.release()
            until(lambda number=number: len(peer.requests) == 3 + number)  # type: ignore[misc]
        if kind == "empty DATA":
            stream.data(b"ok", end=True)
        else:
            stream.answer(b"ok")

    with Peer(by_path(many=many)) as peer, make_face(peer.url) as face:
        face.get("/first")
        call = face.begin("/many")
        for _ in range(3):
            assert sent.acquire(timeout=30)
            assert face.get("/next").content == b"ok"

        assert call.result().content == b"ok"
        assert len(peer.connections) == 1
        peer.violations.clear()  # the client acknowledges SETTINGS that the peer has not counted


def left_with(peer: Peer) -> int:
    """The code with which the client has left the first connection."""
    (connection,) = peer.connections
    assert connection.closed.wait(30)
    peer.violations.clear()  # the client acknowledges SETTINGS that the peer has not counted
    ((_, code),) = connection.goaways
    return code


def sends(*pieces: bytes) -> Respond:
    def script(stream: Stream) -> None:
        for piece in pieces:
            stream.connection.send_bytes(piece)
        stream.hold_until_left()

    return script


# One field of 4,000 bytes into the table, and then a byte for each time that it is named.
BOMB = b"\x88\x40\x01a\x7f\xa1\x1e" + b"v" * 4_000 + b"\xbe" * 10_000
TOO_LARGE = "The server sent a head larger than we allow"
ENDLESS = {
    "bomb": (sends(raw_frame(1, 4, 1, BOMB)), TOO_LARGE),
    "endless": (sends(raw_frame(1, 0, 1, b"x"), raw_frame(9, 0, 1, b"x" * 16_384) * 6), TOO_LARGE),
    "empty frames": (
        sends(raw_frame(1, 0, 1, b"x"), raw_frame(9, 0, 1) * 10_100),
        "The server flooded the connection with CONTINUATION frames",
    ),
}


@both_faces
@pytest.mark.parametrize("kind", ENDLESS)
def test_head_without_bounds_ends_the_connection(make_face: Any, kind: str) -> None:
    script, message = ENDLESS[kind]
    with Peer(script) as peer, make_face(peer.url) as face:
        with pytest.raises(httpx2.RemoteProtocolError, match=message):
            face.get()

        assert left_with(peer) == ErrorCodes.ENHANCE_YOUR_CALM


@both_faces
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff\xfe\xfd" * 1_000, ErrorCodes.FRAME_SIZE_ERROR),
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
def test_protocol_violation_closes_the_connection(make_face: Any, data: bytes, code: ErrorCodes) -> None:
    with Peer(by_path(broken=sends(data))) as peer, make_face(peer.url) as face:
        with pytest.raises(httpx2.RemoteProtocolError):
            face.get("/broken")

        assert left_with(peer) == code
        assert face.get("/next").content == b"ok"
        assert [stream.path for stream in peer.requests] == ["/broken", "/next"]


@both_faces
def test_repeated_table_size_setting_keeps_heads_readable(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        face.get()
        (connection,) = peer.connections
        for number, size in enumerate((0, 0, 8_192, 8_192, 50, 0, 4_096)):
            connection.settings({HEADER_TABLE_SIZE: size})
            until(lambda number=number: connection.settings_acked == number + 2)  # type: ignore[misc]
            for _ in range(3):
                assert face.get(headers={"x-size": str(size)}).content == b"ok"
