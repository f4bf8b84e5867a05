"""An abandoned request ends at once, wherever it is, and one whose deadline has passed ends then."""

from __future__ import annotations

import gc
import threading
import time
from time import perf_counter_ns as now_ns
from typing import Any

import httpx2
import pytest

from fastlane.transport import PATIENCE, PHASES, Patience, Phases
from tests.transport.faces import AsyncFace, both_faces
from tests.transport.peer import (
    CANCEL,
    MAX_CONCURRENT_STREAMS,
    HeldHandshakes,
    Peer,
    Stream,
    by_path,
    one_piece,
    silent,
)
from tests.transport.peer_h1 import CHUNKED, PeerH1, Request1, chunk
from tests.waiting import until

GIVEN_UP = "The request was given up."
both_protocols = pytest.mark.parametrize("version", ["HTTP/2", "HTTP/1.1"])


SCRIPTS = by_path(silent=silent, one=one_piece)


def with_patience(patience: Patience, phases: Phases | None = None) -> dict[str, Any]:
    return {PATIENCE: patience} if phases is None else {PATIENCE: patience, PHASES: phases}


def is_given_up(error: BaseException | None) -> bool:
    return isinstance(error, httpx2.ReadError) and str(error) == GIVEN_UP and error.request is not None


@both_faces
def test_request_abandoned_before_start_is_never_sent(make_face: Any) -> None:
    patience = Patience()
    patience.give_up()
    with Peer(settings={MAX_CONCURRENT_STREAMS: 1}) as peer, make_face(peer.url, max_connections=1) as face:
        for _ in range(2):  # without a connection, and with one
            error = face.begin("/never", extensions=with_patience(patience)).error()
            assert is_given_up(error)
            assert face.get("/other").content == b"ok"

        assert [stream.path for stream in peer.requests] == ["/other"] * 2
        assert len(peer.connections) == 1


@both_faces
@both_protocols
def test_abandon_after_the_end_does_nothing(make_face: Any, version: str) -> None:
    patience, phases = Patience(), Phases()
    with Peer() as peer, PeerH1() as plain, make_face(peer.url if version == "HTTP/2" else plain.url) as face:
        read = face.get("/read", extensions=with_patience(patience))
        unread_patience = Patience()
        unread = face.open("/unread", extensions=with_patience(unread_patience, phases))
        until(lambda: phases.answer_ended_ns is not None)
        patience.give_up()
        unread_patience.give_up()
        assert face.get("/next").content == b"ok"

        assert read.content == b"ok"
        assert unread.rest() == b"ok"
        assert peer.resets == []
        assert len(peer.connections) + plain.connections == 1
        assert patience.given_up


@both_faces
@both_protocols
def test_abandon_at_any_moment_ends_in_response_or_error(make_face: Any, version: str) -> None:
    together = threading.Barrier(3)

    def talk(stream: Stream) -> None:
        stream.body()
        if stream.path == "/last":
            together.wait(30)
        stream.head()
        for _ in range(20):
            stream.data(b"x" * 1_000)
        stream.data(b"", end=True)

    def talk1(request: Request1) -> None:
        request.body()
        if request.target == "/last":
            together.wait(30)
        request.send(CHUNKED, *[chunk(b"x" * 1_000)] * 20, b"0\r\n\r\n")

    with (
        Peer(talk, settings={MAX_CONCURRENT_STREAMS: 1}) as peer,
        PeerH1(talk1) as plain,
        make_face(peer.url if version == "HTTP/2" else plain.url, max_connections=3) as face,
    ):
        for round_number in range(10):
            patiences = [Patience() for _ in range(6)]
            calls = [
                face.begin("/", "POST", content=bytes(50_000), extensions=with_patience(patience))
                for patience in patiences
            ]
            pause = round_number * 0.001
            for patience in patiences[::2]:
                time.sleep(pause)
                patience.give_up()
            for patience, call in zip(patiences, calls, strict=True):
                error = call.error()
                if error is None:
                    assert len(call.result().content) == 20_000
                else:
                    assert patience.given_up
                    assert is_given_up(error), repr(error)

        # Every place is free: as many calls as there may be are answered at once.
        assert [len(answer.content) for answer in face.together(*["/last"] * 3)] == [20_000] * 3


