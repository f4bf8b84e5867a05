"""Past the layers of the HTTP client nothing differs: cookies, redirects, hooks, and what the answer says of itself."""

from __future__ import annotations

import logging
import re
from typing import Any

import openai
import pytest

from tests.call_peer import JSON, MESSAGES, Asked, CallPeer, Reply, ask, both, ours, outcome, seen, stock
from tests.prepared_server import LIBRARY
from tests.waiting import Form


def raw(client: Any) -> Any:
    return client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES).http_response


def to(place: str, status: int = 307, *headers: tuple[str, str]) -> Reply:
    return Reply(status, (("location", place), *headers), b"moved")


def cookie(value: str) -> tuple[str, str]:
    return "set-cookie", value


SCRIPTS: dict[str, list[Reply]] = {
    "no redirect": [Reply()],
    **{f"a redirect of {status}": [to("/v1/elsewhere", status), Reply()] for status in (301, 302, 303, 307, 308)},
    "two redirects": [to("/a"), to("b/c"), Reply()],
    "a redirect to nowhere": [Reply(307, (), b"")],
    "a redirect to a place that is none": [to("https://[")],
    "a redirect to another protocol": [to("ftp://host/file")],
    "redirects without end": [to("/again")] * 22,
    "a cookie": [Reply(headers=(JSON, cookie("a=b; Path=/"), cookie("c=d; Path=/; Secure; HttpOnly")))],
    "a cookie for elsewhere": [Reply(headers=(JSON, cookie("a=b; Path=/elsewhere")))],
    "a cookie that is over": [Reply(headers=(JSON, cookie("a=b; Path=/; Max-Age=0")))],
    "a cookie on the way": [to("/v1/elsewhere", 307, cookie("a=b; Path=/")), Reply()],
    "a cookie with an error": [Reply(400, (JSON, cookie("a=b; Path=/")), b'{"error": {"message": "no"}}')],
    "a redirect to an error": [to("/a"), Reply(404, (JSON,), b'{"error": {"message": "gone"}}')],
    "a broken redirect": [to("/a"), Reply(0)],
}


def calls(peer: CallPeer, client: Any, script: list[Reply]) -> tuple[Any, list[Asked]]:
    ask(client)
    ask(client)
    peer.take()
    got = []
    for call in (
        lambda: ask(client),
        lambda: seen(raw(client)),
        lambda: ask(client),
        lambda: list(ask(client, stream=True)),
    ):
        peer.replies[:] = script
        got.append(outcome(call))
        got.append(sorted((one.name, one.value, one.path) for one in client._client.cookies.jar))
        got.append(len(peer.replies))
        peer.replies.clear()
        got.append(outcome(lambda: ask(client)))
    return got, peer.take()


TASKS = ("a redirect of 302", "two redirects", "a cookie on the way", "a redirect to an error")


@pytest.mark.parametrize(
    ("form", "name"), [*(("sync", name) for name in SCRIPTS), *(("async", name) for name in TASKS)], indirect=["form"]
)
def test_redirects_and_cookies_match_the_stock_client(form: Form, peer: CallPeer, name: str) -> None:
    found, expected = both(lambda client: calls(peer, client, SCRIPTS[name]), peer, form)
    assert found == expected


def test_redirects_that_are_not_followed_are_not_followed(peer: CallPeer) -> None:
    def made(client: Any) -> Any:
        ask(client)
        got = []
        for _ in range(3):
            peer.replies[:] = [to("/v1/elsewhere")]
            options = {"follow_redirects": False}
            got.append(outcome(lambda: client.post("/x", cast_to=object, body={"a": 1}, options=options)))  # noqa: B023
        client._client.follow_redirects = False
        peer.replies[:] = [to("/v1/elsewhere")]
        return [*got, outcome(lambda: ask(client)), len(peer.take())]

    found, expected = both(made, peer)
    for one in (*expected, *found):  # the request that would have followed is an object of its own
        if isinstance(one, dict):
            one["response"]["next"] = type(one["response"]["next"])
    assert found == expected


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
@pytest.mark.parametrize("stream", [False, True])
def test_httpx_logs_match_the_stock_client(
    peer: CallPeer, caplog: pytest.LogCaptureFixture, level: int, stream: bool
) -> None:
    names = ("openai", LIBRARY.__name__)

    def lines(client: Any) -> list[tuple[str, int, str]]:
        caplog.clear()
        for replies in (
            [Reply()],
            [Reply(429, (JSON, ("retry-after-ms", "1")), b"{}"), Reply()],
            [to("/a"), Reply()],
        ) * 2:
            peer.replies[:] = replies
            answer = ask(client, stream=stream)
            if stream:
                list(answer)
        return [
            # An announced pause gets jitter on top, up to a quarter.
            (record.name, record.levelno, re.sub(r"retry-[0-9a-f-]+|(?<=0\.001)[012]\d\d", "", record.getMessage()))
            for record in caplog.records
            if record.name.partition(".")[0] in names
        ]

    for name in names:
        caplog.set_level(level, logger=name)
    found, expected = both(lines, peer, max_retries=2)
    assert found == expected
    assert expected


