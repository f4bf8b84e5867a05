"""An abandoned response stops at the server, and what it leaves behind costs the others nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from fastlane.transport import PHASES, Phases
from fastlane.transport.drivers import thread_driver as _threads
from tests.transport.faces import AsyncFace, SyncFace, both_faces, in_a_thread
from tests.transport.peer import CANCEL, HeldHandshakes, Peer, Stream, by_path, one_piece, silent
from tests.transport.peer_h1 import CHUNKED, OK, PeerH1, Request1, chunk
from tests.waiting import until

PIECE = bytes(16_384)


def endless(stream: Stream) -> None:
    """Send until the client says stop."""
    stream.head()
    while True:
        stream.data(PIECE)


SCRIPTS = by_path(endless=endless, silent=silent, one=one_piece)


def the_connection_goes_on(peer: Peer, face: Any, *resets: int) -> None:
    """Each stream was reset in turn, and the next call finds the connection as it was."""
    until(lambda: len(peer.resets) >= len(resets))
    assert face.get("/next").content == b"ok"
    assert peer.resets == list(resets)
    assert len(peer.connections) == 1


@both_faces
@pytest.mark.parametrize("how", ["closed", "forgotten"])
@pytest.mark.parametrize("pieces", [0, 1, 20])
def test_early_close_resets_stream_and_keeps_connection(make_face: Any, pieces: int, how: str) -> None:
    with Peer(SCRIPTS) as peer, make_face(peer.url) as face:
        face.get("/first")
        if how == "forgotten":
            face.forget("/endless", pieces)
        else:
            answer = face.open("/endless")
            for _ in range(pieces):
                answer.piece()
            answer.close()
            answer.close()

        the_connection_goes_on(peer, face, CANCEL)
        assert peer.connections[0].resets[0].stream_id == 3


@both_faces
def test_answer_that_has_ended_is_not_reset(make_face: Any) -> None:
    def respond(stream: Stream) -> None:
        stream.body()
        stream.head()
        stream.data(b"one")
        stream.data(b"two", end=True)

    with Peer(by_path(two=respond)) as peer, make_face(peer.url) as face:
        read = face.open("/two")
        assert read.rest() == b"onetwo"
        read.close()
        unread = face.open("/two")
        until(lambda: peer.requests[1].answered)
        face.get("/other")  # what was sent before this answer has come by now
        unread.close()

        the_connection_goes_on(peer, face)


@both_faces
def test_abandoned_responses_return_connection_window(make_face: Any) -> None:
    def large(stream: Stream) -> None:
        stream.head()
        stream.data(bytes(40 << 20), end=True)

    with Peer(by_path(large=large)) as peer, make_face(peer.url) as face:
        face.get("/first")
        connection = peer.connections[0]
        whole, spent, closes = connection.window, 0, 0
        while spent <= whole:
            answer = face.open("/large")
            stream = peer.requests[-1]
            assert stream.stalled.wait(30)
            answer.close()
            closes += 1
            spent += stream.sent
            assert closes < 1_000
        until(lambda: len(peer.resets) == closes)
        face.get("/next")

        assert peer.resets == [CANCEL] * closes
        assert len(peer.connections) == 1
        # As much as was lost has been credited, apart from what may be saved up for one frame.
        assert connection.window >= whole // 4


@both_faces
def test_upload_whose_source_fails_is_reset(make_face: Any) -> None:
    def failing() -> Iterator[bytes]:
        yield b"half"
        raise LookupError

    async def afailing() -> Any:
        yield b"half"
        raise LookupError

    with Peer() as peer, make_face(peer.url) as face:
        with pytest.raises(LookupError):
            face.post(content=afailing() if make_face.asynchronous else failing())

        the_connection_goes_on(peer, face, CANCEL)


@both_faces
def test_read_after_the_close_does_not_wait(make_face: Any) -> None:
    with Peer(SCRIPTS) as peer, make_face(peer.url) as face:
        answer = face.open("/one")
        assert answer.piece() == b"piece"
        answer.close()
        with pytest.raises(
            (httpx2.StreamError, httpx2.ReadError, httpx2.ProtocolError, StopIteration, StopAsyncIteration)
        ):
            answer.piece()

        the_connection_goes_on(peer, face, CANCEL)


def test_close_from_another_thread_ends_a_read_that_waits() -> None:
    with Peer(SCRIPTS) as peer, SyncFace(peer.url) as face:
        answer = face.open("/one")
        assert answer.piece() == b"piece"
        reading = in_a_thread(next, answer.pieces)
        with pytest.raises(TimeoutError):
            reading.future.result(0.2)
        answer.close()
        the_connection_goes_on(peer, face, CANCEL)

        # It need not have begun to wait before the close.
        assert isinstance(reading.error(), httpx2.HTTPError | httpx2.StreamError)


@pytest.fixture
def switching_often() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching_often")
@pytest.mark.parametrize("version", ["HTTP/2", "HTTP/1.1"])
def test_close_during_read_ends_stream_or_raises_library_error(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def drops(stream: Stream) -> None:
        stream.head()
        for _ in range(300):
            stream.data(b"drop")
        stream.hold_until_left()

    def respond(request: Request1) -> None:
        request.send(CHUNKED, chunk(b"drop") * 300)
        request.left()

    def read(answer: Any, begun: threading.Event) -> None:
        for _ in answer.pieces:
            begun.set()

    # However little comes at once, many pieces wait for the reader, who is amid them when the close comes.
    monkeypatch.setattr(_threads, "READ_BYTES", 16)
    with (
        Peer(drops) as peer,
        PeerH1(respond) as plain,
        SyncFace(peer.url if version == "HTTP/2" else plain.url) as face,
    ):
        for _ in range(60):
            phases, begun = Phases(), threading.Event()
            answer = face.open("/", extensions={PHASES: phases})
            until(lambda phases=phases: len(phases.data_ns) >= 100)  # type: ignore[misc]
            reading = in_a_thread(read, answer, begun)
            assert begun.wait(30)
            answer.close()
            error = reading.error()

            assert error is None or isinstance(error, httpx2.HTTPError | httpx2.StreamError), repr(error)


@both_faces
@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_http1_early_close_closes_the_connection(make_face: Any, how: str) -> None:
    def respond(request: Request1) -> None:
        if request.target == "/next":
            request.send(OK)
            return
        request.send(CHUNKED, chunk(b"piece"))
        request.left()

    with PeerH1(respond) as peer, make_face(peer.url) as face:
        if how == "forgotten":
            face.forget("/endless", 1)
        else:
            answer = face.open("/endless")
            assert answer.piece() == b"piece"
            answer.close()
        assert peer.left.acquire(timeout=30)

        assert face.get("/next").content == b"ok"
        assert [request.connection for request in peer.requests] == [1, 2]


def test_cancelled_connecting_task_leaves_other_waiters_intact() -> None:
    with Peer() as peer, AsyncFace(peer.url) as face:
        held = HeldHandshakes(peer)
        calls = [face.begin(f"/{number}") for number in range(4)]
        assert held.begun.wait(30)
        calls[0].cancel()
        calls[2].cancel()
        held.go_on.set()

        assert [calls[number].result().content for number in (1, 3)] == [b"ok"] * 2
        assert sorted(stream.path for stream in peer.requests) == ["/1", "/3"]
