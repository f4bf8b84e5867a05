"""Decoders are compiled from names of models, and whatever a name is, it stays a name."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai._models import construct_type
from pydantic import Field, create_model

from fastlane.decode._build import builder_of
from fastlane.decode._one_pass import one_pass_of

RAN: list[str] = []
"""What code that was smuggled in would have written into."""

HOSTILE = (
    "'); RAN.append('x'); ('",
    '"""',
    "\\'",
    "a\nimport os",
    "{values}",
    "get",
    "values",
    "found",
    "None",
    "__class__",
    "x if RAN.append(1) else y",
    "\N{FULLWIDTH LATIN SMALL LETTER A}",
    "\u2028",
    "",
)


def model_of(names: list[str], *, aliases: bool = False) -> Any:
    """A model with fields of these names, or with these aliases."""
    fields: dict[str, Any] = {}
    for number, name in enumerate(names):
        field = Field(default=None, alias=name) if aliases else None
        fields[f"field_{number}" if aliases else name] = (str | list[str] | None, field)
    return create_model("Made'\\n", __base__=openai.BaseModel, **fields)


def same(model: Any, values: dict[str, Any]) -> bool:
    made: Any = builder_of(model)(dict(values))
    expected: Any = construct_type(value=dict(values), type_=model)
    return bool(made == expected and made.model_fields_set == expected.model_fields_set)


@pytest.mark.parametrize("name", [name for name in HOSTILE if name and not name.startswith("_")])
def test_name_that_looks_like_code_is_never_run(name: str) -> None:
    inner = create_model("Inner", __base__=openai.BaseModel, word=(str, ""))
    fields: dict[str, Any] = {name: (list[inner], None)}  # type: ignore[valid-type]
    model = create_model("Made", __base__=openai.BaseModel, **fields)
    data = json.dumps({name: [{"word": "a", "more": 1}]}).encode()
    decode = one_pass_of(model, fallback=lambda _: None, is_event=False)
    if decode is not None:
        assert decode(data) in (None, construct_type(value=json.loads(data), type_=model))
    assert RAN == []


@pytest.mark.parametrize("aliases", [False, True], ids=["names", "aliases"])
def test_name_that_looks_like_code_is_a_name(aliases: bool) -> None:
    names = [name for name in HOSTILE if aliases or (name and not name.startswith("_"))]
    assert same(model_of(names, aliases=aliases), {name: name for name in names})
    assert RAN == []


@pytest.mark.parametrize("name", HOSTILE)
def test_response_data_is_never_compiled(name: str) -> None:
    from openai.types.chat import ChatCompletion

    build = builder_of(ChatCompletion)
    body = {"id": "c", "choices": [], "created": 1, "model": "m", "object": "chat.completion", name: name}
    assert build(dict(body)) == construct_type(value=dict(body), type_=ChatCompletion)
    assert builder_of(ChatCompletion) is build
    assert RAN == []
