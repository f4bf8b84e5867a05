"""What a client says about itself, and the warning about plays that cannot act."""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import dataclass
from typing import Any

import openai
import pytest

import fastlane
from fastlane import Connection, ContextTrimming, Hedging, Play, PromptCache, RateLimits, Urgency
from fastlane.client import configuration as _configuration
from fastlane.decode import probes as _seams

CLIENTS = ("OpenAI", "AsyncOpenAI")
KEY = "sk-zq7-explained"
PROXY = "http://proxy-user:proxy-password@127.0.0.1:9"


@dataclass(frozen=True, slots=True)
class Mark(Play):
    """A play of an application's."""


@pytest.fixture(autouse=True)
def _no_warning_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_configuration, "_warned", set())


def http_client(name: str) -> Any:
    return openai.DefaultHttpxClient() if name == "OpenAI" else openai.DefaultAsyncHttpxClient()


def made(name: str, **options: Any) -> Any:
    return getattr(fastlane, name)(**{"api_key": KEY, "base_url": "http://127.0.0.1:9/v1", **options})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fastlane"]


# What is on


@pytest.mark.parametrize("name", CLIENTS)
def test_explain_of_a_default_client_has_no_limitations(name: str) -> None:
    explanation = made(name).explain()

    assert (explanation.is_enabled, explanation.transport, explanation.http2) == (True, "fastlane", "prefer")
    assert explanation.plays == (repr(Connection()), repr(PromptCache()))
    assert explanation.limitations == ()
    assert "transport: fastlane's, HTTP/2 if the server speaks it" in str(explanation)


@pytest.mark.parametrize("name", ["AzureOpenAI", "AsyncAzureOpenAI"])
def test_explain_of_azure_names_openais_code(azure_arguments: dict[str, Any], name: str) -> None:
    explanation = getattr(fastlane, name)(**azure_arguments, plays=[Hedging()]).explain()

    assert explanation.transport == "fastlane"
    (limitation,) = explanation.limitations
    assert "Azure" in limitation.why


def test_repr_of_a_client_names_host_transport_and_plays() -> None:
    with fastlane.OpenAI(
        api_key="sk-test", base_url="https://me:secret@example.com/v1", plays=[RateLimits()]
    ) as client:
        shown = repr(client)

    assert shown.startswith("<OpenAI example.com, transport: fastlane, plays: [Connection(")
    assert "RateLimits(" in shown
    assert "secret" not in shown


# Why anything is off


@pytest.mark.parametrize("name", CLIENTS)
def test_explain_names_the_given_http_client(name: str) -> None:
    client = made(name, http_client=http_client(name))
    copied, later = made(name).with_options(http_client=http_client(name)), made(name)
    later._client = http_client(name)

    for explanation in (one.explain() for one in (client, copied, client.with_plays(Mark()), later)):
        assert (explanation.transport, explanation.http2) == ("caller", None)
        assert [one.what for one in explanation.limitations] == ["Connection"]
        assert "the http_client" in str(explanation)


@pytest.mark.skipif("workload_identity" not in inspect.signature(openai.OpenAI).parameters, reason="an older openai")
@pytest.mark.parametrize("name", CLIENTS)
def test_explain_names_workload_identity(name: str, caplog: pytest.LogCaptureFixture) -> None:
    identity = {"identity_provider_id": "i", "service_account_id": "s", "provider": {"get_token": lambda: "token"}}
    client = made(name, api_key=None, workload_identity=identity)

    (limitation,) = client.explain().limitations
    assert limitation.why.startswith("the client was made with workload_identity=")
    assert (client.explain().transport, warnings(caplog)) == ("stock", [])


@pytest.mark.parametrize("name", CLIENTS)
def test_explain_names_an_overridden_method(name: str) -> None:
    client: Any = getattr(fastlane, name)

    class Own(client):  # type: ignore[misc]
        def _build_headers(self, *arguments: Any, **options: Any) -> Any:
            return super()._build_headers(*arguments, **options)

    (limitation,) = Own(api_key=KEY).explain().limitations
    assert limitation.why.endswith(": Own._build_headers")


def test_explain_names_a_replaced_method(monkeypatch: pytest.MonkeyPatch) -> None:
    real = openai.OpenAI._build_request

    def instrumented(*arguments: Any, **options: Any) -> Any:
        return real(*arguments, **options)

    client = made("OpenAI")
    monkeypatch.setattr(openai.OpenAI, "_build_request", instrumented, raising=False)

    assert [one.why.partition(": ")[2] for one in client.explain().limitations] == ["OpenAI._build_request"]


def test_explain_names_an_intercepted_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    client = made("OpenAI")
    library: Any = importlib.import_module(client._client._transport.settings.library)
    monkeypatch.setattr(library.HTTPTransport, "handle_request", lambda *_: library.Response(200))

    (limitation,) = client.explain().limitations
    assert limitation.what == "fastlane's transport"
    assert "a mock" in limitation.why


def test_explain_names_a_seam_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_seams, "_found", {})
    assert not _seams.holds("openai.Parts()", lambda: False)

    (limitation,) = made("OpenAI").explain().limitations
    assert limitation.why == "openai.Parts() is not what this version of fastlane expects"


def test_explain_names_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)

    (limitation,) = made("OpenAI", plays=[ContextTrimming()]).explain().limitations
    assert (limitation.what, limitation.why.partition(",")[0]) == ("ContextTrimming", "tiktoken is not installed")
    assert "fastlane-llm[tokens]" in limitation.remedy
    assert made("OpenAI").explain().limitations == ()


@pytest.mark.parametrize("name", CLIENTS)
def test_explain_of_a_disabled_client_names_the_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTLANE_DISABLED", "1")
    explanation = made(name, plays=[Hedging()]).explain()

    assert (explanation.is_enabled, explanation.plays, explanation.transport) == (False, (), "stock")
    assert "FASTLANE_DISABLED" in str(explanation)
    assert made(name, http_client=http_client(name)).explain().transport == "caller"


@pytest.mark.parametrize("name", CLIENTS)
def test_explain_shows_no_secret(name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    client = made(
        name,
        base_url="http://url-user:url-password@127.0.0.1:9/v1",
        default_headers={"x-secret": "header-secret"},
        plays=[Hedging()],
        http_client=None,
    )
    shown = f"{client.explain()} {client.explain().to_dict()} {client.explain()!r} {caplog.text}"
    assert client.explain().proxy == "http://127.0.0.1:9"
    for secret in (KEY, "proxy-user", "proxy-password", "url-password", "header-secret"):
        assert secret not in shown


# The warning


NAMED: dict[str, tuple[dict[str, Any], str | None]] = {
    "defaults": ({}, None),
    "empty": ({"plays": []}, None),
    "needs-none": ({"plays": [Urgency()]}, None),
    "hedging": ({"plays": [Hedging()]}, "Hedging needs"),
    "connection": ({"plays": [Connection()]}, "Connection needs"),
    "two": ({"plays": [Hedging(), Connection()]}, "Connection and Hedging need"),
    "exact": ({"only_plays": [Connection(), PromptCache()]}, "Connection needs"),
}


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize("name", CLIENTS)
def test_own_http_client_warns_of_plays_named(name: str, case: str, caplog: pytest.LogCaptureFixture) -> None:
    settings, expected = NAMED[case]
    made(name, http_client=http_client(name), **settings)
    made(name, http_client=http_client(name), **settings).with_options(timeout=3.0)

    found = warnings(caplog)
    assert len(found) == (0 if expected is None else 1)
    assert all(warning.startswith(expected or "") and "http_client" in warning for warning in found)
