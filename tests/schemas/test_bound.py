from __future__ import annotations

import json
import math
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest

from fastlane.errors import ConfigurationError
from fastlane.schemas.bound import Bound, Gap, schema_bound as bound

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_6 = "http://json-schema.org/draft-06/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
NULL = {"type": "null"}
SHORT = {"type": "string", "maxLength": 3}
OPEN = ["$: object without additionalProperties: false", "$.*: any value"]


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def array(items: Any, most: int | None, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **({} if most is None else {"maxItems": most}), **more}


def gaps(schema: Any, **given: Any) -> list[str]:
    return [str(gap) for gap in bound(schema, **given).unbounded]


@pytest.mark.parametrize(
    ("schema", "longest"),
    [
        (NULL, None),
        ({"type": "boolean"}, False),
        ({"enum": ["a", "billing", 7]}, "billing"),
        ({"enum": [{"a": [1]}, 7]}, {"a": [1.0]}),
        ({"type": "integer", "enum": ["billing", 12]}, 12.0),
        ({"const": 1}, 1.0),
        ({"const": 1.0}, 1.0),
        ({"const": 10**22}, 10**22),
        ({"const": 1e22}, 10**22),
        ({"const": 0}, -0.0),
        ({"const": {"1": {"deep": [0]}}}, {"1": {"deep": [-0.0]}}),
        ({"const": 'a\x00\n"\\é😀\ud800'}, 'a\x00\n"\\é😀\ud800'),
        ({"type": "integer", "minimum": -99, "maximum": 100}, -99.0),
        ({"type": "integer", "minimum": 1, "maximum": 10**30}, 10**30),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 1234}, 1234.0),
        ({"type": "number", "multipleOf": 5, "minimum": 1, "maximum": 100}, 100.0),
        ({"type": "integer", "minimum": 0, "maximum": 0}, -0.0),
        ({"type": "number", "minimum": 0, "maximum": 1}, 2.2250738585072014e-308),
        ({"type": "number", "minimum": -1, "maximum": 1}, -2.2250738585072014e-308),
        (SHORT, "😀😀😀"),
        ({"type": "string", "maxLength": 2.0}, "😀😀"),
        ({"type": "string", "maxLength": 0}, ""),
        ({"type": "string", "pattern": "^[a-z]{3}$"}, "abc\n"),
        ({"type": "string", "pattern": "^[a-z]*$", "maxLength": 5}, "abcd\n"),
        ({"type": "string", "format": "uuid"}, "c0ffee00-0000-4000-8000-000000000000"),
        (array(SHORT, 2), ["😀😀😀", "😀😀😀"]),
        (array(True, 0), []),
        ({"type": "array", "prefixItems": [NULL, NULL], "items": False}, [None, None]),
        ({"type": "array", "prefixItems": [NULL, False], "items": NULL}, [None]),
        ({"type": "array", "prefixItems": [SHORT], "items": NULL, "maxItems": 2}, ["😀😀😀", None]),
        ({"type": "array", "prefixItems": [NULL], "unevaluatedItems": False}, [None]),
        ({"$schema": DRAFT_7, "type": "array", "items": [NULL], "additionalItems": False}, [None]),
        ({"$schema": DRAFT_7, **array(NULL, 1, additionalItems=True)}, [None]),
        (closed({}), {}),
        (closed({"a": NULL, "b\n": array(SHORT, 1)}), {"a": None, "b\n": ["😀😀😀"]}),
        (closed({"a": False, "b": NULL}), {"b": None}),
        (closed({"a": NULL, "longer": NULL}, maxProperties=1), {"longer": None}),
        ({"type": "object", "propertyNames": False}, {}),
        ({"type": "object", "maxProperties": 0}, {}),
        ({"type": "object", "properties": {"a": NULL}, "unevaluatedProperties": False}, {"a": None}),
        ({"anyOf": [SHORT, NULL]}, "😀😀😀"),
        ({"oneOf": [SHORT, NULL]}, "😀😀😀"),
        ({"allOf": [SHORT, {"type": "string", "maxLength": 1}]}, "😀"),
        ({"allOf": [SHORT, {}], "type": ["string", "null"]}, "😀😀😀"),
        ({"type": "string", "const": "a", "nullable": True}, None),
        ({"$ref": "#/$defs/short", "$defs": {"short": SHORT}}, "😀😀😀"),
        ({"$ref": "#/$defs/short", "maxLength": 1, "$defs": {"short": SHORT}}, "😀"),
        ({"$schema": DRAFT_7, "$ref": "#/definitions/a", "maxLength": 1, "definitions": {"a": SHORT}}, "😀😀😀"),
        ({"$schema": DRAFT_2019, "$ref": "#/$defs/a", "maxLength": 1, "$defs": {"a": SHORT}}, "😀"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": NULL}}, None),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_the_bound_is_the_length_of_the_longest_value(schema: Any, longest: Any) -> None:
    found = bound(schema, number_characters=None)

    assert found.characters == len(json.dumps(longest, indent=4))
    assert found.compact_characters == len(json.dumps(longest, separators=(",", ":")))
    assert found.tokens == found.characters
    assert 0 < found.likely_tokens <= found.tokens
    assert found.unbounded == found.assumed == ()
    assert not found.exact


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({}, ["$: any value"]),
        (True, ["$: any value"]),
        ({"type": "string"}, ["$: string without maxLength or pattern"]),
        ({"type": "string", "minLength": 3, "title": "Name"}, ["Name: string without maxLength or pattern"]),
        (
            {"type": "string", "pattern": "^a|b$"},
            ["$: string without maxLength, and with a pattern that does not limit it"],
        ),
        ({"type": "string", "format": "uri"}, ["$: string without maxLength or pattern"]),
        ({"$schema": DRAFT_7, "type": "string", "format": "uuid"}, ["$: string without maxLength or pattern"]),
        (array(NULL, None), ["$: array without maxItems"]),
        ({"type": "array", "maxItems": 2}, ["$[]: any value"]),
        ({"type": "array", "prefixItems": [{}], "maxItems": 1}, ["$[0]: any value"]),
        (array([NULL], 1), ["$[]: any value"]),
        ({"type": "array", "contains": {}, "unevaluatedItems": False, "maxItems": 2}, ["$[]: any value"]),
        (array({"type": "integer", "minimum": 0, "maximum": 3}, None), ["$: array without maxItems"]),
        (array({"type": "integer", "minimum": 0}, None, uniqueItems=True), ["$: array without maxItems"]),
        (closed({"a": closed({"b": array({}, 1)})}), ["$.a.b[]: any value"]),
        ({"type": "object"}, OPEN),
        (
            {"type": "object", "maxProperties": 2, "additionalProperties": NULL},
            ["$: names of properties without a bound"],
        ),
        (closed({}, patternProperties={"^x": NULL}), ["$: object without maxProperties"]),
        ({"properties": {}, "additionalProperties": False}, ["$: value of any type: no type"]),
        (closed({"a": {"$ref": "#"}}), ["$.a: refers to itself, to any depth"]),
        ({"$ref": "#"}, ["$: refers to itself, to any depth"]),
        ({"allOf": [{"$ref": "#"}]}, ["$: refers to itself, to any depth"]),
        ({"$ref": "#name"}, ["$: a reference that leads nowhere inside of the schema"]),
        ({"$ref": "https://example.com/a.json"}, ["$: a reference that leads nowhere inside of the schema"]),
        ({"$dynamicRef": "#a"}, ["$: a reference that depends on where it is used"]),
        (
            closed({"a": {"$id": "https://example.com/b", "$ref": "#/$defs/c"}}, **{"$defs": {"c": NULL}}),
            ["$.a: a reference that leads nowhere inside of the schema"],
        ),
        (closed({"a": {"$schema": DRAFT_4, "type": "null"}}), ["$.a: a $schema of its own"]),
        ({"$schema": "https://example.com/mine", "type": "null"}, ["$: a $schema that is not known"]),
        ({"$schema": DRAFT_4, "const": 1}, ["$: any value"]),
        ({"$schema": DRAFT_6, "if": True, "then": NULL}, ["$: any value"]),
        ({"$schema": DRAFT_4, "type": "object", "propertyNames": False}, OPEN),
        ({"$schema": DRAFT_7, "type": "array", "prefixItems": [NULL], "maxItems": 1}, ["$[]: any value"]),
        ({"$schema": DRAFT_7, "type": "object", "unevaluatedProperties": False}, OPEN),
        ({"anyOf": [NULL, {"type": "string"}]}, ["$: string without maxLength or pattern"]),
        ({"if": NULL, "then": NULL}, ["$: any value"]),
    ],
    ids=json.dumps,
)  # fmt: skip
def test_a_field_without_a_bound_is_named(schema: Any, named: list[str]) -> None:
    found = bound(schema)

    assert [str(gap) for gap in found.unbounded] == named
    assert found.characters is found.compact_characters is found.tokens is None
    assert found.likely_tokens > 0


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5}, {"type": ["null", 5]}, {"type": []}, {"type": "nul"}, {"type": {"a": 1}}, {"enum": 5},
        {"anyOf": 5}, {"anyOf": []}, {"allOf": {"a": NULL}}, {"not": 5}, {"$ref": 5}, {"if": 5}, {"items": 5},
        {"properties": 5},
        {"type": "string", "maxLength": "3"}, {"type": "string", "maxLength": -1},
        {"type": "string", "maxLength": True}, {"type": "string", "maxLength": math.nan},
        {"type": "string", "maxLength": math.inf},
        {"type": "string", "pattern": 5}, {"type": "string", "format": ["date"]}, {"type": "array", "maxItems": [3]},
        {"type": "array", "items": "a", "maxItems": 2}, {"type": "object", "additionalProperties": 5},
        {"type": "object", "properties": {"a": 5, 6: {}}, "additionalProperties": False},
        {"type": "object", "patternProperties": {5: True}, "additionalProperties": False},
        {"type": "object", "unevaluatedProperties": False, "allOf": [5, {"$ref": 5}], "properties": {"a": {}}},
        {1: 2}, {"dependentSchemas": []}, MappingProxyType({"type": "string"}), {"title": 5, "$id": 5, "$schema": 5},
        {"$schema": DRAFT_4, "type": "object", "exclusiveMaximum": True},
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_schema_is_no_error_but_has_no_bound(schema: Any) -> None:
    found = bound(schema)

    assert found.unbounded
    assert found.characters is None


