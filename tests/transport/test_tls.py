"""However the records of TLS arrive, they are decrypted, and one that was altered ends the connection."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import Any

import httpx2
import pytest

from tests.transport.connect_proxy import ConnectProxy
from tests.transport.faces import both_faces
from tests.transport.peer import LOCAL_NAMES, Peer, Stream, by_path, server_context

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
BODY = bytes(range(256)) * 80


class Relay(ConnectProxy):
    """Passes bytes on between clients and a server: the server's in small pieces, and altered once the test says."""

    def __init__(self, port: int, size: int = 65_536) -> None:
        self.alters = threading.Event()
        self._server_port = port
        self._size = size
        super().__init__()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def _join(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._server_port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(server)
        self.start(self._pass_back, server, client)
        while data := client.recv(65_536):
            server.sendall(data)

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        while data := bytearray(server.recv(65_536)):
            if self.alters.is_set():
                data[-1] ^= 1
            for at in range(0, len(data), self._size):
                client.sendall(data[at : at + self._size])


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def context(request: pytest.FixtureRequest) -> ssl.SSLContext:
    """A server's context of one version of TLS."""
    context = server_context(LOCAL_NAMES, ("h2",))
    context.minimum_version = context.maximum_version = request.param
    return context


@both_faces
@pytest.mark.parametrize("size", [1, 340, 16_385])
def test_records_in_any_pieces_are_decrypted(make_face: Any, context: ssl.SSLContext, size: int) -> None:
    with (
        Peer(lambda stream: stream.answer(BODY), context=context) as peer,
        Relay(peer.port, size) as relay,
        make_face(relay.url) as face,
    ):
        assert [face.get().content for _ in range(2)] == [BODY] * 2


@both_faces
def test_altered_record_is_an_error_after_what_came_before(make_face: Any, context: ssl.SSLContext) -> None:
    def respond(stream: Stream) -> None:
        stream.head()
        stream.hold(relay.alters)
        with stream.connection.lock:  # so that both are one write
            stream.data_frame(b"good")
            stream.data_frame(b"bad")
        stream.hold_until_left()

    with (
        Peer(by_path(altered=respond), context=context) as peer,
        Relay(peer.port) as relay,
        make_face(relay.url) as face,
    ):
        answer = face.open("/altered")
        relay.alters.set()
        assert answer.piece() == b"good"
        with pytest.raises(httpx2.ReadError):
            answer.piece()
        relay.alters.clear()

        assert face.get("/next").content == b"ok"
        assert len(peer.connections) == 2


@both_faces
def test_closed_client_says_goodbye_in_http2_and_in_tls(make_face: Any, context: ssl.SSLContext) -> None:
    with Peer(context=context) as peer:
        with make_face(peer.url) as face:
            face.get()
        assert peer.connections[0].closed.wait(30)
        assert (peer.connections[0].goaways, peer.connections[0].said_goodbye) == ([(0, 0)], True)
