"""What a broken or hostile server sends over HTTP/1.1 is an error of httpx2's, and never another call's response."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.transport.faces import both_faces
from tests.transport.peer_h1 import OK, PeerH1, Request1
from tests.transport.resources import resident

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BLANKS = b" " * 90_000


def sends(*pieces: bytes) -> Callable[[Request1], None]:
    """A script that sends these pieces, and waits until the client leaves."""

    def respond(request: Request1) -> None:
        request.send(*pieces)
        request.left()

    return respond


@both_faces
@pytest.mark.parametrize("unrequested", [b"HTTP/1.1 408 Late\r\nConnection: close\r\n\r\n", EMPTY, b"\n", EMPTY * 300])
@pytest.mark.parametrize(
    "end_of_answer",
    [
        EMPTY,
        EMPTY.replace(b"0\r", b"1\r") + b"a",
        CHUNKED + b"0\r\n\r\n",
        # As long as what h11 is given at once.
        CHUNKED + b"0\r\nX: %b\r\n\r\n" % (b"a" * (4096 - 10)),
    ],
    ids=["empty", "length", "chunked", "trailer"],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_unrequested_bytes_are_never_a_response(
    make_face: Any, end_of_answer: bytes, unrequested: bytes, at_once: bool
) -> None:
    was_read = threading.Event()

    def respond(request: Request1) -> None:
        if request.target == "/next":
            request.send(OK)
        elif at_once:
            sends(end_of_answer + unrequested)(request)
        else:
            request.send(end_of_answer)
            request.hold(was_read)
            sends(unrequested)(request)

    with PeerH1(respond) as peer, make_face(peer.url) as face:
        assert face.get().status_code == 200
        was_read.set()
        assert peer.left.acquire(timeout=30)
        assert face.get("/next").content == b"ok"

        assert peer.connections == 2


@both_faces
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("before", "repeated"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Header: more\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nX: a", b"\r\n "),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (CHUNKED + b"1;", b"extension"),
        (CHUNKED + b"0\r\n", b"X-Trailer: more\r\n"),
        (CHUNKED, b"0"),
    ],
)
def test_endless_head_is_an_error_with_memory_flat(make_face: Any, before: bytes, repeated: bytes) -> None:
    def endless(request: Request1) -> None:
        request.body()
        request.send(before)
        while True:
            request.send(repeated * (16_384 // len(repeated)))

    with PeerH1(endless) as peer, make_face(peer.url) as face:
        at_first = resident()
        with pytest.raises(httpx2.RemoteProtocolError):
            face.post(content=b"x")

        assert resident() - at_first < 96 << 20
        assert len(peer.requests) == 1
        assert peer.left.acquire(timeout=30)


@both_faces
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "came",
    [
        b"HTTP/1.1 200 OK\r\nX:" + BLANKS + b"\x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX:" + BLANKS + b"\r\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX:" + b"\r\n " * 30_000 + b"\x0b\r\n\r\n",
        b"HTTP/1.1 100 OK\r\n\r\nHTTP/1.1 200 OK\r\nX:" + BLANKS + b"\x0c\r\n\r\n",
        CHUNKED + b"1;" + BLANKS + b"\nx\r\n",
        CHUNKED + b"0\r\nX:" + BLANKS + b"\x00\r\n\r\n",
    ],
    ids=["NUL", "CR", "folds", "behind a 1xx", "extension", "trailer"],
)
@pytest.mark.parametrize("size", [100_000, 1_000])
def test_endless_blank_lines_are_an_error(make_face: Any, came: bytes, size: int) -> None:
    pieces = [came[at : at + size] for at in range(0, len(came), size)]
    with (
        PeerH1(sends(*pieces)) as peer,
        make_face(peer.url) as face,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        face.get()


@both_faces
@pytest.mark.parametrize(
    "came",
    [
        b"secret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nsecret\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        CHUNKED + b"secret\r\n",
        CHUNKED + b"2\r\nabsecret\r\n",
    ],
)
def test_error_does_not_quote_what_came(make_face: Any, came: bytes) -> None:
    with (
        PeerH1(sends(came)) as peer,
        make_face(peer.url) as face,
        pytest.raises(httpx2.RemoteProtocolError) as raised,
    ):
        face.get()

    assert len(str(raised.value)) > 10
    assert not any(part in str(raised.value) for part in ("bytearray", "'"))
    assert "secret" not in "".join(traceback.format_exception(raised.value))
