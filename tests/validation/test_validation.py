from __future__ import annotations

import json
import math
import string
import urllib.request
from types import MappingProxyType
from typing import Annotated, Any, Literal

import jsonschema  # type: ignore[import-untyped]
import pydantic
import pytest
from hypothesis import given, settings, strategies as st

from fastlane.errors import ConfigurationError
from fastlane.plays.bounded_output.validation._validation import Problem, problem_of, stopped, validator

TICKET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "category": {"enum": ["billing", "bug"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "title": {"type": "string", "maxLength": 10, "pattern": "^[a-z ]*$"},
        "tags": {"type": "array", "items": {"type": ["string", "null"], "maxLength": 4}, "maxItems": 3},
    },
    "required": ["category"],
    "additionalProperties": False,
}


def problem(schema: Any, text: str) -> Problem:
    found = validator(schema)(text)
    assert found is not None
    return found


def said(schema: Any, text: str) -> str:
    return str(problem(schema, text))


def is_valid(schema: Any, text: str) -> bool:
    return validator(schema)(text) is None


# What is valid, and what is said of what is not


def test_an_answer_that_follows_its_schema_has_no_problem() -> None:
    assert is_valid(TICKET, '{"category": "bug", "confidence": 0.5, "tags": [null, "a"]}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"category": "other"}', "category: not one of the allowed values"),
        ("{}", '$: "category" is missing'),
        ('{"category": "bug", "confidence": 2}', "confidence: above the maximum of 1"),
        ('{"category": "bug", "confidence": "high"}', "confidence: not of the type number"),
        ('{"category": "bug", "title": "much too long"}', "title: longer than 10 characters"),
        ('{"category": "bug", "title": "UPPER"}', "title: does not match its pattern"),
        ('{"category": "bug", "tags": ["a", "b", "toolong"]}', "tags[2]: longer than 4 characters"),
        ('{"category": "bug", "tags": [null, null, null, null]}', "tags: more than 3 items"),
        ('{"category": "bug", "made up": 1}', "$: properties that the schema does not allow"),
        ("[]", "$: not of the type object"),
    ],
)
def test_a_problem_names_the_place_and_the_rule(text: str, expected: str) -> None:
    assert said(TICKET, text) == expected


def test_the_model_is_told_what_was_expected_and_what_came() -> None:
    advice = problem(TICKET, '{"category": "other", "confidence": 7}').advice

    assert 'Expected one of ["billing", "bug"], got "other".' in advice
    assert "confidence: above the maximum of 1. Got 7." in advice


def test_of_a_union_the_nearest_form_is_told() -> None:
    schema = {"properties": {"note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]}}}

    assert said(schema, '{"note": "long"}') == "note: longer than 3 characters"


def test_a_boolean_schema_takes_everything_or_nothing() -> None:
    assert is_valid(True, "[1, 2]")
    assert said(False, "[1, 2]") == "$: not allowed here"
    assert said({"properties": {"a": False}}, '{"a": 1}') == "$: not allowed here"


def test_formats_are_asserted() -> None:
    assert said({"format": "date"}, '"yesterday"') == '$: not of the format "date"'
    assert is_valid({"format": "date"}, '"2026-11-22"')


def test_the_draft_that_a_schema_names_is_followed() -> None:
    siblings = {"definitions": {"a": {}}, "$ref": "#/definitions/a", "type": "string"}

    assert is_valid({"$schema": "http://json-schema.org/draft-07/schema#", **siblings}, "1")
    assert not is_valid(siblings, "1")
    assert is_valid({"$schema": "https://example.com/nobody/knows", "type": "integer"}, "1")


def test_a_schema_that_is_met_twice_is_read_once() -> None:
    assert validator(TICKET) is validator(dict(reversed(TICKET.items())))


def test_a_schema_that_changes_later_does_not_change_its_validator() -> None:
    schema = {"enum": ["a"]}
    judge = validator(schema)

    schema["enum"].append("b")

    assert judge('"b"') is not None
    assert validator(schema)('"b"') is None


def test_a_schema_with_integers_beyond_64_bits_is_taken() -> None:
    assert is_valid({"maximum": 10**30}, str(10**29))
    assert not is_valid({"maximum": 10**30}, str(10**31))


# Text that is not JSON


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "$: empty"),
        (" \n", "$: empty"),
        ('```json\n{"a": 1}\n```', "$: not JSON: it begins with a Markdown fence"),
        ('Sure! {"a": 1}', "$: not JSON: text before it"),
        ('{"a": 1,}', "$: not JSON: a comma with nothing behind it, at line 1, column 9"),
        ("[1, 2, ]", "$: not JSON: a comma with nothing behind it, at line 1, column 8"),
        ("[1,\n 2,\n  ]", "$: not JSON: a comma with nothing behind it, at line 3, column 3"),
        ('{"a": 1} done', "$: not JSON: text behind the JSON, at line 1, column 10"),
        ('{"a": 1}{"a": 1}', "$: not JSON: text behind the JSON, at line 1, column 9"),
        ("{'a': 1}", "$: not JSON: a property's name in double quotes was expected, at line 1, column 2"),
        ('{"a": 1', "$: not JSON: it ends before the value does"),
        ('{"a": "b', "$: not JSON: it ends before the value does"),
        ('{"a": NaN}', "$: not JSON: NaN or an infinity"),
        ("[-Infinity]", "$: not JSON: NaN or an infinity"),
        ('"a\nb"', "$: not JSON: a control character inside of a string, at line 1, column 3"),
        ("\ufeff{}", "$: not JSON: text before it"),
        ("[" * 100_000, "$: nested too deeply to be read"),
    ],
)
def test_what_is_not_json_is_told_apart(text: str, expected: str) -> None:
    assert said(True, text) == expected


