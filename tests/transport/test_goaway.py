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
    Respond,
    Stream,
    by_path,
)
from tests.waiting import until


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
def test_response_survives_goaway_and_next_call_reconnects(make_face: Any, lasts: tuple[int | None, ...]) -> None:
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
        until(lambda: len(peer.requests) == 2)
        left_out = face.begin("/left-out")
        until(lambda: len(peer.requests) == 3)
        both_there.set()
        assert left_out.result().content == b"/left-out"
        assert not processed.future.done()
        finish.set()

        assert processed.result().content == b"/processed"
        seen = [(stream.path, stream.connection.number) for stream in peer.requests]
        assert seen == [("/first", 1), ("/processed", 1), ("/left-out", 1), ("/left-out", 2)]


@both_faces
@pytest.mark.parametrize("code", [ENHANCE_YOUR_CALM, INTERNAL_ERROR])
def test_request_a_goaway_may_have_processed_is_not_resent(make_face: Any, code: int) -> None:
    def hard(stream: Stream) -> None:
        stream.body()
        stream.connection.goaway(stream.id, code)
        stream.connection.fin()

    with Peer(by_path(hard=hard)) as peer, make_face(peer.url) as face:
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            face.post("/hard", content=b"x")

        assert len(peer.requests) == 1
        assert face.get("/next").content == b"ok"


def refusing(times: int, by: str) -> Respond:
    """Refuse requests before they are processed, and echo what comes then."""
    seen: list[int] = []

    def respond(stream: Stream) -> None:
        body = stream.body()
        seen.append(stream.id)
        if len(seen) > times:
            stream.answer(body)
        elif by == "RST_STREAM":
            stream.rst(REFUSED_STREAM)
        else:
            stream.connection.goaway(0)
            stream.hold_until_left()

    return respond


@both_faces
@pytest.mark.parametrize("by", ["RST_STREAM", "GOAWAY"])
@pytest.mark.parametrize(
    ("times", "made_once", "sent"),
    [(1, False, 2), (2, False, 2), (1, True, 1)],
    ids=["once", "twice", "a body that can be made only once"],
)
def test_refused_request_is_sent_again_once(make_face: Any, times: int, made_once: bool, sent: int, by: str) -> None:
    with Peer(by_path(refused=refusing(times, by))) as peer, make_face(peer.url) as face:
        call = face.begin("/refused", "POST", content=face.upload([b"same"]) if made_once else b"same")
        if times < sent:
            assert call.result().content == b"same"
        else:
            assert isinstance(call.error(), httpx2.RemoteProtocolError)

        assert [bytes(stream.received) for stream in peer.requests] == [b"same"] * sent
        assert face.get("/next").content == b"ok"


@both_faces
@pytest.mark.parametrize(
    ("code", "name"), [(NO_ERROR, "NO_ERROR"), (INTERNAL_ERROR, "INTERNAL_ERROR"), (0xBEEF, "code 0xbeef")]
)
def test_other_reset_before_head_fails_only_its_stream(make_face: Any, code: int, name: str) -> None:
    def reset(stream: Stream) -> None:
        stream.body()
        stream.rst(code)

    with Peer(by_path(reset=reset)) as peer, make_face(peer.url) as face:
        face.get("/first")
        with pytest.raises(httpx2.RemoteProtocolError, match=f"The server reset the stream: {name}"):
            face.post("/reset", content=b"x")
        face.get("/next")

        assert [stream.path for stream in peer.requests] == ["/first", "/reset", "/next"]
        assert len(peer.connections) == 1


@both_faces
@pytest.mark.parametrize("says_stop", [True, False], ids=["with RST_STREAM(NO_ERROR)", "without a word"])
def test_complete_response_before_end_of_upload_is_kept(make_face: Any, says_stop: bool) -> None:
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
