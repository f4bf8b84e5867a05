from __future__ import annotations

import json
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic
import pytest
from typing_extensions import TypedDict

from fastlane import ConfigurationError
from fastlane.schemas import bound


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


def gaps(schema: Any, **given: Any) -> list[str]:
    return [str(gap) for gap in bound(schema, **given).unbounded]


def test_a_class_is_read_as_strict_modes_have_it() -> None:
    found = bound(Ticket)

    assert [str(gap) for gap in found.unbounded] == [
        "Ticket.owner.bio: string without maxLength",
        "Ticket.tags[]: string without maxLength",
    ]
    assert bound(Point).tokens == len(json.dumps({"x": 10**39, "y": 10**39}, indent=4))
    assert bound(Ticket, name="Other").unbounded[1].path == "Other.tags[]"
    assert bound(Pair).tokens == len(json.dumps({"left": False, "right": False}, indent=4))
    assert gaps(Ticket.model_json_schema())[0].startswith("Ticket: object without additionalProperties")


def test_a_class_that_refers_to_itself_is_called_by_its_own_name() -> None:
    assert gaps(Node)[0] == "Node.text: string without maxLength"
    assert gaps(Node, name="Other")[0].startswith("Other.text")


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
        (Annotated[Owner, "told of"], "Owner.bio"),
        (typing.NewType("Holder", Owner), "Owner.bio"),
        (Many, "Many[].bio"),
    ],
    ids=str,
)
def test_any_type_that_pydantic_has_a_schema_for_is_taken(given: Any, path: str) -> None:
    assert path in [gap.path for gap in bound(given).unbounded]


@pytest.mark.parametrize("given", [5, None, "null", [], b"{}", 1.0, object(), Pair(left=True, right=True), print])
def test_what_is_no_schema_is_refused(given: Any) -> None:
    if isinstance(given, dict):
        given = Owner(name="a", bio="secret")
    with pytest.raises(ConfigurationError, match=r"takes a JSON schema as .*, or a type .*, got \w+$") as told:
        bound(given)
    assert "secret" not in str(told.value)


@pytest.mark.skipif("sys.version_info >= (3, 12)")
def test_a_typed_dict_that_pydantic_does_not_take_comes_with_its_advice() -> None:
    class Old(typing.TypedDict):
        a: int

    with pytest.raises(ConfigurationError, match=r"`typing_extensions\.TypedDict` instead"):
        bound(Old)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"type": "nonsense"}, "at type: .* got 'nonsense'"),
        ({"$ref": "#/nope"}, "'/nope' does not exist"),
        ({"type": "object", "properties": {"a": {"maxLength": "3"}}}, r"at properties\.a\.maxLength"),
    ],
)
def test_what_is_wrong_with_a_schema_is_said_where_it_is_given(given: Any, told: str) -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=told):
            bound(given)


def test_a_literal_is_as_long_as_the_longer_of_its_two_forms() -> None:
    for text in ("日本語", "ÄÖ" * 9, "😀"):
        found = bound({"enum": [text]})
        keyed = bound({"type": "object", "properties": {text: {"const": text}}, "additionalProperties": False})

        assert found.tokens == len(json.dumps(text))
        assert keyed.tokens == len(json.dumps({text: text}, indent=4))
