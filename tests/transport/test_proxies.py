"""Connections through proxies: HTTP with and without TLS, SOCKS 5, and what proxies do wrong."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import httpx2
import pytest

from fastlane.transport import PHASES
from tests.transport.connect_proxy import PASSWORD, RESET, ConnectProxy
from tests.transport.faces import both_faces
from tests.transport.peer import HANG_S, Peer, by_path, make_trusting, one_piece, trusting
from tests.transport.peer_h1 import PeerH1

SCHEMES = ("http", "https", "socks5", "socks5h")
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def setting(proxy: ConnectProxy, **more: Any) -> httpx2.Proxy:
    """A proxy as it is given to a transport, which trusts it."""
    return httpx2.Proxy(proxy.url, ssl_context=make_trusting() if proxy.scheme == "https" else None, **more)


@both_faces
@each_scheme
@pytest.mark.parametrize("guarded", [False, True], ids=["open", "guarded"])
def test_concurrent_requests_share_one_tunnel(make_face: Any, scheme: str, guarded: bool) -> None:
    with Peer() as peer, ConnectProxy(scheme, guarded=guarded) as proxy:
        with make_face(peer.url, proxy=setting(proxy)) as face:
            answers = [face.get(), *face.together(*["/"] * 20)]

        assert [answer.content for answer in answers] == [b"ok"] * 21
        assert {answer.http_version for answer in answers} == {"HTTP/2"}
        assert proxy.asked == [f"127.0.0.1:{peer.port}"]
        opening = answers[0].extensions[PHASES].opening
        assert opening.proxy == opening.peer_address == proxy.address
        assert opening.connect_ended_ns <= opening.proxy_ended_ns <= opening.tls_started_ns <= opening.tls_ended_ns


@both_faces
@each_scheme
def test_http1_through_a_tunnel_carries_a_large_body(make_face: Any, scheme: str) -> None:
    body = bytes(range(256)) * 8_192
    with PeerH1(lambda request: request.answer(request.body()), tls=True) as peer, ConnectProxy(scheme) as proxy:
        with make_face(peer.url, proxy=setting(proxy)) as face:
            answers = [face.post(content=body) for _ in range(2)]

        assert [answer.content == body for answer in answers] == [True, True]
        assert {answer.http_version for answer in answers} == {"HTTP/1.1"}
        assert len(proxy.asked) == 1


@both_faces
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_plain_http_is_forwarded_with_absolute_urls(make_face: Any, scheme: str) -> None:
    with PeerH1() as peer, ConnectProxy(scheme, guarded=True) as proxy:
        with make_face(peer.url, proxy=setting(proxy)) as face:
            assert [face.get("/a?b=c").content for _ in range(2)] == [b"ok"] * 2
            with (
                pytest.raises(httpx2.ConnectError, match="asks for HTTP/2"),
                make_face(peer.url, proxy=setting(proxy), http2="require") as strict,
            ):
                strict.get()

        assert [(one.method, one.target) for one in peer.requests] == [("GET", "/a?b=c")] * 2
        assert [head.split(b"\r\n")[0] for head in proxy.heads] == [f"GET {peer.url}/a?b=c HTTP/1.1".encode()]


@both_faces
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_proxy_is_sent_what_httpx2_sends(make_face: Any, tls: bool) -> None:
    with PeerH1(tls=tls) as peer, ConnectProxy(guarded=True) as proxy:
        given = setting(proxy, headers={"x-team": "a", "accept": "x/y"})
        with httpx2.Client(proxy=given, verify=trusting()) as theirs:
            theirs.get(peer.url)
        with make_face(peer.url, proxy=given) as face:
            face.get()

        stock, ours = (sorted(head.split(b"\r\n")) for head in proxy.heads)
        assert ours == stock
        assert b"x-team: a" in ours


@both_faces
@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_socks_proxy_resolves_names(make_face: Any, scheme: str) -> None:
    with Peer() as tls, PeerH1() as plain, ConnectProxy(scheme) as proxy:
        with make_face(proxy=setting(proxy)) as face:
            for peer, kind in ((tls, "https"), (plain, "http")):
                assert face.get(f"{kind}://localhost:{peer.port}/").content == b"ok"

        assert proxy.asked == [f"localhost:{tls.port}", f"localhost:{plain.port}"]


# What proxies do wrong

HTTP_ANSWERS = {
    "407": (b"HTTP/1.1 407 your %s is wrong\r\n\r\n" % PASSWORD.encode(), "407 (Proxy Authentication Required)"),
    "502": (b"HTTP/1.1 502 Bad\r\ncontent-length: 3\r\n\r\nbad", "502 (Bad Gateway)"),
    "999": (b"HTTP/1.1 999 Odd\r\n\r\n", "status 999"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n", "invalid answer to CONNECT"),
    "endless head": (b"HTTP/1.1 200 OK\r\n" + b"x-y: z\r\n" * 4_000, "invalid answer to CONNECT"),
    "cut": (b"HTTP/1.1 20", "closed the connection"),
    "bytes ahead": (b"HTTP/1.1 200 OK\r\n\r\nhello", "sent bytes that the server cannot have sent"),
}
SOCKS_ANSWERS = {
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SOCKS 5"),
    "not allowed": (b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", "not allowed by its rules"),
    "refused": (b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00", "connection refused"),
    "no such command": (b"\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", "command not supported"),
    "no such address": (b"\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00", "address type not supported"),
    "unknown code": (b"\x05\x63", "code 99"),
    "unknown address": (b"\x05\x00\x00\x09\x00", "address type 9"),
    "cut": (b"\x05\x00\x00", "closed the connection"),
}
ANSWERS = [
    *((scheme, *case) for scheme in ("http", "https") for case in HTTP_ANSWERS.values()),
    *(("socks5", *case) for case in SOCKS_ANSWERS.values()),
]


@both_faces
@pytest.mark.parametrize(("scheme", "answer", "expected"), ANSWERS)
def test_refusal_names_the_proxy_and_why(make_face: Any, scheme: str, answer: bytes, expected: str) -> None:
    with Peer() as peer, ConnectProxy(scheme, answer=answer) as proxy:
        with make_face(peer.url, proxy=setting(proxy)) as face, pytest.raises(httpx2.ProxyError) as raised:
            face.get()

        assert str(raised.value).startswith(f"The proxy {proxy.address} failed: ")
        assert expected in str(raised.value)
        assert PASSWORD not in str(raised.value)
        assert peer.connections == []


@both_faces
@each_scheme
def test_wrong_password_is_refused_and_not_shown(make_face: Any, scheme: str) -> None:
    with Peer() as peer, ConnectProxy(scheme, guarded=True) as proxy:
        context = make_trusting() if scheme == "https" else None
        for credentials in ("", "proxy-user:a-wrong-one@"):
            given = httpx2.Proxy(f"{scheme}://{credentials}{proxy.address}", ssl_context=context)
            with make_face(peer.url, proxy=given) as face, pytest.raises(httpx2.ProxyError) as raised:
                face.get()
            assert proxy.address in str(raised.value)
            assert "wrong-one" not in str(raised.value)


@both_faces
@each_scheme
def test_proxy_that_never_answers_ends_in_a_connect_timeout(make_face: Any, scheme: str) -> None:
    with Peer() as peer, ConnectProxy(scheme, answer=b"") as proxy:
        with make_face(peer.url, proxy=setting(proxy)) as face, pytest.raises(httpx2.ConnectTimeout) as raised:
            face.get(timeout=httpx2.Timeout(HANG_S, connect=0.5))

        assert f"127.0.0.1:{peer.port} through the proxy {proxy.address}" in str(raised.value)


@both_faces
@each_scheme
@pytest.mark.parametrize("resets", [False, True], ids=["refuses", "resets"])
def test_proxy_that_refuses_or_resets_is_named(make_face: Any, scheme: str, resets: bool) -> None:
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(ConnectProxy(scheme, answer=RESET))
        given, address = setting(proxy), proxy.address
        if not resets:
            stack.close()
        with make_face("https://127.0.0.1:9", proxy=given) as face, pytest.raises(httpx2.ConnectError) as raised:
            face.get()

    assert f"The proxy {address} failed: [Errno " in str(raised.value)


@both_faces
def test_proxy_with_an_untrusted_certificate_is_refused(make_face: Any) -> None:
    with Peer() as peer, ConnectProxy("https") as proxy:
        with make_face(peer.url, proxy=proxy.url) as face, pytest.raises(httpx2.ConnectError) as raised:
            face.get()

        assert f"The proxy {proxy.address} failed: " in str(raised.value)
        assert "certificate verify failed" in str(raised.value)
        assert isinstance((raised.value.__cause__ or raised.value).__cause__, ssl.SSLCertVerificationError)
        assert proxy.asked == []


@both_faces
@each_scheme
def test_proxy_that_dies_mid_stream_fails_that_request_only(make_face: Any, scheme: str) -> None:
    with Peer(by_path(one=one_piece)) as peer, ConnectProxy(scheme) as proxy:
        with make_face(peer.url, proxy=setting(proxy)) as face:
            answer = face.open("/one")
            assert answer.piece() == b"piece"
            proxy.end_connections()
            with pytest.raises(httpx2.RemoteProtocolError):
                answer.rest()
            assert face.get("/next").content == b"ok"

        assert len(proxy.asked) == 2


@both_faces
@each_scheme
def test_idle_tunnel_that_was_closed_is_opened_anew(make_face: Any, scheme: str) -> None:
    with Peer() as peer, ConnectProxy(scheme) as proxy, make_face(peer.url, proxy=setting(proxy)) as face:
        for number in range(3):
            assert face.get().content == b"ok"
            assert len(proxy.asked) == number + 1
            proxy.end_connections()
