"""Short names go out, and the long ones come back: the same value, whatever stands in it."""

from __future__ import annotations

import copy
import json
from enum import Enum
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import assume, example, given, settings, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import BaseModel

from fastlane.emulator._schema import value_for
from fastlane.knowledge.tokens import counter
from fastlane.schemas.compact import Compacted, compact

COUNTER = counter("some-model", wait=False)


class Sentiment(Enum):
    POSITIVE = "overwhelmingly_positive"
    NEGATIVE = "overwhelmingly_negative"
    NONE = "ok"


class Customer(BaseModel):
    customer_identifier: str
    preferred_language: Literal["portuguese_brazilian", "english_american"]


class Review(BaseModel):
    customer_sentiment: Sentiment
    reviewed_customer: Customer | None
    earlier_reviews: list[Review]
    translated_titles: dict[str, str]
    a: int


def compacted(schema: dict[str, Any]) -> Compacted:
    before = copy.deepcopy(schema)
    made = compact(schema, COUNTER)
    assert schema == before
    assert made is not None
    return made


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


REVIEW = Review.model_json_schema()
VALUE = {
    "customer_sentiment": "overwhelmingly_negative",
    "reviewed_customer": {"customer_identifier": "b", "preferred_language": "english_american"},
    "earlier_reviews": [
        {
            "customer_sentiment": "ok",
            "reviewed_customer": None,
            "earlier_reviews": [],
            "translated_titles": {},
            "a": 1,
        }
    ],
    "translated_titles": {"b": "c", "customer_sentiment": "overwhelmingly_negative"},
    "a": 2,
}


def test_names_and_choices_are_short_on_the_wire_and_long_in_the_answer() -> None:
    made = compacted(REVIEW)
    short = made.alias(VALUE)

    assert len(json.dumps(short)) < len(json.dumps(VALUE)) / 2
    assert Draft202012Validator(made.schema).is_valid(short)
    assert not Draft202012Validator(made.schema).is_valid(VALUE)
    assert json.loads(made.expand(json.dumps(short))) == VALUE
    assert Review.model_validate_json(made.expand(json.dumps(short))).a == VALUE["a"]


def test_what_they_stand_for_is_in_the_descriptions() -> None:
    schema = an_object(
        the_long_name={"type": "string", "description": "Of it."},
        another_long_name={"enum": ["first_possibility", "second_possibility"]},
        referred_long_name={"$ref": "#/$defs/Place"},
    )
    schema["$defs"] = {"Place": an_object(b={"type": "string"})}

    assert compacted(schema).schema == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "the_long_name: Of it."},
            "c": {
                "enum": ["a", "c"],
                "description": "another_long_name: a = first_possibility, c = second_possibility",
            },
            "d": {"$ref": "#/$defs/Place"},
        },
        "additionalProperties": False,
        "description": "d = referred_long_name",
        "$defs": {"Place": an_object(b={"type": "string"})},
    }


def test_what_is_saved_of_the_output_and_added_to_the_input_is_counted() -> None:
    made = compacted(REVIEW)

    short, long = json.dumps(made.alias(VALUE)), json.dumps(VALUE)
    assert 0 < made.saved_tokens < COUNTER.text(long)
    assert made.added_tokens == COUNTER.text(json.dumps(made.schema)) - COUNTER.text(json.dumps(REVIEW))
    assert COUNTER.text(long) - COUNTER.text(short) > made.saved_tokens / 2
    assert repr(made) == f"Compacted(saved_tokens={made.saved_tokens}, added_tokens={made.added_tokens})"


@pytest.mark.parametrize(
    "schema",
    [
        an_object(a={"type": "string"}, b={"enum": ["x", "y"]}),
        {"type": "string"},
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ],
)
def test_nothing_is_done_where_nothing_is_saved(schema: dict[str, Any]) -> None:
    assert compact(schema, COUNTER) is None


LONG = {"type": "string", "enum": ["overwhelmingly_positive", "overwhelmingly_negative"]}


@pytest.mark.parametrize(
    "schema",
    [
        {**an_object(customer_sentiment=LONG), "if": {}, "then": {}},
        {**an_object(customer_sentiment=LONG), "patternProperties": {"^x": {}}},
        {**an_object(customer_sentiment=LONG), "dependentRequired": {"customer_sentiment": []}},
        {**an_object(customer_sentiment=LONG), "anyOf": [{"required": ["customer_sentiment"]}]},
        {"allOf": [an_object(customer_sentiment=LONG), an_object(other_long_name=LONG)]},
        an_object(customer_sentiment=LONG, again={"$ref": "#/properties/customer_sentiment"}),
        an_object(customer_sentiment=LONG, again={"$ref": "#/$defs/nowhere"}),
        an_object(customer_sentiment=LONG, again={"$ref": ["#"]}),
        an_object(customer_sentiment=LONG, again={"$ref": "https://example.com/schema"}),
        an_object(customer_sentiment=LONG, again={"$id": "https://example.com/schema", "type": "string"}),
        {"type": "object", "properties": [1]},
        {"anyOf": {"customer_sentiment": 1}},
    ],
)
def test_a_schema_that_says_things_in_other_ways_is_left_alone(schema: dict[str, Any]) -> None:
    assert compact(schema, COUNTER) is None


