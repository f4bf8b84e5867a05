from __future__ import annotations

import json
import string
from typing import Annotated, Any, Literal

import jsonschema  # type: ignore[import-untyped]
import pydantic
import pytest
from hypothesis import given, settings, strategies as st

from fastlane.errors import ConfigurationError
from fastlane.plays.bounded_output.validation import Problem, problem_in, problem_of

TICKET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "category": {"enum": ["billing", "bug"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "title": {"type": "string", "maxLength": 10, "pattern": "^[a-z ]*$"},
        "tags": {"type": "array", "items": {"type": ["string", "null"], "maxLength": 4}, "maxItems": 3},
        "note": {"anyOf": [{"type": "object", "properties": {"by": {"const": "me"}}}, {"type": "null"}]},
    },
    "required": ["category"],
    "additionalProperties": False,
}


def problem(schema: Any, text: str) -> Problem:
    found = problem_in(text, schema)
    assert found is not None
    return found


def is_valid(schema: Any, text: str) -> bool:
    return problem_in(text, schema) is None


# What is valid, and the errors of what is not


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"category": "other"}', 'category: the value is not one of "billing" or "bug"'),
        ("{}", '$: "category" is a required property'),
        ('{"category": "bug", "confidence": 2}', "confidence: the value is greater than the maximum of 1"),
        ('{"category": "bug", "title": "much too long"}', "title: the value is longer than 10 characters"),
        ('{"category": "bug", "tags": ["a", "b", "toolong"]}', "tags[2]: the value is longer than 4 characters"),
        ('{"category": "bug", "made up": 1}', "$: has properties that the schema does not allow"),
        ('{"category": "bug", "note": {"by": "you"}}', 'note.by: "me" was expected'),
        ("[]", '$: the value is not of type "object"'),
    ],
)
def test_problem_names_path_and_rule(text: str, expected: str) -> None:
    assert str(problem(TICKET, text)) == expected


SIBLINGS = {"definitions": {"a": {}}, "$ref": "#/definitions/a", "type": "string"}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"format": "date"}, '"yesterday"', False),
        ({"format": "date"}, '"2026-11-22"', True),
        # The draft that a schema names is followed.
        ({"$schema": "http://json-schema.org/draft-07/schema#", **SIBLINGS}, "1", True),
        (SIBLINGS, "1", False),
        ({"$schema": "https://example.com/unknown/draft", "type": "integer"}, "1", True),
        ({"maximum": 10**30}, "1" * 30, True),
        ({"type": "string", "maxLength": 1}, r'"\ud800"', True),
        # A pattern takes linear time, or is given up.
        ({"pattern": "^(a+)+$"}, json.dumps("a" * 50_000 + "!"), False),
        ({"pattern": r"^(a|aa)*(?=b)\1$"}, json.dumps("a" * 10_000), True),
        ({"pattern": r"^\p{L}+$"}, '"Größe"', True),
    ],
    ids=range(10),
)
def test_answer_is_validated_by_its_schema(schema: dict[str, Any], text: str, expected: bool) -> None:
    assert is_valid(schema, text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "$: empty"),
        (" \n", "$: empty"),
        ('```json\n{"a": 1}\n```', "$: not JSON: text before it"),
        ('Sure! {"a": 1}', "$: not JSON: text before it"),
        ('{"a": 1} done', "$: not JSON: Extra data, at line 1, column 10"),
        ('{"a": 1', "$: not JSON: it ends before the value does"),
        ('{"a": "b', "$: not JSON: it ends before the value does"),
        ('{"a": NaN}', "$: not JSON: NaN is no number"),
        ("[" * 100_000, "$: nested too deeply to be read"),
        ("7" * 20_000, "$: not JSON: Exceeds the limit"),
    ],
)
def test_malformed_json_is_classified(text: str, expected: str) -> None:
    assert str(problem(True, text)).startswith(expected)


# Schemas


@pytest.mark.parametrize("schema", [{"type": "strange"}, {"properties": []}, {"maxLength": -1}, [], "string", None])
def test_invalid_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="takes a JSON schema"):
        problem_in("1", schema)


