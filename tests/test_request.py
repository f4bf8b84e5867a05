"""What our clients send is what the stock client sends, also where a request was put together from a template."""

from __future__ import annotations

import asyncio
import gc
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
import trio

import fastlane
from tests.call_peer import MESSAGES, Asked, CallPeer, ask, async_ours, ours, stock
from tests.prepared_server import LIBRARY
from tests.waiting import Form

TIMES = 3
"""The first call is the stock client's own, the second shows that it can be put together, the third is."""


def with_headers(**headers: Any) -> Callable[[Any], Any]:
    return lambda client: ask(client, extra_headers={name.replace("_", "-"): value for name, value in headers.items()})


def post(body: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda client: client.post("/chat/completions", cast_to=object, body=body, options=options)


def raw(client: Any) -> Any:
    return ask(client.with_raw_response if hasattr(client, "with_raw_response") else client)


CALLS: dict[str, Callable[[Any], Any]] = {
    "plain": ask,
    "a header": with_headers(x_app="1"),
    "a header in capitals": with_headers(X_App="1"),
    "a header of the client": with_headers(x_stainless_lang="other"),
    "a header of the HTTP library": with_headers(accept_encoding="identity"),
    "another key": with_headers(Authorization="Bearer other"),
    "no key": with_headers(Authorization=openai.Omit()),
    "another agent": with_headers(User_Agent="mine/1"),
    "no agent": with_headers(User_Agent=openai.Omit()),
    "another content type": with_headers(Content_Type="application/vnd.mine+json"),
    "another accept": with_headers(accept="text/plain"),
    "a host": with_headers(host="other.test"),
    "an idempotency key": with_headers(idempotency_key="k-1"),
    "its own retry count": with_headers(x_stainless_retry_count="9"),
    "its own read timeout": with_headers(x_stainless_read_timeout="9"),
    "the same header twice": with_headers(x_app="1", X_APP="2"),
    "an empty value": with_headers(x_app=""),
    "a value with spaces around": with_headers(x_app="  a b "),
    "a query": lambda client: ask(client, extra_query={"page": "2", "tags": ["a", "b"], "deep": {"x": 1}}),
    "a body": lambda client: ask(client, extra_body={"top_k": 3, "model": "other", "deep": {"ä": [None, 0.25]}}),
    "an empty body": lambda client: ask(client, extra_body={}),
    "all at once": lambda client: ask(
        client, extra_headers={"x-app": "1"}, extra_query={"a": "b"}, extra_body={"c": 1}, timeout=3
    ),
    "whole seconds": lambda client: ask(client, timeout=7),
    "seconds": lambda client: ask(client, timeout=7.0),
    "four timeouts": lambda client: ask(client, timeout=LIBRARY.Timeout(7, connect=1.5)),
    "four timeouts in floats": lambda client: ask(client, timeout=LIBRARY.Timeout(7.0, connect=1.5)),
    "no reading timeout": lambda client: ask(client, timeout=LIBRARY.Timeout(7, read=None)),
    "no timeout": lambda client: ask(client, timeout=None),
    "a timeout that is not given": lambda client: ask(client, timeout=openai.NOT_GIVEN),
    "with options": lambda client: ask(client.with_options(timeout=9, max_retries=1, default_headers={"x-o": "1"})),
    "with a timeout": lambda client: ask(client.with_options(timeout=9, max_retries=1)),
    "raw": lambda client: client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES),
    "post": post({"model": "m"}),
    "post with more body": post({"model": "m"}, extra_json={"b": 1}),
    "post with a key": post({"model": "m"}, idempotency_key="k"),
    "post of a form": post({"model": "m", "deep": {"a": 1}}, headers={"Content-Type": "multipart/form-data"}),
    "post of an empty body": post({}),
    "post of a list": post([1, 2]),
    "post of nothing": lambda client: client.post("/chat/completions", cast_to=object),
    "post elsewhere": lambda client: client.post("/deep/er?a=b", cast_to=object, body={"a": 1}),
    "post without a slash": lambda client: client.post("models", cast_to=object, body={"a": 1}),
    "put": lambda client: client.put("/x", cast_to=object, body={"a": 1}),
    "delete": lambda client: client.delete("/x", cast_to=object),
    "get": lambda client: client.get("/x", cast_to=object),
    "embeddings": lambda client: client.embeddings.create(model="m", input="a", encoding_format="float"),
    "files": lambda client: client.files.create(file=("a.jsonl", b"{}"), purpose="batch"),
}