def test_of_a_name_that_stands_twice_the_last_value_counts() -> None:
    assert is_valid(TICKET, '{"category": "nothing", "category": "bug"}')
    assert not is_valid(TICKET, '{"category": "bug", "category": "nothing"}')


@pytest.mark.parametrize("digits", [4_300, 4_301, 20_000])
def test_numbers_of_any_length_are_read(digits: int) -> None:
    number = "7" * digits

    assert is_valid({"type": "integer"}, number)
    assert is_valid({"items": {"type": "integer", "minimum": 5}}, f"[{number}]")
    assert said({"maximum": 5}, number) == "$: above the maximum of 5"
    assert said({"minimum": 5}, f"-{number}") == "$: below the minimum of 5"
    assert said({"type": "string"}, number) == "$: not of the type string"
    assert is_valid({"multipleOf": 0.5}, number)
    assert is_valid({"uniqueItems": True}, f"[{number}, 1]")
    assert not is_valid({"multipleOf": 7, "const": 1}, number)
    assert len(problem({"enum": [1]}, number).advice) < 200


def test_half_a_surrogate_pair_is_let_through_and_never_sent() -> None:
    assert is_valid({"type": "string", "maxLength": 1}, r'"\ud800"')
    assert is_valid({"pattern": "^[^a]$"}, r'"\ud800"')

    advice = problem({"type": "integer"}, r'"\ud800"').advice

    assert advice.encode()


# Schemas that cannot be applied


def test_a_path_is_bounded_however_deep_the_answer_is() -> None:
    schema = {"properties": {"a_long_name": {"$ref": "#"}}, "type": "object"}

    path = problem(schema, '{"a_long_name":' * 40 + "1" + "}" * 40).path

    assert len(path) <= 200
    assert path.endswith(".a_long_name")


def test_an_old_drafts_keyword_that_no_words_are_known_for_is_still_judged() -> None:
    schema = {"$schema": "http://json-schema.org/draft-03/schema#", "type": [{"type": "string"}, "null"]}

    assert is_valid(schema, "null")
    assert not is_valid(schema, "1")


@pytest.mark.parametrize("schema", [{"type": "strange"}, {"properties": []}, {"maxLength": -1}, {"required": "a"}])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="no valid JSON schema"):
        validator(schema)


@pytest.mark.parametrize("schema", [[], "string", 1, None])
def test_what_is_neither_object_nor_boolean_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="an object or a boolean"):
        validator(schema)


@pytest.mark.parametrize("within", ["if", "not", "allOf", "anyOf"])
@pytest.mark.parametrize("deep", range(8))
def test_a_schema_that_comes_back_to_itself_without_an_end_makes_no_answer_invalid(within: str, deep: int) -> None:
    back: Any = {"$ref": "#/$defs/A"}
    back = [back] if within.endswith("Of") else back
    check = validator({"$ref": "#/$defs/A", "$defs": {"A": {within: back}}})

    # Where the stack ends depends on how deep it was: in Python, or in the Rust that jsonschema's registry is made of.
    def deeper(levels: int) -> Problem | None:
        return deeper(levels - 1) if levels else check('{"a": 1}')

    assert deeper(deep) is None


def test_any_mapping_may_be_a_schema() -> None:
    check = validator(MappingProxyType({"properties": MappingProxyType({"a": MappingProxyType({"maxLength": 1})})}))

    assert str(check('{"a": "bc"}')) == "a: longer than 1 characters"


