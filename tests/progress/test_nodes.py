from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

from fastlane.plays.bounded_output.progress import _nodes
from fastlane.plays.bounded_output.progress._json_progress import JsonProgress
from fastlane.plays.bounded_output.progress._leaves import ANY, ARRAY, INTEGER, NULL, NUMBER, OBJECT, STRING
from fastlane.plays.bounded_output.progress._nodes import Node, compile_schema

CAT = {"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"]}
DOG = {"properties": {"kind": {"const": "dog"}, "tricks": {"items": {"enum": ["sit"]}}}, "required": ["kind", "tricks"]}
PET = {"oneOf": [{"type": "object", "additionalProperties": False, **pet} for pet in (CAT, DOG)]}


def problem(schema: Any, text: str) -> str | None:
    progress = JsonProgress(compile_schema(schema))
    for char in text:
        progress.feed(char)
    return progress.problem


def member(node: Node, name: str) -> Node:
    found = node.member(name)
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    "schema", [None, True, {}, {"description": "Anything."}, {"$ref": "#"}, {"$ref": "other.json"}]
)
def test_what_says_nothing_allows_anything(schema: Any) -> None:
    node = compile_schema(schema)

    assert (node.kinds, node.values, node.names, node.numbers) == (ANY, None, None, None)
    assert member(node, "a").kinds == node.item(7).kinds == ANY


def test_a_schema_of_the_same_content_is_compiled_once() -> None:
    schema = {"type": "string", "maxLength": 3}
    node = compile_schema(schema)

    assert compile_schema({"maxLength": 3, "type": "string"}) is node
    schema["maxLength"] = 4
    assert compile_schema(schema).most_length == 4
    assert node.most_length == 3


def test_what_only_python_writes_as_json_is_compiled_too() -> None:
    assert compile_schema({"enum": [2**70, "\ud83d"]}).values == ("\ud83d",)


def test_what_is_no_json_allows_anything() -> None:
    circle: dict[str, Any] = {"type": "string"}
    circle["not"] = circle

    assert compile_schema(circle).kinds == ANY
    assert compile_schema({"type": "string", "default": object()}).kinds == ANY
    assert compile_schema(MappingProxyType({"type": "string"})).kinds == STRING


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"type": ["string", "null"]}, STRING | NULL),
        ({"type": "integer", "enum": [1, "a", None]}, INTEGER),
        ({"type": "number"}, NUMBER),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": "number"}]}, INTEGER),
        ({"anyOf": [{"type": "array"}, {"type": "null"}], "type": ["array", "object"]}, ARRAY),
        ({"const": {"a": 1}}, OBJECT),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, 0),
        ({"anyOf": [False, {"type": "null"}]}, NULL),
        ({"anyOf": []}, 0),
        ({"type": "something new"}, ANY),
        ({"type": "string", "enum": ["long"], "maxLength": 2}, 0),
    ],
)
def test_kinds_are_those_that_all_of_it_takes(schema: Any, kinds: int) -> None:
    assert compile_schema(schema).kinds == kinds


def test_of_alternatives_the_longest_counts() -> None:
    node = compile_schema({"anyOf": [{"enum": ["abcd", "b"]}, {"type": "string", "maxLength": 2, "minLength": 2}]})

    assert (node.values, node.least_length, node.most_length) == (None, 1, 4)


def test_a_schema_may_refer_to_itself() -> None:
    schema = {"properties": {"next": {"$ref": "#"}}, "required": ["next"], "type": ["object", "null"]}

    assert problem(schema, '{"next":{"next":{}') == 'next.next: "next" is missing'
    assert problem(schema, '{"next":{"next":null}}') is None


def test_references_through_definitions_that_lead_in_circles_end() -> None:
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}

    assert compile_schema(schema).kinds == ANY


def test_beside_a_reference_nothing_counts_up_to_draft_7() -> None:
    schema = {"$ref": "#/definitions/a", "type": "string", "definitions": {"a": {"type": ["string", "null"]}}}

    assert compile_schema(schema).kinds == STRING
    assert compile_schema({"$schema": "http://json-schema.org/draft-07/schema#", **schema}).kinds == STRING | NULL


def test_references_within_a_part_that_has_a_name_of_its_own_are_not_followed() -> None:
    part = {"$id": "part", "$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}

    assert compile_schema({"items": part, "$defs": {"a": {"type": "string"}}}).item(0).kinds == ANY


def test_draft_4_says_whether_a_limit_is_excluded() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 5, "exclusiveMinimum": True}

    assert problem(schema, "[5]") is None
    assert problem({"items": schema, "$schema": schema["$schema"]}, "[5,") == "[0]: not above 5"
    assert problem({"items": {"minimum": 5, "exclusiveMinimum": True}}, "[5]") is None


def test_older_drafts_write_tuples_as_items() -> None:
    schema = {"items": [{"type": "string"}], "additionalItems": False}

    assert problem(schema, '["a",') == "$: more than 1 items"
    assert problem({"prefixItems": [{"type": "string"}], "items": {"type": "null"}}, '["a",1') is not None
    assert problem({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [False]}, "[1]") is None


