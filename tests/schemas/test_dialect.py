"""A schema goes out as the provider takes it, and means no less than it did."""

from __future__ import annotations

import copy
import json
from datetime import date
from random import Random
from typing import Annotated, Any, Literal

import pytest
from hypothesis import assume, given, settings, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field, RootModel

from fastlane.emulator._schema import value_for
from fastlane.providers import Fact, facts_named
from fastlane.providers._schema import Structured
from fastlane.schemas.dialect import WireSchema, wire_schema

EVERYTHING_REFUSED = (
    "allOf", "const", "contains", "default", "else", "format", "if", "maxItems", "maxLength", "minimum", "minLength",
    "multipleOf", "not", "oneOf", "pattern", "then", "uniqueItems",
)  # fmt: skip


def known(value: Any) -> Fact[Any]:
    return Fact(value=value, source="https://docs.example.com", checked=date(2026, 11, 22), evidence="documented")


def takes(*refused: str, **rules: Any) -> Structured:
    return Structured(
        refused_keywords=known(refused) if refused else None, **{name: known(value) for name, value in rules.items()}
    )


CLOSED = takes(closed_objects=True)
REQUIRED = takes(all_required=True)
STRICT = takes(closed_objects=True, all_required=True, object_root=True, bare_references=True)


def sent(schema: dict[str, Any], structured: Structured | None, *, strict: bool = True) -> WireSchema:
    before = copy.deepcopy(schema)
    wire = wire_schema(schema, structured, strict=strict)
    assert schema == before
    return wire


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


# What is sent as it is.


@pytest.mark.parametrize("structured", [None, Structured(), takes("pattern"), STRICT])
def test_a_schema_that_is_taken_goes_out_as_it_is(structured: Structured | None) -> None:
    schema = {**an_object(name={"type": "string"}), "required": ["name"]}

    wire = sent(schema, structured)

    assert wire.schema is schema
    assert wire == (schema, (), ())
    assert sent(schema, structured).schema is schema


def test_nothing_is_done_for_a_request_that_does_not_ask_for_it() -> None:
    schema = an_object(name={"type": "string", "pattern": "^a$"})

    assert sent(schema, takes("pattern", all_required=True), strict=False).schema is schema
    assert sent(schema, takes("pattern", unasked=True), strict=False).dropped == ("pattern",)


@pytest.mark.parametrize("slug", ["openai", "azure_openai", "cerebras", "groq"])
def test_what_openais_own_helper_makes_is_taken_by_those_that_have_no_more_rules(slug: str) -> None:
    class Line(BaseModel):
        name: str
        price: float | None

    class Order(BaseModel):
        lines: list[Line]
        kind: Literal["a", "b"]

    schema = to_strict_json_schema(Order)

    assert sent(schema, facts_named(slug).structured).schema is schema


# What is refused.


def test_a_refused_keyword_is_dropped_and_told_in_the_description() -> None:
    schema = an_object(
        code={"type": "string", "pattern": "^[a-z]+$", "maxLength": 9, "description": "A code."},
        tags={"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    )

    wire = sent(schema, takes("pattern", "maxLength", "uniqueItems"))

    assert wire.dropped == ("pattern", "maxLength", "uniqueItems")
    assert wire.schema["properties"] == {
        "code": {"type": "string", "description": "A code. Must keep to: pattern ^[a-z]+$, maxLength 9."},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Must keep to: uniqueItems."},
    }


def test_a_property_may_be_called_like_a_refused_keyword() -> None:
    schema = an_object(pattern={"type": "string"}, format={"enum": ["not"]}, **{"$ref": {"type": "string"}})
    schema["$defs"] = {"pattern": {"type": "string"}}
    schema["properties"]["const"] = {"const": {"pattern": 1, "not": 2}}
    schema["properties"]["shown"] = {"type": "string", "examples": [{"pattern": 1}]}

    assert sent(schema, takes("pattern", "format", "not")).schema is schema


def test_what_would_mean_more_when_less_is_said_in_it_is_dropped_as_a_whole() -> None:
    schema = {"not": {"type": "string", "maxLength": 3}, "if": {"maxLength": 3}, "then": {"type": "string"}}

    wire = sent(schema, takes("maxLength"))

    assert wire.schema == {}
    assert wire.dropped == ("not", "if", "then")


def test_branches_of_which_only_one_may_hold_become_branches_of_which_several_may() -> None:
    refused = {"oneOf": [{"type": "string"}, {"type": "null"}]}
    loosened = {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 4}]}

    assert sent(refused, takes("oneOf")).schema == {"anyOf": refused["oneOf"]}
    assert list(sent(loosened, takes("maxLength", "minLength")).schema) == ["anyOf"]
    assert "oneOf was sent as anyOf" in sent(refused, takes("oneOf")).changed[0]


