"""What clients of httpx2 rely on holds on our transports as on its own, over both protocols."""

from __future__ import annotations

import gc
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from fastlane.transport import PHASES, AsyncTransport, Phases, PoolSettings, Transport
from tests.transport.faces import AsyncAnswer, SyncAnswer, both_faces
from tests.transport.peer import (
    ENABLE_PUSH,
    INITIAL_WINDOW_SIZE,
    MAX_HEADER_LIST_SIZE,
    Header,
    Peer,
    PeerConnection,
    Stream,
    by_path,
    make_trusting,
    trusting,
)
from tests.transport.peer_h1 import HEAD, PeerH1, Request1, SlowAnswer
from tests.waiting import until

Answer = tuple[int, list[Header], bytes]
Answering = Callable[[str, str, bytes], Answer]
"""Method, target and body in; status, fields and body out."""


def fields(request: Any) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in request.headers]


def values(request: Any, name: str) -> list[str]:
    """What came under a name, in whatever case."""
    return [value for key, value in fields(request) if key.lower() == name]


class Server:
    """A server that answers by a function, over either protocol."""

    def __init__(self, kind: str, answering: Answering, **options: Any) -> None:
        self.kind = kind
        self.version = "HTTP/2" if kind == "HTTP/2" else "HTTP/1.1"
        self.answering = answering
        self.peer: Any = (
            Peer(self._h2, **options) if kind == "HTTP/2" else PeerH1(self._h1, tls=kind == "HTTP/1.1, TLS", **options)
        )
        self.url: str = self.peer.url

    def _h2(self, stream: Stream) -> None:
        status, answer_fields, body = self.answering(stream.method, stream.path, stream.body())
        stream.answer(body, status, answer_fields)

    def _h1(self, request: Request1) -> None:
        status, answer_fields, body = self.answering(request.method, request.target, request.body())
        names = {name.lower() for name, _ in answer_fields}
        if "content-length" not in names and status not in (204, 304):
            answer_fields = [*answer_fields, ("Content-Length", str(len(body)))]
        lines = [f"HTTP/1.1 {status} Reason", *(f"{name}: {value}" for name, value in answer_fields), "", ""]
        request.send("\r\n".join(lines).encode() + body)

    @property
    def last(self) -> Any:
        return self.peer.requests[-1]

    @property
    def connections(self) -> int:
        count = self.peer.connections
        return count if isinstance(count, int) else len(count)


def echo(method: str, target: str, body: bytes) -> Answer:
    return 200, [("x-method", method), ("x-target", target)], body


KINDS = ["HTTP/2", "HTTP/1.1", "HTTP/1.1, TLS"]


@pytest.fixture(params=KINDS)
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """Start a server of either protocol that answers by a function."""
    servers: list[Server] = []

    def start(answering: Answering = echo, **options: Any) -> Server:
        server = Server(request.param, answering, **options)
        server.peer.__enter__()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.peer.__exit__(None, None, None)


Serve = Callable[..., Server]


@both_faces
@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/a%2Fb?q=%20x&y=%C3%A4"), ("POST", "/?only=query"), ("PROPFIND", "/unicode-ä")],
)
def test_any_method_and_path_arrive_with_their_body(make_face: Any, serve: Serve, method: str, target: str) -> None:
    server = serve()
    with make_face(server.url) as face:
        response = face.request(method, target, content=b"body")

        assert response.headers["x-method"] == method
        assert response.headers["x-target"].encode() == httpx2.URL(server.url + target).raw_path
        assert response.content == b"body"
        assert response.http_version == server.version


@both_faces
def test_body_that_is_made_while_it_is_sent_arrives_whole(make_face: Any, serve: Serve) -> None:
    server = serve()
    pieces = [bytes([number]) * number * 100 for number in range(50)]
    with make_face(server.url) as face:
        assert face.post(content=face.upload(pieces)).content == b"".join(pieces)
        assert face.post(content=face.upload([b"again"])).content == b"again"
    assert server.connections == 1


