"""No secret for one provider reaches another, however the application sets it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletion

import fastlane
from fastlane import CallRefusedError, ConfigurationError, Connection, Routing
from fastlane.catalog import Catalog, CatalogModel
from fastlane.plays.routing.clients import UpstreamClients
from tests.call_peer import JSON, MESSAGES, Asked, CallPeer, Reply
from tests.knowledge.forks import held_by_another_thread, in_child
from tests.plays.routing.conftest import VARIABLE
from tests.transport.peer import authority
from tests.waiting import SYNC, Form

SECRET = "planted-secret"
PLAYS = [Connection(http2="prefer")]
FORWARDED = ("traceparent", "tracestate")


def model_at(url: str, *, variable: str | None = VARIABLE, **fields: Any) -> CatalogModel:
    """A model of a catalog at a server's address."""
    given = {"name": "second", "first_token_s": [(1_000, 0.5)], "tokens_per_s": 100.0, **fields}
    return CatalogModel(base_url=f"{url}/v1", api_key_env=variable, **given)


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
    "extra_headers: api-key": headers("api-key"),
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


def routed(first: CallPeer, *models: CatalogModel, forward: Sequence[str] = FORWARDED, **options: Any) -> Any:
    """A client of the first provider that sends what names no model to these."""
    routing = Routing(Catalog(models=models), streams=False, exploration=0.0, forward_headers=forward)
    given: dict[str, Any] = {"api_key": "sk-first", "base_url": f"{first.url}/v1", "max_retries": 0}
    return fastlane.OpenAI(**{**given, "only_plays": [*PLAYS, routing], **options})


def auto(client: Any, **options: Any) -> Any:
    return client.chat.completions.create(model="fastlane/auto", messages=MESSAGES, **options)


def keys(asked: list[Asked]) -> list[str | None]:
    return [one.header("authorization") for one in asked]


def test_cookie_of_one_provider_stays_there(first: CallPeer, second: CallPeer) -> None:
    # Both have the same name, and a browser would send what one of them has set to the other.
    first.usually = second.usually = lambda _: Reply(headers=(JSON, ("set-cookie", f"session={SECRET}; Path=/")))
    with routed(first, model_at(second.url)) as client:
        for _ in range(2):
            auto(client)
            client.chat.completions.create(model="m", messages=MESSAGES)
    assert [planted([asked]) for asked in first.take()] == [[], ["cookie"]]
    assert [planted([asked]) for asked in second.take()] == [[], ["cookie"]]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_does_not_forward_the_key(first: CallPeer, second: CallPeer, status: int) -> None:
    second.usually = lambda _: Reply(status=status, headers=(("location", f"{first.url}/v1/elsewhere"),), body=b"")
    with routed(first, model_at(second.url)) as client:
        auto(client, extra_headers={"X-Tenant": SECRET})
    (asked,) = first.take()
    assert asked.target == "/v1/elsewhere"
    assert not any(b"sk-" in value for _, value in asked.headers)
    assert planted([asked]) == []


def test_other_providers_get_trace_and_openai_headers_only(first: CallPeer, second: CallPeer) -> None:
    given = {"traceparent": "00-1-2-01", "X-Stainless-Helper-Method": "chat.completions.parse", "X-Request": "7"}
    for forward in (FORWARDED, ("x-request",)):
        with routed(first, model_at(second.url), forward=forward) as client:
            auto(client, extra_headers=given)
    usual, chosen = second.take()
    assert (usual.header("traceparent"), usual.header("x-request")) == ("00-1-2-01", None)
    assert (chosen.header("traceparent"), chosen.header("x-request")) == (None, "7")
    assert usual.header("x-stainless-helper-method") == "chat.completions.parse"
    assert (usual.header("user-agent") or "").startswith("OpenAI/Python")


def test_own_provider_gets_the_unchanged_request(first: CallPeer) -> None:
    own = model_at(NOWHERE).model_copy(update={"base_url": None, "api_key_env": None})
    with routed(first, own, default_headers={"X-Default": "d"}) as client:
        auto(client, extra_headers={"X-Tenant": SECRET}, extra_query={"tenant": SECRET})
    (asked,) = first.take()
    assert planted([asked]) == ["target", "x-tenant"]
    assert asked.header("authorization") == "Bearer sk-first"
    assert asked.header("x-default") == "d"