def test_names_stay_where_others_may_stand_beside_them() -> None:
    made = compacted(
        an_object(
            open_long_name={"type": "object", "properties": {"inner_long_name": LONG}, "additionalProperties": True},
            either_long_name={"anyOf": [an_object(one_long_name=LONG), {"type": "object"}]},
        )
    )
    value = {
        "open_long_name": {"inner_long_name": "overwhelmingly_positive", "a": 1},
        "either_long_name": {"one_long_name": "a", "b": "a"},
    }

    assert made.alias(value)["a"] == value["open_long_name"]
    assert json.loads(made.expand(json.dumps(made.alias(value)))) == value


def test_texts_stay_where_any_text_may_stand() -> None:
    made = compacted(an_object(free_long_name={"anyOf": [LONG, {"type": "string"}]}, bound_long_name=LONG))

    assert made.alias({"free_long_name": "a", "bound_long_name": "overwhelmingly_positive"}) == {
        "a": "a",
        "b": "overwhelmingly_positive",
    }


def test_texts_stay_where_a_rule_would_refuse_the_short_ones() -> None:
    made = compacted(an_object(bound_long_name={**LONG, "minLength": 5}))

    assert made.alias({"bound_long_name": "overwhelmingly_positive"}) == {"a": "overwhelmingly_positive"}


def test_defaults_and_examples_do_not_show_the_long_names() -> None:
    made = compacted(
        an_object(
            bound_long_name={**LONG, "default": "overwhelmingly_positive", "examples": ["overwhelmingly_positive"]},
            other_long_name={**an_object(inner_long_name=LONG), "default": {"inner_long_name": None}},
            free_long_name={"type": "string", "default": "overwhelmingly_positive"},
        )
    )

    properties = made.schema["properties"]
    assert properties["a"]["default"] == "a"
    assert "examples" not in properties["a"]
    assert "default" not in properties["b"]
    assert properties["c"]["default"] == "overwhelmingly_positive"


def test_numbers_escapes_and_white_space_stay_as_they_are() -> None:
    made = compacted(an_object(a_long_number={"type": "number"}, a_long_text={"type": "string"}))

    assert made.expand(' {\n"a" :1.50e+400, "\\u0062": "\\u00e9\\/\\"a\\"" }\n') == (
        ' {\n"a_long_number" :1.50e+400, "a_long_text": "\\u00e9\\/\\"a\\"" }\n'
    )


def test_a_text_that_breaks_off_is_expanded_as_far_as_it_goes() -> None:
    made = compacted(REVIEW)
    short = json.dumps(made.alias(VALUE))
    long = json.dumps(VALUE)

    for cut in range(len(short) + 1):
        expanded = made.expand(short[:cut])
        kept = expanded.rfind('"')
        assert long.startswith(expanded[: max(0, expanded.rfind('"', 0, max(kept, 0)))])


def test_a_text_that_breaks_off_behind_many_quotes_is_read_once() -> None:
    text = '{"a": "b", "b": "' + r"\"a\": [" * 50_000

    assert compacted(REVIEW).expand(text + "\\").endswith("[\\")


@given(st.text(max_size=40) | st.text('{}[],:"\\ab 1', max_size=40))
def test_no_text_is_too_strange_to_be_expanded(text: str) -> None:
    assert isinstance(compacted(REVIEW).expand(text), str)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ('{"a": "b"', '{"a_long_name": "b"'),
        ('{"\\u00zz": {"a": 1}}', '{"\\u00zz": {"a": 1}}'),
        ('{"unknown": {"a": [{"a": 1}, "a"]}, "a": 2}', '{"unknown": {"a": [{"a": 1}, "a"]}, "a_long_name": 2}'),
        ('["a", {"a": 1}]', '["a", {"a": 1}]'),
        ('{"a": {"a": 1}}', '{"a_long_name": {"a": 1}}'),
        ("}{", "}{"),
        ("", ""),
    ],
)
def test_what_the_schema_does_not_know_is_left_alone(short: str, long: str) -> None:
    made = compacted(an_object(a_long_name={"type": "string"}))

    assert made.expand(short) == long


