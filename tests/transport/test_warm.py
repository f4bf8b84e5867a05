"""A client that connects before its first call, and keeps an idle connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest

from fastlane import Connection, OpenAI
from tests.transport.callers import comes_true_for
from tests.transport.peer import ENHANCE_YOUR_CALM, Peer, PeerConnection
from tests.waiting import until


def warm(caller: Any) -> bool:
    return bool(caller.waiting.warm())


@pytest.mark.parametrize("times", [1, 2])
def test_first_call_after_warm_finds_its_connection_open(caller: Any, protocol: str, times: int) -> None:
    for _ in range(times):
        assert warm(caller) is True
    caller.ask(output_tokens=1)
    attempt = caller.last_call.attempts[0]

    assert attempt.http_version == protocol
    assert attempt.connection_reused is True
    assert attempt.wire.dns_s is None
    assert attempt.wire.connect_s is None
    assert attempt.wire.tls_s is None


@pytest.fixture
def peer(trusting_peers: None) -> Iterator[Callable[..., Peer]]:
    """Makes scripted servers that clients trust."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Peer(**options))


def test_warm_waits_for_what_the_server_allows(make_caller: Any, peer: Callable[..., Peer]) -> None:
    def opening(connection: PeerConnection) -> None:
        connection.hold(allowed)
        connection.settings()

    allowed = threading.Event()
    server = peer(opening=opening)
    with make_caller(api_key="k", base_url=server.url) as caller, ThreadPoolExecutor(1) as beside:
        warming = beside.submit(warm, caller)
        until(lambda: len(server.connections) == 1)
        with pytest.raises(TimeoutError):
            warming.result(0.3)
        allowed.set()

        assert warming.result(30) is True
        assert warm(caller) is True
    assert len(server.connections) == 1
    assert server.requests == []


def test_warm_over_plain_http_needs_no_server_message(make_caller: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        # Within the time after which a connection without traffic looks at the time.
        with make_caller(api_key="k", base_url=url, timeout=openai.Timeout(60, connect=4)) as caller:
            assert warm(caller) is True


def test_many_threads_that_warm_at_once_open_one_connection(peer: Callable[..., Peer]) -> None:
    server = peer()
    with OpenAI(api_key="k", base_url=server.url) as client, ThreadPoolExecutor(20) as beside:
        assert all(beside.map(lambda _: client.warm(), range(40)))

    assert len(server.connections) == 1


@pytest.mark.parametrize("plays", [None, [Connection()]])
def test_client_that_is_disabled_is_not_warmed(
    make_caller: Any, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch, plays: Any
) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    with make_caller(**arguments, only_plays=plays) as caller:
        assert warm(caller) is False


@pytest.mark.parametrize(("listens", "error"), [(False, openai.APIConnectionError), (True, openai.APITimeoutError)])
def test_warm_of_a_silent_or_missing_server_is_an_error(make_caller: Any, listens: bool, error: type) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        if not listens:
            listener.close()
        with make_caller(api_key="k", base_url=url, timeout=openai.Timeout(60, connect=0.2)) as caller:
            for _ in range(2):
                with pytest.raises(openai.APIConnectionError) as raised:
                    warm(caller)
                assert type(raised.value) is error
                assert raised.value.request.url.host == "127.0.0.1"


def test_warm_fails_if_server_closes_before_settings(make_caller: Any, peer: Callable[..., Peer]) -> None:
    server = peer(opening=PeerConnection.fin)
    with make_caller(api_key="k", base_url=server.url) as caller, pytest.raises(openai.APIConnectionError) as raised:
        warm(caller)

    assert isinstance(raised.value.__cause__, httpx2.ConnectError)


def test_closed_client_connects_no_more(peer: Callable[..., Peer]) -> None:
    server = peer()
    client = OpenAI(api_key="k", base_url=server.url)
    client.close()
    with pytest.raises(openai.APIConnectionError) as raised:
        client.warm()

    assert "closed" in str(raised.value.__cause__)
    assert server.connections == []


@pytest.fixture
def soon_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server closes counts as idle after a fraction of what closes here, however late either side may be."""
    monkeypatch.setattr("fastlane.transport.pool.pool._SHORTEST_IDLE_NS", 100_000_000)


@pytest.mark.usefixtures("soon_is_idle")
def test_closed_idle_connection_is_replaced_before_next_call(make_caller: Any, peer: Callable[..., Peer]) -> None:
    def opening(connection: PeerConnection) -> None:
        connection.settings()
        if connection.number == 1:
            connection.closed.wait(1.1)
            connection.fin()

    server = peer(opening=opening)
    with make_caller(api_key="k", base_url=server.url) as caller:
        warm(caller)
        assert comes_true_for(caller, lambda: len(server.connections) == 2)
        assert server.requests == []
        caller.sleep(0.1)
        assert caller.waiting.get("/next", cast_to=str) == "ok"

    assert [stream.connection.number for stream in server.requests] == [2]
    assert len(server.connections) == 2


def test_pings_go_out_until_the_server_objects(make_caller: Any, peer: Callable[..., Peer]) -> None:
    def opening(connection: PeerConnection) -> None:
        connection.settings()
        if connection.number == 1:
            until(lambda: len(connection.pings) >= 2)
            connection.goaway(0, ENHANCE_YOUR_CALM)
            connection.fin()

    server = peer(opening=opening)
    with make_caller(api_key="k", base_url=server.url, only_plays=[Connection(ping_s=1)]) as caller:
        warm(caller)
        assert comes_true_for(caller, lambda: len(server.connections) == 2)
        caller.sleep(2)

        assert len(server.connections) == 2
        assert server.connections[1].pings == []