def test_a_boolean_limit_of_draft_4_leaves_the_limit_beside_it() -> None:
    schema = {"type": "integer", "minimum": 0, "maximum": 10, "exclusiveMaximum": True}

    assert bound({"$schema": DRAFT_4, **schema}).characters == len("10.0")
    assert bound(schema).characters == len("10.0")


def test_a_number_without_a_range_is_taken_for_forty_characters_and_named() -> None:
    schema = closed({"n": {"type": "integer", "minimum": 0}, "x": {"type": "number"}})

    found = bound(schema, name="Sum")

    assert found.compact_characters == len('{"n":,"x":}') + 2 * 40
    assert [gap.path for gap in found.assumed] == ["Sum.n", "Sum.x"]
    assert found.unbounded == ()
    assert bound(schema, number_characters=7).compact_characters == len('{"n":,"x":}') + 2 * 7


def test_nothing_is_taken_for_granted_where_that_is_asked_for() -> None:
    schema = closed({"n": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}})

    assert [gap.path for gap in bound(schema, number_characters=None).unbounded] == ["$.n", "$.at"]
    assert bound(schema, number_characters=None).assumed == ()


def test_a_format_without_a_greatest_length_is_taken_for_a_usual_one_and_named() -> None:
    found = bound({"type": "string", "format": "date-time"})

    assert found.characters == len('"2026-11-22T10:00:00.123456789+01:00"')
    assert found.assumed == (
        Gap(path="$", reason="format date-time has no greatest length, taken for at most 35 characters"),
    )


