"""An application's own `http_client` carries its calls and stays as it is."""

from __future__ import annotations

import gc
from typing import Any

import httpx2
import openai
import pytest

import fastlane
from fastlane.transport import AsyncTransport, Transport
from tests.contract.entry_points import ENTRIES as USES
from tests.waiting import Form, inner_of

LIBRARIES = ("httpx2", "httpx")
ENTRIES = ("chat", "chat_streamed", "responses_streamed", "embeddings", "files_create")


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed")


def described(http_client: Any) -> dict[str, Any]:
    """What an application may have set on its HTTP client."""
    return {
        "headers": list(http_client.headers.raw),
        "timeout": http_client.timeout,
        "hooks": {name: list(hooks) for name, hooks in http_client.event_hooks.items()},
        "transport": http_client._transport,
        "mounts": dict(http_client._mounts),
        "base_url": http_client.base_url,
        "params": str(http_client.params),
        "trust_env": http_client.trust_env,
        "follow_redirects": http_client.follow_redirects,
        "attributes": sorted(vars(http_client)),
        "methods": [getattr(type(http_client), name) for name in ("send", "build_request", "request", "stream")],
    }


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", LIBRARIES)
def test_given_http_client_sends_calls_and_is_not_modified(
    form: Form, arguments: dict[str, Any], name: str, entry: str
) -> None:
    sent: list[Any] = []

    async def note(request: Any) -> None:
        sent.append(request)

    hooks = {"request": [note if form.asynchronous else sent.append]}
    kind = library(name).AsyncClient if form.asynchronous else library(name).Client
    given = kind(timeout=11.0, headers={"x-of-the-app": "1"}, http2=True, event_hooks=hooks)
    with form.make(fastlane, **arguments, http_client=given) as client:
        before = described(given)
        USES[entry](client)

        assert inner_of(client._client) is given
        assert described(given) == before
        assert [request.headers["x-of-the-app"] for request in sent] == ["1"]
        assert [(record.outcome, record.transport) for record in client.calls] == [("completed", "caller")]


@pytest.mark.parametrize("name", LIBRARIES)
def test_given_http_client_needs_no_hash_and_is_like_no_other(arguments: dict[str, Any], name: str) -> None:
    class Alike(library(name).Client):  # type: ignore[misc]
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

    plays = [fastlane.Connection(), fastlane.PromptCache(), fastlane.Hedging(), fastlane.Urgency()]
    with (
        Alike() as given,
        fastlane.OpenAI(**arguments, http_client=given, only_plays=plays, raise_play_errors=True) as client,
    ):
        for entry in ENTRIES:
            USES[entry](client)
            USES[entry](client.with_options(max_retries=0))

    assert given.is_closed
    assert {record.outcome for record in client.calls} == {"completed"}


@pytest.mark.parametrize("name", LIBRARIES)
def test_trace_callback_of_the_caller_is_called_first(arguments: dict[str, Any], name: str) -> None:
    traced: list[str] = []

    def add_trace(request: Any) -> None:
        request.extensions["trace"] = lambda event, info: traced.append(event)

    with library(name).Client(event_hooks={"request": [add_trace]}) as given:
        client = fastlane.OpenAI(**arguments, http_client=given)
        USES["chat"](client)

        assert traced
        assert client.calls[0].outcome == "completed"
        assert client.calls[0].connection_reused is None


@pytest.mark.parametrize("name", LIBRARIES)
def test_close_treats_given_http_client_as_stock_client_does(form: Form, arguments: dict[str, Any], name: str) -> None:
    kind = library(name).AsyncClient if form.asynchronous else library(name).Client
    of_stock, of_ours = kind(), kind()
    form.make(openai, **arguments, http_client=of_stock).close()

    form.make(fastlane, **arguments, http_client=of_ours).close()
    assert of_ours.is_closed == of_stock.is_closed


def test_dropped_client_leaves_the_given_http_client_open(arguments: dict[str, Any]) -> None:
    with library("httpx2").Client() as given:
        client = fastlane.OpenAI(**arguments, http_client=given)
        USES["chat"](client)
        del client

        assert not given.is_closed
        assert given.get(f"{arguments['base_url']}/models", headers={"authorization": "Bearer k"}).status_code == 200


# A base URL that cannot be called fails as with openai's own client


