"""An application's own `http_client` carries its calls and stays as it is."""

from __future__ import annotations

from typing import Any

import openai
import pytest

import fastlane
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
def test_a_given_http_client_carries_the_calls_and_is_not_modified(
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
def test_a_given_http_client_needs_no_hash_and_is_like_no_other(arguments: dict[str, Any], name: str) -> None:
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
def test_a_call_over_a_given_http_client_is_stamped(arguments: dict[str, Any], name: str) -> None:
    with library(name).Client(http2=True) as given:
        client = fastlane.OpenAI(**arguments, http_client=given)
        USES["chat_streamed"](client)
        USES["chat_streamed"](client)

        first, second = client.calls
        assert first.connection_reused is False
        assert second.connection_reused is True
        assert first.attempts[0].http_version == "HTTP/2"
        assert first.time_to_first_token_s is not None


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_applications_own_trace_goes_first(arguments: dict[str, Any], name: str) -> None:
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
def test_closing_a_client_closes_the_given_http_client_as_the_stock_one_does(
    form: Form, arguments: dict[str, Any], name: str
) -> None:
    kind = library(name).AsyncClient if form.asynchronous else library(name).Client
    of_stock, of_ours = kind(), kind()
    form.make(openai, **arguments, http_client=of_stock).close()

    form.make(fastlane, **arguments, http_client=of_ours).close()
    assert of_ours.is_closed == of_stock.is_closed


def test_a_dropped_client_leaves_the_given_http_client_open(arguments: dict[str, Any]) -> None:
    with library("httpx2").Client() as given:
        client = fastlane.OpenAI(**arguments, http_client=given)
        USES["chat"](client)
        del client

        assert not given.is_closed
        assert given.get(f"{arguments['base_url']}/models", headers={"authorization": "Bearer k"}).status_code == 200
