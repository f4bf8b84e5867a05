"""What the provider is sent, looked at as bytes by an HTTP transport that the application brings."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import openai
import pytest

import fastlane
from fastlane import Call, CallRecord, Connection, Play
from tests.call_peer import ANSWER
from tests.contract.entry_points import ENTRIES, MESSAGES, MODEL
from tests.session_play import SessionPlay
from tests.waiting import SYNC, Form


@dataclass(frozen=True, slots=True)
class ShortAnswers(SessionPlay):
    """Sets a field of the body."""

    def plan(self, call: Call) -> Call:
        return call.with_body("at most 9 tokens", max_tokens=9)


@dataclass(frozen=True, slots=True)
class Header(SessionPlay):
    """Adds a header."""

    name: str = "x-of-a-play"

    def plan(self, call: Call) -> Call:
        return replace(call, headers={**call.headers, self.name: "play"})


@dataclass(frozen=True, slots=True)
class Listening(SessionPlay):
    """Notes what sessions are given."""

    planned: list[Call] = field(default_factory=list)
    closed: list[CallRecord] = field(default_factory=list)

    def plan(self, call: Call) -> Call:
        self.planned.append(call)
        return call

    def close(self, outcome: Any) -> None:
        self.closed.append(outcome.record)


class Post:
    """An application's HTTP client that keeps every request and answers it itself."""

    def __init__(self, *statuses: int) -> None:
        self.requests: list[httpx2.Request] = []
        self.statuses = list(statuses)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        self.requests.append(request)
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            return httpx2.Response(status, json={"error": {"message": "no"}}, headers={"retry-after-ms": "1"})
        return httpx2.Response(200, json=ANSWER)

    async def _async_answer(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        return self._answer(request)

    def client(self) -> httpx2.Client:
        return httpx2.Client(transport=httpx2.MockTransport(self._answer))

    def async_client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._async_answer))

    @property
    def body(self) -> Any:
        (request,) = self.requests
        return json.loads(request.content)


def made(post: Post, *plays: Play, form: Form = SYNC, **options: Any) -> Any:
    http_client = post.async_client() if form.asynchronous else post.client()
    return form.make(
        fastlane,
        api_key="sk-test",
        base_url="http://provider/v1",
        http_client=http_client,
        only_plays=plays,
        raise_play_errors=True,
        **options,
    )


def of_stock(use: Callable[[Any], Any]) -> httpx2.Request:
    post = Post()
    with openai.OpenAI(api_key="sk-test", base_url="http://provider/v1", http_client=post.client()) as client:
        use(client)
    (request,) = post.requests
    return request


def with_extras(client: Any) -> None:
    client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        extra_body={"top_k": 3, "nested": {"a": [1, None, "ä"]}},
        extra_headers={"x-of-the-app": "1", "OpenAI-Organization": openai.Omit()},
        extra_query={"page": "2"},
        timeout=3.0,
    )


def test_extra_arguments_are_sent_beside_a_rewriting_play(form: Form) -> None:
    post = Post()
    expected = of_stock(with_extras)
    with made(post, ShortAnswers(), Header(), form=form) as client:
        with_extras(client)

    (request,) = post.requests
    assert json.loads(request.content) == {**json.loads(expected.content), "max_tokens": 9}
    assert request.url == expected.url
    added = {"x-of-a-play": "play", "content-length": request.headers["content-length"]}
    if not form.asynchronous:
        assert dict(request.headers) == {**expected.headers, **added}


@pytest.mark.parametrize(
    "header", ["Authorization", "authorization", "X-OF-THE-CLIENT", "x-of-the-call", "X-Of-The-Call"]
)
def test_play_header_never_replaces_caller_header_in_any_case(header: str) -> None:
    post = Post()
    with made(post, Header(name=header), default_headers={"x-of-the-client": "1"}) as client:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers={"X-Of-The-Call": "1"})

    (request,) = post.requests
    assert request.headers.get_list(header) == (["Bearer sk-test"] if header.lower() == "authorization" else ["1"])


def test_play_gets_the_extra_body_and_its_changes_are_recorded() -> None:
    @dataclass(frozen=True, slots=True)
    class Route(SessionPlay):
        def plan(self, call: Call) -> Call:
            return call.with_body("other model", model="other-1")

    post, listening = Post(), Listening()
    with made(post, listening, Route()) as client:
        with_extras(client)

        (call,) = listening.planned
        assert (call.endpoint, call.body["top_k"]) == ("/chat/completions", 3)
        assert (client.calls[0].changes, client.calls[0].model) == (("other model",), "other-1")
        assert json.loads(post.requests[0].content)["model"] == "other-1"


@pytest.mark.parametrize("entry", ["embeddings", "files_create", "models_list", "models_retrieve"])
def test_play_is_not_planned_for_requests_without_prompt(form: Form, arguments: dict[str, Any], entry: str) -> None:
    listening = Listening()
    with form.make(fastlane, **arguments, only_plays=[listening], raise_play_errors=True) as client:
        ENTRIES[entry](client)

        assert len(client.calls) == 1

    assert (listening.planned, listening.closed) == ([], [])


@pytest.mark.parametrize("plays", [(Connection(),), (ShortAnswers(), Header())])
def test_mappings_of_the_caller_are_never_changed(plays: tuple[Play, ...]) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Name a river."}]}
    extra_body, extra_headers, extra_query = {"top_k": 3}, {"x-of-the-app": "1"}, {"page": "2"}
    given = (body, extra_body, extra_headers, extra_query)
    before = copy.deepcopy(given)
    with made(Post(500, 200), *plays, max_retries=1) as client:
        client.post("/chat/completions", cast_to=object, body=body, options={"headers": extra_headers})
        client.chat.completions.create(
            model=MODEL,
            messages=body["messages"],
            extra_body=extra_body,
            extra_headers=extra_headers,
            extra_query=extra_query,
        )

    assert given == before


def test_retry_sends_the_same_bytes_and_is_not_planned_again(form: Form) -> None:
    post, listening = Post(500, 503, 200), Listening()
    with made(post, listening, ShortAnswers(), Header(), form=form, max_retries=3) as client:
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)

        assert raw.retries_taken == 2
        assert len(listening.planned) == 1
        assert len({request.content for request in post.requests}) == 1
        assert [request.headers["x-stainless-retry-count"] for request in post.requests] == ["0", "1", "2"]
        assert [request.headers["x-of-a-play"] for request in post.requests] == ["play"] * 3
        (record,) = client.calls
        assert [(each.kind, each.status_code) for each in record.attempts] == [
            ("first", 500),
            ("retry", 503),
            ("retry", 200),
        ]
