"""Bodies are sent as openai's client sends them, to the byte."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
import orjson
import pytest
from hypothesis import example, given, settings, strategies as st
from openai import NOT_GIVEN, omit
from pydantic import BaseModel

import fastlane
from fastlane import Call
from tests.session_play import SessionPlay


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    YES = "yes"


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Fraction(float):
    pass


class Model(BaseModel):
    name: str = "a model"


@dataclass
class Data:
    name: str = "data"


Pair = namedtuple("Pair", ["one", "other"])  # noqa: PYI024 - what callers have

UNUSUAL: list[Any] = [
    Colour.RED,
    Number.ONE,
    Word.YES,
    Text("text"),
    Whole(1),
    Fraction(0.5),
    Model(),
    Data(),
    Pair(1, 2),
    OrderedDict(a=1),
    orjson.Fragment(b"{}"),
    uuid.UUID(int=1),
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    NOT_GIVEN,
    omit,
    b"bytes",
    {1, 2},
    object(),
    iter([1]),
    float("nan"),
    float("inf"),
    2**64,
    -(2**63) - 1,
    "\ud800",
    {1: 2},
    {None: 2},
    {Text("key"): 2},
    {Word.YES: 2},
    {("a",): 2},
    {"\ud800": 2},
]

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | st.sampled_from(
        ['"\\/\b\f\n\r\t\x00\x1f\x7f\x80\u2028\u2029\ufeff😀', "é", 1e16, 1e-7, 5e-324, -0.0, 2**63, 2**64 - 1]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)
ANYTHING = st.recursive(
    PLAIN | st.sampled_from(UNUSUAL),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


PROMPTED = "/chat/completions"
SENT: list[bytes] = []


def keep(request: httpx2.Request) -> httpx2.Response:
    SENT.append(request.content)
    return httpx2.Response(200, json={})


HTTP_CLIENT = httpx2.Client(transport=httpx2.MockTransport(keep))
MADE: dict[str, Any] = {"api_key": "k", "base_url": "http://x/v1", "http_client": HTTP_CLIENT, "max_retries": 0}
STOCK, OURS = openai.OpenAI(**MADE), fastlane.OpenAI(**MADE, only_plays=[])


def sent(client: openai.OpenAI, body: Any) -> bytes | type[Exception]:
    """What a client sends for a body, or the class of the error that it raises."""
    SENT.clear()
    try:
        client.post(PROMPTED, cast_to=object, body=body)
    except Exception as error:  # noqa: BLE001 - both clients have to fail alike
        return type(error)
    return SENT[0]


@dataclass(frozen=True)
class Changes(SessionPlay):
    """Adds fields to a body, and replaces others."""

    fields: dict[str, Any]

    def plan(self, call: Call) -> Call:
        return call.with_body("changed", **self.fields)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=4), ANYTHING, max_size=4))
@settings(max_examples=300)
def test_body_is_sent_to_the_byte_as_by_openai(body: dict[str, Any]) -> None:
    for _ in range(2):  # the second by the fast path
        assert sent(OURS, body) == sent(STOCK, body)


OBJECTS = st.dictionaries(st.text(max_size=4), PLAIN, max_size=4)


@given(OBJECTS, OBJECTS)
@example({}, {"self": None, "changed": None})
def test_body_changed_by_a_play_is_sent_as_by_openai(body: dict[str, Any], more: dict[str, Any]) -> None:
    for fields in (more, {"a key that is new": "fl-1"}, {name: ["replaced"] for name in body}):
        client = fastlane.OpenAI(**MADE, only_plays=[Changes(fields)], raise_play_errors=True)

        assert sent(client, body) == sent(STOCK, {**body, **fields})


@pytest.mark.parametrize("depth", [200, 300, 5_000])
def test_deep_nesting_ends_as_with_openai(depth: int) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]

    assert sent(OURS, {"a": value}) == sent(STOCK, {"a": value})


@pytest.mark.parametrize("times", [1, 2, 3])
def test_self_referencing_body_ends_as_with_openai(times: int) -> None:
    value: dict[str, Any] = {}
    for number in range(times):
        value[str(number)] = [value]

    assert sent(OURS, value) == sent(STOCK, value)