NO_HTTP = {
    "no_scheme": "localhost:8000/v1",
    "other_scheme": "ftp://localhost/v1",
    "no_host": "https:///v1",
    "only_a_port": "http://:80/v1",
    "leading_space": " http://127.0.0.1:9/v1",
    "only_a_path": "/v1",
    "empty": "",
    "bad_idna": "http://xn--/v1",
    "nul": "http://\x00h/v1",
    "port_no_number": "http://127.0.0.1:http/v1",
    "nobody_listens": "http://127.0.0.1:9/vü",
}
MESSAGES: Any = [{"role": "user", "content": "Hello"}]
CALLS = {
    "chat": lambda client: client.chat.completions.create(model="m", messages=MESSAGES),
    "chat_stream": lambda client: client.chat.completions.create(model="m", messages=MESSAGES, stream=True),
    "post": lambda client: client.post("/chat/completions", cast_to=object, body={"model": "m"}),
    "get": lambda client: client.models.list(),
}


def error_of(form: Form, library: Any, url: str, call: Any, **options: Any) -> tuple[Any, ...]:
    """The class and text of the error that a call ends with, and the class of its cause."""
    try:
        with form.make(library, api_key="test", base_url=url, max_retries=0, **options) as client:
            call(client)
    except Exception as error:  # noqa: BLE001 - what it is, is what is compared
        return type(error), str(error), type(error.__cause__)
    raise AssertionError("the call did not fail")


@pytest.mark.parametrize(
    ("url", "call"),
    [
        pytest.param(NO_HTTP[kind], CALLS[call], id=f"{kind}-{call}")
        for kind in NO_HTTP
        for call in (CALLS if kind == "no_scheme" else ["chat"])
    ],
)
def test_base_url_that_is_unusable_fails_as_with_openai(form: Form, url: str, call: Any) -> None:
    """The cause is that of a client with an `http_client`: openai's own HTTP client merges the base URL twice."""
    http_client = openai.DefaultAsyncHttpxClient() if form.asynchronous else openai.DefaultHttpxClient()
    found = error_of(form, fastlane, url, call)

    assert found == error_of(form, openai, url, call, http_client=http_client)
    assert found[:2] == error_of(form, openai, url, call)[:2]


@pytest.mark.parametrize("url", [NO_HTTP["no_scheme"], NO_HTTP["no_host"]])
def test_base_url_that_is_unusable_is_retried_as_with_openai(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    sent: list[httpx2.Request] = []
    with openai.OpenAI(api_key="test", base_url=url) as stock, fastlane.OpenAI(api_key="test", base_url=url) as client:
        stock._client.event_hooks = {"request": [sent.append]}
        for one in (stock, client):
            with pytest.raises(openai.APIConnectionError):
                CALLS["chat"](one)

        assert client.last_call is not None
        assert len(client.last_call.attempts) == len(sent) == 3
        assert (client.last_call.outcome, client.last_call.error) == ("failed", "APIConnectionError")


@pytest.mark.parametrize("port", [-1, 65536, 99999])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_port_out_of_range_is_a_connection_error(
    form: Form, host: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Unlike with openai's asynchronous client, which raises an ExceptionGroup."""
    found = error_of(form, fastlane, f"http://{host}:{port}/v1", CALLS["chat"])

    assert found[:2] == (openai.APIConnectionError, "Connection error.")
    assert found[2].__name__ == "ConnectError"  # httpx's or httpx2's, by the installed openai
    gc.collect()
    # asyncio logs a collected task whose exception was never retrieved.
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ftp://127.0.0.1/", "Request URL has an unsupported protocol 'ftp://'."),
        ("127.0.0.1", "Request URL is missing an 'http://' or 'https://' protocol."),
        ("https:///v1", "The URL names no host."),
        ("http://127.0.0.1:65536/", "The port must be from 0 to 65535, not 65536."),
    ],
)
def test_transport_reports_unusable_url_as_stock_does(form: Form, url: str, expected: str) -> None:
    """In the stock transport's class of error, with a text that says what to mend."""
    transport = AsyncTransport() if form.asynchronous else Transport()
    with httpx2.Client() as stock, pytest.raises(httpx2.TransportError) as theirs:
        stock.send(httpx2.Request("GET", url))
    with form.make(httpx2, "Client", transport=transport) as client, pytest.raises(httpx2.TransportError) as ours:
        client.send(httpx2.Request("GET", url))

    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == expected
