"""What a server has not processed is sent once more, and only that; what it has begun is left to it."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest

from tests.transport.faces import both_faces
from tests.transport.peer import (
    ENHANCE_YOUR_CALM,
    INTERNAL_ERROR,
    NO_ERROR,
    REFUSED_STREAM,
    Peer,
    Stream,
    by_path,
)


class Leaving:
    """Begins an answer, says GOAWAY when the test says, and ends the answer in its own time."""

    def __init__(self, *lasts: int | None) -> None:
        self.lasts = lasts
        self.leave = threading.Event()
        self.finish = threading.Event()

    def __call__(self, stream: Stream) -> None:
        stream.head()
        stream.data(b"before ")
        stream.hold(self.leave)
        for last in self.lasts:
            stream.connection.goaway(stream.id if last is None else last)
        stream.data(b"after ")
        stream.hold(self.finish)
        stream.data(b"end", end=True)


@both_faces
@pytest.mark.parametrize("lasts", [(None,), (2**31 - 1,), (2**31 - 1, None)], ids=["last", "warning", "both"])
def test_an_answer_under_way_survives_a_graceful_goaway_and_the_next_call_goes_elsewhere(
    make_face: Any, lasts: tuple[int | None, ...]
) -> None:
    leaving = Leaving(*lasts)
    with Peer(by_path(leaving=leaving)) as peer, make_face(peer.url) as face:
        answer = face.open("/leaving")
        assert answer.piece() == b"before "
        leaving.leave.set()
        assert answer.piece() == b"after "
        assert face.get("/next").content == b"ok"
        leaving.finish.set()

        assert answer.rest() == b"end"
        assert [stream.connection.number for stream in peer.requests] == [1, 2]
        assert peer.connections[0].closed.wait(30)
        assert face.get("/third").content == b"ok"
        assert len(peer.connections) == 2


@both_faces
def test_a_goaway_while_idle_costs_no_error(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        for number in range(1, 4):
            assert face.post(content=b"x").content == b"ok"
            peer.connections[-1].goaway(1)
            assert peer.connections[-1].closed.wait(30)
            assert len(peer.connections) == number

        assert len(peer.requests) == 3


@both_faces
def test_the_first_request_of_a_connection_is_sent_again_where_goaway_left_it_out(make_face: Any) -> None:
    def respond(stream: Stream) -> None:
        body = stream.body()
        if stream.connection.number == 1:
            stream.connection.goaway(0)
            stream.hold_until_left()
        stream.answer(body)

    with Peer(respond) as peer, make_face(peer.url) as face:
        assert face.post("/", content=b"the same").content == b"the same"

        assert [(stream.connection.number, bytes(stream.received)) for stream in peer.requests] == [
            (1, b"the same"),
            (2, b"the same"),
        ]


@both_faces
def test_only_the_streams_above_the_last_one_are_sent_again(make_face: Any) -> None:
    both_there, finish = threading.Event(), threading.Event()

    def respond(stream: Stream) -> None:
        if stream.path == "/processed":
            stream.hold(both_there)
            stream.connection.goaway(stream.id)
            stream.hold(finish)
        elif stream.connection.number == 1 and stream.path == "/left-out":
            stream.hold_until_left()
        stream.answer(stream.path.encode())

    with Peer(respond) as peer, make_face(peer.url) as face:
        face.get("/first")
        processed = face.begin("/processed")
        peer.wait_until(lambda: len(peer.requests) == 2)
        left_out = face.begin("/left-out")
        peer.wait_until(lambda: len(peer.requests) == 3)
        both_there.set()
        assert left_out.result().content == b"/left-out"
        assert not processed.future.done()
        finish.set()

        assert processed.result().content == b"/processed"
        seen = [(stream.path, stream.connection.number) for stream in peer.requests]
        assert seen == [("/first", 1), ("/processed", 1), ("/left-out", 1), ("/left-out", 2)]


@both_faces
def test_a_request_that_two_connections_leave_out_is_not_sent_a_third_time(make_face: Any) -> None:
    def respond(stream: Stream) -> None:
        stream.body()
        stream.connection.goaway(0)
        stream.hold_until_left()

    with Peer(respond) as peer, make_face(peer.url) as face:
        with pytest.raises(httpx2.RemoteProtocolError):
            face.post("/", content=b"x")

        assert len(peer.requests) == 2


@both_faces
@pytest.mark.parametrize("code", [ENHANCE_YOUR_CALM, INTERNAL_ERROR])
def test_what_a_hard_goaway_may_have_processed_is_not_sent_again(make_face: Any, code: int) -> None:
    def hard(stream: Stream) -> None:
        stream.body()
        stream.connection.goaway(stream.id, code)
        stream.connection.fin()

    with Peer(by_path(hard=hard)) as peer, make_face(peer.url) as face:
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            face.post("/hard", content=b"x")

        assert len(peer.requests) == 1
        assert face.get("/next").content == b"ok"


def refusing(times: int) -> Any:
    seen: list[int] = []

    def respond(stream: Stream) -> None:
        body = stream.body()
        seen.append(stream.id)
        if len(seen) <= times:
            stream.rst(REFUSED_STREAM)
        else:
            stream.answer(body)

    return respond


@both_faces
def test_a_refused_request_is_sent_again_exactly_once(make_face: Any) -> None:
    with Peer(by_path(refused=refusing(1))) as peer, make_face(peer.url) as face:
        face.get("/first")
        assert face.post("/refused", content=b"the same").content == b"the same"

        assert [bytes(stream.received) for stream in peer.requests[1:]] == [b"the same"] * 2


@both_faces
def test_a_request_that_is_refused_twice_is_an_error(make_face: Any) -> None:
    with Peer(by_path(refused=refusing(9))) as peer, make_face(peer.url) as face:
        with pytest.raises(httpx2.RemoteProtocolError):
            face.post("/refused", content=b"x")

        assert len(peer.requests) == 2
        assert face.get("/next").content == b"ok"


@both_faces
def test_a_body_that_can_be_made_only_once_is_not_sent_again(make_face: Any) -> None:
    with Peer(by_path(refused=refusing(1))) as peer, make_face(peer.url) as face:
        with pytest.raises(httpx2.RemoteProtocolError):
            face.post("/refused", content=face.upload([b"once"]))

        assert len(peer.requests) == 1


@both_faces
def test_a_refusal_after_the_head_is_an_error_and_nothing_is_sent_again(make_face: Any) -> None:
    def respond(stream: Stream) -> None:
        stream.head()
        stream.rst(REFUSED_STREAM)

    with Peer(respond) as peer, make_face(peer.url) as face:
        with pytest.raises(httpx2.RemoteProtocolError):
            face.get()

        assert len(peer.requests) == 1


@both_faces
@pytest.mark.parametrize("code", [NO_ERROR, INTERNAL_ERROR, 4_711])
def test_any_other_reset_before_the_head_is_an_error_of_that_stream_alone(make_face: Any, code: int) -> None:
    def reset(stream: Stream) -> None:
        stream.body()
        stream.rst(code)

    with Peer(by_path(reset=reset)) as peer, make_face(peer.url) as face:
        face.get("/first")
        with pytest.raises(httpx2.RemoteProtocolError):
            face.post("/reset", content=b"x")
        face.get("/next")

        assert [stream.path for stream in peer.requests] == ["/first", "/reset", "/next"]
        assert len(peer.connections) == 1


@both_faces
def test_a_reset_amid_the_answer_comes_after_what_was_sent_before_it(make_face: Any) -> None:
    def reset(stream: Stream) -> None:
        stream.head()
        stream.data(b"one ")
        stream.data(b"two ")
        stream.rst(INTERNAL_ERROR)

    with Peer(by_path(reset=reset)) as peer, make_face(peer.url) as face:
        answer = face.open("/reset")
        got = answer.piece()
        while got != b"one two ":
            got += answer.piece()
        with pytest.raises(httpx2.RemoteProtocolError):
            answer.piece()
        face.get("/next")

        assert len(peer.connections) == 1


@both_faces
@pytest.mark.parametrize("says_stop", [True, False], ids=["with RST_STREAM(NO_ERROR)", "without a word"])
def test_an_answer_that_is_complete_before_the_upload_is_not_lost(make_face: Any, says_stop: bool) -> None:
    def early(stream: Stream) -> None:
        stream.head(413)
        stream.data(b"too large", end=True)
        if says_stop:
            stream.rst(NO_ERROR)

    # The peer takes 65,535 bytes and grants no more.
    with Peer(by_path(early=early), grants=False) as peer, make_face(peer.url) as face:
        response = face.post("/early", content=bytes(1_000_000))

        assert (response.status_code, response.content) == (413, b"too large")
        assert len(peer.requests) == 1
        assert face.get("/next").content == b"ok"
