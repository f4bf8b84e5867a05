"""Bodies are written as openai writes them, to the byte, or left to openai."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections import OrderedDict, UserString, namedtuple
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st
from openai import NOT_GIVEN, omit
from openai._utils._json import openapi_dumps
from pydantic import BaseModel

from fastlane import Call
from fastlane.compat.requests import is_plain, stock_bytes


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


@dataclasses.dataclass
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
    UserString("text"),
    orjson.Fragment(b"{}"),
    uuid.UUID(int=1),
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    dt.date(2026, 1, 2),
    dt.time(1, 2),
    NOT_GIVEN,
    omit,
    b"bytes",
    bytearray(b"bytes"),
    memoryview(b"bytes"),
    {1, 2},
    frozenset(),
    1j,
    object(),
    int,
    range(3),
    iter([1]),
    float("nan"),
    float("inf"),
    -float("inf"),
    2**64,
    -(2**63) - 1,
    "\ud800",
    {1: 2},
    {None: 2},
    {True: 2},
    {0.5: 2},
    {Text("key"): 2},
    {Word.YES: 2},
    {b"key": 2},
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


def stock(value: object) -> bytes | None:
    """What openai's own function writes; None if it raises."""
    try:
        return openapi_dumps(value)
    except (TypeError, ValueError, RecursionError):
        return None


@pytest.mark.slow
@given(ANYTHING)
@settings(max_examples=300)
def test_serialized_bytes_match_openai_or_are_none(value: object) -> None:
    assert stock_bytes(value) in {None, stock(value)}


OBJECTS = st.dictionaries(st.text(max_size=4), ANYTHING, max_size=4)


def _call(body: dict[str, Any]) -> Call:
    written = stock_bytes(body)
    encoded = None if written is None else (body, written)
    return Call(call_id="1", endpoint="/x", origin="https://x:443", body=body, stream=False, encoded=encoded)


@given(OBJECTS, OBJECTS)
def test_field_added_to_a_serialized_body_is_appended(body: dict[str, Any], more: dict[str, Any]) -> None:
    assert _call(body).with_fields(more, ("more",)).written in {None, stock_bytes({**body, **more})}

    longer = _call(body).with_fields({"a key that is new": "fl-1"}, ("one",))
    expected = stock_bytes({**body, "a key that is new": "fl-1"}) if body and _call(body).written else None
    assert longer.written == expected


@given(OBJECTS.filter(bool), st.data())
def test_body_that_a_play_changed_is_not_written_yet(body: Any, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(body)))

    assert _call(body).with_fields({name: ["replaced"]}, ("one",)).written is None
    assert dataclasses.replace(_call(body).with_body("one", new=1), body={**body, "new": 2}).written is None


@given(PLAIN)
def test_plain_json_is_written_as_by_openai_if_orjson_can(value: object) -> None:
    written = stock_bytes(value)

    assert is_plain(value)
    if written is None:
        # Surrogates, long integers and what is not finite; or floats of which the two write another text.
        try:
            orjsons = orjson.dumps(value)
        except TypeError:
            return
        assert orjsons != stock(value)


@pytest.mark.parametrize("depth", [200, 300, 5_000, 200_000])
def test_deep_nesting_ends(depth: int) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]

    assert is_plain(value) is (depth < 255)
    assert stock_bytes(value) == (b"[" * 201 + b"]" * 201 if depth == 200 else None)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_self_referencing_value_is_not_plain(times: int) -> None:
    value: dict[str, Any] = {}
    for number in range(times):
        value[str(number)] = [value]

    assert not is_plain(value)
    assert stock_bytes(value) is None