def test_a_field_without_a_bound_gets_the_tokens_that_are_given_to_it() -> None:
    schema = closed({"a": {"type": "string"}, "b": NULL})

    found = bound(schema, unbounded=200)

    assert found.tokens == len('{\n    "a": ,\n    "b": null\n}') + 200
    assert found.characters == len('{\n    "a": ,\n    "b": null\n}') + 4 * 200
    assert [gap.path for gap in found.unbounded] == ["$.a"]


def test_a_list_without_a_bound_gets_them_beside_one_item_or_as_many_as_there_have_to_be() -> None:
    one = bound(array({"type": "boolean"}, None), unbounded=100)
    ten = bound(array({"type": "boolean"}, None, minItems=10), unbounded=100)

    assert one.compact_characters == len("[false]") + 400
    assert ten.compact_characters == len("[" + ",".join(["false"] * 10) + "]") + 400


def test_a_name_goes_before_the_title() -> None:
    assert gaps({"type": "string", "title": "Given"}, name="Own") == ["Own: string without maxLength or pattern"]


def test_a_schema_is_worked_out_once_and_forgotten_nowhere_in_it() -> None:
    first = bound(closed({"same": SHORT}))

    assert bound(closed({"same": dict(SHORT)})) is first
    assert bound(closed({"same": {**SHORT, "maxLength": 4}})) != first
    assert bound(closed({"same": SHORT}), name="other") is not first


