from __future__ import annotations

import gzip
import json
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, strategies as st

from fastlane.plays.request_encoding.bodies import Writing, write
from fastlane.records.attempts import Form

FORMS: tuple[Form, ...] = ("json+gzip", "msgpack", "msgpack+gzip")


def read(body: bytes, form: str) -> Any:
    if form.endswith("gzip"):
        body = gzip.decompress(body)
    return msgpack.unpackb(body, strict_map_key=False) if form.startswith("msgpack") else json.loads(body)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(body=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON, max_size=5))
@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_what_the_json_says(body: dict[str, Any], form: Form) -> None:
    plain = json.dumps(body).encode()

    said = read(write(plain, form, Writing())[0], form)

    assert said == json.loads(plain)
    assert json.dumps(said) == json.dumps(json.loads(plain))  # 1 and 1.0 and True are equal, and not the same


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_an_integer_beyond_64_bits_is_never_sent_as_another_number(number: int) -> None:
    with pytest.raises(OverflowError):
        write(json.dumps({"n": number}).encode(), "msgpack", Writing())


def test_a_lone_surrogate_is_never_sent_as_something_else() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        write(rb'{"text": "\ud800"}', "msgpack", Writing())