def test_what_is_no_json_is_no_schema() -> None:
    with pytest.raises(ConfigurationError, match="cannot be written as JSON"):
        validator({"enum": [object()]})


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: Any, **__: Any) -> Any:
        pytest.fail("something was fetched")

    monkeypatch.setattr(urllib.request, "urlopen", fetch)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("reference", ["https://example.com/schema.json", "other.json", "#/$defs/missing", "#missing"])
def test_a_reference_that_leads_out_of_the_schema_is_refused_and_not_fetched(reference: str) -> None:
    with pytest.raises(ConfigurationError, match="leads nowhere inside of it"):
        validator({"properties": {"a": {"$ref": reference}}})


@pytest.mark.usefixtures("no_network")
def test_a_reference_that_shows_itself_later_is_not_fetched_either() -> None:
    schema = {"properties": {"a": {"$id": "https://example.com/a", "$ref": "b"}, "c": {"type": "integer"}}}

    assert is_valid(schema, '{"a": 1}')
    assert not is_valid(schema, '{"c": "d"}')


def test_a_value_that_looks_like_a_reference_is_none() -> None:
    assert is_valid({"const": {"$ref": "https://example.com"}}, '{"$ref": "https://example.com"}')
    assert is_valid({"properties": {"const": {"type": "string"}, "$ref": {"type": "string"}}}, '{"$ref": "a"}')


def test_references_to_the_root_are_followed_by_the_same_rules() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"next": {"$ref": "#"}, "name": {"pattern": r"^\p{Lu}"}},
        "additionalProperties": False,
    }

    assert is_valid(schema, '{"next": {"next": {"name": "Éa"}}}')
    assert said(schema, '{"next": {"next": {"name": "éa"}}}') == "next.next.name: does not match its pattern"


def test_an_answer_deeper_than_the_stack_counts_as_valid() -> None:
    schema = {"properties": {"next": {"$ref": "#"}}}
    text = '{"next":' * 400 + "{}" + "}" * 400

    assert is_valid(schema, text)


# Patterns


def test_a_pattern_that_would_keep_re_busy_for_ever_is_looked_for_in_linear_time() -> None:
    assert not is_valid({"pattern": "^(a+)+$"}, json.dumps("a" * 50_000 + "!"))
    assert is_valid({"pattern": "^(a|a)*$"}, json.dumps("a" * 50_000))


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"^\p{L}+$", "Größe", True),
        (r"^a$", "a\n", False),
        (r"^\/x\/$", "/x/", True),
        (r"^(?=.*\d)[a-z\d]+$", "a1", True),
        (r"^(?=.*\d)[a-z\d]+$", "ab", False),
        (r"^(\w)\1$", "aa", True),
        (r"^[^[]$", "a", True),
        (r"^\D$", "\u07c0", True),
        (r"^[a-z&&[^b]]$", "&]", True),
    ],
)
def test_a_pattern_means_what_json_schema_means(pattern: str, text: str, matches: bool) -> None:
    assert is_valid({"pattern": pattern}, json.dumps(text)) is matches


def test_a_pattern_that_nothing_can_read_forbids_nothing() -> None:
    unreadable = r"\cA(?=x)("

    assert is_valid({"pattern": unreadable}, '"a"')
    assert is_valid({"not": {"pattern": unreadable}}, '"a"')
    assert is_valid({"oneOf": [{"pattern": unreadable}, {"type": "string"}]}, '"a"')
    assert is_valid({"patternProperties": {unreadable: False}, "additionalProperties": False}, '{"a": 1}')
    assert not is_valid({"pattern": unreadable, "maxLength": 0}, '"a"')


def test_a_pattern_for_which_only_re_will_do_is_not_tried_on_long_texts() -> None:
    assert is_valid({"pattern": r"(?=a)a*a*a*b"}, json.dumps("a" * 100_000))


# Like jsonschema

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.sampled_from([0.5, 1.0, 2.0, math.pi])
    | st.sampled_from(["", "a", "ab", "bug", "billing", "1", "x y"]),
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
    {"patternProperties": {r"\d$": True}, "additionalProperties": False},
    {"oneOf": [{"pattern": "^a"}, {"maxLength": 2}, {"type": "array"}], "not": {"const": 1}},
    {"if": {"required": ["a"]}, "then": {"minProperties": 2}, "else": {"propertyNames": {"maxLength": 8}}},
    {"contains": {"type": "integer"}, "unevaluatedItems": False, "type": ["array", "number"]},
    {"enum": [1, [1.0], {"a": True}, None]},
]


@given(st.sampled_from(SCHEMAS), VALUES)
@settings(max_examples=300, deadline=None)
def test_an_answer_is_valid_where_jsonschema_says_so(schema: dict[str, Any], value: Any) -> None:
    assert is_valid(schema, json.dumps(value)) is jsonschema.Draft202012Validator(schema).is_valid(value)


