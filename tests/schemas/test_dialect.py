"""A schema goes out as the provider takes it, and means no less than it did."""

from __future__ import annotations

import copy
import json
import typing
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import pytest
from hypothesis import assume, given, settings, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from fastlane import BoundedOutput, Call, ConfigurationError
from fastlane.emulator._schema import value_for
from fastlane.providers import ProviderFacts, facts_named
from fastlane.schemas import bound
from tests.plays.facts import fact

EVERYTHING_REFUSED = (
    "allOf", "const", "contains", "default", "else", "format", "if", "maxItems", "maxLength", "minimum", "minLength",
    "multipleOf", "not", "oneOf", "pattern", "then", "uniqueItems",
)  # fmt: skip


class Line(BaseModel):
    name: str
    price: float | None = None


def takes(*refused: str, **rules: Any) -> ProviderFacts:
    structured = {name: fact(value) for name, value in rules.items()}
    if refused:
        structured["refused_keywords"] = fact(refused)
    return ProviderFacts.model_validate({"slug": "example", "structured": structured})


STRICT = takes(closed_objects=True, all_required=True, bare_references=True)


class WireSchema(NamedTuple):
    """A schema as it is sent, the keywords that were dropped, and what else was changed."""

    schema: dict[str, Any]
    dropped: tuple[str, ...]
    changes: tuple[str, ...]


def sent(schema: dict[str, Any], facts: ProviderFacts | None, *, strict: bool = True) -> WireSchema:
    before = copy.deepcopy(schema)
    found = wire_of(schema, facts, strict=strict)
    assert schema == before
    return found


def wire_of(schema: dict[str, Any], facts: ProviderFacts | None, *, strict: bool = True) -> WireSchema:
    """The schema of a call as the play sends it to a provider of these facts."""
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": strict}}
    call = Call(
        call_id="1",
        endpoint="/chat/completions",
        origin="https://a.example:443",
        body={"model": "m", "messages": [], "max_tokens": 9, "response_format": form},
        stream=False,
        facts=facts,
        caller=SimpleNamespace(report_error=pytest.fail),
    )
    session: Any = BoundedOutput(early_stop=False).open(call)
    planned = session.plan(call)
    section = session.close(SimpleNamespace(refused=()))
    changes = tuple(change.removeprefix("BoundedOutput: ") for change in planned.changes)
    return WireSchema(planned.body["response_format"]["json_schema"]["schema"], section.dropped_keywords, changes)


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