CLIENTS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "of an organisation": {"organization": "org", "project": "proj"},
    "with headers": {"default_headers": {"X-Team": "1", "user-agent": "team/1", "x-app": "default"}},
    "with a query": {"default_query": {"api-version": "1", "list": ["a"]}},
    "with a timeout": {"timeout": 5},
    "with four timeouts": {"timeout": LIBRARY.Timeout(5.0, read=None)},
    "with a key from a function": {"api_key": lambda: "sk-asked"},
}


def comparable(asked: list[Asked]) -> list[Asked]:
    """Without what is random in it."""
    return [
        Asked(
            one.method,
            one.target,
            [(name, re.sub(rb"boundary=.*", b"boundary=", value)) for name, value in one.headers],
            re.sub(rb"--[0-9a-f]{32}", b"--", one.body),
        )
        for one in asked
    ]


def outcome(call: Callable[[Any], Any], client: Any) -> str:
    """What became of the call, as far as the request can decide it."""
    try:
        call(client)
    except Exception as error:  # noqa: BLE001 - both sides have to fail alike
        return f"{type(error).__name__}: {error}"
    return "answered"


TASKS = ("plain", "a header in capitals", "another key", "a query", "seconds", "raw", "get")


@pytest.mark.parametrize(
    ("form", "name"), [*(("sync", name) for name in CALLS), *(("async", name) for name in TASKS)], indirect=["form"]
)
def test_repeated_call_sends_the_same_as_stock(form: Form, peer: CallPeer, name: str) -> None:
    call = CALLS[name]
    with stock(peer, form) as client:
        expected = outcome(call, client), comparable(peer.take())
    with ours(peer, form) as client:
        for _ in range(TIMES):
            assert (outcome(call, client), comparable(peer.take())) == expected


@pytest.mark.parametrize("kind", CLIENTS)
def test_request_does_not_depend_on_earlier_calls(one_peer: CallPeer, kind: str) -> None:
    names = ["plain", "a header", "another agent", "whole seconds", "seconds", "no timeout", "a header in capitals"]
    names += ["four timeouts", "four timeouts in floats", "a query", "a body", "with options", "with a timeout", "raw"]
    names += ["plain"]
    expected = {}
    with stock(one_peer, **CLIENTS[kind]) as client:
        for name in names:
            expected[name] = outcome(CALLS[name], client), comparable(one_peer.take())
    for order in (names, names[::-1]):
        with ours(one_peer, **CLIENTS[kind]) as client:
            for name in order * TIMES:
                assert (name, outcome(CALLS[name], client), comparable(one_peer.take())) == (name, *expected[name])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that the stock client's own code makes from now on."""
    built = []
    library = LIBRARY.Client.build_request

    def build(*args: Any, **options: Any) -> Any:
        built.append(library(*args, **options))
        return built[-1]

    monkeypatch.setattr(LIBRARY.Client, "build_request", build)
    return built