def test_abandon_after_the_loop_ended_does_nothing() -> None:
    patience = Patience()
    with Peer(SCRIPTS) as peer, AsyncFace(peer.url) as face:
        answer = face.open("/one", extensions=with_patience(patience))
        face.close()
        patience.give_up()

        assert patience.given_up
        assert peer.resets in ([], [CANCEL])
        del answer


@both_faces
def test_shorter_request_timeout_precedes_the_deadline(make_face: Any) -> None:
    with Peer(SCRIPTS) as peer, make_face(peer.url) as face:
        patience = Patience(until_ns=now_ns() + 60_000_000_000)
        with pytest.raises(httpx2.ReadTimeout):
            face.get("/silent", extensions=with_patience(patience), timeout=httpx2.Timeout(60, read=0.05))
        with pytest.raises(httpx2.ReadTimeout):
            face.get("/silent", extensions=with_patience(Patience()), timeout=httpx2.Timeout(60, read=0.05))


def local_address(phases: Phases) -> str:
    assert phases.opening is not None
    return phases.opening.local_address


@both_faces
@pytest.mark.parametrize("max_connections", [1, 4])
def test_request_avoids_the_connection_of_another(make_face: Any, max_connections: int) -> None:
    first, second = Phases(), Phases()
    with Peer(SCRIPTS) as peer, make_face(peer.url, max_connections=max_connections) as face:
        holding = face.open("/one", extensions={PHASES: first})
        for _ in range(2):  # a connection that is opened for it, and one that is open
            patience = Patience(avoid=local_address(first))
            assert face.get("/two", extensions=with_patience(patience, second)).content == b"ok"
            # One that may be had is another, and the same is better than none.
            assert (local_address(second) != local_address(first)) == (max_connections > 1)
        for avoided in (first, second):
            found = Phases()
            face.get("/three", extensions=with_patience(Patience(avoid=local_address(avoided)), found))
            assert (local_address(found) != local_address(avoided)) == (max_connections > 1)

        assert len(peer.connections) == min(2, max_connections)
        holding.close()


@both_faces
@pytest.mark.parametrize(("timeout_s", "waits_s"), [(30, 1.0), (1.0, 0.5)])
def test_unavailable_other_connection_falls_back_to_the_same(make_face: Any, timeout_s: float, waits_s: float) -> None:
    first, second = Phases(), Phases()
    with Peer() as peer, make_face(peer.url) as face:
        face.get("/one", extensions={PHASES: first})
        held = HeldHandshakes(peer)
        started_ns = now_ns()
        patience = Patience(avoid=local_address(first))
        timeout = httpx2.Timeout(30, connect=timeout_s)
        assert face.get("/two", extensions=with_patience(patience, second), timeout=timeout).content == b"ok"

        assert local_address(second) == local_address(first)
        assert now_ns() - started_ns >= waits_s * 1e9
        held.go_on.set()


@both_faces
def test_abandon_during_garbage_collection_takes_no_lock(make_face: Any, monkeypatch: Any) -> None:
    from fastlane.transport.protocols.h2 import Http2Connection

    patience, lost, collected = Patience(), threading.Event(), threading.Event()
    real = Http2Connection.begin

    class GivesUp:
        def __del__(self) -> None:
            patience.give_up()
            collected.set()

    def collecting(*args: Any, **options: Any) -> Any:
        if lost.is_set():
            lost.clear()
            cycle: list[Any] = [GivesUp()]
            cycle.append(cycle)
            del cycle
            gc.collect()  # as making any object may do
        return real(*args, **options)

    with Peer(SCRIPTS) as peer, make_face(peer.url) as face:
        face.get("/first")
        monkeypatch.setattr(Http2Connection, "begin", collecting)
        pending = face.begin("/silent", extensions=with_patience(patience))
        until(lambda: len(peer.requests) == 2)
        lost.set()

        assert face.get("/second").content == b"ok"
        assert collected.wait(30)
        assert is_given_up(pending.error())
        until(lambda: peer.resets == [CANCEL])
        assert len(peer.connections) == 1