def test_hooks_of_the_http_client_see_every_call(peer: CallPeer) -> None:
    def made(client: Any) -> list[Any]:
        events: list[Any] = []
        ask(client)
        ask(client)
        client._client.event_hooks = {
            "request": [lambda request: events.append((request.method, str(request.url)))],
            "response": [lambda response: events.append((response.status_code, response.is_closed))],
        }
        peer.replies[:] = [to("/v1/elsewhere", 302)]
        ask(client)
        client._client.event_hooks["response"].append(lambda response: response.raise_for_status())
        peer.replies[:] = [Reply(400, (), b"no")]
        events.append(outcome(lambda: ask(client)))
        return events

    found, expected = both(made, peer)
    assert found == expected


@pytest.mark.parametrize(
    "name", ["send", "_send_handling_auth", "_send_handling_redirects", "_send_single_request", "_transport_for_url"]
)
@pytest.mark.parametrize("where", ["class", "object", "class, before the client was made"])
def test_patched_http_client_layer_sees_every_call(
    peer: CallPeer, name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = []
    found = getattr(LIBRARY.Client, name)

    def passing(self: Any, *args: Any, **options: Any) -> Any:
        passed.append(name)
        return found(self, *args, **options)

    if where.endswith("made"):
        monkeypatch.setattr(LIBRARY.Client, name, passing)
    with ours(peer) as client:
        ask(client)
        ask(client)
        passed.clear()
        if where == "class":
            monkeypatch.setattr(LIBRARY.Client, name, passing)
        elif where == "object":
            monkeypatch.setattr(client._client, name, lambda *a, **o: passing(client._client, *a, **o))
        ask(client)
        assert passed
        monkeypatch.undo()
        count = len(passed)
        ask(client)
        assert len(passed) == count


def test_replaced_client_transport_gets_every_call(peer: CallPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = []
    with ours(peer) as client:
        for _ in range(3):
            ask(client)
        found = client._client._transport.handle_request

        def carrying(request: Any) -> Any:
            carried.append(request.url.path)
            return found(request)

        monkeypatch.setattr(client._client._transport, "handle_request", carrying)
        ask(client)
        assert carried == ["/v1/chat/completions"]
        monkeypatch.undo()
        client._client._transport = LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, json={"id": "mocked"}))
        assert ask(client).id == "mocked"


def test_credentials_of_an_overridden_client_are_sent(
    form: Form, peer: CallPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openai's clients ask these two for what authenticates a request beside its headers."""
    auth = LIBRARY.BasicAuth("user", "secret")
    monkeypatch.setattr(openai.OpenAI, "_custom_auth", lambda *_: auth, raising=False)
    monkeypatch.setattr(openai.AsyncOpenAI, "custom_auth", auth, raising=False)
    for make in (stock, ours):
        with make(peer, form) as client:
            for _ in range(3):
                ask(client)
        assert [(asked.header("authorization") or "")[:6] for asked in peer.take()] == ["Basic "] * 3


def test_client_with_credentials_of_its_http_client_sends_them(peer: CallPeer) -> None:
    def made(client: Any) -> list[Asked]:
        ask(client)
        ask(client)
        client._client.auth = ("user", "secret")
        ask(client)
        return peer.take()

    found, expected = both(made, peer)
    assert found == expected


@pytest.mark.parametrize("kind", ["base_url", "call"])
def test_credentials_in_a_url_are_sent(peer: CallPeer, kind: str) -> None:
    place = peer.url.replace("https://", "https://user:secret@") + "/v1"

    def made(make: Any) -> list[Asked]:
        options = {"base_url": place} if kind == "base_url" else {}
        with make(peer, **options, default_headers={"Authorization": openai.Omit()}) as client:
            for _ in range(3):
                path = "/x" if kind == "base_url" else f"{place}/x"
                client.post(path, cast_to=object, body={"a": 1}, options={"headers": {"authorization": openai.Omit()}})
        return peer.take()

    assert made(ours) == made(stock)
