"""What a hostile or broken server sends ends in an error of httpx2's, with memory flat, and harms nothing else."""

from __future__ import annotations

import functools
import gzip
from typing import Any

import httpx2
import pytest

from tests.transport.faces import both_faces
from tests.transport.h2_peer import raw_frame
from tests.transport.peer import PROTOCOL_ERROR, Header, Peer, Respond, Stream, by_path, silent
from tests.transport.resources import resident
from tests.waiting import until

MOST_MEMORY = 96 << 20


def beyond_our_window(stream: Stream) -> None:
    stream.head()
    while True:
        stream.data_frame(bytes(16_384))
        stream.connection.drain()


@both_faces
def test_data_beyond_the_window_is_not_buffered(make_face: Any) -> None:
    with Peer(by_path(beyond=beyond_our_window)) as peer, make_face(peer.url) as face:
        before = resident()
        answer = face.open("/beyond")
        # A stream's end: the connection's, or RST_STREAM for this stream alone.
        until(lambda: bool(peer.resets) or peer.connections[0].closed.is_set())
        with pytest.raises(httpx2.RemoteProtocolError):
            answer.rest()

        assert resident() - before < MOST_MEMORY
        assert face.get("/next").content == b"ok"


def head_of(*fields: Header) -> Respond:
    return lambda stream: stream.header_block(fields)


def body_of(size: int, announced: int) -> Respond:
    def script(stream: Stream) -> None:
        stream.head(length=announced, end=not size)
        if size:
            stream.data(bytes(size), end=True)

    return script


def trailers_before_the_end(stream: Stream) -> None:
    stream.head()
    stream.header_block([("a", "b")])


STATUS = (":status", "200")
MALFORMED = {
    "no status": head_of(("content-type", "text/plain")),
    "no field at all": head_of(),
    "a status of words": head_of((":status", "2xx")),
    "a long status": head_of((":status", "2000")),
    "a status below 100": head_of((":status", "099")),
    "two of them": head_of(STATUS, STATUS),
    "another pseudo-header": head_of(STATUS, (":path", "/")),
    "a status behind": head_of(("a", "b"), STATUS),
    "upper case": head_of(STATUS, ("X-Upper", "1")),
    "a line end": head_of(STATUS, ("x", "hush\r\nhush")),
    "a length of words": head_of(STATUS, ("content-length", "hush")),
    "two lengths": head_of(STATUS, ("content-length", "1"), ("content-length", "2")),
    "an endless length": head_of(STATUS, ("content-length", "9" * 5_000)),
    "a protocol switch": head_of((":status", "101")),
    "a field of the connection": head_of(STATUS, ("connection", "close")),
    "no body": body_of(0, announced=4),
    "a shorter body": body_of(3, announced=4),
    "a longer body": body_of(5, announced=4),
    "trailers before the end": trailers_before_the_end,
}


@both_faces
@pytest.mark.parametrize("script", MALFORMED.values(), ids=MALFORMED)
def test_malformed_answer_fails_only_its_stream(make_face: Any, script: Respond) -> None:
    with Peer(by_path(broken=script)) as peer, make_face(peer.url) as face:
        face.get("/first")
        with pytest.raises(httpx2.RemoteProtocolError) as raised:
            face.get("/broken")

        assert "hush" not in str(raised.value)
        assert face.get("/next").content == b"ok"
        assert (peer.resets, len(peer.connections)) == ([PROTOCOL_ERROR], 1)


@both_faces
@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", bytes(100), raw_frame(6, 0, 0, bytes(8))],
    ids=["HTTP/1.1", "SSH", "nothing", "a ping"],
)
def test_server_preface_without_settings_is_an_error(make_face: Any, data: bytes) -> None:
    with Peer(silent, opening=lambda connection: connection.send_bytes(data)) as peer, make_face(peer.url) as face:
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ConnectError)):
            face.get()

        assert len(peer.requests) <= 2
        assert len(peer.connections) <= 5  # each may end before the request is sent on it, and no more are tried


@functools.cache
def packed_zeros() -> bytes:
    return gzip.compress(bytes(400 << 20), 6)


@both_faces
@pytest.mark.slow
def test_bomb_of_a_body_ends_in_an_error_with_memory_flat(make_face: Any) -> None:
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
def test_answer_that_is_packed_well_is_no_bomb(make_face: Any) -> None:
    text = b"".join(b"%d bottles of beer on the wall\n" % number for number in range(400_000))

    def packed(stream: Stream) -> None:
        stream.head(200, [("content-encoding", "gzip")])
        stream.data(gzip.compress(text, 6), end=True)

    with Peer(packed) as peer, make_face(peer.url) as face:
        assert face.get().content == text
