"""Clients behind proxies: where a proxy is named, what calls and their records look like, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given, reject, strategies as st

import fastlane
from fastlane import ConfigurationError, Connection, Urgency
from fastlane.emulator import Emulator
from scripts.servers import Microsocks, ProxyProgram, Tinyproxy
from tests.call_peer import CallPeer, Reply
from tests.prepared_server import LIBRARY
from tests.programs import running
from tests.transport.callers import comes_true_for
from tests.transport.connect_proxy import PASSWORD, USER, ConnectProxy
from tests.transport.peer import CANCEL, authority, trusting

SCHEMES = ("http", "https", "socks5", "socks5h")
SECRET = "http://some-user:some-password@127.0.0.1:9"


@pytest.fixture
def trusted_proxies(provider: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSL_CERT_FILE names the authorities of the provider and of proxies, as a company's bundle does."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Path(os.environ["SSL_CERT_FILE"]).read_bytes() + authority().cert_pem.bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))


# Which proxy

PROXIES = st.sampled_from([None, "", "http://one.test:1", "https://two.test:2", "three.test:3"])
HOSTS = (
    "example.com",
    "www.example.com",
    "a.www.example.com",
    "myexample.com",
    "localhost",
    "EXAMPLE.com",
    "b\u00fccher.de",
)
ADDRESSES = ("127.0.0.1", "10.1.2.3", "192.168.7.7", "[::1]", "[fe80::7]")
NO_PROXY = (
    *HOSTS, "*", "*.example.com", ".example.com", "example.com:443", "example.com:8443", "http://example.com",
    "https://*.example.com", "all://example.com:8443", "10.0.0.0/8", "10.1.2.3", "192.168.7.0/24", "127.0.0.1:8443",
    "::1", "[::1]", "[::1]:8443", "fe80::/10", "10.0.0.0/99", "ex ample", "/", " localhost ", "",
)  # fmt: skip
NAMES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "Https_Proxy")


@given(
    proxies=st.dictionaries(st.sampled_from(NAMES), PROXIES),
    unproxied=st.none() | st.lists(st.sampled_from(NO_PROXY), max_size=4),
    scheme=st.sampled_from(["http", "https"]),
    host=st.sampled_from(HOSTS + ADDRESSES),
    port=st.sampled_from(["", ":80", ":443", ":8443"]),
)
def test_environment_is_read_as_the_library_reads_it(
    proxies: dict[str, str | None], unproxied: list[str] | None, scheme: str, host: str, port: str
) -> None:
    url = LIBRARY.URL(f"{scheme}://{host}{port}/v1")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            patch.delenv(name)
        for name, value in proxies.items():
            if value is not None:
                patch.setenv(name, value)
        if unproxied is not None:
            patch.setenv("no_proxy", ",".join(unproxied))
        try:
            theirs = LIBRARY.Client(verify=trusting())
        except LIBRARY.InvalidURL:  # httpx makes no client with some values that httpx2 takes, such as [::1]
            reject()
        with theirs, fastlane.OpenAI(api_key="k", base_url=str(url)) as ours:
            used = getattr(theirs._transport_for_url(url)._pool, "_proxy_url", None)
            chosen = ours.explain().proxy

    assert chosen == (used and f"{used.scheme.decode()}://{used.host.decode()}:{used.port}")


def settings_of(place: str, url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of a client whose proxy is named in one of the places for it."""
    if place == "client":
        return {"proxy": url}
    if place == "play":
        return {"plays": [Connection(proxy=url)]}
    monkeypatch.setenv(place, url)
    return {}


