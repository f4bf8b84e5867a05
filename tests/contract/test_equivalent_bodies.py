"""What a provider understands of a request is what the stock client says, whatever plays are on.

Calls are drawn, and sent by openai's client and by ours; a play may add the fields that are its own,
and change what its record says, and nothing else: no value, no order of fields, no header.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import msgpack  # type: ignore[import-untyped]
import openai
import pytest
from hypothesis import given, strategies as st

import fastlane
from fastlane import (
    BoundedOutput,
    Connection,
    ContextTrimming,
    Hedging,
    Play,
    PromptCache,
    RequestEncoding,
    Routing,
    Urgency,
)
from fastlane.catalog import Catalog, CatalogModel
from fastlane.providers import ProviderFacts, registered
from tests.attempts.events import DONE, choice_event, response, whole_response
from tests.call_peer import ANSWER
from tests.plays.facts import fact

URL = "http://provider.example/v1"
FORMS: Any = ("json+gzip", "msgpack", "msgpack+gzip")
# Each example is two calls and a client.
# They say how a body is written, and how long it is then.
OF_THE_FORM = ("content-length", "content-type", "content-encoding")
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": '{"n": 1}'}}
COMPLETION = {**ANSWER, "choices": [CHOICE]}
CHUNKS = choice_event("stop", content='{"n": 1}') + DONE
RESPONSE = whole_response(created_at=1)
COMPLETED = response("completed", response=RESPONSE)


# A provider that takes all that a play may send.
ENDPOINTS, TIERS = ("/chat/completions", "/responses"), ("auto", "default", "flex")
PARAMETERS = dict.fromkeys(("prompt_cache_key", "max_completion_tokens", "max_output_tokens"), fact(True))
ABLE = ProviderFacts.model_validate(
    {
        "slug": "able",
        "encodings": dict.fromkeys(ENDPOINTS, fact(("json", *FORMS))),
        "cache": {
            "automatic": fact(True),
            "key_field": fact("prompt_cache_key"),
            "lifetime_s": fact(300.0),
        },
        "parameters": PARAMETERS | {"service_tier": fact(TIERS)},
        "tiers": {
            "field": fact("service_tier"),
            "values": fact(TIERS),
            "standard": fact("default"),
            "patient": {"*": fact("flex")},
            "endpoints": fact(ENDPOINTS),
        },
    }
)


@pytest.fixture(scope="module", autouse=True)
def provider_is_known() -> Iterator[None]:
    with registered(ABLE, origins=[URL]):
        yield


# Calls as applications make them

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(
    ["", "Is water wet?", 'a "quote" \\ and \u2028', "é, ü, 你好, 🙂", "word " * 400]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
PARTS = st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXT), min_size=1, max_size=3)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content}, st.sampled_from(["system", "user"]), TEXT | PARTS
    )
    | st.builds(lambda content: {"role": "assistant", "content": content}, TEXT),
    min_size=1,
    max_size=6,
)
TOOLS = st.lists(
    st.builds(
        lambda name, more: {
            "type": "function",
            "function": {"name": name, "parameters": {"type": "object", "x": more}},
        },
        st.sampled_from(["search", "book", "cancel"]),
        JSON,
    ),
    max_size=3,
)
SHARED = {
    "temperature": st.floats(0, 2) | st.integers(0, 2),
    "metadata": st.dictionaries(TEXT, TEXT, max_size=2),
    "store": st.booleans(),
    "service_tier": st.sampled_from(["auto", "default"]),
    "prompt_cache_key": st.sampled_from(["theirs"]),
    "extra_body": st.dictionaries(st.sampled_from(["top_k", "thinking"]), JSON, max_size=2),
    "extra_headers": st.just({"x-of-the-app": "1"}),
}
CHATS = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "gpt-5-mini"]), "messages": MESSAGES},
    optional=SHARED
    | {
        "tools": TOOLS,
        "seed": st.integers(0, 9),
        "max_tokens": st.integers(1, 9),
        "stop": TEXT,
        "stream": st.booleans(),
    },
)
RESPONSES = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "gpt-5-mini"]), "input": TEXT | MESSAGES},
    optional=SHARED | {"instructions": TEXT, "max_output_tokens": st.integers(1, 9), "stream": st.booleans()},
)
ASKED = st.tuples(st.just("chat"), CHATS) | st.tuples(st.just("responses"), RESPONSES)


@dataclass(frozen=True, slots=True)
class Sent:
    """One request, as a provider reads it."""

    body: dict[str, Any]
    headers: dict[str, str]

    def written(self, *without: str) -> str:
        """The body as text: 1, 1.0 and True are equal to Python, and not the same."""
        return json.dumps({name: value for name, value in self.body.items() if name not in without})


def read(request: httpx2.Request) -> dict[str, Any]:
    content = request.content
    if request.headers.get("content-encoding") == "gzip":
        content = gzip.decompress(content)
    if "msgpack" in request.headers["content-type"]:
        return dict(msgpack.unpackb(content, strict_map_key=False))
    return dict(json.loads(content))


class Provider:
    """It remembers what it was asked, and answers at once."""

    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []
        # One for all clients: to make one takes longer than a call.
        self.http_client = httpx2.Client(transport=httpx2.MockTransport(self.answer))

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        is_chat = request.url.path.endswith("completions")
        if read(request).get("stream"):
            events = CHUNKS if is_chat else COMPLETED
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events)
        return httpx2.Response(200, json=COMPLETION if is_chat else RESPONSE)

    def take(self) -> Sent:
        (request,) = self.requests
        self.requests.clear()
        return Sent(read(request), dict(request.headers))


PROVIDER = Provider()
MADE = {"api_key": "sk-test", "base_url": URL, "http_client": PROVIDER.http_client, "max_retries": 0}
STOCK = openai.OpenAI(**MADE)  # type: ignore[arg-type]


def sent(client: Any, asked: tuple[str, Mapping[str, Any]]) -> Sent:
    """What a client sends for a call."""
    kind, arguments = asked
    result = (client.chat.completions if kind == "chat" else client.responses).create(**arguments)
    if arguments.get("stream"):
        list(result)
    return PROVIDER.take()


def both(
    asked: tuple[str, Mapping[str, Any]], *plays: Play, own: Sequence[str] = (), headers: Sequence[str] = ()
) -> tuple[Sent, Sent, Any]:
    """What the stock client and ours send: the same but for the fields of `own`, with which the length is another,
    and these headers."""
    before = json.dumps(asked[1])
    client = fastlane.OpenAI(**MADE, only_plays=plays, raise_play_errors=True)  # type: ignore[arg-type]
    stock, ours = sent(STOCK, asked), sent(client, asked)
    assert json.dumps(asked[1]) == before  # the application's objects are as they were
    assert ours.written(*own) == stock.written(*own)
    but = headers or (["content-length"] if own else [])
    assert headers_without(ours, *but) == headers_without(stock, *but)
    return stock, ours, client


def headers_without(request: Sent, *names: str) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name not in names}


@given(ASKED)
def test_timing_plays_and_unrouted_calls_change_no_body(asked: Any) -> None:
    catalog = Catalog(models=(CatalogModel(name="other", first_token_s=((0, 1.0),), tokens_per_s=50.0, quality=50.0),))

    both(asked, Routing(catalog), Connection(), Urgency())


@given(ASKED, st.sampled_from(FORMS))
def test_encoded_body_equals_the_json_of_the_stock_client(asked: Any, form: Any) -> None:
    _, _, client = both(asked, RequestEncoding(forms=(form,), min_bytes=0), headers=OF_THE_FORM)

    assert client.last_call.request_encoding is not None


@given(ASKED)
def test_prompt_cache_adds_only_the_cache_key(asked: Any) -> None:
    stock, ours, client = both(asked, PromptCache(), own=["prompt_cache_key"])

    if "prompt_cache_key" in stock.body:
        assert ours.body["prompt_cache_key"] == stock.body["prompt_cache_key"]
    else:
        assert ours.body["prompt_cache_key"].startswith("fl-")
        assert client.last_call.changes == ("PromptCache added prompt_cache_key",)


@given(ASKED)
def test_urgency_adds_only_the_service_tier(asked: Any) -> None:
    stock, ours, _ = both(asked, Urgency(default="background", tiers=True), own=["service_tier"])

    assert ours.body.get("service_tier") == stock.body.get("service_tier", "flex")


@given(ASKED)
def test_hedging_adds_only_streaming(asked: Any) -> None:
    stock, ours, _ = both(asked, Hedging(), own=["stream", "stream_options"])

    assert set(ours.body) - set(stock.body) <= {"stream", "stream_options"}


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


@given(ASKED.filter(lambda asked: not asked[1].get("tools")))
def test_call_without_a_schema_is_not_bounded(asked: Any) -> None:
    both(asked, BoundedOutput())


@given(CHATS.filter(lambda arguments: not arguments.get("stream")))
def test_bounded_output_adds_only_limit_and_stream(arguments: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "number", "strict": True, "schema": SCHEMA}}
    asked = ("chat", {**arguments, "response_format": form})
    own = (*LIMITS, "stream", "stream_options")

    stock, ours, client = both(asked, BoundedOutput(), own=own)

    assert all(ours.body[name] == stock.body[name] for name in LIMITS if name in stock.body)
    assert set(ours.body) - set(stock.body) <= set(own)
    assert client.last_call.output is not None


@given(CHATS, st.integers(40, 400))
def test_trimmed_messages_are_a_subsequence_of_the_original(arguments: dict[str, Any], budget: int) -> None:
    stock, ours, client = both(("chat", arguments), ContextTrimming(high_water_tokens=budget), own=["messages"])

    kept = iter(stock.body["messages"])
    assert all(any(message["role"] == other["role"] for other in kept) for message in ours.body["messages"])
    if not client.last_call.changes:
        assert ours.written() == stock.written()
