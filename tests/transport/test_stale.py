"""Connections that end: unused, that costs nothing; amid an answer, it is an error and never a second try."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from fastlane.transport import PHASES, AsyncTransport
from tests.transport.faces import both_faces
from tests.transport.peer import Peer, PeerConnection, Stream, by_path, trusting
from tests.transport.peer_h1 import OK, PeerH1, Request1
from tests.waiting import until

BROKEN_OFF = (httpx2.RemoteProtocolError, httpx2.ReadError)
ENDINGS: dict[str, Callable[[PeerConnection], None]] = {
    "FIN": PeerConnection.fin,
    "close_notify": PeerConnection.close_notify,
    "RST": PeerConnection.tcp_reset,
}


def goaway(connection: PeerConnection) -> None:
    connection.goaway(1)


endings = pytest.mark.parametrize("ending", list(ENDINGS.values()), ids=list(ENDINGS))


def notices_the_end(response: httpx2.Response) -> Callable[[], bool]:
    """Whether the client has closed the connection that carried the answer."""
    carrier = response.extensions["network_stream"].get_extra_info("socket")
    return lambda: carrier is None or carrier.fileno() == -1


def has_come(response: httpx2.Response) -> Callable[[], bool]:
    """Whether the end of the connection that carried the answer has reached the client's kernel."""
    carrier = response.extensions["network_stream"].get_extra_info("socket")

    def look() -> bool:
        poller = select.poll()
        try:
            poller.register(carrier, getattr(select, "POLLRDHUP", select.POLLIN))  # POLLIN: or data before the end
        except (OSError, TypeError, ValueError):  # the client has closed it
            return True
        return bool(poller.poll(0))

    return look


@both_faces
@pytest.mark.parametrize("ending", [*ENDINGS.values(), goaway], ids=[*ENDINGS, "GOAWAY"])
def test_connection_lost_while_idle_causes_no_error(make_face: Any, ending: Callable[[PeerConnection], None]) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        for number in range(1, 4):
            response = face.post(content=b"x")
            assert response.content == b"ok"
            assert len(peer.connections) == number
            noticed = notices_the_end(response)
            ending(peer.connections[-1])
            assert peer.connections[-1].closed.wait(30)
            until(noticed)  # a reset is seen by us before it is by the client

        assert len(peer.requests) == 3


@both_faces
def test_connection_closed_just_before_a_call_causes_no_error(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        for _ in range(60):
            response = face.post(content=b"x")
            assert response.content == b"ok"
            peer.connections[-1].fin()
            # A busy kernel delivers it later, though the peer's call has returned.
            until(has_come(response))

        assert len(peer.requests) == 60


@pytest.mark.asyncio
async def test_end_that_the_loop_has_not_read_yet_causes_no_error() -> None:
    with Peer() as peer:
        transport: Any = AsyncTransport(verify=trusting())
        async with httpx2.AsyncClient(transport=transport, base_url=peer.url) as client:
            for number in range(1, 4):
                response = await client.post("/", content=b"x")
                assert len(peer.connections) == number
                peer.connections[-1].fin()
                until(has_come(response))  # the loop, which waits here, has not read it

        assert len(peer.requests) == 3


@both_faces
def test_half_closed_connection_is_not_reused(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        for number in range(1, 31):
            response = face.post(content=b"x")
            assert response.content == b"ok"
            assert response.extensions[PHASES].resent == 0, "what was never sent is not sent again"
            assert len(peer.connections) == number
            response.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_WR)

        assert len(peer.requests) == 30


@both_faces
@endings
def test_connection_lost_before_response_is_not_retried(
    make_face: Any, ending: Callable[[PeerConnection], None]
) -> None:
    def broken(stream: Stream) -> None:
        stream.body()
        ending(stream.connection)

    with Peer(by_path(broken=broken)) as peer, make_face(peer.url) as face:
        face.get("/first")
        with pytest.raises(BROKEN_OFF):
            face.post("/broken", content=b"x")

        assert [stream.path for stream in peer.requests] == ["/first", "/broken"]
        assert face.get("/next").content == b"ok"


@both_faces
def test_lost_connection_fails_every_call_on_it(make_face: Any) -> None:
    def broken(stream: Stream) -> None:
        until(lambda: len(stream.connection.streams) == 6)
        stream.connection.fin()

    with Peer(by_path(broken=broken)) as peer, make_face(peer.url) as face:
        face.get("/first")
        outcomes = face.together(*["/broken"] * 5)

        assert all(isinstance(outcome, BROKEN_OFF) for outcome in outcomes)
        assert len(set(map(id, outcomes))) == 5
        assert len(peer.requests) == 6


@both_faces
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_http1_connection_lost_while_idle_causes_no_error(make_face: Any, tls: bool) -> None:
    def respond(request: Request1) -> None:
        request.body()
        request.send(OK)
        request.close()

    with PeerH1(respond, tls=tls) as peer, make_face(peer.url) as face:
        for number in range(1, 4):
            response = face.post(content=b"x")
            assert response.content == b"ok"
            assert peer.left.acquire(timeout=30)
            assert peer.connections == number
            until(notices_the_end(response))

        assert len(peer.requests) == 3


@both_faces
@pytest.mark.parametrize("how", ["close", "tcp_reset"])
def test_http1_request_read_by_the_server_is_not_resent(make_face: Any, how: str) -> None:
    def respond(request: Request1) -> None:
        request.body()
        if request.target == "/first":
            request.send(OK)
        else:
            getattr(request, how)()

    with PeerH1(respond) as peer, make_face(peer.url) as face:
        face.get("/first")
        with pytest.raises(BROKEN_OFF):
            face.post("/broken", content=b"x")

        assert [request.target for request in peer.requests] == ["/first", "/broken"]


@both_faces
def test_idle_connection_is_closed_after_its_time(make_face: Any) -> None:
    def slow(stream: Stream) -> None:
        time.sleep(0.8)
        stream.answer(b"slow")

    with Peer(by_path(slow=slow)) as peer, make_face(peer.url, idle_s=0.2) as face:
        assert face.get("/slow").content == b"slow"  # a connection in use is not idle
        assert peer.connections[0].closed.wait(30)
        assert face.get().content == b"ok"

        assert len(peer.connections) == 2


@both_faces
def test_idle_connection_is_pinged_periodically(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url, ping_s=0.2) as face:
        started_ns = time.monotonic_ns()
        face.get()
        until(lambda: len(peer.connections[0].pings) >= 3)
        assert peer.connections[0].pings[2] - started_ns >= 600_000_000
        face.get()

        assert len(peer.connections) == 1


@both_faces
def test_connection_without_ping_reply_is_closed(make_face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastlane.transport.drivers.connection._PING_TIMEOUT_NS", 500_000_000)
    with Peer() as peer, make_face(peer.url, ping_s=0.2) as face:
        face.get()
        peer.answers_pings = False
        assert peer.connections[0].closed.wait(30)
        peer.answers_pings = True  # from here on silence would say how busy the machine is
        assert face.get().content == b"ok"

        assert [stream.connection.number for stream in peer.requests] == [1, 2]
