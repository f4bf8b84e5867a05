"""Both flow-control windows, both directions: no side sends more than the other takes, nothing is lost or held up."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Any

import pytest
from hyperframe.frame import DataFrame

from fastlane.transport import PHASES, Phases
from tests.transport.faces import both_faces
from tests.transport.peer import INITIAL_WINDOW_SIZE, Peer, Stream, by_path
from tests.transport.peer_h1 import HEAD, OK, PeerH1, Request1
from tests.transport.resources import resident
from tests.waiting import until

LARGEST_STREAM_WINDOW = 4 << 20


def noise(size: int) -> bytes:
    """Bytes whose order can be checked."""
    block = b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(8_192))
    return (block * (size // len(block) + 1))[:size]


def digest(stream: Stream) -> None:
    """Answer with what the body's checksum is."""
    stream.answer(hashlib.sha256(stream.body()).hexdigest().encode())


@both_faces
@pytest.mark.parametrize("window", [1, 16_384, 1 << 20])
def test_large_upload_passes_any_flow_control_window(make_face: Any, window: int) -> None:
    body = noise(min(8 << 20, window * 1_000))
    with Peer(digest, settings={INITIAL_WINDOW_SIZE: window}) as peer, make_face(peer.url) as face:
        assert face.post(content=body).text == hashlib.sha256(body).hexdigest()


@both_faces
def test_window_that_settings_make_negative_is_waited_out(make_face: Any) -> None:
    body = noise(200_000)

    def negative(stream: Stream) -> None:
        connection = stream.connection
        connection.wait(lambda: len(stream.received) == 65_535)
        connection.settings({INITIAL_WINDOW_SIZE: 10})
        connection.wait(lambda: connection.settings_acked == 2)
        connection.grant(200_000)
        stream.grant(65_000)  # still 525 bytes below nothing
        connection.ping()
        connection.wait(lambda: len(connection.pongs) == 1)
        assert len(stream.received) == 65_535
        stream.grant(525 + 200_000)
        digest(stream)

    with Peer(by_path(negative=negative), grants=False) as peer, make_face(peer.url) as face:
        face.get("/first")

        assert face.post("/negative", content=body).text == hashlib.sha256(body).hexdigest()


@both_faces
def test_stalled_upload_does_not_block_calls_without_body(make_face: Any) -> None:
    def stuck(stream: Stream) -> None:
        stream.connection.wait(lambda: len(stream.received) == 65_535)
        until(lambda: done)
        stream.connection.grant(1 << 20)
        stream.grant(1 << 20)
        digest(stream)

    done = False
    body = noise(500_000)
    with Peer(by_path(stuck=stuck), grants=False) as peer, make_face(peer.url) as face:
        face.get("/first")
        call = face.begin("/stuck", "POST", content=body)
        until(lambda: len(peer.requests) == 2 and len(peer.requests[1].received) == 65_535)
        for _ in range(3):
            assert face.get("/other").content == b"ok"
        done = True

        assert call.result().text == hashlib.sha256(body).hexdigest()
        assert len(peer.connections) == 1


@both_faces
def test_slow_reader_stalls_only_its_own_stream(make_face: Any) -> None:
    body = noise(64 << 20)

    def large(stream: Stream) -> None:
        stream.head(length=len(body))
        stream.data(body, end=True)

    with Peer(by_path(large=large)) as peer, make_face(peer.url) as face:
        face.get("/first")
        before = resident()
        answer = face.open("/large")
        stream = peer.requests[1]
        assert stream.stalled.wait(30)
        for _ in range(3):
            assert face.get("/other").content == b"ok"
        assert stream.sent <= LARGEST_STREAM_WINDOW
        assert resident() - before < 4 * LARGEST_STREAM_WINDOW + (32 << 20)

        first = answer.piece()
        got, size = hashlib.sha256(first), len(first)
        while size < len(body):
            piece = answer.piece()
            got.update(piece)
            size += len(piece)
        assert answer.rest() == b""
        assert got.digest() == hashlib.sha256(body).digest()
        assert resident() - before < 4 * LARGEST_STREAM_WINDOW + (32 << 20)
        assert len(peer.connections) == 1


@both_faces
def test_slow_reader_of_http1_stops_its_server_too(make_face: Any) -> None:
    sent = 0

    def large(request: Request1) -> None:
        nonlocal sent
        request.send(HEAD + b"content-length: 100663296\r\n\r\n")
        for _ in range(96):
            request.send(bytes(1 << 20))
            sent += 1 << 20

    with PeerH1(large) as peer, make_face(peer.url) as face:
        before = resident()
        answer = face.open("/")
        while True:
            seen = sent
            threading.Event().wait(0.5)
            if sent == seen > 0:
                break
        # What the kernel buffers is the kernel's.
        assert resident() - before < 32 << 20
        assert sent < 96 << 20
        assert len(answer.piece()) > 0


@both_faces
def test_http1_unread_large_response_does_not_block_next_call(make_face: Any) -> None:
    def respond(request: Request1) -> None:
        if request.target == "/next":
            request.send(OK)
            return
        request.send(HEAD + b"content-length: %d\r\n\r\n" % LARGEST_STREAM_WINDOW)
        for _ in range(0, LARGEST_STREAM_WINDOW, 65_536):
            request.send(bytes(65_536))
            time.sleep(0.002)  # so that each is a read of its own, and only the last one fills what may be unread

    phases = Phases()
    with PeerH1(respond) as peer, make_face(peer.url) as face:
        answer = face.open("/", extensions={PHASES: phases})
        until(lambda: phases.answer_ended_ns is not None)

        assert face.get("/next").content == b"ok"
        assert len(answer.rest()) == LARGEST_STREAM_WINDOW
        assert peer.connections == 1


@both_faces
def test_empty_body_ends_the_request(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        assert face.post(content=b"").content == b"ok"
        assert face.post(content=face.upload([])).content == b"ok"
        assert face.post(content=face.upload([b"", b"x", b""])).content == b"ok"

        assert [bytes(stream.received) for stream in peer.requests] == [b"", b"", b"x"]


@both_faces
def test_padding_is_credited_like_data(make_face: Any) -> None:
    def padded(stream: Stream) -> None:
        connection = stream.connection
        stream.head()
        for number in range(12_000):
            with connection.lock:
                connection.wait(lambda: min(stream.window, connection.window) >= 500, stream)
                stream.window -= 456
                connection.window -= 456
                frame = DataFrame(stream.id, data=bytes(200), pad_length=255, flags=["PADDED"])
                if number == 11_999:
                    frame.flags.add("END_STREAM")
                    stream.answered = True
                connection.send(frame)
            connection.drain()

    with Peer(by_path(padded=padded)) as peer, make_face(peer.url) as face:
        # Twelve thousand times 456 bytes are more than a stream's window.
        assert len(face.get("/padded").content) == 2_400_000
        assert face.get("/next").content == b"ok"
        assert len(peer.connections) == 1