def test_a_schema_that_cannot_be_remembered_is_worked_out_all_the_same() -> None:
    wide = {"type": "integer", "minimum": 0, "maximum": 2**70}

    assert bound(wide) == bound(dict(wide))
    assert bound({"const": "\ud800"}).characters == len('"\\ud800"')
    assert bound({"type": "integer", "minimum": -(10**5000), "maximum": 0}).characters == pytest.approx(5003, abs=2)
    assert bound({"const": 10**400}).characters == 401
    assert bound({"type": "string", "maxLength": 10**400}).characters == 12 * 10**400 + 2


def test_a_schema_of_thousands_of_properties_has_a_bound() -> None:
    names = [f"field_{number}" for number in range(5_000)]
    found = bound(closed(dict.fromkeys(names, NULL)))

    assert found.characters == len(json.dumps(dict.fromkeys(names), indent=4))


def test_of_more_gaps_than_anybody_reads_a_thousand_are_named() -> None:
    definitions = {
        f"d{number}": closed({key: {"$ref": f"#/$defs/d{number + 1}"} for key in "ab"}) for number in range(64)
    }

    found = bound({"$ref": "#/$defs/d0", "$defs": {**definitions, "d64": {"type": "string"}}})

    assert len(found.unbounded) == 1_000


def test_a_shared_part_that_holds_itself_has_no_bound() -> None:
    schema: dict[str, Any] = closed({"n": NULL})
    schema["properties"]["again"] = schema

    assert gaps(schema) == ["$.again: refers to itself, to any depth"]


def test_a_literal_that_is_no_json_is_as_long_as_its_text() -> None:
    assert bound({"const": Decimal("1.50")}).characters == len('"1.50"')


@pytest.mark.parametrize(
    "given",
    [
        {"unbounded": 0}, {"unbounded": True}, {"unbounded": 1.5}, {"unbounded": "200"}, {"number_characters": 0},
        {"number_characters": "40"},
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        bound({}, **given)


def test_a_bound_is_plain_data() -> None:
    found = bound(NULL)

    assert found == Bound(
        characters=4, compact_characters=4, tokens=4, likely_tokens=1, unbounded=(), assumed=(), exact=False
    )


def test_a_reference_to_a_place_that_no_list_has_leads_nowhere() -> None:
    for place in ("9" * 5_000, "٣", "01", "-1", "7"):
        found = bound({"allOf": [{"maxLength": 5}] * 5, "$ref": f"#/allOf/{place}"})

        assert found.characters is None
    assert bound({"type": "string", "allOf": [{"maxLength": 5}], "$ref": "#/allOf/0"}).compact_characters == 62


@pytest.mark.parametrize("levels", [60, 2_000])
def test_a_schema_nested_deeply_has_no_bound_and_short_paths(levels: int) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"inner": schema}}

    found = bound(schema)

    assert found.characters is None
    assert max(len(gap.path) for gap in found.unbounded) <= 201


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [
        (r"^[A-Z]{2}-[0-9]{4}$", 7), (r"^[a-z]{1,8}(?:x)$", None), (r"^a|b$", None), (r"^a?b*$", None),
        (r"^\d{4}$", 48), (r"^$", 0), (r"^[\w.-]{3}$", 36), (r"^[^a]$", 12), (r"^\+$", 1), (r'^["\\]$', 2),
        (r"a{3}", None), (r"^a{2,}$", None),
    ],
)  # fmt: skip
def test_a_simple_pattern_limits_a_string(pattern: str, longest: int | None) -> None:
    found = bound({"type": "string", "pattern": pattern}).compact_characters

    # Quotes, and the newline before which `$` stands too.
    assert found == (None if longest is None else longest + 2 + 2)
