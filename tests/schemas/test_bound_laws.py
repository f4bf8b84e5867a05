"""What holds of every schema: no valid value is longer than its bound, nor has it more tokens."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema import Draft7Validator, Draft202012Validator  # type: ignore[import-untyped]

from benchmarks._drawn_schemas import drawn_schema
from benchmarks._schema_values import made
from fastlane.knowledge.tokens import Counter
from fastlane.schemas.bound import _Assumptions, _Measuring, schema_bound as bound

SEEDS = st.integers(0, 2**32)


def texts(value: Any) -> Iterator[str]:
    for ascii_alone in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_alone, separators=(",", ":"))
        yield json.dumps(value, ensure_ascii=ascii_alone)
        for indent in (0, 2, 4):
            yield json.dumps(value, ensure_ascii=ascii_alone, indent=indent)


def check(schema: Any, values: list[Any]) -> int:
    found = bound(schema, number_characters=None)
    valid = Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER).is_valid
    looked_at = 0
    for value in values:
        if found.characters is None or not valid(value):
            continue
        looked_at += 1
        assert found.tokens is not None
        for text in texts(value):
            assert len(text) <= found.characters, (schema, value)
            assert len(text.encode("utf-8", "surrogatepass")) <= found.tokens, (schema, value)
    return looked_at


@settings(max_examples=120)
@given(seed=SEEDS)
def test_no_value_at_the_limits_is_longer_than_its_bound(seed: int) -> None:
    random = Random(seed)
    drawn = drawn_schema(random)

    check(drawn.schema, [drawn.longest(random) for _ in range(8)])


def test_no_generated_value_is_longer_than_its_bound() -> None:
    looked_at = 0
    for seed in range(60):
        drawn = drawn_schema(Random(seed))
        looked_at += check(drawn.schema, made(drawn.schema, 5, seed))

    assert looked_at > 40


def test_the_limits_are_reached() -> None:
    shares = []
    for seed in range(200):
        random = Random(seed)
        drawn = drawn_schema(random)
        found = bound(drawn.schema, number_characters=None)
        values = filter(Draft7Validator(drawn.schema).is_valid, [drawn.longest(random) for _ in range(20)])
        lengths = [len(json.dumps(value, indent=4)) for value in values]
        if found.characters and lengths:
            shares.append(max(lengths) / found.characters)

    assert sorted(shares)[len(shares) // 2] > 0.9


ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=3), st.floats(), st.just("#")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["type", "enum", "const", "properties", "items", "prefixItems", "maxItems", "maxLength", "pattern",
                 "$ref", "anyOf", "allOf", "if", "then", "not", "additionalProperties", "propertyNames", "minimum",
                 "maximum", "maxProperties", "uniqueItems", "patternProperties", "unevaluatedProperties", "format",
                 "$id", "multipleOf"]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150)
@given(schema=st.dictionaries(st.sampled_from(["type", "properties", "items", "anyOf", "enum", "$ref", "allOf"]), ANY))
def test_a_malformed_schema_is_no_error(schema: dict[str, Any]) -> None:
    found = bound(schema)

    assert (found.characters is None) == bool(found.unbounded)
    assert bound(schema, unbounded=10).characters is not None
    assert found.likely_tokens >= 0


@settings(max_examples=60)
@given(schema=ANY, value=ANY)
def test_a_malformed_schema_allows_nothing_beyond_its_bound(schema: Any, value: Any) -> None:
    found = bound(schema if isinstance(schema, dict | bool) else {"anyOf": schema}, number_characters=None)
    if found.characters is None or not isinstance(schema, dict):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            valid = Draft202012Validator(schema).is_valid(value)
    except Exception:  # noqa: BLE001 -- it is no schema to jsonschema, which then raises anything; and nothing is valid.
        return
    if valid and "NaN" not in json.dumps(value) and "Infinity" not in json.dumps(value):
        assert len(json.dumps(value, indent=4)) <= found.characters


def pieces(text: str) -> list[int]:
    """A tokenizer of words, each with the blank or quote before it, runs of blanks, and marks."""
    return [len(piece) for piece in re.findall(r"[\s\"]?\w{1,5}|\s+|[^\w\s]{1,2}", text)]


@settings(max_examples=80)
@given(seed=SEEDS)
def test_no_value_has_more_tokens_than_its_bound(seed: int) -> None:
    random = Random(seed)
    drawn = drawn_schema(random)
    size = measured(drawn.schema)
    valid = Draft7Validator(drawn.schema, format_checker=Draft7Validator.FORMAT_CHECKER).is_valid

    for value in filter(valid, [drawn.longest(random) for _ in range(5)] if not size.gaps else ()):
        for text in texts(value):
            assert len(pieces(text)) <= size.tokens, (drawn.schema, text)


def measured(schema: Any, tokenizer: Callable[[str], list[int]] = pieces) -> Any:
    return _Measuring(schema, _Assumptions(200, None, closed=False), Counter("tokenizer", tokenizer)).whole()


@pytest.mark.parametrize("value", ["technical_support", {"category": ["billing", None, True], "more": {"a": 1.5}}])
def test_literals_have_fewer_tokens_than_characters(value: Any) -> None:
    size = measured({"const": value})

    assert max(len(pieces(text)) for text in texts(value)) <= size.tokens < size.characters


def test_white_space_has_no_more_tokens_than_characters() -> None:
    schema: Any = {"type": "null"}
    value: Any = None
    for _ in range(40):
        schema, value = {"type": "array", "items": schema, "maxItems": 1}, [value]

    assert len(json.dumps(value, indent=4)) <= measured(schema, lambda text: list(text.encode())).tokens