def test_an_alternative_is_chosen_by_a_text() -> None:
    assert problem(PET, '{"kind":"cat","lives":9}') is None
    assert problem(PET, '{"kind":"cat","t') == "$: properties that the schema does not allow"
    assert problem(PET, '{"kind":"dog"}') == '$: "tricks" is missing'
    assert (
        problem(
            PET,
            '{"kind":"dog","tricks":["si',
        )
        is None
    )
    assert problem(PET, '{"kind":"dog","tricks":["so') == "tricks[0]: not one of the allowed values"
    assert problem(PET, '{"kind":"dog","tricks":[],"kind":"dog"}') is None
    assert problem(PET, '{"kind":"cow') == "kind: not one of the allowed values"


def test_an_alternative_is_chosen_by_a_property_that_only_it_has() -> None:
    assert problem(PET, '{"lives":9,"t') == "$: properties that the schema does not allow"
    assert problem(PET, '{"lives":9,"kind":"d') is not None
    assert problem(PET, '{"lives":9}') == '$: "kind" is missing'


def test_one_of_the_alternatives_has_to_be_whole() -> None:
    schema = {"anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]}

    assert problem(schema, '{"c":1,"b":2}') is None
    assert problem(schema, '{"a":1}') is None
    assert problem(schema, '{"b":1}') == '$: "a" is missing'


def test_a_whole_value_may_be_given() -> None:
    schema = {"const": {"a": [1, "x"], "b": None}}

    assert problem(schema, '{"b":null,"a":[1.0,"x"]}') is None
    assert problem(schema, '{"a":[1,"y') == "a[1]: not one of the allowed values"
    assert problem(schema, '{"a":[1,"x"]}') == '$: "b" is missing'
    assert problem(schema, '{"a":[1,"x",') == "a: more than 2 items"


def test_patterns_of_names_are_looked_at_with_the_whole_name() -> None:
    schema = {"patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": False}

    assert problem(schema, '{"n_a":1}') is None
    assert problem(schema, '{"n_a":"') == "*: not of the type integer"
    assert problem(schema, '{"x"') == "$: properties that the schema does not allow"


def test_a_pattern_that_nothing_can_read_may_match_anything() -> None:
    schema = {"patternProperties": {r"(?<!-)\p{L}": {"type": "integer"}}, "additionalProperties": False}

    assert problem(schema, '{"é":"x"}') is None


def test_a_pattern_matches_a_name_as_it_does_when_the_answer_is_judged() -> None:
    schema = {"patternProperties": {r"^\p{L}": {"type": "integer"}}, "additionalProperties": False}

    assert problem(schema, '{"é":"x"}') == "*: not of the type integer"
    assert problem(schema, '{"é":1}') is None
    assert problem(schema, '{"1":1}') == "$: properties that the schema does not allow"


def test_no_pattern_keeps_a_name_waiting() -> None:
    # Python's own engine takes as many steps as there are ways to part forty letters.
    schema = {"patternProperties": {"^(a+)+$": {"type": "integer"}}, "additionalProperties": False}

    assert problem(schema, f'{{"{"a" * 40}!"') == "$: properties that the schema does not allow"


def test_what_answers_choose_is_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nodes, "_MOST_NARROWED", 3)
    pets = [{"properties": {"kind": {"enum": [str(one), "any"]}}, "required": [f"m{one}"]} for one in range(9)]
    schema = {"title": "many pets", "anyOf": pets}

    for one in range(3):
        assert problem(schema, f'{{"kind": "{one}", "m{one}": 1}}') is None
        assert problem(schema, f'{{"kind": "{one}", "m8": 1}}') == f'$: "m{one}" is missing'
    assert problem(schema, '{"kind": "8", "m8": 1}') is None
    assert problem(schema, '{"kind": "8", "m1": 1}') is None


def test_what_is_spelt_out_may_be_of_any_depth() -> None:
    value: Any = 1
    for _ in range(400):
        value = [value]

    assert problem({"const": value}, json.dumps(value)) is None
    assert problem({"const": [[["a"]]]}, '[[["b') == "[0][0][0]: not one of the allowed values"


def test_too_many_alternatives_are_taken_for_any() -> None:
    choice = {"anyOf": [{"maxLength": number} for number in range(20)]}

    assert compile_schema({"allOf": [{**choice, "minLength": number} for number in range(5)]}).most_length is None
    assert compile_schema({"anyOf": [{"enum": [number]} for number in range(300)]}).kinds == ANY


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": [], "required": "a", "items": 3, "enum": "x", "anyOf": {}, "maxLength": "3", "minItems": True},
        {"maximum": "3", "type": 7, "allOf": [3, None], "$ref": 5, "prefixItems": {}, "patternProperties": []},
        {"type": [None, "string"], "required": [1], "maxItems": 1.5, "properties": {"a": 3}, "$schema": 3},
    ],
)
def test_what_is_no_schema_says_nothing(schema: Any) -> None:
    for text in ('{"a":[1,{"b":null}]}', '["a",2,true]', '"abcd"', "[5.5]"):
        assert problem(schema, text) is None
