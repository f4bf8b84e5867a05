"""What our clients make of an answer is what the stock client makes of it, whatever the server sends."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.call_peer import ANSWER, JSON, MESSAGES, CallPeer, Reply, ask, both, ours, outcome, seen, stock
from tests.prepared_server import LIBRARY
from tests.waiting import Form

BODY = json.dumps(ANSWER).encode()
EVENTS = b'data: {"id": "1", "choices": []}\n\ndata: [DONE]\n\n'


def of_type(content_type: str, body: bytes = BODY) -> Reply:
    return Reply(headers=(("content-type", content_type),), body=body)


REPLIES = {
    "as usual": Reply(),
    "gzip": Reply(headers=(JSON, ("content-encoding", "gzip")), body=gzip.compress(BODY)),
    "deflate": Reply(headers=(JSON, ("content-encoding", "deflate")), body=zlib.compress(BODY)),
    "not gzip": Reply(headers=(JSON, ("content-encoding", "gzip"))),
    "utf-8": of_type(
        "application/json; charset=utf-8", json.dumps({**ANSWER, "model": "ä"}, ensure_ascii=False).encode()
    ),
    "latin-1": of_type("application/json; charset=latin-1", '{"id": "ä"}'.encode("latin-1")),
    "utf-16": of_type("application/json", '{"id": "ä"}'.encode("utf-16")),
    "a byte order mark": of_type("application/json", codecs.BOM_UTF8 + BODY),
    "a space before the parameter": of_type("application/json ; charset=utf-8"),
    "a suffix": of_type("application/problem+json"),
    "text": of_type("text/plain"),
    "no type": Reply(headers=()),
    "two types": Reply(headers=(("content-type", "text/plain"), JSON)),
    "two ids": Reply(headers=(JSON, ("x-request-id", "a"), ("x-request-id", "b"))),
    "an id in Latin": Reply(headers=(JSON, ("x-request-id", "\xe4"))),
    "nothing": of_type("application/json", b""),
    "nothing at all": Reply(204, headers=(), body=b""),
    "nothing at all, in JSON": Reply(204, headers=(JSON,), body=b""),
    "null": of_type("application/json", b"null"),
    "no JSON": of_type("application/json", b'{"id": '),
    "not a number": of_type("application/json", b'{"id": "a", "created": NaN, "choices": []}'),
    "large": of_type("application/json", json.dumps({**ANSWER, "model": "x" * 300_000}).encode()),
}


def raw(client: Any) -> Any:
    return client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)


TASKS = ("as usual", "gzip", "utf-16", "text", "nothing", "no JSON", "large")


@pytest.mark.parametrize(
    ("form", "name"), [*(("sync", name) for name in REPLIES), *(("async", name) for name in TASKS)], indirect=["form"]
)
def test_answer_is_what_the_stock_client_makes_of_it(form: Form, peer: CallPeer, name: str) -> None:
    def calls(client: Any) -> list[Any]:
        ask(client)  # the next is not the first of its kind
        ask(client)
        peer.usually = lambda _: REPLIES[name]
        return [
            outcome(lambda: ask(client)),
            outcome(lambda: client.post("/x", cast_to=object, body={"a": 1})),
            outcome(lambda: client.post("/x", cast_to=str, body={"a": 1})),
            outcome(lambda: client.embeddings.create(model="m", input="a", encoding_format="float")),
            outcome(lambda: seen(raw(client).http_response)),
            outcome(lambda: raw(client).parse()),
        ]

    with stock(peer, form) as client:
        expected = calls(client)
    peer.clear()
    with ours(peer, form) as client:
        assert calls(client) == expected


TYPES: dict[str, Any] = {
    "an object": object,
    "text": str,
    "bytes": bytes,
    "nothing": type(None),
    "a mapping": dict[str, object],
    "the HTTP library's": LIBRARY.Response,
    "openai's": ChatCompletion,
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("stream", [False, True])
def test_response_has_the_requested_cast_type(peer: CallPeer, name: str, stream: bool) -> None:
    def kind(client: Any) -> Any:
        result = client.post(
            "/chat/completions",
            cast_to=TYPES[name],
            body={"a": 1},
            stream=stream,
            stream_cls=openai.Stream[Any] if stream else None,
        )
        if isinstance(result, openai.Stream):
            return openai.Stream, list(result)
        if isinstance(result, LIBRARY.Response):
            result.read()
            return seen(result)
        return type(result), result

    reply = of_type("text/event-stream", EVENTS) if stream else Reply()
    peer.usually = lambda _: reply
    with stock(peer) as client:
        expected = kind(client)
    with ours(peer) as client:
        for _ in range(3):
            assert kind(client) == expected


def test_raw_response_header_of_http_client_is_respected(peer: CallPeer) -> None:
    def kinds(client: Any) -> list[type]:
        client._client.headers["X-Stainless-Raw-Response"] = "true"
        return [type(ask(client)) for _ in range(3)]

    found, expected = both(kinds, peer)
    assert found == expected


def test_strict_client_validates(peer: CallPeer) -> None:
    peer.usually = lambda _: of_type("application/json", b'{"id": 1}')
    with stock(peer, _strict_response_validation=True) as client:
        expected = outcome(lambda: ask(client))
    assert expected["class"] is openai.APIResponseValidationError
    with ours(peer, _strict_response_validation=True) as client:
        for _ in range(3):
            assert outcome(lambda: ask(client)) == expected