PLAIN = an_object(name={"type": "string"})
ALL_OF: dict[str, Any] = {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}
NAMED_LIKE_KEYWORDS = {
    **an_object(
        pattern={"type": "string"},
        format={"enum": ["not"]},
        **{"$ref": {"type": "string"}},
        const={"const": {"pattern": 1, "not": 2}},
        shown={"type": "string", "examples": [{"pattern": 1}]},
    ),
    "$defs": {"pattern": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("schema", "structured"),
    [
        *((PLAIN, structured) for structured in (None, takes(), takes("pattern"), STRICT)),
        (ALL_OF, takes("allOf")),
        (NAMED_LIKE_KEYWORDS, takes("pattern", "format", "not")),
    ],
)
def test_accepted_schema_is_sent_unchanged(schema: dict[str, Any], structured: ProviderFacts | None) -> None:
    wire = sent(schema, structured)

    assert wire.schema is schema
    assert wire.dropped == ()


def test_request_that_is_not_strict_keeps_its_schema() -> None:
    schema = an_object(name={"type": "string", "pattern": "^a$"})

    assert sent(schema, takes("pattern", all_required=True), strict=False).schema is schema
    assert sent(schema, takes("pattern", unasked=True), strict=False).dropped == ("pattern",)


@pytest.mark.parametrize("slug", ["openai", "azure_openai", "cerebras", "groq"])
def test_schema_of_a_model_becomes_what_openai_makes_of_it(slug: str) -> None:
    strict = to_strict_json_schema(Line)

    wire = sent(Line.model_json_schema(), facts_named(slug))

    assert wire.schema == strict
    assert wire.changes == ("the schema was made strict: objects closed, properties required",)
    assert sent(strict, facts_named(slug)).schema is strict


def test_refused_keyword_is_dropped_and_described() -> None:
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


@pytest.mark.parametrize(
    ("refused", "schema", "dropped"),
    [
        ("maxLength", {"not": {"maxLength": 3}, "if": {"maxLength": 3}, "then": {"type": "string"}},
         ("not", "if", "then")),
        ("prefixItems", {"prefixItems": [{"type": "string"}], "items": False}, ("prefixItems", "items")),
        ("prefixItems", {"items": {"type": "string"}}, ()),
    ],
)  # fmt: skip
def test_keyword_depending_on_a_refused_one_is_dropped(
    refused: str, schema: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    assert sent(schema, takes(refused)).dropped == dropped


def test_discriminated_union_is_sent_as_any_of() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    class Pet(BaseModel):
        pet: Annotated[Cat | Dog, Field(discriminator="kind")]

    wire = sent(Pet.model_json_schema(), facts_named("openai"))

    assert set(wire.schema["properties"]["pet"]) == {"anyOf", "title"}
    assert len(wire.schema["properties"]["pet"]["anyOf"]) == 2
    assert "oneOf was sent as anyOf" in wire.changes


def test_too_deeply_nested_schema_is_sent_unchanged() -> None:
    schema: dict[str, Any] = {"type": "string", "pattern": "^a"}
    for _ in range(2_000):
        schema = an_object(inner=schema)

    assert wire_of(schema, takes("pattern", all_required=True)).schema is schema


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
def test_valid_answers_stay_valid_when_keywords_are_dropped(
    schema: dict[str, Any], refused: set[str], seed: int
) -> None:
    value = drawn(schema, seed)

    wire = sent(schema, takes(*sorted(refused)))

    Draft202012Validator.check_schema(wire.schema)
    assert Draft202012Validator(wire.schema).is_valid(value), (wire, value)


class Owner(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    bio: str


class Ticket(pydantic.BaseModel):
    category: Literal["billing", "bug"]
    confidence: float = pydantic.Field(ge=0, le=1)
    owner: Owner | None
    tags: list[str] = pydantic.Field(default=[], max_length=3)


@dataclass
class Point:
    x: int
    y: int


class Pair(TypedDict):
    left: bool
    right: bool


class Node(pydantic.BaseModel):
    text: str
    kids: list[Node]


class Many(pydantic.RootModel[list[Owner]]):
    pass


def test_class_is_read_as_strict_modes_have_it() -> None:
    found = bound(Ticket)

    assert [str(gap) for gap in found.unbounded] == [
        "Ticket.owner.bio: string without maxLength",
        "Ticket.tags[]: string without maxLength",
    ]
    assert bound(Point).tokens == len(json.dumps({"x": 10**39, "y": 10**39}, indent=4))
    assert bound(Ticket, name="Other").unbounded[1].path == "Other.tags[]"
    assert bound(Pair).tokens == len(json.dumps({"left": False, "right": False}, indent=4))
    assert str(bound(Ticket.model_json_schema()).unbounded[0]).startswith("Ticket: object without additionalProperties")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (list[Owner], "$[].bio"),
        (Owner | None, "$.bio"),
        pytest.param(
            typing.Union[Owner, None],  # noqa: UP007 - the older form is another type before Python 3.14
            "$.bio",
            id="typing.Union",
        ),
        (Annotated[Owner, "described"], "Owner.bio"),
        (typing.NewType("Holder", Owner), "Owner.bio"),
        (Many, "Many[].bio"),
        (Node, "Node.text"),
    ],
    ids=str,
)
def test_any_type_that_pydantic_has_a_schema_for_is_taken(given: Any, path: str) -> None:
    assert path in [gap.path for gap in bound(given).unbounded]


@pytest.mark.parametrize("given", [5, None, "null", [], b"{}", 1.0, object(), Pair(left=True, right=True), print])
def test_invalid_schema_is_refused(given: Any) -> None:
    if isinstance(given, dict):
        given = Owner(name="a", bio="secret")
    with pytest.raises(ConfigurationError, match=r"takes a JSON schema as .*, or a type .*, got \w+$") as raised:
        bound(given)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"type": "nonsense"}, "at type: .* got 'nonsense'"),
        ({"$ref": "#/nope"}, "'/nope' does not exist"),
        ({"type": "object", "properties": {"a": {"maxLength": "3"}}}, r"at properties\.a\.maxLength"),
    ],
)
def test_invalid_schema_is_refused_with_path_and_value(given: Any, complaint: str) -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=complaint):
            bound(given)
