"""What a hostile or broken server sends ends in an error of httpx2's, with memory flat, and harms nothing else."""

from __future__ import annotations

import contextlib
import functools
import gzip
import struct
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.transport.faces import both_faces
from tests.transport.peer import (
    LARGEST_WINDOW,
    GoneError,
    Header,
    Peer,
    PeerConnection,
    Stream,
    by_path,
)
from tests.transport.peer_h1 import PeerH1, Request1
from tests.transport.resources import resident

BROKEN = (httpx2.RemoteProtocolError, httpx2.ReadError)
MOST_MEMORY = 96 << 20


def raw_frame(kind: int, flags: int, stream_id: int, payload: bytes, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream_id) + payload


def endlessly(stream: Stream, data: bytes) -> None:
    connection = stream.connection
    while True:
        connection.send_bytes(data)
        connection.drain()


def headers_frame(stream: Stream, *fields: Header, end: bool = False) -> HeadersFrame:
    frame = HeadersFrame(stream.id, data=stream.connection.encoder.encode(list(fields)))
    frame.flags |= {"END_HEADERS", "END_STREAM"} if end else {"END_HEADERS"}
    return frame


def pings(stream: Stream) -> None:
    endlessly(stream, PingFrame(0, opaque_data=b"12345678").serialize() * 500)


def empty_data(stream: Stream) -> None:
    stream.head()
    endlessly(stream, DataFrame(stream.id).serialize() * 500)


def continuations(stream: Stream) -> None:
    stream.connection.send(HeadersFrame(stream.id, data=b"\x88"))
    endlessly(stream, ContinuationFrame(stream.id, data=b"\x00\x01a\x01b" * 1_000).serialize() * 10)


def header_bomb(stream: Stream) -> None:
    # One field of 4,000 bytes in the table, then named 16,000 times by a byte each.
    field = b"\x40\x01a" + b"\x7f" + bytes([0xA1, 0x1E]) + b"b" * 4_000
    stream.connection.send_bytes(
        raw_frame(1, 0, stream.id, b"\x88" + field)
        + raw_frame(9, 0, stream.id, b"\xbe" * 8_000)
        + raw_frame(9, 4, stream.id, b"\xbe" * 8_000)
    )
    stream.hold_until_left()


def large_header(stream: Stream) -> None:
    stream.connection.send_bytes(
        raw_frame(1, 0, stream.id, b"\x88")
        + raw_frame(9, 0, stream.id, b"\x00\x01a\x7f\xe1\xff\x3f" + b"b" * 16_000)
        + raw_frame(9, 0, stream.id, b"b" * 16_000) * 64
    )
    stream.hold_until_left()


def beyond_our_window(stream: Stream) -> None:
    stream.head()
    while True:
        stream.data_frame(bytes(16_384))
        stream.connection.drain()


def endless_trailers(stream: Stream) -> None:
    stream.head()
    while True:
        stream.header_block([("a", "b")])
        stream.connection.drain()


FLOODS: list[Callable[[Stream], None]] = [
    pings,
    empty_data,
    continuations,
    header_bomb,
    large_header,
    endless_trailers,
]


def subsides(stream: Stream) -> None:
    """Wait until the client has all of a flood behind it: what is still on its way may end the connection as well."""
    connection = stream.connection
    connection.peer.wait_until(lambda: stream.reset is not None or connection.closed.is_set())
    with contextlib.suppress(GoneError):
        connection.ping(b"subsided")
        connection.wait(lambda: b"subsided" in connection.pongs)


@both_faces
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
def test_a_flood_ends_in_an_error_with_memory_flat(make_face: Any, flood: Callable[[Stream], None]) -> None:
    with Peer(by_path(flood=flood)) as peer, make_face(peer.url) as face:
        face.get("/first")
        before = resident()
        with pytest.raises(httpx2.RemoteProtocolError):
            face.get("/flood")

        assert resident() - before < MOST_MEMORY
        (flooded,) = (stream for stream in peer.requests if stream.path == "/flood")
        subsides(flooded)
        assert face.get("/next").content == b"ok"


@both_faces
def test_data_beyond_what_we_allow_is_not_kept_for_a_reader_who_does_not_come(make_face: Any) -> None:
    with Peer(by_path(beyond=beyond_our_window)) as peer, make_face(peer.url) as face:
        before = resident()
        answer = face.open("/beyond")
        # A stream's end: the connection's, or RST_STREAM for this stream alone.
        peer.wait_until(lambda: bool(peer.resets) or peer.connections[0].closed.is_set())
        with pytest.raises(httpx2.RemoteProtocolError):
            answer.rest()

        assert resident() - before < MOST_MEMORY
        assert face.get("/next").content == b"ok"