# Nothing of an answer is told

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
@settings(max_examples=200, deadline=None)
def test_no_text_of_an_answer_is_told(schema: Any, value: Any, behind: str) -> None:
    found = validator(schema)(json.dumps(value) + behind)

    assert "secret" not in f"{found}{found!r}"
    if found is not None:
        assert len(found.advice) <= 2_000


@given(st.text(max_size=60) | st.text('{}[]",:\\ \n1e-+.tfn`', max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_valid_or_has_a_problem(text: str) -> None:
    found = validator(TICKET)(text)

    assert found is None or found.advice.encode()
    assert found is None or str(found)


def test_advice_is_bounded_however_much_is_wrong() -> None:
    text = json.dumps({"category": "x" * 5_000, "tags": [f"{'y' * 500}{number}" for number in range(5_000)]})

    found = problem(TICKET, text)
    advice = found.advice

    assert str(found) == "category: not one of the allowed values"
    assert len(advice) <= 2_000
    assert "more of the kind" in advice
    assert "at least" in advice


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
    assert found.cause is caught.value
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"category": "other"}', "category: not one of the allowed values"),
        ("{}", '$: "category" is missing'),
        ('{"category": "bug", "title": "much too long"}', "title: longer than 10 characters"),
        ('{"category": "bug", "title": "secret"}', "title: refused by a validator"),
        ('{"category": "bug", "extra": 1}', "$: properties that the schema does not allow"),
        ('{"category": "bug", "scores": {"secret": "x"}}', "scores.*: not of the type integer"),
        ('{"category": "bug",}', "$: not JSON: a comma with nothing behind it, at line 1, column 20"),
        ('```json\n{"category": "bug"}```', "$: not JSON: it begins with a Markdown fence"),
        ("", "$: empty"),
        (r'{"category": "bug", "title": "\ud800"}', "$: not JSON, at line 1 column 37"),
    ],
)
def test_a_problem_of_pydantics_names_the_place_and_the_rule(text: str, expected: str) -> None:
    assert str(of_pydantic(text)) == expected


def test_without_the_schema_no_name_is_shown() -> None:
    assert str(of_pydantic('{"category": "other"}', schema={})) == "*: not one of the allowed values"


def test_the_model_is_told_what_pydantic_says() -> None:
    advice = of_pydantic('{"category": "other", "title": "secret"}').advice

    assert "category: Input should be 'billing' or 'bug'. Got \"other\"." in advice
    assert 'title: Value error, secret is a secret. Got "secret".' in advice


def test_errors_of_a_union_are_bounded_too() -> None:
    found = of_pydantic(json.dumps({"category": "bug", "pets": [{"kind": "fish", "name": "x" * 400}] * 500}))

    assert str(found) == "pets[0].Cat.kind: not one of the allowed values"
    assert len(found.advice) <= 2_000
    assert "more of the kind" in found.advice


@given(SECRET_VALUES)
@settings(max_examples=100, deadline=None)
def test_no_text_of_an_answer_is_told_of_pydantics_errors(value: Any) -> None:
    try:
        Ticket.model_validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        found = problem_of(error, Ticket.model_json_schema())

        assert "secret" not in f"{found}{found!r}"


def test_an_error_of_an_applications_own_kind_is_not_quoted() -> None:
    from pydantic_core import PydanticCustomError

    def refuse(value: str) -> str:
        raise PydanticCustomError("secret_kind", "secret {value}", {"value": value})

    adapter = pydantic.TypeAdapter(Annotated[str, pydantic.AfterValidator(refuse)])
    with pytest.raises(pydantic.ValidationError) as caught:
        adapter.validate_json('"secret"')

    assert str(problem_of(caught.value)) == "$: refused by a validator"


def test_an_error_of_pythons_decoder_is_understood_and_any_other_is_not() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("[1,]")

    assert str(problem_of(caught.value)) == "$: not JSON: a comma with nothing behind it, at line 1, column 4"
    assert problem_of(ValueError("secret")) is None


# Answers that were stopped


def test_an_answer_that_was_stopped_says_why() -> None:
    assert (
        str(stopped("invalid", "category: not one of the allowed values")) == "category: not one of the allowed values"
    )
    assert str(stopped("invalid", "text before the JSON")) == "$: text before the JSON"
    assert str(stopped("invalid")) == "$: can no longer become valid"
    assert str(stopped("whitespace")) == "$: a run of white space"
    assert "could no longer become valid" in stopped("invalid", "category: not one of the allowed values").advice