@both_faces
def test_fields_that_come_twice_stay_two(make_face: Any, serve: Serve) -> None:
    server = serve(lambda *_: (200, [("Set-Cookie".lower(), "a=1"), ("x-twice", "1"), ("x-twice", "2")], b"ok"))
    with make_face(server.url) as face:
        response = face.get(headers=[("x-mine", "1"), ("x-mine", "2")])

        assert response.headers.get_list("x-twice") == ["1", "2"]
        assert values(server.last, "x-mine") == ["1", "2"]


@both_faces
def test_header_names_keep_case_over_http1_and_lower_over_http2(make_face: Any, serve: Serve) -> None:
    server = serve()
    server.answering = lambda *_: (200, [("x-answer" if server.version == "HTTP/2" else "X-Answer", "yes")], b"ok")
    with make_face(server.url) as face:
        response = face.get(headers={"X-MiXed": "yes"})

    names = [name for name, _ in fields(server.last)]
    raw = [name for name, _ in response.headers.raw]
    if server.version == "HTTP/2":
        assert "x-mixed" in names
    else:
        assert "X-MiXed" in names
        assert names[0] == "Host"
        assert b"X-Answer" in raw
    assert response.headers["X-ANSWER"] == "yes"


@both_faces
@pytest.mark.parametrize("status", [200, 204, 304])
def test_answers_without_a_body_leave_the_connection_as_it_was(make_face: Any, serve: Serve, status: int) -> None:
    server = serve(lambda method, *_: (status, [("content-length", "5")] if status == 200 else [], b""))
    with make_face(server.url) as face:
        for _ in range(3):
            response = face.request("HEAD" if status == 200 else "GET", "/")
            assert (response.status_code, response.content) == (status, b"")

    assert server.connections == 1


@both_faces
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_host_is_that_of_the_url_or_of_a_header(make_face: Any, serve: Serve, host: str) -> None:
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    server = serve(host="::1" if host == "::1" else "127.0.0.1")
    scheme = server.url.partition(":")[0]
    authority = f"[{host}]:{server.peer.port}" if ":" in host else f"{host}:{server.peer.port}"
    name = ":authority" if server.version == "HTTP/2" else "Host"
    with make_face() as face:
        for headers, expected in (({}, authority), ({"Host": "api.example:8443"}, "api.example:8443")):
            assert face.get(f"{scheme}://{authority}/", headers=headers).status_code == 200
            assert [value for key, value in fields(server.last) if key == name] == [expected]


@both_faces
def test_response_has_its_http_version_and_connection(make_face: Any, serve: Serve) -> None:
    server = serve()
    with make_face(server.url) as face:
        answer = face.open()
        extensions = answer.response.extensions
        stream = extensions["network_stream"]
        tls = stream.get_extra_info("ssl_object")

        assert extensions["http_version"] == server.version.encode()
        assert answer.response.http_version == server.version
        assert stream.get_extra_info("server_addr")[:2] == ("127.0.0.1", server.peer.port)
        assert stream.get_extra_info("client_addr")[0] == "127.0.0.1"
        assert isinstance(stream.get_extra_info("socket").fileno(), int)
        assert isinstance(stream.get_extra_info("is_readable"), bool)
        assert stream.get_extra_info("nonsense") is None
        assert (tls is not None) == server.url.startswith("https")
        if tls is not None:
            assert tls.selected_alpn_protocol() == ("h2" if server.version == "HTTP/2" else "http/1.1")
            assert tls.version().startswith("TLSv1.")
        if server.version == "HTTP/1.1":
            assert extensions["reason_phrase"] == b"Reason"
            assert answer.response.reason_phrase == "Reason"
        answer.rest()
        answer.close()


@both_faces
def test_sni_hostname_can_be_set(make_face: Any) -> None:
    with Peer(names=("api.example",)) as peer, make_face(peer.url) as face:
        with pytest.raises(httpx2.ConnectError):
            face.get()
        assert face.get(extensions={"sni_hostname": "api.example"}).content == b"ok"

        assert list(peer.names_asked.values())[-1] == "api.example"


