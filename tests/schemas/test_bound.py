from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from benchmarks._drawn_schemas import drawn_schema
from fastlane.errors import ConfigurationError
from fastlane.schemas import Gap, bound
from fastlane.schemas.bound import schema_bound

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
NULL = {"type": "null"}
SHORT = {"type": "string", "maxLength": 3}
OPEN = "$: object without additionalProperties: false"


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def array(items: Any, most: int | None, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **({} if most is None else {"maxItems": most}), **more}


@pytest.mark.parametrize(
    ("schema", "longest"),
    [
        (NULL, None),
        ({"enum": ["a", "billing", 7]}, "billing"),
        ({"const": 1e22}, 10**22),
        ({"const": {"1": {"deep": [0]}}}, {"1": {"deep": [-0.0]}}),
        ({"const": 'a\x00\n"\\é😀'}, 'a\x00\n"\\é😀'),
        ({"type": "integer", "minimum": -99, "maximum": 100}, -99.0),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 1234}, 1234.0),
        ({"type": "integer", "minimum": 1, "maximum": 10**30}, 10**30),
        ({"type": "number", "minimum": 0, "maximum": 1}, 2.2250738585072014e-308),
        (SHORT, "😀😀😀"),
        ({"type": "string", "format": "uuid"}, "c0ffee00-0000-4000-8000-000000000000"),
        (array(SHORT, 2), ["😀😀😀", "😀😀😀"]),
        (array(True, 0), []),
        ({"type": "array", "prefixItems": [NULL, False], "items": NULL}, [None]),
        ({"type": "array", "prefixItems": [SHORT], "items": NULL, "maxItems": 2}, ["😀😀😀", None]),
        ({"$schema": DRAFT_7, "type": "array", "items": [NULL], "additionalItems": False}, [None]),
        (closed({"a": NULL, "b\n": array(SHORT, 1)}), {"a": None, "b\n": ["😀😀😀"]}),
        (closed({"a": False, "b": NULL}), {"b": None}),
        ({"anyOf": [SHORT, NULL]}, "😀😀😀"),
        ({"allOf": [SHORT, {"type": "string", "maxLength": 1}]}, "😀"),
        ({"$ref": "#/$defs/short", "$defs": {"short": SHORT}}, "😀😀😀"),
        ({"$schema": DRAFT_7, "$ref": "#/definitions/a", "maxLength": 1, "definitions": {"a": SHORT}}, "😀😀😀"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": NULL}}, None),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_bound_is_the_length_of_the_longest_value(schema: Any, longest: Any) -> None:
    found = bound(schema)

    assert found.tokens == len(json.dumps(longest, indent=4))
    assert found.unbounded == ()


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({}, "$: any value"),
        (True, "$: any value"),
        ({"type": "string"}, "$: string without maxLength"),
        ({"type": "string", "format": "uri"}, "$: string without maxLength"),
        ({"type": "string", "minLength": 3, "title": "Name"}, "Name: string without maxLength"),
        (array(NULL, None), "$: array without maxItems"),
        ({"type": "array", "prefixItems": [{}], "maxItems": 1}, "$[0]: any value"),
        (closed({"a": closed({"b": array({}, 1)})}), "$.a.b[]: any value"),
        ({"type": "object"}, OPEN),
        (closed({}, patternProperties={"^x": NULL}), OPEN),
        (closed({"a": {"$ref": "#"}}), "$.a: refers to itself, to any depth"),
        (closed({"a": {"$id": "https://example.com/b", "type": "null"}}), "$.a: an $id or a $schema of its own"),
        ({"$schema": DRAFT_4, "type": "null"}, "$: a $schema that is not known"),
        ({"anyOf": [NULL, {"type": "string"}]}, "$: string without maxLength"),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_field_without_a_bound_is_named(schema: Any, named: str) -> None:
    found = bound(schema)

    assert [str(gap) for gap in found.unbounded] == [named]
    assert found.tokens is None


def test_formats_and_open_numbers_have_a_convention() -> None:
    schema = closed({"n": {"type": "integer", "minimum": 0}, "at": {"type": "string", "format": "date-time"}})

    found = bound(schema, name="Sum")

    written = '{\n    "n": ,\n    "at": ""\n}'
    assert found.tokens == len(written) + 40 + len("2026-11-22T10:00:00.123456789+01:00")
    assert found.unbounded == ()


def test_field_without_a_bound_gets_the_given_tokens() -> None:
    found = bound(closed({"a": {"type": "string"}, "b": NULL}), unbounded=200)
    ten = bound(array({"type": "boolean"}, None, minItems=10), unbounded=100)

    assert found.tokens == len('{\n    "a": ,\n    "b": null\n}') + 200
    assert found.unbounded == (Gap(path="$.a", reason="string without maxLength"),)
    assert ten.tokens == len(json.dumps([False] * 10, indent=4)) + 100


@pytest.mark.parametrize("levels", [60, 2_000])
def test_deeply_nested_schema_has_no_bound_and_short_paths(levels: int) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema}}

    found = schema_bound(schema)

    assert found.tokens is None
    assert max(len(gap.path) for gap in found.unbounded) <= 201


def test_definitions_that_fork_at_every_level_are_measured_once() -> None:
    definitions = {
        f"d{number}": closed({key: {"$ref": f"#/$defs/d{number + 1}"} for key in "ab"}) for number in range(64)
    }

    found = bound({"$ref": "#/$defs/d0", "$defs": {**definitions, "d64": {"type": "string"}}})

    assert len(found.unbounded) == 1_000


@pytest.mark.parametrize("unbounded", [0, True, 1.5, "200"])
def test_room_that_is_no_number_of_tokens_is_refused(unbounded: Any) -> None:
    with pytest.raises(ConfigurationError, match="unbounded"):
        bound({}, unbounded=unbounded)


# What holds of every schema: no valid value is longer than its bound, nor has it more tokens


SEEDS = st.integers(0, 2**32)


def texts(value: Any) -> Iterator[str]:
    for ascii_alone in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_alone, separators=(",", ":"))
        yield json.dumps(value, ensure_ascii=ascii_alone)
        for indent in (0, 2, 4):
            yield json.dumps(value, ensure_ascii=ascii_alone, indent=indent)


def check(schema: Any, values: list[Any]) -> None:
    found = schema_bound(schema, assume=False)
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
def test_malformed_schema_has_a_bound_or_names_its_gaps(schema: dict[str, Any]) -> None:
    found = schema_bound(schema)

    assert (found.tokens is None) == bool(found.unbounded)
    assert schema_bound(schema, unbounded=10).tokens is not None