def test_a_union_told_apart_by_a_word_is_sent_as_one_without_the_word() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    class Pet(BaseModel):
        pet: Annotated[Cat | Dog, Field(discriminator="kind")]

    wire = sent(Pet.model_json_schema(), facts_named("openai").structured)

    assert set(wire.schema["properties"]["pet"]) == {"anyOf", "title"} & set(wire.schema["properties"]["pet"])
    assert len(wire.schema["properties"]["pet"]["anyOf"]) == 2


def test_a_constant_can_be_said_as_a_choice_of_one() -> None:
    assert sent({"const": "a", "title": "A"}, takes("const")).schema == {"enum": ["a"], "title": "A"}


def test_schemas_that_hold_together_are_joined_where_they_can_be() -> None:
    base = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    more = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    schema = {"allOf": [{"$ref": "#/$defs/base"}, more], "description": "Both.", "$defs": {"base": base}}

    wire = sent(schema, takes("allOf", closed_objects=True))

    assert wire.schema["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}
    assert wire.schema["required"] == ["a", "b"]
    assert wire.schema["additionalProperties"] is False
    assert wire.schema["description"] == "Both."


def test_schemas_that_cannot_be_joined_are_dropped() -> None:
    schema = {"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]}

    wire = sent(schema, takes("allOf"))

    assert wire.schema == {"type": "string"}
    assert wire.dropped == ("allOf",)


@pytest.mark.parametrize(
    "part", [True, {"$ref": "#/$defs/Nowhere"}, {"$ref": "#/$defs/Round"}, {"$ref": "#/$defs/Other", "pattern": "a"}]
)
def test_a_part_that_leads_nowhere_cannot_be_joined(part: Any) -> None:
    defined = {"Round": {"$ref": "#/$defs/Round"}, "Other": {"pattern": "b"}}

    assert sent({"allOf": [part], "$defs": defined}, takes("allOf")).schema == {"$defs": defined}


# What strict modes want.


def test_objects_are_closed_where_that_leaves_something_to_say() -> None:
    schema = {
        "title": "Ticket",
        "type": "object",
        "properties": {
            "open": {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
            "empty": {"type": "object", "properties": {}},
            "free": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }

    wire = sent(schema, CLOSED)

    properties = wire.schema["properties"]
    assert wire.schema["additionalProperties"] is False
    assert properties["open"]["additionalProperties"] is False
    assert properties["empty"]["additionalProperties"] is False
    assert properties["free"] == schema["properties"]["free"]  # type: ignore[index]
    assert wire.changed == (
        "Ticket.open, Ticket.empty, Ticket: additionalProperties was made false",
        "Ticket.free: left open, although strict mode takes closed objects only",
    )


def test_what_holds_beside_other_schemas_does_not_forbid_their_properties() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "anyOf": [{"type": "object", "properties": {"b": {"type": "string"}}}, {"type": "object", "properties": {}}],
    }

    assert Draft202012Validator(sent(schema, CLOSED).schema).is_valid({"a": "x", "b": "y"})


def test_optional_properties_are_made_required_and_keep_their_schema() -> None:
    schema = an_object(a={"type": "string"}, b={"type": ["string", "null"]}, c={"type": "integer"})
    schema["required"] = ["b"]

    wire = sent(schema, REQUIRED)

    assert wire.schema["required"] == ["b", "a", "c"]
    assert wire.schema["properties"] == schema["properties"]
    assert wire.changed == ("$.a, $.c: made required",)


def test_what_would_have_no_end_stays_optional() -> None:
    schema = an_object(
        name={"type": "string"},
        child={"$ref": "#"},
        children={"type": "array", "items": {"$ref": "#"}},
        either={"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        pair={"type": "array", "items": {"$ref": "#"}, "minItems": 2},
        only={"anyOf": [{"$ref": "#"}]},
        both={"allOf": [{"$ref": "#"}]},
        maybe={"type": ["object", "null"], "properties": {"child": {"$ref": "#"}}, "additionalProperties": False},
    )

    wire = sent(schema, REQUIRED)

    assert wire.schema["required"] == ["name", "children", "either", "maybe"]
    (said,) = (
        sentence for sentence in wire.changed if sentence.endswith(": left optional, because it would have no end")
    )
    assert said.startswith("$.maybe.child, $.child, $.pair, $.only, $.both:")


def test_what_stands_beside_a_reference_is_put_into_what_it_leads_to() -> None:
    schema = an_object(home={"$ref": "#/$defs/Place", "description": "Where one lives."})
    schema["$defs"] = {"Place": {**an_object(city={"type": "string"}), "description": "A place."}}

    wire = sent(schema, takes(bare_references=True))

    assert wire.schema["properties"]["home"] == {
        **an_object(city={"type": "string"}), "description": "Where one lives.",
    }  # fmt: skip


def test_a_reference_that_leads_back_is_left_alone() -> None:
    node = an_object(child={"anyOf": [{"$ref": "#/$defs/Node", "description": "Below."}, {"type": "null"}]})
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": node}}

    wire = sent(schema, STRICT)

    Draft202012Validator.check_schema(wire.schema)
    assert Draft202012Validator(wire.schema).is_valid({"child": {"child": {"child": None}}})
    assert wire.schema["type"] == "object"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {}}}}},
        {"anyOf": [{"type": "object", "properties": {"a": {}}}]},
        {"allOf": [{"properties": {"a": {}}}]},
        {"type": ["object", "null"], "properties": {"a": {}}},
        {"properties": {"a": {}}},
    ],
)
def test_a_root_that_can_be_one_object_is_made_one(schema: dict[str, Any]) -> None:
    wire = sent(schema, takes(object_root=True))

    assert wire.schema["type"] == "object"
    assert wire.schema["properties"] == {"a": {}}
    assert not {"$ref", "anyOf", "allOf"} & set(wire.schema)


