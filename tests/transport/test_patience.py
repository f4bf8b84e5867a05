"""A request that somebody gives up ends at once, wherever it is, and one whose time is up ends then."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import pytest

from fastlane._clock import now_ns
from fastlane.emulator import Emulator
from fastlane.transport import PATIENCE, PHASES, Patience, Phases
from tests.transport.faces import AsyncFace, both_faces, in_a_thread
from tests.transport.peer import (
    CANCEL,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    HeldHandshakes,
    Peer,
    Stream,
    by_path,
    one_piece,
    silent,
    trusting,
)
from tests.transport.peer_h1 import CHUNKED, PeerH1, Request1, chunk
from tests.transport.resources import descriptors, threads
from tests.waiting import comes_true

GIVEN_UP = "The request was given up."
SOON_NS = 150_000_000
both_protocols = pytest.mark.parametrize("version", ["HTTP/2", "HTTP/1.1"])


@pytest.fixture(autouse=True, scope="module")
def nothing_stays(running_provider: Emulator) -> Iterator[None]:
    """These tests leave the process as they found it."""
    gc.collect()
    files, before = descriptors(), threads()
    yield
    gc.collect()
    assert comes_true(lambda: threads() <= before), threads() - before
    assert comes_true(lambda: len(descriptors()) <= len(files)), descriptors() - files


SCRIPTS = by_path(silent=silent, one=one_piece)


def silent1(request: Request1) -> None:
    if request.target == "/one":
        request.send(CHUNKED, chunk(b"piece"))
    request.left()


def with_patience(patience: Patience, phases: Phases | None = None) -> dict[str, Any]:
    return {PATIENCE: patience} if phases is None else {PATIENCE: patience, PHASES: phases}


def is_given_up(error: BaseException | None) -> bool:
    return isinstance(error, httpx2.ReadError) and str(error) == GIVEN_UP and error.request is not None


def connections(face: Any) -> int:
    """How many there are, those that are being opened included."""
    engine = face.transport
    pools = engine._pools.values() if face.asynchronous else [engine._pool]
    return sum(int(pool.pool._count) for pool in pools)


def waiters(face: Any) -> int:
    engine = face.transport
    pools = engine._pools.values() if face.asynchronous else [engine._pool]
    return sum(len(state.waiters) for pool in pools for state in pool.pool._origins.values())


def claimed(face: Any) -> int:
    engine = face.transport
    pools = engine._pools.values() if face.asynchronous else [engine._pool]
    return sum(member.claimed - len(member.ended) for pool in pools for member in pool.pool.members())


def nothing_is_claimed(face: Any) -> bool:
    return comes_true(lambda: not waiters(face) and not claimed(face))


# Giving up


@both_faces
def test_a_request_that_was_given_up_before_is_never_sent(make_face: Any) -> None:
    patience = Patience()
    patience.give_up()
    with Peer() as peer, make_face(peer.url) as face:
        for _ in range(2):  # without a connection, and with one
            error = face.begin("/never", extensions=with_patience(patience)).error()
            assert is_given_up(error)
            assert face.get("/other").content == b"ok"

        assert [stream.path for stream in peer.requests] == ["/other"] * 2
        assert len(peer.connections) == 1
        assert nothing_is_claimed(face)


@both_faces
def test_giving_up_ends_a_wait_for_a_connection_that_never_stands(make_face: Any) -> None:
    patience, phases = Patience(), Phases()
    with socket.create_server(("127.0.0.1", 0)) as mute, make_face() as face:
        pending = face.begin(f"https://127.0.0.1:{mute.getsockname()[1]}/", extensions=with_patience(patience, phases))
        assert comes_true(lambda: phases.connection_wait_started_ns is not None)
        assert not pending.future.done()
        patience.give_up()

        assert is_given_up(pending.error())
        # Nobody else wants the connection.
        assert comes_true(lambda: not connections(face))
        assert waiters(face) == 0


@both_faces
def test_giving_up_leaves_a_connection_alone_that_somebody_else_waits_for(make_face: Any) -> None:
    patience = Patience()
    with Peer() as peer, make_face(peer.url) as face:
        held = HeldHandshakes(peer)
        other = face.begin("/other")
        pending = face.begin("/gives-up", extensions=with_patience(patience))
        assert held.begun.wait(30)
        assert comes_true(lambda: waiters(face) == 2)
        patience.give_up()
        assert is_given_up(pending.error())
        held.go_on.set()

        assert other.result().content == b"ok"
        assert [stream.path for stream in peer.requests] == ["/other"]


@both_faces
@both_protocols
def test_giving_up_ends_a_wait_for_a_place_and_takes_none(make_face: Any, version: str) -> None:
    patience, phases = Patience(), Phases()
    with (
        Peer(SCRIPTS, settings={MAX_CONCURRENT_STREAMS: 1}) as peer,
        PeerH1(silent1) as plain,
        make_face(peer.url if version == "HTTP/2" else plain.url, max_connections=1) as face,
    ):
        holding = face.open("/one")
        pending = face.begin("/gives-up", extensions=with_patience(patience, phases))
        assert comes_true(lambda: phases.connection_wait_started_ns is not None)
        assert not pending.future.done()
        patience.give_up()

        assert is_given_up(pending.error())
        assert waiters(face) == 0
        assert claimed(face) == 1
        holding.close()
        assert nothing_is_claimed(face)
        assert "/gives-up" not in [request.path for request in peer.requests]


def test_a_request_that_is_given_up_while_its_wait_begins_is_given_up_by_the_wait() -> None:
    class Waiting:
        given_up = 0

        def give_up(self) -> None:
            self.given_up += 1

    patience, waiting = Patience(), Waiting()
    patience.give_up()
    patience.attend(waiting)

    assert waiting.given_up == 1


@both_faces
def test_giving_up_ends_an_upload_that_the_window_does_not_let_through(make_face: Any) -> None:
    patience = Patience()
    with Peer(SCRIPTS, settings={INITIAL_WINDOW_SIZE: 0}, grants=False) as peer, make_face(peer.url) as face:
        face.get("/first")
        pending = face.begin("/silent", "POST", content=bytes(1_000_000), extensions=with_patience(patience))
        peer.wait_until(lambda: len(peer.requests) == 2)
        patience.give_up()

        assert is_given_up(pending.error())
        peer.wait_until(lambda: peer.resets == [CANCEL])
        assert face.get("/next").content == b"ok"
        assert len(peer.connections) == 1
        assert nothing_is_claimed(face)


@both_faces
def test_over_http1_giving_up_ends_an_upload_that_nobody_reads(make_face: Any) -> None:
    release, patience = threading.Event(), Patience()

    def respond(request: Request1) -> None:
        request.hold(release)
        request.close()

    with PeerH1(respond) as peer, make_face(peer.url) as face:
        pending = face.begin("/", "POST", content=bytes(40 << 20), extensions=with_patience(patience))
        assert comes_true(lambda: len(peer.requests) == 1)
        with pytest.raises(TimeoutError):
            pending.future.result(0.2)
        patience.give_up()

        assert is_given_up(pending.error())
        assert comes_true(lambda: not connections(face))
        release.set()


@both_faces
@both_protocols
@pytest.mark.parametrize("path", ["/silent", "/one"])
def test_giving_up_ends_a_wait_for_the_head_and_for_the_body_and_tells_the_server(
    make_face: Any, path: str, version: str
) -> None:
    patience = Patience()
    with (
        Peer(SCRIPTS) as peer,
        PeerH1(silent1) as plain,
        make_face(peer.url if version == "HTTP/2" else plain.url) as face,
    ):
        if path == "/silent":
            pending = face.begin(path, extensions=with_patience(patience))
            assert comes_true(lambda: bool(peer.requests or plain.requests))
        else:
            answer = face.open(path, extensions=with_patience(patience))
            assert answer.piece() == b"piece"
            pending = answer.begin_rest()
        with pytest.raises(TimeoutError):
            pending.future.result(0.03)
        patience.give_up()
        patience.give_up()

        assert is_given_up(pending.error())
        if version == "HTTP/2":
            peer.wait_until(lambda: peer.resets == [CANCEL])
            assert face.get("/next").content == b"ok"
            assert peer.resets == [CANCEL]
            assert len(peer.connections) == 1
        else:
            assert plain.left.acquire(timeout=30)
        assert nothing_is_claimed(face)


@both_faces
@both_protocols
def test_giving_up_after_the_end_does_nothing(make_face: Any, version: str) -> None:
    patience, phases = Patience(), Phases()
    with Peer() as peer, PeerH1() as plain, make_face(peer.url if version == "HTTP/2" else plain.url) as face:
        read = face.get("/read", extensions=with_patience(patience))
        unread_patience = Patience()
        unread = face.open("/unread", extensions=with_patience(unread_patience, phases))
        assert comes_true(lambda: phases.answer_ended_ns is not None)
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
def test_giving_up_at_any_moment_ends_in_an_answer_or_a_giving_up(make_face: Any, version: str) -> None:
    def talk(stream: Stream) -> None:
        stream.body()
        stream.head()
        for _ in range(20):
            stream.data(b"x" * 1_000)
        stream.data(b"", end=True)

    def talk1(request: Request1) -> None:
        request.body()
        request.send(CHUNKED, *[chunk(b"x" * 1_000)] * 20, b"0\r\n\r\n")

    with (
        Peer(talk) as peer,
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

        assert nothing_is_claimed(face)
        assert len(face.get("/last").content) == 20_000


def test_in_a_task_of_the_same_loop_giving_up_wakes_another_task() -> None:
    async def race(client: httpx2.AsyncClient) -> list[Any]:
        patiences = [Patience() for _ in range(3)]
        paths = ["/silent", "/one", "/silent"]
        calls = [
            asyncio.create_task(client.get(path, extensions=with_patience(patience)))
            for path, patience in zip(paths, patiences, strict=True)
        ]
        while len(peer.requests) < 3:  # noqa: ASYNC110 - they are another thread's
            await asyncio.sleep(0.01)
        for patience in patiences[:2]:
            patience.give_up()
        losers = await asyncio.gather(*calls[:2], return_exceptions=True)
        assert not calls[2].done()
        patiences[2].give_up()
        return [*losers, *await asyncio.gather(calls[2], return_exceptions=True)]

    with Peer(SCRIPTS) as peer, AsyncFace(peer.url) as face:
        assert all(is_given_up(error) for error in face.use(race))
        peer.wait_until(lambda: peer.resets == [CANCEL] * 3)
        assert nothing_is_claimed(face)


def test_giving_up_when_the_loop_has_ended_does_nothing() -> None:
    patience = Patience()
    with Peer(SCRIPTS) as peer, AsyncFace(peer.url) as face:
        answer = face.open("/one", extensions=with_patience(patience))
        face.close()
        patience.give_up()

        assert patience.given_up
        assert peer.resets in ([], [CANCEL])
        del answer


# Time


@both_faces
@both_protocols
@pytest.mark.parametrize("path", ["/silent", "/one"])
def test_when_the_time_is_up_a_wait_ends_as_a_time_out(make_face: Any, path: str, version: str) -> None:
    with (
        Peer(SCRIPTS) as peer,
        PeerH1(silent1) as plain,
        make_face(peer.url if version == "HTTP/2" else plain.url) as face,
    ):
        until_ns = now_ns() + SOON_NS
        error = face.begin(path, extensions=with_patience(Patience(until_ns=until_ns))).error()

        assert isinstance(error, httpx2.ReadTimeout)
        assert now_ns() >= until_ns
        if version == "HTTP/2":
            peer.wait_until(lambda: peer.resets == [CANCEL])
        else:
            assert plain.left.acquire(timeout=30)
        assert nothing_is_claimed(face)


@both_faces
def test_when_the_time_is_up_while_connecting_it_is_a_connect_timeout(make_face: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, make_face() as face:
        until_ns = now_ns() + SOON_NS
        error = face.begin(
            f"https://127.0.0.1:{mute.getsockname()[1]}/", extensions=with_patience(Patience(until_ns=until_ns))
        ).error()

        assert isinstance(error, httpx2.ConnectTimeout)
        assert now_ns() >= until_ns
        assert comes_true(lambda: not connections(face))


@both_faces
def test_the_requests_own_time_out_counts_where_it_is_shorter(make_face: Any) -> None:
    with Peer(SCRIPTS) as peer, make_face(peer.url) as face:
        patience = Patience(until_ns=now_ns() + 60_000_000_000)
        with pytest.raises(httpx2.ReadTimeout):
            face.get("/silent", extensions=with_patience(patience), timeout=0.05)
        with pytest.raises(httpx2.ReadTimeout):
            face.get("/silent", extensions=with_patience(Patience()), timeout=0.05)


def _exchange_of(answer: Any) -> Any:
    body = answer.response.stream
    while not hasattr(body, "_exchange"):
        body = body._stream
    return body._exchange


@both_faces
def test_a_time_that_is_changed_counts_from_the_next_wait_on(make_face: Any) -> None:
    first_read = threading.Event()

    def two_pieces(stream: Stream) -> None:
        stream.head()
        stream.data(b"first")
        stream.hold(first_read)
        stream.data(b"second")
        stream.hold_until_left()

    patience = Patience(until_ns=now_ns() + 60_000_000_000)
    with Peer(two_pieces) as peer, make_face(peer.url) as face:
        answer = face.open("/", extensions=with_patience(patience))
        assert answer.piece() == b"first"
        second = in_a_thread(answer.piece)
        assert comes_true(lambda: bool(_exchange_of(answer).is_awaited))
        patience.until_ns = now_ns()
        first_read.set()
        assert second.result() == b"second"
        third = in_a_thread(answer.piece)

        assert isinstance(third.error(), httpx2.ReadTimeout)
        answer.close()
        peer.wait_until(lambda: peer.resets == [CANCEL])


@both_faces
def test_a_time_that_is_taken_back_counts_no_more(make_face: Any) -> None:
    go_on, patience = threading.Event(), Patience()

    def late(stream: Stream) -> None:
        stream.head()
        stream.hold(go_on)
        stream.data(b"last", end=True)

    with Peer(late) as peer, make_face(peer.url) as face:
        answer = face.open("/", extensions=with_patience(patience))
        patience.until_ns = now_ns()
        patience.until_ns = None
        rest = answer.begin_rest()
        with pytest.raises(TimeoutError):
            rest.future.result(0.1)
        go_on.set()

        assert rest.result() == b"last"


# Avoiding


def local_address(phases: Phases) -> str:
    assert phases.opening is not None
    return phases.opening.local_address


@both_faces
@pytest.mark.parametrize("max_connections", [1, 4])
def test_a_request_avoids_the_connection_of_another(make_face: Any, max_connections: int) -> None:
    first, second = Phases(), Phases()
    with Peer(SCRIPTS) as peer, make_face(peer.url, max_connections=max_connections) as face:
        holding = face.open("/one", extensions={PHASES: first})
        for _ in range(2):  # a connection that is opened for it, and one that is open
            patience = Patience(avoid=local_address(first))
            assert face.get("/two", extensions=with_patience(patience, second)).content == b"ok"
            # One that may be had is another, and the same is better than none.
            assert (local_address(second) != local_address(first)) == (max_connections > 1)

        assert len(peer.connections) == min(2, max_connections)
        holding.close()


@both_faces
def test_where_another_connection_is_not_to_be_had_soon_the_same_one_carries_the_request(
    make_face: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastlane.transport.protocols.exchange.ELSEWHERE_S", 0.2)
    first, second = Phases(), Phases()
    with Peer() as peer, make_face(peer.url) as face:
        face.get("/one", extensions={PHASES: first})
        held = HeldHandshakes(peer)
        started_ns = now_ns()
        patience = Patience(avoid=local_address(first))
        assert face.get("/two", extensions=with_patience(patience, second)).content == b"ok"

        assert local_address(second) == local_address(first)
        # Not at once, and not only when the time for connecting is up, which is 5 s.
        assert 200_000_000 <= now_ns() - started_ns < 4_000_000_000
        held.go_on.set()


# What stays


@both_faces
def test_giving_up_amid_a_collection_of_garbage_waits_for_no_lock(make_face: Any, monkeypatch: Any) -> None:
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
        peer.wait_until(lambda: len(peer.requests) == 2)
        lost.set()

        assert face.get("/second").content == b"ok"
        assert collected.wait(30)
        assert is_given_up(pending.error())
        peer.wait_until(lambda: peer.resets == [CANCEL])
        assert len(peer.connections) == 1


# Other transports


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_libraries_own_transports_send_such_a_request_without(library: Any) -> None:
    patience = Patience(until_ns=now_ns() - 1, avoid="127.0.0.1:1")
    patience.give_up()

    async def aget(url: str) -> Any:
        async with library.AsyncClient(transport=library.AsyncHTTPTransport(verify=trusting())) as client:
            return await client.get(url, extensions=with_patience(patience))

    with PeerH1(tls=True) as peer:
        with library.Client(transport=library.HTTPTransport(verify=trusting())) as client:
            assert client.get(peer.url, extensions=with_patience(patience)).content == b"ok"
        assert asyncio.run(aget(peer.url)).content == b"ok"
