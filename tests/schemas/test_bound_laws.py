"""What holds of every schema: no valid value is longer than its bound, nor has it more tokens."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

from hypothesis import given, settings, strategies as st
from jsonschema import Draft7Validator, Draft202012Validator  # type: ignore[import-untyped]

from benchmarks._drawn_schemas import drawn_schema
from fastlane.schemas.bound import schema_bound as bound

SEEDS = st.integers(0, 2**32)


def texts(value: Any) -> Iterator[str]:
    for ascii_alone in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_alone, separators=(",", ":"))
        yield json.dumps(value, ensure_ascii=ascii_alone)
        for indent in (0, 2, 4):
            yield json.dumps(value, ensure_ascii=ascii_alone, indent=indent)


def check(schema: Any, values: list[Any]) -> None:
    found = bound(schema, assume=False)
    valid = Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER).is_valid
    for value in values:
        if found.tokens is None or not valid(value):
            continue
        for text in texts(value):
            assert len(text) <= found.tokens, (schema, value)
            assert len(text.encode("utf-8", "surrogatepass")) <= found.tokens, (schema, value)


@settings(max_examples=120)
@given(seed=SEEDS)
def test_no_value_at_the_limits_is_longer_than_its_bound(seed: int) -> None:
    random = Random(seed)
    drawn = drawn_schema(random)

    check(drawn.schema, [drawn.longest(random) for _ in range(8)])


def test_the_limits_are_reached() -> None:
    shares = []
    for seed in range(200):
        random = Random(seed)
        drawn = drawn_schema(random)
        found = bound(drawn.schema, assume=False)
        values = filter(Draft7Validator(drawn.schema).is_valid, [drawn.longest(random) for _ in range(20)])
        lengths = [len(json.dumps(value, indent=4)) for value in values]
        if found.tokens and lengths:
            shares.append(max(lengths) / found.tokens)

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

    assert (found.tokens is None) == bool(found.unbounded)
    assert bound(schema, unbounded=10).tokens is not None


@settings(max_examples=60)
@given(schema=ANY, value=ANY)
def test_a_malformed_schema_allows_nothing_beyond_its_bound(schema: Any, value: Any) -> None:
    found = bound(schema if isinstance(schema, dict | bool) else {"anyOf": schema}, assume=False)
    if found.tokens is None or not isinstance(schema, dict):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            valid = Draft202012Validator(schema).is_valid(value)
    except Exception:  # noqa: BLE001 -- it is no schema to jsonschema, which then raises anything; and nothing is valid.
        return
    if valid and "NaN" not in json.dumps(value) and "Infinity" not in json.dumps(value):
        assert len(json.dumps(value, indent=4)) <= found.tokens
