"""Clients for other upstreams: one for each, on the shared connections, whatever the application's own client is."""

from __future__ import annotations

import os
import threading
from typing import Any

import httpx2
import openai
import pytest

import fastlane
from fastlane import ConfigurationError, Connection
from fastlane.plays.routing.clients import UpstreamClients, checked_forward, key_of, missing_key, options_for
from tests.call_peer import MESSAGES, CallPeer
from tests.plays.routing.driving import VARIABLE, model_at, options_of, run

NOWHERE = "https://never.invalid"


def client_of(first: CallPeer, **options: Any) -> fastlane.OpenAI:
    return fastlane.OpenAI(**{"api_key": "sk-first", "base_url": f"{first.url}/v1", **options})


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sk-second")


def test_threads_that_ask_at_once_get_the_same_client(first: CallPeer, key: None) -> None:
    clients, found = UpstreamClients(), []
    together = threading.Barrier(8)

    def ask(client: Any) -> None:
        together.wait()
        found.append(clients.of(client, model_at(NOWHERE)))

    with client_of(first) as client:
        threads = [threading.Thread(target=ask, args=(client,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert len({id(one) for one in found}) == 1
        clients.close()


def test_it_has_the_application_s_pipeline_and_the_shared_connections(first: CallPeer, key: None) -> None:
    clients = UpstreamClients()
    with client_of(first, only_plays=[Connection(max_connections=7)]) as client:
        sibling: Any = clients.of(client, model_at(NOWHERE))
        assert sibling._fastlane.pipeline is client._fastlane.pipeline  # type: ignore[union-attr]
        assert sibling._fastlane.transport == "fastlane"
        assert sibling._client is not client._client
        assert sibling._client._transport.settings == client._client._transport.settings  # type: ignore[attr-defined]
        clients.close()


def test_whoever_brings_an_http_client_has_others_on_fastlane_s_connections(first: CallPeer, key: None) -> None:
    http_client = openai.DefaultHttpxClient()
    for plays in ([Connection(max_connections=5)], []):
        clients = UpstreamClients()
        client = client_of(first, http_client=http_client, only_plays=plays)
        sibling: Any = clients.of(client, model_at(NOWHERE))
        assert sibling._client is not http_client
        assert sibling._fastlane.transport == "fastlane"
        assert sibling._client._transport.settings.max_connections == (5 if plays else 1_000)
        clients.close()
    assert not http_client.is_closed
    http_client.close()


@pytest.mark.parametrize(("proxy", "options"), [("http://127.0.0.1:9", {}), (None, {"only_plays": []})])
def test_with_proxies_or_without_the_connection_play_openai_s_own_http_client_is_used(
    first: CallPeer, key: None, proxy: str | None, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if proxy is not None:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    clients = UpstreamClients()
    with client_of(first, **options) as client:
        sibling: Any = clients.of(client, model_at(NOWHERE))
        assert sibling._fastlane.transport == "stock"
        clients.close()


def test_a_key_that_changes_is_taken_from_the_next_call_on(
    first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, model = UpstreamClients(), model_at(second.url)
    with client_of(first) as client:
        for given in ("sk-1", "sk-1", "sk-2", "sk-2\n"):
            monkeypatch.setenv(VARIABLE, given)
            run(clients, client, model, options_of())
        sent = [asked.header("authorization") for asked in second.take()]
        assert sent == ["Bearer sk-1", "Bearer sk-1", "Bearer sk-2", "Bearer sk-2"]
        clients.close()


@pytest.mark.parametrize("given", [None, "", " \n"])
def test_without_its_key_there_is_no_client_and_the_variable_is_named(
    first: CallPeer, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(VARIABLE, given)
    clients = UpstreamClients()
    with client_of(first) as client:
        assert clients.of(client, model_at(NOWHERE)) is None
        assert missing_key(model_at(NOWHERE)) == "SECOND_KEY is not set"
        assert missing_key(model_at(NOWHERE, variable=None)) is None


def test_a_key_that_no_header_can_carry_is_not_sent_and_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("sk-1\r\nHost: x", "sk-ü", "sk-\x7f"):
        monkeypatch.setenv(VARIABLE, key)
        assert key_of(model_at(NOWHERE)) is None
        assert missing_key(model_at(NOWHERE)) == "SECOND_KEY holds what no HTTP header can"


def test_its_calls_have_the_time_outs_and_retries_of_the_client_that_makes_them(
    first: CallPeer, second: CallPeer
) -> None:
    clients, model = UpstreamClients(), model_at(second.url)
    with client_of(first, timeout=11.0, max_retries=4) as client:
        run(clients, client, model, options_of())
        run(clients, client.with_options(timeout=12.0), model, options_of())
        run(clients, client, model, options_of(timeout=13.0))
        assert [asked.header("x-stainless-read-timeout") for asked in second.take()] == ["11.0", "12.0", "13.0"]

        options = options_of()
        assert options_for(options, client).max_retries == 4
        assert options_for(options_of(), client.with_options(max_retries=0)).max_retries == 0
        clients.close()


def test_a_client_that_was_closed_calls_no_other_provider_either(first: CallPeer, second: CallPeer) -> None:
    clients, client = UpstreamClients(), client_of(first, max_retries=0)
    client.close()

    def stock() -> Any:
        return client.chat.completions.create(model="m", messages=MESSAGES)

    def routed() -> Any:
        return run(clients, client, model_at(second.url), options_of())

    errors = []
    for call in (stock, routed):
        with pytest.raises((RuntimeError, openai.APIConnectionError)) as caught:
            call()
        errors.append((repr(caught.value), repr(caught.value.__cause__)))
    assert errors[0] == errors[1]
    assert first.take() == second.take() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_is_not_held_up_by_a_lock_of_its_parent_s(first: CallPeer, key: None) -> None:
    clients = UpstreamClients()
    with client_of(first) as client:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with clients._lock:
                held.set()
                done.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(30)
        child = os.fork()
        if child == 0:
            os._exit(0 if clients.of(client, model_at(NOWHERE)) is not None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        done.set()
        thread.join()


def test_which_headers_may_go_elsewhere_is_said_by_name() -> None:
    assert checked_forward(["Traceparent", "X-Request"]) == ("traceparent", "x-request")
    with fastlane.OpenAI(api_key="k") as client:
        for headers, sent in ((None, {}), ({"X-REQUEST": "1", "X-Other": "2"}, {"X-REQUEST": "1"})):
            options = options_of(extra_headers=headers)
            assert options_for(options, client, ("x-request",)).headers == sent
    for wrong in ("traceparent", ["Authorization"], ["API-Key"], ["cookie"], ["X-A: secret"], [""], [7], 7):
        with pytest.raises(ConfigurationError, match="forward_headers takes") as caught:
            checked_forward(wrong)
        assert "secret" not in str(caught.value)


def test_no_password_file_of_the_machine_is_looked_into(
    first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine {httpx2.URL(second.url).host} login planted password planted\n")
    monkeypatch.setenv("NETRC", str(netrc))
    clients = UpstreamClients()
    with client_of(first) as client:
        run(clients, client, model_at(second.url), options_of())
        (asked,) = second.take()
        assert asked.header("authorization") == "Bearer sk-second"
        clients.close()