@both_faces
def test_untrusted_certificate_is_refused_unless_disabled(make_face: Any) -> None:
    with Peer() as peer:
        with make_face(peer.url, verify=True) as face, pytest.raises(httpx2.ConnectError):
            face.get()
        with make_face(peer.url, verify=ssl.create_default_context()) as face, pytest.raises(httpx2.ConnectError):
            face.get()
        assert peer.requests == []
        with make_face(peer.url, verify=False) as face:
            assert face.get().content == b"ok"


@both_faces
def test_given_tls_context_is_used_and_not_changed(make_face: Any) -> None:
    context = make_trusting()
    with Peer(alpn=("h2", "http/1.1")) as peer, make_face(peer.url, verify=context) as face:
        assert face.get().http_version == "HTTP/2"
    with PeerH1(tls=True) as plain, make_face(plain.url, verify=context) as face:
        assert face.get().http_version == "HTTP/1.1"


@both_faces
def test_informational_heads_and_trailers_are_ignored(make_face: Any) -> None:
    final_ns: list[int] = []

    def think() -> None:
        time.sleep(0.02)  # so that the client has read what came before
        final_ns.append(time.perf_counter_ns())

    def h2(stream: Stream) -> None:
        stream.body()
        stream.head(100)
        stream.head(103, [("link", "</a.css>")])
        think()
        stream.head(200, [("x-final", "yes")])
        stream.data(b"ok")
        stream.header_block([("x-trailer", "late")], end=True)

    def h1(request: Request1) -> None:
        request.body()
        request.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n")
        think()
        request.send(
            HEAD + b"x-final: yes\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-trailer: late\r\n\r\n"
        )

    with Peer(h2) as peer, PeerH1(h1) as plain, make_face() as face:
        for url in (peer.url, plain.url):
            for _ in range(2):
                phases = Phases()
                response = face.post(url, content=b"x", extensions={PHASES: phases})
                assert (phases.first_byte_ns or 0) >= final_ns[-1]
                assert (response.status_code, response.content) == (200, b"ok")
                assert response.headers["x-final"] == "yes"
                assert "link" not in response.headers
                assert "x-trailer" not in response.headers
        assert (len(peer.connections), plain.connections) == (1, 1)


@both_faces
@pytest.mark.parametrize("version", ["HTTP/2", "HTTP/1.1"])
def test_response_before_end_of_upload_survives_disconnect(make_face: Any, version: str) -> None:
    def h2(stream: Stream) -> None:
        stream.answer(b"big", 413)
        stream.connection.fin()

    def h1(request: Request1) -> None:
        request.send(b"HTTP/1.1 413 Too large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig")
        request.left()

    release = threading.Event()
    with Peer(h2) as peer, PeerH1(h1) as plain, make_face(peer.url if version == "HTTP/2" else plain.url) as face:
        call = face.begin("/", "POST", content=face.upload([b"x" * 1_000, release, b"y" * 1_000]))
        # However the client goes about it: it has had the time to see that the server is done.
        if version == "HTTP/2":
            until(lambda: bool(peer.requests))
            peer.connections[0].closed.wait(2)
        else:
            plain.left.acquire(timeout=2)
        release.set()
        response = call.result()

        assert (response.status_code, response.content) == (413, b"big")


