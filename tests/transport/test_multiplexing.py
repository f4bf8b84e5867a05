"""Many calls on one connection: none waits for another, and further connections only where the peer's limit asks."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest

from tests.transport.faces import both_faces
from tests.transport.peer import MAX_CONCURRENT_STREAMS, REFUSED_STREAM, Peer, PeerConnection, Respond, Stream, by_path
from tests.transport.peer_h1 import OK, PeerH1, Request1
from tests.waiting import until


def together(count: int) -> Respond:
    """A script that sends no response before so many requests have come."""
    barrier = threading.Barrier(count)

    def respond(stream: Stream) -> None:
        stream.body()
        barrier.wait(30)
        stream.answer(b"ok")

    return respond


@both_faces
def test_pieces_reach_their_readers_independently(make_face: Any) -> None:
    turns = {(stream, piece): threading.Event() for stream in range(6) for piece in range(4)}

    def by_turns(stream: Stream) -> None:
        number = int(stream.path.rpartition("/")[2])
        stream.head()
        for piece in range(4):
            stream.hold(turns[number, piece])
            stream.data(b"%d.%d" % (number, piece), end=piece == 3)

    with Peer(by_path(turns=by_turns)) as peer, make_face(peer.url) as face:
        answers = [face.open(f"/turns/{number}") for number in range(6)]
        others = answers[5].begin_rest()  # one call is always blocked in a read
        for piece in range(4):
            for number in (3, 1, 4, 0, 2):
                turns[number, piece].set()
                assert answers[number].piece() == b"%d.%d" % (number, piece)
        assert not others.future.done()
        for piece in range(4):
            turns[5, piece].set()

        assert others.result() == b"5.05.15.25.3"
        assert [answer.rest() for answer in answers[:5]] == [b""] * 5
        assert len(peer.connections) == 1


@both_faces
def test_upload_that_pauses_holds_up_no_other_call(make_face: Any) -> None:
    release = threading.Event()
    with Peer() as peer, make_face(peer.url) as face:
        pausing = face.begin("/", "POST", content=face.upload([b"half", release, b"rest"]))
        until(lambda: bool(peer.requests) and bytes(peer.requests[0].received) == b"half")
        assert face.get().content == b"ok"
        assert not pausing.future.done()
        release.set()

        assert pausing.result().content == b"ok"
        assert bytes(peer.requests[0].received) == b"halfrest"
        assert len(peer.connections) == 1


@both_faces
@pytest.mark.parametrize(("first", "later", "connections"), [(1, 20, 1), (20, 2, 2)], ids=["raised", "lowered"])
def test_changed_stream_limit_is_used_and_kept(make_face: Any, first: int, later: int, connections: int) -> None:
    changed = threading.Event()

    def opening(connection: PeerConnection) -> None:
        connection.settings({MAX_CONCURRENT_STREAMS: 20 if connection.number > 1 else first})
        if connection.number == 1:
            connection.hold(changed)
            connection.settings({MAX_CONCURRENT_STREAMS: later})

    with Peer(by_path(all=together(8)), opening=opening) as peer, make_face(peer.url) as face:
        face.get("/first")
        changed.set()
        until(lambda: peer.connections[0].settings_acked == 2)
        answers = face.together(*["/all"] * 8)

        # (Leaving the peer's context fails the test where a limit was exceeded.)
        assert [answer.content for answer in answers] == [b"ok"] * 8
        assert len(peer.connections) == connections


@both_faces
def test_server_allowing_no_streams_fails_after_few_attempts(make_face: Any) -> None:
    def refuse(stream: Stream) -> None:
        stream.rst(REFUSED_STREAM)

    with Peer(refuse, settings={MAX_CONCURRENT_STREAMS: 0}) as peer, make_face(peer.url) as face:
        for _ in range(3):
            with pytest.raises(httpx2.TransportError):
                face.get(timeout=httpx2.Timeout(20, pool=0.3))

        # A request may go before the peer's SETTINGS have come, and once more where it was refused.
        assert len(peer.requests) <= 6
        assert len(peer.connections) <= 6


@both_faces
@pytest.mark.parametrize("size", [0, 2, 12_500])
def test_request_and_its_body_go_in_one_write(make_face: Any, size: int) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        face.get("/first")
        face.post("/", content=b"x" * size)

        stream = peer.requests[1]
        assert len(stream.received) == size
        assert len(set(stream.records)) == 1


@both_faces
def test_burst_without_tls_opens_a_connection_for_each_call(make_face: Any) -> None:
    barrier = threading.Barrier(7)

    def respond(request: Request1) -> None:
        barrier.wait(30)
        request.send(OK)

    with PeerH1(respond) as peer, make_face(peer.url) as face:
        assert [answer.content for answer in face.together(*["/"] * 7)] == [b"ok"] * 7
        assert peer.connections == 7


@both_faces
def test_longest_idle_connection_makes_room_for_another_origin(make_face: Any) -> None:
    with PeerH1() as first, PeerH1() as second, PeerH1() as third, make_face(max_connections=2) as face:
        for peer in (first, second, first, third):
            assert face.get(peer.url).content == b"ok"
        assert second.left.acquire(timeout=30)
        face.get(first.url)

        assert [peer.connections for peer in (first, second, third)] == [1, 1, 1]