def test_key_is_in_no_repr_and_no_error(first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_at(second.url)
    second.usually = lambda _: Reply(status=401, body=b'{"error": {"message": "wrong key"}}')
    with routed(first, model) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            auto(client)
        for made in (client, client.plays, model, caught.value, client.last_call):
            assert "sk-" not in f"{made!r}{made}"
        monkeypatch.setenv("SECOND_KEY", "sk-with\x07bell")
        with pytest.raises(CallRefusedError, match="SECOND_KEY holds what no HTTP header can"):
            auto(client)


def test_providers_at_one_url_get_their_own_keys(
    first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THIRD_KEY", "sk-third")
    for variable in ("SECOND_KEY", "THIRD_KEY", None):
        with routed(first, model_at(second.url, variable=variable)) as client:
            auto(client)
    assert keys(second.take()) == ["Bearer sk-second", "Bearer sk-third", "Bearer none"]


# Clients for other upstreams, whatever the caller's client is


NOWHERE = "https://never.invalid"


@pytest.mark.parametrize("plays", [PLAYS, []])
def test_custom_http_client_is_not_used_for_other_upstreams(
    first: CallPeer, second: CallPeer, plays: list[Any]
) -> None:
    sent: list[Any] = []
    with openai.DefaultHttpxClient(event_hooks={"request": [sent.append]}) as http_client:
        routing = Routing(Catalog(models=(model_at(second.url),)), streams=False, exploration=0.0)
        auto(routed(first, model_at(NOWHERE), http_client=http_client, only_plays=[*plays, routing]))
        assert not http_client.is_closed
    assert (len(sent), len(second.take())) == (0, 1)


def test_key_that_changes_is_taken_from_the_next_call_on(
    first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with routed(first, model_at(second.url)) as client:
        for given in ("sk-1", "sk-1", "sk-2", "sk-2\n"):
            monkeypatch.setenv(VARIABLE, given)
            auto(client)
    assert keys(second.take()) == ["Bearer sk-1", "Bearer sk-1", "Bearer sk-2", "Bearer sk-2"]


@pytest.mark.parametrize("given", [None, "", " \n"])
def test_missing_key_refuses_the_model_and_names_the_variable(
    first: CallPeer, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(VARIABLE, given)
    with routed(first, model_at(NOWHERE)) as client, pytest.raises(CallRefusedError, match="SECOND_KEY is not set"):
        auto(client)


def test_upstream_call_has_the_timeout_of_its_client(first: CallPeer, second: CallPeer) -> None:
    with routed(first, model_at(second.url), timeout=11.0) as client:
        auto(client)
        auto(client.with_options(timeout=12.0))
        auto(client, timeout=13.0)
    assert [asked.header("x-stainless-read-timeout") for asked in second.take()] == ["11.0", "12.0", "13.0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_is_not_blocked_by_a_parent_lock(first: CallPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "sk-second")
    clients = UpstreamClients()
    with routed(first, model_at(NOWHERE)) as client, held_by_another_thread(clients._lock):
        assert in_child(lambda: clients.of(client, model_at(NOWHERE)) is not None)


def test_credentials_and_non_names_are_refused_as_forwarded_headers() -> None:
    catalog = Catalog(models=(model_at(NOWHERE),))
    assert Routing(catalog, forward_headers=["Traceparent", "X-Request"]).forward_headers == (
        "traceparent",
        "x-request",
    )
    wrong: list[Any] = ["traceparent", ["Authorization"], ["API-Key"], ["cookie"], ["X-A: secret"], [""], [7], 7]
    for one in wrong:
        with pytest.raises(ConfigurationError, match="forward_headers") as caught:
            Routing(catalog, forward_headers=one)
        assert "secret" not in str(caught.value)


def test_no_password_file_of_the_machine_is_looked_into(
    first: CallPeer, second: CallPeer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine {httpx2.URL(second.url).host} login planted password planted\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with routed(first, model_at(second.url)) as client:
        auto(client)
    assert keys(second.take()) == ["Bearer sk-second"]