def test_replaced_client_header_does_not_disable_fast_path(peer: CallPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    built = counted(monkeypatch)
    with ours(peer, default_headers={"x-app": "default"}) as client:
        for name in ("a header", "another agent", "a header of the client"):
            CALLS[name](client)
        built.clear()
        for _ in range(4):
            ask(client)

    assert len(built) == 1


def with_set(**values: Any) -> Callable[[Any], None]:
    def change(owner: Any) -> None:
        for name, value in values.items():
            setattr(owner, name, value)

    return change


def reorder_default_headers(client: Any) -> None:
    client._custom_headers["x-team"] = client._custom_headers.pop("x-team")


CHANGES: dict[str, Callable[[Any], Any]] = {
    "key": with_set(api_key="sk-other"),
    "base URL": lambda client: with_set(base_url=f"{client.base_url}deeper")(client),
    "timeout": with_set(timeout=11),
    "retries": with_set(max_retries=7),
    "organization": with_set(organization="org-2", project=None),
    "headers of HTTP": lambda client: client._client.headers.update({"x-of-http": "1"}),
    "other headers of HTTP": lambda client: with_set(headers={"x-of-http": "2"})(client._client),
    "query of HTTP": lambda client: with_set(params={"of": "http"})(client._client),
    "cookies": lambda client: client._client.cookies.set("taste", "sweet"),
    "default headers": with_set(_custom_headers={"x-later": "1"}),
    "default headers in place": lambda client: client._custom_headers.update({"x-team": "2", "x-later": "1"}),
    "order of default headers": reorder_default_headers,
    "default query in place": lambda client: client._custom_query.update(version=1),
    "default query to an equal one": lambda client: client._custom_query.update(version=True),
    "named idempotency keys": with_set(_idempotency_header="Idempotency-Key"),
}
OF_HEADERS = ("key", "default headers in place", "order of default headers")


@pytest.mark.parametrize(
    ("change", "headers"),
    [*((change, dict) for change in CHANGES), *((change, LIBRARY.Headers) for change in OF_HEADERS)],
)
def test_changed_client_settings_change_the_request(one_peer: CallPeer, change: str, headers: Any) -> None:
    def calls(client: Any) -> list[Asked]:
        taken: list[Asked] = []
        for step in (lambda _: None, CHANGES[change], CHANGES["default query in place"], CHANGES[change]):
            step(client)
            for _ in range(TIMES):
                ask(client)
                ask(client, extra_headers={"x-app": "1"})
                taken += comparable(one_peer.take())
        return [_without_keys(one) for one in taken]

    def made(make: Any) -> Any:
        return make(one_peer, default_headers=headers({"x-team": "1", "x-of": "all"}), default_query={"a": "b"})

    with made(stock) as client:
        expected = calls(client)
    with made(ours) as client:
        assert calls(client) == expected


def _without_keys(asked: Asked) -> Asked:
    """The keys that openai makes up are another for each call."""
    return asked._replace(
        headers=[
            (name, b"key" if value.startswith(b"stainless-python-retry-") else value) for name, value in asked.headers
        ]
    )


def test_each_call_has_a_new_idempotency_key(peer: CallPeer) -> None:
    with ours(peer) as client:
        client._idempotency_header = "Idempotency-Key"
        for _ in range(4):
            ask(client)

    assert len({asked.header("idempotency-key") for asked in peer.take()}) == 4


def test_async_library_header_follows_the_running_library(one_peer: CallPeer) -> None:
    def calls_with_each() -> None:
        client = async_ours(one_peer)

        async def use() -> None:
            for _ in range(TIMES):
                await ask(client)

        asyncio.run(use())
        trio.run(use)
        asyncio.run(use())
        asyncio.run(client.close())

    calls_with_each()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # trio's connection, which the stock client leaves as well

    named = [asked.header("x-stainless-async") for asked in one_peer.take()]
    assert named == ["async:asyncio"] * TIMES + ["async:trio"] * TIMES + ["async:asyncio"] * TIMES


def test_concurrent_change_during_learning_is_not_learned(peer: CallPeer) -> None:
    class Turning(dict[str, str]):
        """Gives the client another key in the middle of the stock client's work."""

        def keys(self) -> Any:
            client.api_key = "sk-other"
            return super().keys()

    with ours(peer, default_headers=Turning({"x-team": "1"})) as client:
        client._custom_headers = Turning({"x-team": "1"})
        for _ in range(4):
            client.api_key = "sk-test"
            ask(client)

    assert [asked.header("authorization") for asked in peer.take()][1:] == ["Bearer sk-test"] * 3


def test_threads_never_send_an_outdated_api_key(peer: CallPeer) -> None:
    keys = {f"sk-{number}" for number in range(4)}
    with ours(peer) as client, ThreadPoolExecutor(4) as threads:

        def turn(number: int) -> None:
            for _ in range(20):
                client.api_key = f"sk-{number}"
                ask(client, extra_headers={"x-app": str(number)})

        list(threads.map(turn, range(4)))
        peer.take()
        for key in sorted(keys):
            client.api_key = key
            for _ in range(TIMES):
                ask(client, extra_headers={"x-app": "1"})
        asked = peer.take()

    assert [one.header("authorization") for one in asked] == [f"Bearer {key}" for key in sorted(keys) for _ in range(3)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_request_templates_are_bounded() -> None:
    answer = LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, json={}))
    http_client = LIBRARY.Client(transport=answer)
    with fastlane.OpenAI(api_key="sk-test", base_url="http://x/v1", http_client=http_client) as client:
        for number in range(300):
            headers = {f"x-{number}": "1"}
            client.post("/a", cast_to=object, body={"a": 1}, options={"headers": headers})
            client.post(f"/{number}", cast_to=object, body={"a": 1}, options={"timeout": float(number)})
            client.post("/a", cast_to=object, body={"a": 1}, options={"headers": {"x-a": str(number)}})
        shell: Any = client._fastlane
        templates = shell.requests._templates

    assert 0 < len(templates) <= 64
    assert all(len(template.verified) <= 256 for template in templates.values())
