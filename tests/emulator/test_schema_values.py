from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fastlane.emulator._schema import value_for

jsonschema = pytest.importorskip("jsonschema")

LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({}),
    st.just({"const": [1, {"a": 2}]}),
    st.just({"enum": ["a", 1, None]}),
    st.just({"$ref": "#/$defs/name"}),
    st.just({"allOf": [{"$ref": "#/$defs/name"}, {"maxLength": 9}]}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-50, 50),
        st.integers(0, 50),
    ),
    st.builds(
        lambda low: {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + 2}, st.integers(-50, 50)
    ),
    st.builds(lambda step: {"type": "integer", "multipleOf": step, "minimum": 1}, st.integers(1, 9)),
    st.builds(
        lambda low, more: {"type": "number", "exclusiveMinimum": low, "maximum": low + more},
        st.floats(-9, 9),
        st.floats(0.5, 9),
    ),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 40),
        st.integers(0, 9),
    ),
    st.sampled_from(["date-time", "email", "uuid", "ipv4", "unknown"]).map(
        lambda name: {"type": "string", "format": name}
    ),
    st.just({"type": ["string", "null"]}),
)


def _object(properties: dict[str, Any], required: int, closed: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": sorted(properties)[:required]}
    return {**schema, "additionalProperties": False} if closed else schema


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            _object, st.dictionaries(st.sampled_from("abcd"), inner, max_size=4), st.integers(0, 4), st.booleans()
        ),
        st.builds(
            lambda items, low, more: {"type": "array", "items": items, "minItems": low, "maxItems": low + more},
            inner,
            st.integers(0, 4),
            st.integers(0, 3),
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda first: {"type": "array", "prefixItems": first, "items": False, "minItems": len(first)}
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, st.integers())
@pytest.mark.slow
def test_generated_value_matches_its_schema(schema: dict[str, Any], seed: int) -> None:
    root = {**schema, "$defs": {"name": {"type": "string", "minLength": 3}}}
    value = value_for(root, Random(seed))

    jsonschema.validate(value, root, cls=jsonschema.Draft202012Validator)
    assert value == value_for(root, Random(seed))


def test_endless_reference_value_is_finite() -> None:
    assert value_for({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, Random(0)) is not None
    assert value_for(True, Random(0)) is None


def test_size_without_end_is_refused() -> None:
    for schema in ({"type": "array", "minItems": 10**9}, {"type": "string", "minLength": 10**9}):
        with pytest.raises(ValueError, match="at most 10000"):
            value_for(schema, Random(0))


def test_least_properties_and_unique_items_are_kept() -> None:
    schema = {"type": "object", "minProperties": 3, "additionalProperties": {"type": "integer"}}
    unique = {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 3}

    assert len(value_for(schema, Random(0))) == 3
    assert sorted(value_for(unique, Random(0))) == [1, 2, 3]