def frames(*sent: Any) -> Callable[[Stream], None]:
    """What is sent in place of an answer: frames, bytes, or what makes them of the stream."""

    def script(stream: Stream) -> None:
        stream.body()
        for each in sent:
            made = each(stream) if callable(each) else each
            stream.connection.send_bytes(made if isinstance(made, bytes) else made.serialize())
        stream.hold_until_left()

    return script


def head(*fields: Header, end: bool = False) -> Callable[[Stream], HeadersFrame]:
    return lambda stream: headers_frame(stream, *fields, end=end)


OK_HEAD = head((":status", "200"))
CONNECTION_ERRORS: dict[str, Callable[[Stream], None]] = {
    "a frame that claims 16 MB": frames(lambda stream: raw_frame(0, 0, stream.id, b"", length=(1 << 24) - 1)),
    "a connection window beyond its largest": frames(
        WindowUpdateFrame(0, window_increment=LARGEST_WINDOW), WindowUpdateFrame(0, window_increment=LARGEST_WINDOW)
    ),
    "a promise": frames(
        lambda stream: PushPromiseFrame(
            stream.id,
            promised_stream_id=2,
            data=stream.connection.encoder.encode([(":path", "/pushed")]),
            flags=["END_HEADERS"],
        )
    ),
    "garbage": frames(b"\xff\xfe\xfd" * 1_000),
    "HTTP/1.1": frames(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
    "a head that another frame interrupts": frames(
        lambda stream: raw_frame(1, 0, stream.id, b"\x88"), PingFrame(0, opaque_data=b"12345678")
    ),
}


@both_faces
@pytest.mark.parametrize("script", list(CONNECTION_ERRORS.values()), ids=list(CONNECTION_ERRORS))
def test_what_no_http2_server_may_send_ends_the_connection(make_face: Any, script: Callable[[Stream], None]) -> None:
    with Peer(by_path(broken=script)) as peer, make_face(peer.url) as face:
        face.get("/first")
        with pytest.raises(httpx2.RemoteProtocolError):
            face.post("/broken", content=b"x")

        assert peer.connections[0].closed.wait(30)
        assert [stream.path for stream in peer.requests] == ["/first", "/broken"]
        assert face.get("/next").content == b"ok"
        assert len(peer.connections) == 2


STREAM_ERRORS: dict[str, Callable[[Stream], None]] = {
    "a window beyond its largest": frames(
        lambda stream: WindowUpdateFrame(stream.id, window_increment=LARGEST_WINDOW),
        lambda stream: WindowUpdateFrame(stream.id, window_increment=LARGEST_WINDOW),
    ),
    "a credit of nothing": frames(lambda stream: raw_frame(8, 0, stream.id, bytes(4))),
    "a head without a status": frames(head(("content-type", "text/plain"), end=True)),
    "less than its length": frames(
        head((":status", "200"), ("content-length", "9")),
        lambda stream: DataFrame(stream.id, data=b"three", flags=["END_STREAM"]),
    ),
    "trailers that are not the end": frames(OK_HEAD, head(("a", "b"))),
}


@both_faces
@pytest.mark.parametrize("script", list(STREAM_ERRORS.values()), ids=list(STREAM_ERRORS))
def test_an_answer_that_is_none_is_an_error_and_the_next_call_works(
    make_face: Any, script: Callable[[Stream], None]
) -> None:
    with Peer(by_path(broken=script)) as peer, make_face(peer.url) as face:
        face.get("/first")
        with pytest.raises(httpx2.RemoteProtocolError):
            face.post("/broken", content=b"x")

        assert [stream.path for stream in peer.requests] == ["/first", "/broken"]
        assert face.get("/next").content == b"ok"


@both_faces
def test_data_behind_the_end_of_an_answer_harms_no_later_call(make_face: Any) -> None:
    def chatty(stream: Stream) -> None:
        stream.body()
        stream.answer(b"ok")
        stream.connection.send(DataFrame(stream.id, data=b"more"))

    with Peer(by_path(chatty=chatty)) as peer, make_face(peer.url) as face:
        for _ in range(5):
            face.get("/chatty")
            assert face.get("/next", timeout=20).content == b"ok"


@both_faces
def test_data_behind_our_reset_harms_no_other_call(make_face: Any) -> None:
    def deaf(stream: Stream) -> None:
        stream.head()
        stream.data(b"first")
        stream.wait_reset()
        for _ in range(100):
            stream.connection.send(DataFrame(stream.id, data=bytes(10_000)))

    with Peer(by_path(deaf=deaf)) as peer, make_face(peer.url) as face:
        answer = face.open("/deaf")
        answer.piece()
        answer.close()
        for _ in range(5):
            assert face.get("/next").content == b"ok"

        assert len(peer.connections) == 1


def before_settings(data: bytes) -> Callable[[PeerConnection], None]:
    return lambda connection: connection.send_bytes(data)


@both_faces
@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", bytes(100), raw_frame(6, 0, 0, bytes(8))],
    ids=["HTTP/1.1", "SSH", "nothing", "a ping"],
)
def test_a_server_that_begins_with_anything_but_settings_is_an_error(make_face: Any, data: bytes) -> None:
    with (
        Peer(lambda stream: stream.hold_until_left(), opening=before_settings(data)) as peer,
        make_face(peer.url) as face,
    ):
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ConnectError)):
            face.get()

        assert len(peer.requests) <= 2
        assert len(peer.connections) <= 5  # each may end before the request is sent on it, and no more are tried