@pytest.mark.parametrize(
    "schema", [RootModel[list[int]].model_json_schema(), {"anyOf": [{"type": "object"}, {"type": "null"}]}, {}]
)
def test_a_root_that_cannot_be_is_left_as_it_is_and_said(schema: dict[str, Any]) -> None:
    wire = sent(schema, takes(object_root=True))

    assert wire.schema == schema
    assert wire.changed[0].endswith("left as it is, although strict mode takes one object only at the root")


def test_sentences_do_not_name_every_property_of_a_large_schema() -> None:
    schema = an_object(**{f"p{number}": {"type": "string"} for number in range(99)})

    assert sent(schema, REQUIRED).changed[0].endswith("$.p9 and 89 more: made required")


# Content, and not objects, is what is remembered.


def test_equal_schemas_are_written_once_and_unequal_ones_apart() -> None:
    first = sent(an_object(a={"type": "string"}), REQUIRED).schema

    assert sent(an_object(a={"type": "string"}), REQUIRED).schema is first
    assert sent(an_object(a={"type": "integer"}), REQUIRED).schema is not first
    assert sent(an_object(a={"type": "string"}), takes("title")).schema is not first


def test_a_schema_that_orjson_cannot_write_is_written_anyway() -> None:
    schema = an_object(a={"type": "integer", "maximum": 2**99})

    assert sent(schema, REQUIRED).schema["required"] == ["a"]


