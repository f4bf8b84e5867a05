"""What makes two calls identical, and which are deterministic enough to share an answer."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, strategies as st

from fastlane.plays.urgency.coalescing import digest_of, why_not_alike

CHAT, RESPONSES = "/chat/completions", "/responses"
URL = "https://a.example/v1/chat/completions"
HEADERS = [(b"Authorization", b"Bearer sk-1"), (b"Content-Type", b"application/json")]

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
bodies = st.dictionaries(st.text(max_size=6), plain, max_size=5)


def key(body: dict[str, Any], headers: list[tuple[bytes, bytes]] = HEADERS, url: str = URL) -> bytes:
    return digest_of("POST", url, headers, orjson.dumps(body))


def backwards(value: Any) -> Any:
    """The same value with the members of every object the other way round."""
    if isinstance(value, dict):
        return {name: backwards(value[name]) for name in reversed(value)}
    return [backwards(one) for one in value] if isinstance(value, list) else value


def alike(value: Any) -> Any:
    """A value in a form that is equal where two bodies are to the provider: 1 is 1.0 at the top, and true is not 1."""
    return json.dumps(value, sort_keys=True)


@given(bodies)
def test_the_order_of_members_is_irrelevant(body: dict[str, Any]) -> None:
    assert key(backwards(body)) == key(body)


@given(bodies, bodies)
def test_bodies_of_different_values_have_different_keys(one: dict[str, Any], other: dict[str, Any]) -> None:
    def whole(body: dict[str, Any]) -> dict[str, Any]:
        return {name: int(value) if type(value) is float and value.is_integer() and abs(value) < 2**53 else value
                for name, value in body.items()}  # fmt: skip

    assert (key(one) == key(other)) == (alike(whole(one)) == alike(whole(other)))


@pytest.mark.parametrize("name", ["response_format", "text", "tools", "functions"])
def test_the_order_inside_of_schemas_counts_because_a_model_writes_in_it(name: str) -> None:
    one: dict[str, Any] = {name: {"properties": {"a": {}, "b": {}}}}
    other: dict[str, Any] = {name: {"properties": {"b": {}, "a": {}}}}

    assert key(one) != key(other)


def test_a_temperature_of_0_is_one_of_0_point_0() -> None:
    assert key({"temperature": 0}) == key({"temperature": 0.0})
    assert key({"temperature": 1}) != key({"temperature": True})


@pytest.mark.parametrize(
    "line",
    [
        (b"x-stainless-retry-count", b"1"),
        (b"X-Stainless-Raw-Response", b"true"),
        (b"traceparent", b"00-1-2-01"),
        (b"X-Client-Request-Id", b"7"),
    ],
)
def test_headers_that_only_tell_requests_apart_are_irrelevant(line: tuple[bytes, bytes]) -> None:
    assert key({}, [*HEADERS, line]) == key({})


@pytest.mark.parametrize(
    "headers",
    [
        [(b"Authorization", b"Bearer sk-2"), HEADERS[1]],
        [*HEADERS, (b"OpenAI-Organization", b"o")],
        [*HEADERS, (b"OpenAI-Project", b"p")],
        [*HEADERS, (b"OpenAI-Beta", b"b")],
        [*HEADERS, (b"X-Own", b"")],
        [*HEADERS, (b"Idempotency-Key", b"1")],
        HEADERS[:1],
    ],
)
def test_every_other_header_counts(headers: list[tuple[bytes, bytes]]) -> None:
    assert key({}, headers) != key({})


def test_names_of_headers_are_the_same_in_any_case_and_order() -> None:
    assert key({}, [(b"content-type", b"application/json"), (b"AUTHORIZATION", b"Bearer sk-1")]) == key({})


def test_the_address_counts() -> None:
    assert key({}, url="https://b.example/v1/chat/completions") != key({})


def test_parts_do_not_run_into_each_other() -> None:
    assert key({}, [(b"a", b"bc")]) != key({}, [(b"ab", b"c")])
    assert key({"a": "b"}) != key({"a": "b", "c": ""})


def test_a_key_says_nothing_of_what_it_was_made_of() -> None:
    made = key({"messages": "a secret"})

    assert len(made) == 32
    assert b"secret" not in made


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (CHAT, {"temperature": 0}),
        (CHAT, {"temperature": 0.0, "n": 3, "store": False}),
        (CHAT, {"seed": 7, "temperature": 1.0}),
        (CHAT, {"temperature": 0, "tools": [{"type": "function"}, {"type": "custom"}]}),
        ("/completions", {"temperature": 0}),
        (RESPONSES, {"temperature": 0, "store": False}),
        (RESPONSES, {"temperature": 0, "store": False, "previous_response_id": "resp_1"}),
    ],
)
def test_deterministic_calls_may_share(endpoint: str, body: dict[str, Any]) -> None:
    assert why_not_alike(endpoint, body) is None


@pytest.mark.parametrize(
    ("endpoint", "body", "reason"),
    [
        (CHAT, {}, "not deterministic"),
        (CHAT, {"temperature": 0.1}, "not deterministic"),
        (CHAT, {"temperature": False}, "not deterministic"),
        (CHAT, {"temperature": None, "seed": None}, "not deterministic"),
        (CHAT, {"seed": True}, "not deterministic"),
        (CHAT, {"temperature": 0, "store": True}, "keeps its answer"),
        (CHAT, {"temperature": 0, "web_search_options": {}}, "runs tools"),
        (RESPONSES, {"temperature": 0}, "store=False"),
        (RESPONSES, {"temperature": 0, "store": None}, "store=False"),
        (RESPONSES, {"temperature": 0, "store": False, "background": True}, "in the background"),
        (RESPONSES, {"temperature": 0, "store": False, "conversation": "c"}, "conversation"),
        (RESPONSES, {"temperature": 0, "store": False, "tools": [{"type": "web_search"}]}, "runs tools"),
        (RESPONSES, {"temperature": 0, "store": False, "tools": [{"type": "function"}, {"type": "mcp"}]}, "runs tools"),
        (RESPONSES, {"temperature": 0, "store": False, "tools": "all"}, "runs tools"),
        ("/images/generations", {"temperature": 0}, "endpoint"),
    ],
)
def test_others_are_sent_by_themselves_and_it_is_said_why(endpoint: str, body: dict[str, Any], reason: str) -> None:
    assert reason in str(why_not_alike(endpoint, body))