@pytest.mark.parametrize("reference", ["https://example.com/schema.json", "other.json", "#/$defs/missing", "#missing"])
def test_external_schema_reference_is_refused_not_fetched(reference: str) -> None:
    with pytest.raises(ConfigurationError, match="nothing is fetched"):
        problem_in("1", {"properties": {"a": {"$ref": reference}}})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from([0.5, 1.0, 3.14, "", "a", "ab", "bug", "x y"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["category", "confidence", "title", "tags", "a", "b1"]), inner, max_size=4)
    ),
    max_leaves=8,
)
SCHEMAS: list[dict[str, Any]] = [
    TICKET,
    {"items": {"uniqueItems": True}, "uniqueItems": True},
    {"patternProperties": {"^[a-c]": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"oneOf": [{"pattern": "^a"}, {"maxLength": 2}, {"type": "array"}], "not": {"const": 1}},
    {"if": {"required": ["a"]}, "then": {"minProperties": 2}, "else": {"propertyNames": {"maxLength": 8}}},
    {"contains": {"type": "integer"}, "unevaluatedItems": False, "type": ["array", "number"]},
    {"enum": [1, [1.0], {"a": True}, None]},
]


@given(st.sampled_from(SCHEMAS), VALUES)
@settings(max_examples=300, deadline=None)
def test_validation_agrees_with_jsonschema(schema: dict[str, Any], value: Any) -> None:
    assert is_valid(schema, json.dumps(value)) is jsonschema.Draft202012Validator(schema).is_valid(value)


# No text of an answer is shown

SECRETS = st.text(string.ascii_letters, min_size=6, max_size=8).map(lambda text: f"secret{text}")
SECRET_VALUES = st.recursive(
    SECRETS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(SECRETS | st.sampled_from(["category", "title", "tags", "pets"]), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYED = {
    "type": "object",
    "propertyNames": {"maxLength": 8},
    "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "object", "additionalProperties": False}]},
}


@given(st.sampled_from([TICKET, KEYED, False, *SCHEMAS]), SECRET_VALUES, st.sampled_from(["", ",", "secretly", "}"]))
@settings(max_examples=300, deadline=None)
def test_problem_shows_no_text_of_the_answer(schema: Any, value: Any, behind: str) -> None:
    found = problem_in(json.dumps(value) + behind, schema)

    assert "secret" not in f"{found}{found!r}"
    if found is not None:
        assert len(found.advice) <= 2_000


@given(st.text(max_size=60) | st.text('{}[]",:\\ \n1e-+.tfn`', max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_valid_or_has_a_problem(text: str) -> None:
    found = problem_in(text, TICKET)

    assert found is None or (str(found) and found.advice.encode())


def test_advice_is_bounded_and_can_be_sent() -> None:
    text = json.dumps({"category": "x" * 5_000, "tags": [f"{'y' * 500}{number}" for number in range(5_000)]})

    assert len(problem(TICKET, text).advice) <= 2_000
    assert problem({"type": "integer"}, r'"\ud800"').advice.encode()


# pydantic's errors


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Ticket(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    category: Literal["billing", "bug"]
    title: Annotated[str, pydantic.Field(max_length=10)] = ""
    scores: dict[str, int] = {}
    pets: list[Cat | Dog] = []

    @pydantic.field_validator("title")
    @classmethod
    def is_no_secret(cls, title: str) -> str:
        if title.startswith("secret"):
            raise ValueError(f"{title} is a secret")
        return title


def of_pydantic(text: str, schema: Any = None) -> Problem:
    with pytest.raises(pydantic.ValidationError) as caught:
        Ticket.model_validate_json(text)
    found = problem_of(caught.value, Ticket.model_json_schema() if schema is None else schema)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"category": "other"}', "category: Input should be 'billing' or 'bug'"),
        ("{}", "category: Field required"),
        ('{"category": "bug", "title": "much too long"}', "title: String should have at most 10 characters"),
        ('{"category": "bug", "title": "secret"}', "title: refused by the model class"),
        ('{"category": "bug", "extra": 1}', "*: Extra inputs are not permitted"),
        ('{"category": "bug", "scores": {"secret": "x"}}', "scores.*: Input should be a valid integer"),
        ('```json\n{"category": "bug"}```', "$: not JSON: text before it"),
        ("", "$: empty"),
    ],
)
def test_pydantic_problem_names_path_and_rule(text: str, expected: str) -> None:
    assert str(of_pydantic(text)).startswith(expected)


@given(SECRET_VALUES)
def test_pydantic_problem_shows_no_text_of_the_answer(value: Any) -> None:
    try:
        Ticket.model_validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        found = problem_of(error, Ticket.model_json_schema())

        assert "secret" not in f"{found}{found!r}"