def test_values_that_the_schema_does_not_know_are_left_alone() -> None:
    made = compacted(an_object(a_long_name={"type": "string"}))

    assert made.alias({"unknown": {"a": 1}, "a_long_name": 1}) == {"unknown": {"a": 1}, "a": 1}
    assert made.alias([1]) == [1]


def test_what_comes_behind_the_value_is_left_alone() -> None:
    made = compacted(an_object(a_long_name={"type": "string"}))

    assert made.expand('```json\n{"a": "b"}\n``` {"a": 1}') == '```json\n{"a_long_name": "b"}\n``` {"a": 1}'


def test_more_names_than_letters_have_two() -> None:
    schema = an_object(**{f"a_long_name_{number}": {"type": "integer"} for number in range(40)})
    value = {f"a_long_name_{number}": number for number in range(40)}

    made = compacted(schema)

    assert list(made.alias(value))[25:28] == ["z", "aa", "ab"]
    assert json.loads(made.expand(json.dumps(made.alias(value)))) == value


def test_equal_schemas_are_compacted_once() -> None:
    assert compact(copy.deepcopy(REVIEW), COUNTER) is compact(copy.deepcopy(REVIEW), COUNTER)
    assert compacted(an_object(a_long_name={"type": "integer", "maximum": 2**99})).saved_tokens


NAMES = st.sampled_from(["a", "b", "customer_identifier", "preferred_language_of_customer", "é_sehr_langer_name"])
TEXTS = st.sampled_from(["a", "c", "overwhelmingly_positive", "sehr_überwältigend_négatif", "customer_identifier"])
LEAVES: st.SearchStrategy[Any] = (
    st.sampled_from([{"type": "string"}, {"type": "number"}, {"type": "null"}, {}, {"$ref": "#/$defs/D"}, True])
    | st.lists(TEXTS | st.none() | st.integers(0, 3), min_size=1, max_size=4, unique=True).map(
        lambda values: {"enum": values}
    )
    | TEXTS.map(lambda value: {"const": value})
)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.builds(
        lambda some, extra: {
            "type": "object",
            "properties": some,
            "required": list(some),
            **({} if extra is None else {"additionalProperties": extra}),
        },
        st.dictionaries(NAMES, inner, max_size=4),
        st.sampled_from([False, False, None, True, {"type": "string"}, {"$ref": "#/$defs/D"}]),
    )
    arrays = inner.map(lambda items: {"type": "array", "items": items, "minItems": 1})
    unions = st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some})
    return objects | objects | arrays | unions


DEFINED = {
    "type": "object",
    "properties": {
        "customer_identifier": {"enum": ["a", "overwhelmingly_positive"]},
        "next_customer_of_it": {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]},
    },
    "required": ["customer_identifier"],
    "additionalProperties": False,
}
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(LEAVES, _schemas, max_leaves=10).map(
    lambda schema: {**(schema if isinstance(schema, dict) else {}), "$defs": {"D": DEFINED}}
)


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, st.integers(0, 9))
@example(REVIEW, 1)
def test_every_value_comes_back_as_it_was(schema: dict[str, Any], seed: int) -> None:
    made = compact(schema, COUNTER)
    assume(made is not None)
    assert made is not None
    value = value_for(schema, Random(seed))
    assume(Draft202012Validator(schema).is_valid(value))

    short = made.alias(value)

    Draft202012Validator.check_schema(made.schema)
    assert Draft202012Validator(made.schema).is_valid(short)
    for form in ({}, {"separators": (",", ":")}, {"indent": 4}, {"ensure_ascii": False}):
        assert json.loads(made.expand(json.dumps(short, **form))) == value
    assert made.expand(json.dumps(short, ensure_ascii=False)) == json.dumps(value, ensure_ascii=False)


@settings(max_examples=100, deadline=None)
@given(SCHEMAS, st.integers(0, 9))
def test_every_answer_to_the_short_schema_is_one_to_the_long_one(schema: dict[str, Any], seed: int) -> None:
    made = compact(schema, COUNTER)
    assume(made is not None)
    assert made is not None
    short = value_for(made.schema, Random(seed))
    assume(Draft202012Validator(made.schema).is_valid(short))

    value = json.loads(made.expand(json.dumps(short)))

    assert Draft202012Validator(schema).is_valid(value)
    assert made.alias(value) == short


def test_definitions_that_are_used_again_and_again_are_counted_once() -> None:
    definitions: dict[str, Any] = {
        f"D{number}": {
            "type": "object",
            "properties": {f"a_long_{side}_name": {"$ref": f"#/$defs/D{number + 1}"} for side in ("left", "right")},
        }
        for number in range(200)
    }
    made = compact({"$ref": "#/$defs/D0", "$defs": {**definitions, "D200": {"type": "string"}}}, counter("gpt-4o"))

    assert made is not None
    assert made.saved_tokens > 200