def too_large(request: Request1) -> None:
    """Refuse an upload unread, and leave: what has come of it breaks the connection off."""
    request.send(b"HTTP/1.1 413 Too large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    request.close()


@both_faces
def test_response_to_large_upload_survives_reset_after_it(make_face: Any) -> None:
    body = bytes(3_000_000)
    with PeerH1(too_large) as peer, make_face(peer.url) as face:
        assert [face.post(content=body).status_code for _ in range(30)] == [413] * 30

        assert len(peer.requests) == 30


@both_faces
@pytest.mark.parametrize("version", ["HTTP/2", "HTTP/1.1"])
def test_answer_that_is_being_read_outlives_its_transport(make_face: Any, version: str) -> None:
    slow = SlowAnswer()
    with Peer(slow.h2) as peer, PeerH1(slow.h1) as plain, make_face() as face:
        # With so short an idle time, connections look after what has become of their transport every 50 ms.
        answer = make_answer(face, peer.url if version == "HTTP/2" else plain.url)
        assert answer.piece() == b"first "
        gc.collect()
        time.sleep(0.3)
        slow.release.set()

        assert answer.rest() == b"last"
        del answer
        gc.collect()
        assert peer.connections[0].closed.wait(30) if version == "HTTP/2" else plain.left.acquire(timeout=30)


def make_answer(face: Any, url: str) -> Any:
    """Begin to read an answer of a transport to which nothing else refers."""
    request = httpx2.Request("GET", url)
    if not face.asynchronous:
        return SyncAnswer(Transport(verify=trusting(), idle_s=0.2).handle_request(request))

    async def begin() -> Any:
        return await AsyncTransport(verify=trusting(), idle_s=0.2).handle_async_request(request)

    return AsyncAnswer(face, face.run(begin()))


@both_faces
def test_data_sent_with_connection_end_reaches_the_reader(make_face: Any) -> None:
    begun = threading.Event()

    def h2(stream: Stream) -> None:
        stream.head()
        stream.hold(begun)
        # What the client sends after our goodbye makes OpenSSL end the connection, the last words unsent.
        stream.connection.wait(lambda: stream.connection.settings_acked == 1)
        with stream.connection.lock:
            stream.data_frame(b"the last words")
            stream.connection.close_notify()
        stream.connection.fin()

    def h1(request: Request1) -> None:
        request.send(HEAD + b"\r\n")
        request.hold(begun)
        request.send(b"the last words")
        request.close()

    with Peer(h2) as peer, PeerH1(h1) as plain, make_face() as face:
        for url in (peer.url, plain.url):
            begun.clear()
            answer = face.open(url)
            reading = answer.begin_rest() if url == plain.url else None
            begun.set()
            if reading is not None:
                assert reading.result() == b"the last words"
            else:
                assert answer.piece() == b"the last words"
                with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
                    answer.rest()


def origin_of_causes(error: BaseException | None) -> BaseException | None:
    """Where the chain of causes begins, for which applications look through it."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return error


@both_faces
def test_connect_error_has_the_system_or_tls_cause(make_face: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = server.getsockname()[1]
    with Peer(names=("another.host",)) as stranger, make_face() as face:
        for url, kind in (
            (f"http://127.0.0.1:{refused}/", ConnectionRefusedError),
            (f"https://127.0.0.1:{refused}/", ConnectionRefusedError),
            (stranger.url, ssl.SSLCertVerificationError),
            ("http://nowhere.invalid/", socket.gaierror),
        ):
            errors = face.together(url, url)  # each waiting call gets an error

            assert [type(error) for error in errors] == [httpx2.ConnectError] * 2
            assert [type(origin_of_causes(error)) for error in errors] == [kind] * 2
            assert origin_of_causes(errors[0]) is not errors[0]


UNASKABLE = f"https://{'a' * 64}.example/"


@both_faces
def test_invalid_sni_name_fails_only_its_call(make_face: Any) -> None:
    slow = SlowAnswer()
    with Peer(by_path(slow=slow.h2)) as peer, PeerH1() as plain, make_face(max_connections=1) as face:
        with pytest.raises(httpx2.ConnectError):
            face.get(UNASKABLE)
        assert face.get(peer.url).content == b"ok"

        # Where all connections are taken it is looked at in its turn, which is another call's end.
        holding = face.open(f"{peer.url}/slow")
        waits = [Phases(), Phases()]
        calls = []
        for url, phases in zip((UNASKABLE, plain.url), waits, strict=True):
            calls.append(face.begin(url, extensions={PHASES: phases}))
            until(lambda phases=phases: phases.connection_wait_started_ns is not None)  # type: ignore[misc]
        assert not any(call.future.done() for call in calls)
        slow.release.set()

        assert holding.rest() == b"first last"
        assert isinstance(calls[0].error(), httpx2.ConnectError)
        assert calls[1].result().content == b"ok"
        assert face.get(peer.url).content == b"ok"


@pytest.mark.parametrize("make", [Transport, AsyncTransport, PoolSettings])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"http2": "h2"}, '"prefer", "require" or "never", not \'h2\''),
        ({"max_connections": 0}, "at least 1, not 0"),
        ({"idle_s": -1.0}, "seconds from 0, not -1.0"),
        ({"idle_s": math.nan}, "seconds from 0, not nan"),
        ({"ping_s": 0.0}, "seconds above 0, or None for no pings, not 0.0"),
        ({"ping_s": math.nan}, "seconds above 0, or None for no pings, not nan"),
    ],
)
def test_invalid_transport_settings_are_refused(make: Any, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(settings))} is ") as raised:
        make(**settings)

    assert expected in str(raised.value)


@both_faces
def test_large_headers_work_in_both_directions(make_face: Any, serve: Serve) -> None:
    server = serve(lambda *_: (200, [("x-large", "a" * 40_000)], b"ok"))
    with make_face(server.url) as face:  # "~" takes 13 bits: four frames of HTTP/2
        for _ in range(2):
            response = face.get(headers={"x-large": "~" * 40_000, **{f"x-{number}": "c" for number in range(100)}})
            assert response.headers["x-large"] == "a" * 40_000
            assert values(server.last, "x-large") == ["~" * 40_000]
            assert values(server.last, "x-99") == ["c"]

    assert server.connections == 1


@both_faces
@pytest.mark.parametrize(
    ("name", "value"),
    [("x-mine", "a\r\nx-injected: b"), ("x-mine", "a\nb"), ("x-mine", "a\x00b"), ("x mine", "a"), ("", "a")],
)
def test_invalid_header_is_refused_before_it_is_sent(make_face: Any, serve: Serve, name: str, value: str) -> None:
    server = serve()
    with make_face(server.url) as face:
        with pytest.raises(httpx2.LocalProtocolError):
            face.get(headers={name: value})

        assert server.peer.requests == []
        assert face.get().status_code == 200


@both_faces
@pytest.mark.parametrize("content", [b"", b"four", b"sixsix"])
def test_body_of_another_length_than_announced_is_an_error(make_face: Any, content: bytes) -> None:
    with PeerH1() as peer, make_face(peer.url) as face:
        with pytest.raises(httpx2.LocalProtocolError):
            face.post(content=content, headers={"content-length": "5"})

        assert face.get("/next").content == b"ok"


@both_faces
def test_head_larger_than_the_server_takes_is_not_sent(make_face: Any) -> None:
    with Peer(settings={MAX_HEADER_LIST_SIZE: 1_000}) as peer, make_face(peer.url) as face:
        face.get("/first")
        with pytest.raises(httpx2.LocalProtocolError, match=r"larger than the server takes \(1,000\)"):
            face.get(headers={"x": "v" * 1_000})

        assert len(peer.requests) == 1


@both_faces
def test_first_request_does_not_wait_for_settings(make_face: Any) -> None:
    def opening(connection: PeerConnection) -> None:
        connection.wait(lambda: bool(connection.streams))
        connection.settings()

    def respond(stream: Stream) -> None:
        stream.connection.wait(lambda: stream.connection.settings_acked == 1)
        stream.answer(b"ok")

    with Peer(respond, opening=opening) as peer, make_face(peer.url) as face:
        assert face.get().content == b"ok"


@both_faces
def test_client_offers_large_windows_and_no_push(make_face: Any) -> None:
    with Peer() as peer, make_face(peer.url) as face:
        face.get()
        (connection,) = peer.connections

        offered = [
            connection.client_settings[name] for name in (ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_HEADER_LIST_SIZE)
        ]
        assert offered == [0, 4 << 20, 64 << 10]
        assert connection.window >= (64 << 20) - 2
