"""No secret for one provider reaches another, however the application sets it."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletion

import fastlane
from fastlane import ConfigurationError, Connection, Routing
from fastlane.catalog import Catalog, CatalogModel
from fastlane.plays.routing.clients import UpstreamClients, checked_forward, missing_key, options_for
from tests.call_peer import JSON, MESSAGES, Asked, CallPeer, Reply
from tests.plays.routing.driving import VARIABLE, model_at, options_of, run
from tests.transport.peer import authority
from tests.waiting import SYNC, Form

SECRET = "planted-secret"
PLAYS = [Connection(http2="prefer")]


@dataclass(frozen=True)
class Row:
    """One kind of setting that sends something of the application to its own provider."""

    environment: dict[str, str] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    http_client: dict[str, Any] = field(default_factory=dict)
    call: dict[str, Any] = field(default_factory=dict)
    path: str = "/chat/completions"
    is_azure: bool = False
    is_sent: bool = True
    """Its own provider gets to see it."""


def headers(name: str) -> Row:
    return Row(call={"extra_headers": {name: SECRET}})


ROWS = {
    "OPENAI_API_KEY": Row(environment={"OPENAI_API_KEY": SECRET}, client={"api_key": None}),
    "OPENAI_ORG_ID": Row(environment={"OPENAI_ORG_ID": SECRET}),
    "OPENAI_PROJECT_ID": Row(environment={"OPENAI_PROJECT_ID": SECRET}),
    "OPENAI_ADMIN_KEY": Row(environment={"OPENAI_ADMIN_KEY": SECRET}, is_sent=False),
    "OPENAI_WEBHOOK_SECRET": Row(environment={"OPENAI_WEBHOOK_SECRET": SECRET}, is_sent=False),
    "OPENAI_CUSTOM_HEADERS": Row(environment={"OPENAI_CUSTOM_HEADERS": f"X-Custom: {SECRET}\nX-Other: {SECRET}"}),
    "OPENAI_CUSTOM_HEADERS with a key": Row(environment={"OPENAI_CUSTOM_HEADERS": f"Authorization: Bearer {SECRET}"}),
    "the key": Row(client={"api_key": SECRET}),
    "a key that is called for": Row(client={"api_key": lambda: SECRET}),
    "the admin key": Row(client={"admin_api_key": SECRET}, is_sent=False),
    "organization": Row(client={"organization": SECRET}),
    "project": Row(client={"project": SECRET}),
    "default_headers": Row(client={"default_headers": {"X-Tenant": SECRET, "Authorization": f"Bearer {SECRET}"}}),
    "default_query": Row(client={"default_query": {"tenant": SECRET}}),
    "the HTTP client's headers": Row(http_client={"headers": {"Authorization": SECRET, "X-Tenant": SECRET}}),
    "the HTTP client's cookies": Row(http_client={"cookies": {"session": SECRET}}),
    "the HTTP client's parameters": Row(http_client={"params": {"tenant": SECRET}}),
    "the HTTP client's user": Row(http_client={"auth": (SECRET, SECRET)}, is_sent=False),
    "extra_headers: Authorization": headers("Authorization"),
    "extra_headers: authorization": headers("authorization"),
    "extra_headers: api-key": headers("api-key"),
    "extra_headers: X-API-Key": headers("X-API-Key"),
    "extra_headers: Cookie": headers("Cookie"),
    "extra_headers: Proxy-Authorization": headers("Proxy-Authorization"),
    "extra_headers: OpenAI-Organization": headers("OpenAI-Organization"),
    "extra_headers: OpenAI-Project": headers("OpenAI-Project"),
    "extra_headers: OpenAI-Beta": headers("OpenAI-Beta"),
    "extra_headers: any other": headers("X-Tenant"),
    "extra_headers: baggage": headers("baggage"),
    "extra_query": Row(call={"extra_query": {"tenant": SECRET}}),
    "a query in the path": Row(path=f"/chat/completions?tenant={SECRET}"),
    "an Azure key": Row(client={"api_key": SECRET}, is_azure=True),
    "an Azure token": Row(client={"api_key": None, "azure_ad_token": SECRET}, is_azure=True),
}


@pytest.fixture(params=ROWS, ids=list(ROWS))
def row(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Row:
    row = ROWS[request.param]
    for name, value in row.environment.items():
        monkeypatch.setenv(name, value)
    return row


def client_of(
    row: Row, first: CallPeer, second: CallPeer, form: Form = SYNC, *, others: Sequence[CatalogModel] = ()
) -> Any:
    routing = Routing(Catalog(models=(*others, model_at(second.url))), streams=False, exploration=0.0)
    options: dict[str, Any] = {"api_key": "sk-first", "base_url": f"{first.url}/v1", "max_retries": 0}
    options["only_plays"] = [*PLAYS, routing]
    options |= row.client
    if row.is_azure:
        options["api_version"] = "2026-01-01"
    if row.http_client:
        made: Any = openai.DefaultAsyncHttpxClient if form.asynchronous else openai.DefaultHttpxClient
        context = ssl.create_default_context()
        authority().configure_trust(context)
        options["http_client"] = made(verify=context, **row.http_client)
    if form.asynchronous and callable(options["api_key"]):

        async def key() -> str:
            return SECRET

        options["api_key"] = key
    return form.make(fastlane, "AzureOpenAI" if row.is_azure else "OpenAI", **options)


def planted(asked: list[Asked]) -> list[str]:
    """Where the secret is to be read."""
    leaks = []
    for one in asked:
        leaks += ["target"] if SECRET in one.target else []
        leaks += ["body"] if SECRET.encode() in one.body else []
        leaks += [name.decode().lower() for name, value in one.headers if SECRET.encode() in value]
    return leaks


def failing_once(peer: CallPeer) -> None:
    peer.replies = [Reply(status=500, headers=(JSON, ("retry-after-ms", "1")))]


def ask(client: Any, row: Row, model: str, **options: Any) -> Any:
    """One call, by a resource, or as an application may post it."""
    if "?" in row.path:
        body = {"model": model, "messages": MESSAGES}
        return client.post(row.path, body=body, cast_to=ChatCompletion, options=options)
    return client.chat.completions.create(model=model, messages=MESSAGES, **row.call)


def test_secret_is_not_sent_to_another_provider(row: Row, first: CallPeer, second: CallPeer, form: Form) -> None:
    with client_of(row, first, second, form) as client:
        ask(client, row, "m")
        for _ in range(2):
            ask(client, row, "fastlane/auto")
        failing_once(second)
        ask(client.with_options(max_retries=1), row, "fastlane/auto")
    own, others = first.take(), second.take()
    assert bool(planted(own)) is row.is_sent
    assert len(others) == 4
    assert planted(others) == []
    assert {one.header("authorization") for one in others} == {"Bearer sk-second"}
    assert {one.target for one in others} == {"/v1/chat/completions"}
    assert all(b"Name a river." in one.body for one in others)


@pytest.mark.parametrize("row", ["default_headers", "extra_headers: api-key", "OPENAI_CUSTOM_HEADERS"], indirect=True)
def test_fallback_provider_gets_no_secret_of_the_first(row: Row, first: CallPeer, second: CallPeer) -> None:
    first.usually = lambda _: Reply(status=503)
    own = model_at(second.url, name="own", quality=9.0).model_copy(update={"base_url": None, "api_key_env": None})
    fast = own.model_copy(update={"tokens_per_s": 10_000.0})
    with client_of(row, first, second, others=[fast]) as client:
        ask(client, row, "fastlane/auto")
        assert client.last_call.routing.chosen == "own"
        assert client.last_call.routing.model == "second"
    (asked,) = second.take()
    assert planted([asked]) == []
    assert asked.header("authorization") == "Bearer sk-second"
    assert planted(first.take()) != []


def own_client(first: CallPeer, **options: Any) -> fastlane.OpenAI:
    return fastlane.OpenAI(**{"api_key": "sk-first", "base_url": f"{first.url}/v1", "only_plays": PLAYS, **options})


def test_a_cookie_of_one_provider_stays_there(first: CallPeer, second: CallPeer) -> None:
    # Both have the same name, and a browser would send what one of them has set to the other.
    first.usually = second.usually = lambda _: Reply(headers=(JSON, ("set-cookie", f"session={SECRET}; Path=/")))
    clients = UpstreamClients()
    with own_client(first) as client:
        for _ in range(2):
            run(clients, client, model_at(second.url), options_of())
            client.chat.completions.create(model="m", messages=MESSAGES)
        assert [planted([asked]) for asked in first.take()] == [[], ["cookie"]]
        assert [planted([asked]) for asked in second.take()] == [[], ["cookie"]]
        clients.close()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_does_not_forward_the_key(first: CallPeer, second: CallPeer, status: int) -> None:
    second.usually = lambda _: Reply(status=status, headers=(("location", f"{first.url}/v1/elsewhere"),), body=b"")
    clients = UpstreamClients()
    with own_client(first) as client:
        run(clients, client, model_at(second.url), options_of(extra_headers={"X-Tenant": SECRET}))
        (asked,) = first.take()
        assert asked.target == "/v1/elsewhere"
        assert not any(b"sk-" in value for _, value in asked.headers)
        assert planted([asked]) == []
        clients.close()


def test_other_providers_get_trace_and_openai_headers_only(first: CallPeer, second: CallPeer) -> None:
    clients = UpstreamClients()
    with own_client(first) as client:
        given = {"traceparent": "00-1-2-01", "X-Stainless-Helper-Method": "chat.completions.parse", "X-Request": "7"}
        run(clients, client, model_at(second.url), options_of(extra_headers=given))
        run(clients, client, model_at(second.url), options_of(extra_headers=given), forward=("x-request",))
        usual, chosen = second.take()
        assert (usual.header("traceparent"), usual.header("x-request")) == ("00-1-2-01", None)
        assert (chosen.header("traceparent"), chosen.header("x-request")) == (None, "7")
        assert usual.header("x-stainless-helper-method") == "chat.completions.parse"
        assert (usual.header("user-agent") or "").startswith("OpenAI/Python")
        clients.close()


def test_own_provider_gets_the_unchanged_request(first: CallPeer) -> None:
    model = model_at("https://never.invalid").model_copy(update={"base_url": None, "api_key_env": None})
    options = options_of(extra_headers={"X-Tenant": SECRET}, extra_query={"tenant": SECRET})
    clients = UpstreamClients()
    with own_client(first, default_headers={"X-Default": "d"}) as client:
        assert clients.of(client, model) is client
        run(clients, client, model, options)
        (asked,) = first.take()
        assert planted([asked]) == ["target", "x-tenant"]
        assert asked.header("authorization") == "Bearer sk-first"
        assert asked.header("x-default") == "d"


def test_key_is_in_no_repr_and_no_error(first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, model = UpstreamClients(), model_at(second.url)
    second.usually = lambda _: Reply(status=401, body=b'{"error": {"message": "wrong key"}}')
    with own_client(first) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            run(clients, client, model, options_of())
        sibling: Any = clients.of(client, model)
        for made in (clients, sibling, sibling._fastlane, model, caught.value, client.last_call):
            assert "sk-" not in f"{made!r}{made}"
        monkeypatch.setenv("SECOND_KEY", "sk-with\x07bell")
        assert clients.of(client, model) is None
        assert missing_key(model) == "SECOND_KEY holds what no HTTP header can"
        clients.close()


def test_providers_at_one_url_have_clients_with_their_keys(
    first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THIRD_KEY", "sk-third")
    clients = UpstreamClients()
    with own_client(first) as client:
        for variable in ("SECOND_KEY", "THIRD_KEY", None):
            run(clients, client, model_at(second.url, variable=variable), options_of())
        sent = [asked.header("authorization") for asked in second.take()]
        assert sent == ["Bearer sk-second", "Bearer sk-third", "Bearer none"]
        clients.close()


# Clients for other upstreams: one for each, on the shared connections, whatever the caller's client is


NOWHERE = "https://never.invalid"


def first_client(first: CallPeer, **options: Any) -> fastlane.OpenAI:
    return fastlane.OpenAI(**{"api_key": "sk-first", "base_url": f"{first.url}/v1", **options})


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sk-second")


def test_custom_http_client_is_not_used_for_other_upstreams(first: CallPeer, key: None) -> None:
    http_client = openai.DefaultHttpxClient()
    for plays in ([Connection(max_connections=5)], []):
        clients = UpstreamClients()
        client = first_client(first, http_client=http_client, only_plays=plays)
        sibling: Any = clients.of(client, model_at(NOWHERE))
        assert sibling._client is not http_client
        assert sibling._fastlane.transport == "fastlane"
        assert sibling._client._transport.settings.max_connections == (5 if plays else 1_000)
        clients.close()
    assert not http_client.is_closed
    http_client.close()


def test_a_key_that_changes_is_taken_from_the_next_call_on(
    first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, model = UpstreamClients(), model_at(second.url)
    with first_client(first) as client:
        for given in ("sk-1", "sk-1", "sk-2", "sk-2\n"):
            monkeypatch.setenv(VARIABLE, given)
            run(clients, client, model, options_of())
        sent = [asked.header("authorization") for asked in second.take()]
        assert sent == ["Bearer sk-1", "Bearer sk-1", "Bearer sk-2", "Bearer sk-2"]
        clients.close()


@pytest.mark.parametrize("given", [None, "", " \n"])
def test_missing_key_gives_no_client_and_names_the_variable(
    first: CallPeer, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(VARIABLE, given)
    clients = UpstreamClients()
    with first_client(first) as client:
        assert clients.of(client, model_at(NOWHERE)) is None
        assert missing_key(model_at(NOWHERE)) == "SECOND_KEY is not set"
        assert missing_key(model_at(NOWHERE, variable=None)) is None


def test_upstream_call_has_timeout_and_retries_of_its_client(first: CallPeer, second: CallPeer) -> None:
    clients, model = UpstreamClients(), model_at(second.url)
    with first_client(first, timeout=11.0, max_retries=4) as client:
        run(clients, client, model, options_of())
        run(clients, client.with_options(timeout=12.0), model, options_of())
        run(clients, client, model, options_of(timeout=13.0))
        assert [asked.header("x-stainless-read-timeout") for asked in second.take()] == ["11.0", "12.0", "13.0"]

        options = options_of()
        assert options_for(options, client).max_retries == 4
        assert options_for(options_of(), client.with_options(max_retries=0)).max_retries == 0
        clients.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_is_not_blocked_by_a_parent_lock(first: CallPeer, key: None) -> None:
    clients = UpstreamClients()
    with first_client(first) as client:
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


def test_forwarded_headers_are_listed_by_name() -> None:
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
    with first_client(first) as client:
        run(clients, client, model_at(second.url), options_of())
        (asked,) = second.take()
        assert asked.header("authorization") == "Bearer sk-second"
        clients.close()