@pytest.mark.parametrize("place", ["client", "play", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_named_proxy_carries_calls(
    place: str, make_caller: Any, arguments: dict[str, Any], provider: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectProxy() as proxy:
        with make_caller(**arguments, max_retries=0, **settings_of(place, proxy.url, monkeypatch)) as caller:
            assert caller.waiting.warm() is True
            assert caller.ask(output_tokens=1).choices
            assert caller.read(output_tokens=1)
            assert {call.attempts[0].http_version for call in caller.calls} == {"HTTP/2"}
            assert [call.attempts[0].connection_reused for call in caller.calls] == [True, True]
            assert caller.client.explain().limitations == ()
        assert proxy.asked == [provider.base_url.split("/")[2]]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("guarded", [False, True], ids=["open", "guarded"])
def test_record_shows_what_the_proxy_took(
    scheme: str, guarded: bool, make_caller: Any, arguments: dict[str, Any], trusted_proxies: None
) -> None:
    with ConnectProxy(scheme, guarded=guarded) as proxy:
        with make_caller(**arguments, max_retries=0, proxy=proxy.url) as caller:
            caller.ask(output_tokens=1)
            caller.ask(output_tokens=1)
            first, second = (call.attempts[0] for call in caller.calls)
            shown = f"{caller.last_call.to_dict()} {caller.client.explain()} {caller.client!r} {caller.client.plays}"
            phases = caller.client.report().to_dict()["everything"]["phases"]

        assert first.proxy == second.proxy == first.peer_address == proxy.address
        wire = first.wire
        assert (wire.connect_s, second.wire.proxy_s) == (None, None)
        assert wire.started_ns <= wire.proxy_started_ns <= wire.proxy_ended_ns <= wire.tls_started_ns
        assert wire.proxy_s > 0
        assert wire.queue_s is not None
        assert "proxy" in phases
        assert f"through {scheme}://{proxy.address}" in shown
        assert USER not in shown
        assert PASSWORD not in shown


def test_explicit_proxy_wins_over_play_and_environment(
    make_caller: Any, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectProxy() as first, ConnectProxy() as second, ConnectProxy() as third:
        monkeypatch.setenv("HTTPS_PROXY", third.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        play = Connection(proxy=second.url)
        for more in ({"proxy": first.url, "plays": [play]}, {"plays": [play]}, {"proxy": False, "plays": [play]}, {}):
            with make_caller(**arguments, max_retries=0, **more) as caller:
                caller.ask(output_tokens=1)

        assert [len(each.asked) for each in (first, second, third)] == [1, 1, 0]


@pytest.mark.parametrize("name", ["OpenAI", "AsyncOpenAI", "AzureOpenAI", "AsyncAzureOpenAI"])
def test_copies_keep_the_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    azure = {"azure_endpoint": "https://a.test", "api_version": "1"} if "Azure" in name else {}
    client = getattr(fastlane, name)(api_key="k", proxy=SECRET, **azure)
    copies = [
        client,
        client.copy(),
        client.with_options(timeout=9.0, max_retries=7),
        client.with_plays(Urgency()),
        client.with_plays(Connection(idle_s=9)),
        client.with_plays(Connection(proxy="http://127.0.0.1:8")).with_options(timeout=3.0),
    ]

    assert {copy.explain().proxy for copy in copies} == {"http://127.0.0.1:9"}
    assert client.copy(proxy=False).explain().proxy is None
    assert client.with_options(proxy="socks5://127.0.0.1:8").copy().explain().proxy == "socks5://127.0.0.1:8"


def test_redirect_to_another_host_chooses_anew(
    make_caller: Any, one_peer: CallPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = one_peer.url.replace("127.0.0.1", "localhost")
    with ConnectProxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        for without, there in (("localhost", "127.0.0.1"), ("127.0.0.1", "localhost")):
            proxy.asked.clear()
            monkeypatch.setenv("NO_PROXY", without)
            one_peer.replies = [Reply(307, (("location", f"{elsewhere}/v1/elsewhere"),), b"")]
            with make_caller(api_key="k", base_url=f"{one_peer.url}/v1", max_retries=0) as caller:
                assert caller.ask().choices
            assert [target.partition(":")[0] for target in proxy.asked] == [there]


def mocked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An instrumentation wraps the library's transports, which then carry the calls."""
    for kind, name in (("HTTPTransport", "handle_request"), ("AsyncHTTPTransport", "handle_async_request")):
        owner = getattr(LIBRARY, kind)
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, original=original: original(*args))
    return {}


def disabled(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    return {}


@pytest.mark.parametrize(
    "without", [mocked, disabled, lambda _: {"only_plays": []}], ids=["wrapped", "disabled", "none"]
)
@pytest.mark.parametrize("proxied", [True, False])
def test_other_transports_use_the_proxy_too(
    without: Callable[[Any], dict[str, Any]],
    proxied: bool,
    make_caller: Any,
    arguments: dict[str, Any],
    trusted_proxies: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ConnectProxy("http", guarded=True) as proxy, ConnectProxy() as other:
        monkeypatch.setenv("HTTPS_PROXY", other.url)
        with make_caller(
            **arguments, max_retries=0, proxy=proxy.url if proxied else False, **without(monkeypatch)
        ) as caller:
            assert caller.ask(output_tokens=1).choices
        assert (len(proxy.asked), other.asked) == (int(proxied), [])


@pytest.fixture(params=[Tinyproxy, Microsocks], ids=lambda kind: str(kind.name))
def real_proxy(request: pytest.FixtureRequest) -> Iterator[ProxyProgram]:
    yield from running(request.param())


def test_real_proxy_carries_streams_and_their_cancellation(
    real_proxy: ProxyProgram, make_caller: Any, arguments: dict[str, Any], provider: Emulator
) -> None:
    with make_caller(**arguments, max_retries=0, proxy=real_proxy.url) as caller:
        assert caller.read(output_tokens=3)
        caller.start(1, output_tokens=3_000, token_ms=20).close()
        assert caller.ask(output_tokens=1).choices
        assert comes_true_for(caller, lambda: [one.reset_code for one in provider.log()] == [None, CANCEL, None])
        assert {call.attempts[0].http_version for call in caller.calls} == {"HTTP/2"}
    assert len({entry.connection_id for entry in provider.log()}) == 1

    wrong = real_proxy.url.replace(real_proxy.password, "a-wrong-one")
    denied = pytest.raises(openai.APIConnectionError)
    with make_caller(**arguments, max_retries=0, proxy=wrong) as caller, denied as raised:
        caller.ask()
    assert isinstance(raised.value.__cause__, LIBRARY.ProxyError)


# What goes wrong


BAD = {
    "ftp://some-user:some-password@h": "got the scheme 'ftp'",
    "http://some-user:some-password@h:port": "no valid URL",
    "http://some-user:some-password@h:70000": "a port from 1 to 65535",
    "http://": "with a host",
    "http://some-user:some-pass\ud800word@h": "cannot be encoded",
    "socks5://some-user:" + 300 * "p" + "@h": "at most 255 bytes",
}


@pytest.mark.parametrize("url", [*BAD, "some-user:some-password@h", "", 5, True, b"http://h"])
@pytest.mark.parametrize("place", ["client", "play", "HTTPS_PROXY"])
def test_url_of_no_proxy_is_refused_where_it_was_given(url: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if place == "HTTPS_PROXY" and (url not in BAD or "\ud800" in url):
        pytest.skip("the environment has such values never, or they mean something else")
    with pytest.raises(ConfigurationError) as raised:
        fastlane.OpenAI(api_key="k", **settings_of(place, url, monkeypatch))

    assert BAD.get(url, "a URL such as") in str(raised.value)
    assert str(raised.value).startswith("HTTPS_PROXY takes" if place == "HTTPS_PROXY" else "proxy takes")
    assert "some-" not in str(raised.value)
    assert raised.value.__cause__ is raised.value.__context__ is None


@pytest.mark.parametrize("place", ["client", "play"])
def test_proxy_beside_another_http_client_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="made with http_client="):
        fastlane.OpenAI(api_key="k", http_client=openai.DefaultHttpxClient(), **settings_of(place, SECRET, monkeypatch))


def test_equal_proxies_share_connections_and_others_do_not(arguments: dict[str, Any], provider: Emulator) -> None:
    with ConnectProxy() as one, ConnectProxy() as other:
        clients = [fastlane.OpenAI(**arguments, proxy=each) for each in (one.url, one.url, other.url)]
        for client in clients:
            client.models.list()
        for client in clients:
            client.close()

        assert (len(one.asked), len(other.asked)) == (1, 1)