# Laws.


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "pattern"])
    properties = st.dictionaries(names, inner, max_size=3)
    objects = st.builds(
        lambda some, required, extra: {
            "type": "object",
            "properties": some,
            "required": sorted(set(some) & required),
            **({} if extra is None else {"additionalProperties": extra}),
        },
        properties,
        st.frozensets(names),
        st.sampled_from([None, None, True, False]),
    )
    arrays = st.builds(
        lambda items, extra: {"type": "array", "items": items, **extra},
        inner,
        st.sampled_from([{}, {"minItems": 1}, {"maxItems": 2}, {"uniqueItems": True}, {"contains": {"maximum": 5}}]),
    )
    branches = st.lists(inner, min_size=1, max_size=3)
    unions = st.builds(lambda key, some: {key: some}, st.sampled_from(["anyOf", "oneOf", "allOf"]), branches)
    return objects | objects | arrays | unions


LEAVES: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"type": "string"}, {"type": "string", "maxLength": 3}, {"type": "string", "minLength": 2, "default": "xx"},
        {"type": "integer", "minimum": 3, "maximum": 9}, {"type": "number", "multipleOf": 0.5}, {"type": "boolean"},
        {"type": "null"}, {"enum": ["x", "y", 1, None]}, {"const": "x"}, {"not": {"minLength": 3}}, {},
        {"$ref": "#/$defs/D"}, {"$ref": "#/$defs/D", "description": "Beside."}, {"$ref": "#/$defs/N"},
    ]
)  # fmt: skip
NODE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0},
        "next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]},
    },
    "required": ["n"],
}
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(LEAVES, _schemas, max_leaves=8).map(
    lambda schema: {**schema, "$defs": {"D": {"type": "string", "maxLength": 4}, "N": NODE}}
)


def drawn(schema: Any, seed: int) -> Any:
    """A value that is valid for a schema."""
    value = value_for(schema, Random(seed))
    assume(Draft202012Validator(schema).is_valid(value))
    return value


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, st.sets(st.sampled_from(EVERYTHING_REFUSED)), st.integers(0, 9))
def test_what_is_valid_stays_valid_when_keywords_are_dropped(
    schema: dict[str, Any], refused: set[str], seed: int
) -> None:
    value = drawn(schema, seed)

    wire = sent(schema, takes(*sorted(refused)))

    Draft202012Validator.check_schema(wire.schema)
    assert Draft202012Validator(wire.schema).is_valid(value), (wire, value)


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, st.integers(0, 9))
def test_what_a_strict_mode_answers_is_valid(schema: dict[str, Any], seed: int) -> None:
    # Objects that overlapped while they were open may not when they are closed: then one is what was not one before.
    assume('"oneOf"' not in json.dumps(schema))

    wire = sent(schema, STRICT)

    Draft202012Validator.check_schema(wire.schema)
    value = drawn(wire.schema, seed)
    assert Draft202012Validator(schema).is_valid(value), (wire, value)


@settings(max_examples=50, deadline=None)
@given(SCHEMAS, st.sets(st.sampled_from(EVERYTHING_REFUSED)))
def test_nothing_that_is_refused_is_sent_and_what_was_sent_once_can_be_sent_again(
    schema: dict[str, Any], refused: set[str]
) -> None:
    structured = takes(*sorted(refused), closed_objects=True, all_required=True, bare_references=True)

    wire = sent(schema, structured)

    again = sent(dict(wire.schema), structured)
    assert again.schema == wire.schema
    assert again.dropped == ()


@settings(max_examples=50, deadline=None)
@given(SCHEMAS)
def test_sentences_are_given_for_anything(schema: dict[str, Any]) -> None:
    wire = sent(schema, STRICT)

    assert all(": " in sentence for sentence in wire.changed)
    assert json.dumps(wire.schema)