@both_faces
def test_an_answer_with_a_field_of_the_connection_is_an_error(make_face: Any) -> None:
    with (
        Peer(frames(head((":status", "200"), ("connection", "close"), end=True))) as peer,
        make_face(peer.url) as face,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        face.get()


@functools.cache
def packed_zeros() -> bytes:
    return gzip.compress(bytes(400 << 20), 6)


@both_faces
@pytest.mark.slow
def test_a_bomb_of_a_body_ends_in_an_error_with_memory_flat(make_face: Any) -> None:
    packed = packed_zeros()

    def bomb(stream: Stream) -> None:
        stream.head(200, [("content-encoding", "gzip")])
        stream.data(packed, end=True)

    with Peer(by_path(bomb=bomb)) as peer, make_face(peer.url) as face:
        face.get("/first")
        before = resident()
        with pytest.raises(httpx2.DecodingError):
            face.get("/bomb")

        assert resident() - before < 200 << 20
        assert face.get("/next").content == b"ok"
        assert len(peer.connections) == 1


@both_faces
def test_an_answer_that_is_packed_well_is_no_bomb(make_face: Any) -> None:
    text = b"".join(b"%d bottles of beer on the wall\n" % number for number in range(400_000))

    def packed(stream: Stream) -> None:
        stream.head(200, [("content-encoding", "gzip")])
        stream.data(gzip.compress(text, 6), end=True)

    with Peer(packed) as peer, make_face(peer.url) as face:
        assert face.get().content == text


def bytes_1(*pieces: bytes, endless: bytes = b"") -> Callable[[Request1], None]:
    def script(request: Request1) -> None:
        request.body()
        request.send(*pieces)
        while endless:
            request.send(endless)
        request.left()

    return script


HEAD_1 = b"HTTP/1.1 200 OK\r\n"
CHUNKED_1 = HEAD_1 + b"transfer-encoding: chunked\r\n\r\n"
ERRORS_1: dict[str, Callable[[Request1], None]] = {
    "endless fields": bytes_1(HEAD_1, endless=b"a: b\r\n" * 1_000),
    "endless informational heads": bytes_1(endless=b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100),
    "an endless chunk extension": bytes_1(CHUNKED_1 + b"5;a=", endless=b"b" * 10_000),
    "a chunk longer than its size": bytes_1(CHUNKED_1 + b"2\r\nhello\r\n0\r\n\r\n"),
    "two lengths": bytes_1(HEAD_1 + b"content-length: 2\r\ncontent-length: 3\r\n\r\nabc"),
    "HTTP/2": bytes_1(SettingsFrame(0).serialize() + b"\r\n\r\n"),
}


@both_faces
@pytest.mark.parametrize("script", list(ERRORS_1.values()), ids=list(ERRORS_1))
def test_what_no_http1_server_may_send_is_an_error(make_face: Any, script: Callable[[Request1], None]) -> None:
    with PeerH1(script) as peer, make_face(peer.url) as face:
        before = resident()
        with pytest.raises(httpx2.RemoteProtocolError):
            face.post(content=b"x")

        assert resident() - before < MOST_MEMORY
        assert len(peer.requests) == 1
        assert peer.left.acquire(timeout=30)