WORDS = st.sampled_from(
    ["$ref", "$defs", "type", "properties", "required", "items", "allOf", "anyOf", "oneOf", "not", "enum", "const",
     "if", "additionalProperties", "minItems", "maxLength", "description", "contains", "prefixItems", "$id", "#"]
)  # fmt: skip
NONSENSE = st.dictionaries(
    WORDS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-1, 3) | WORDS | st.just("#/$defs/type"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(NONSENSE)
def test_no_schema_is_too_strange_to_be_looked_at(schema: dict[str, Any]) -> None:
    rules = {"closed_objects": True, "all_required": True, "object_root": True, "bare_references": True}

    sent(schema, takes(*EVERYTHING_REFUSED, **rules))
    sent(schema, takes(**rules))


def valid(value: Any, schema: Any) -> bool:
    return bool(Draft202012Validator(schema).is_valid(value))


def chained(length: int) -> dict[str, Any]:
    """Definitions of which each uses the next twice: the ways through them double with each."""
    definitions = {
        f"D{number}": an_object(left={"$ref": f"#/$defs/D{number + 1}"}, right={"$ref": f"#/$defs/D{number + 1}"})
        for number in range(length)
    }
    return {**an_object(top={"$ref": "#/$defs/D0"}), "$defs": {**definitions, f"D{length}": {"type": "string"}}}


def test_what_definitions_use_again_and_again_is_looked_at_once() -> None:
    wire = sent(chained(200), REQUIRED)

    assert wire.schema["$defs"]["D0"]["required"] == ["left", "right"]


def test_what_ends_by_another_way_than_the_first_is_made_required() -> None:
    either = {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}
    schema = {**an_object(b={"$ref": "#/$defs/B"}), "$defs": {"A": an_object(b={"$ref": "#/$defs/B"}), "B": either}}

    assert sent(schema, REQUIRED).schema["required"] == ["b"]
    assert sent(schema, REQUIRED).schema["$defs"]["A"]["required"] == ["b"]


def test_a_property_that_can_have_no_value_stays_optional() -> None:
    wire = sent(an_object(a={"type": "string"}, never=False), REQUIRED)

    assert wire.schema["required"] == ["a"]
    assert "$.never: left optional, because it can have no value" in wire.changed


def test_a_schema_nested_too_deeply_to_be_sent_goes_as_it_is() -> None:
    schema: dict[str, Any] = {"type": "string", "pattern": "^a"}
    for _ in range(2_000):
        schema = an_object(inner=schema)

    assert wire_schema(schema, takes("pattern", all_required=True), strict=True).schema is schema


def test_branches_that_say_less_by_what_they_refer_to_may_overlap_as_well() -> None:
    definitions = {"Short": {"type": "string", "maxLength": 3}, "Long": {"type": "string", "minLength": 4}}
    schema = {"oneOf": [{"$ref": "#/$defs/Short"}, {"$ref": "#/$defs/Long"}], "$defs": definitions}

    assert sent(schema, takes("maxLength", "minLength")).schema["anyOf"] == schema["oneOf"]
    assert (
        "not"
        not in sent({"not": {"$ref": "#/$defs/Short"}, "$defs": definitions}, takes("maxLength", "minLength")).schema
    )


def test_what_is_said_of_the_items_behind_a_tuple_goes_with_it() -> None:
    schema = {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "minItems": 1}

    wire = sent(schema, takes("prefixItems"))

    assert valid(["a"], wire.schema)
    assert wire.dropped == ("prefixItems", "items")
    assert sent({"items": {"type": "string"}}, takes("prefixItems")).dropped == ()


def test_branches_that_may_overlap_are_left_out_where_there_is_an_any_of_already() -> None:
    schema = {"oneOf": [{"minLength": 1}, {"type": "integer"}], "anyOf": [{"type": "string"}, {"type": "integer"}]}

    assert valid(1, sent({**schema, "oneOf": [{"type": "integer"}, {"minimum": 2}]}, takes("minimum")).schema)
    assert "oneOf" in sent(schema, takes("minLength")).dropped
