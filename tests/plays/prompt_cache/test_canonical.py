"""Tools and schemas are written in one way, in every process, and say what they said."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.prompt_cache.prompts import canonical

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["b", "a", "required", "enum", "anyOf", "examples", "default", "$defs", "prefixItems"])
            | st.text(max_size=2),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "book",
        "parameters": {
            "type": "object",
            "required": ["to", "from"],
            "properties": {
                "to": {"type": "string", "enum": ["SFO", "JFK"]},
                "from": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "required": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
                "enum": {"type": "object", "required": ["z", "y"], "properties": {"z": {}, "y": {}}},
            },
            "examples": [{"to": "SFO", "required": ["b", "a"]}],
            "default": {"required": ["b", "a"], "enum": ["z", "a"]},
        },
    },
}


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value, with the keys of its objects in another order."""
    if isinstance(value, dict):
        names = list(value)
        chance.shuffle(names)
        return {name: shuffled(value[name], chance) for name in names}
    return [shuffled(member, chance) for member in value] if isinstance(value, list) else value


@given(JSON, st.randoms(use_true_random=False))
def test_the_bytes_do_not_depend_on_the_order_of_keys(value: Any, chance: random.Random) -> None:
    assert json.dumps(canonical(shuffled(value, chance))) == json.dumps(canonical(value))


@given(JSON)
def test_nothing_is_lost_and_once_is_enough(value: Any) -> None:
    before = json.dumps(value)
    written = canonical(value)

    assert json.dumps(value) == before
    assert written == value
    assert json.dumps(canonical(written)) == json.dumps(written)


def test_order_of_properties_and_arrays_stays() -> None:
    parameters = canonical(TOOL)["function"]["parameters"]

    assert list(parameters) == ["default", "examples", "properties", "required", "type"]
    assert list(parameters["properties"]) == ["to", "from", "required", "enum"]
    assert list(parameters["properties"]["enum"]) == ["properties", "required", "type"]
    assert parameters["required"] == ["to", "from"]


@pytest.mark.parametrize(
    "value",
    [{1: "a", "b": 2}, {"required": ["a", 1]}, pytest.param(object(), id="an object"), float("nan"), {"a"}],
    ids=repr,
)
def test_what_is_not_json_is_handed_back(value: Any) -> None:
    assert repr(canonical(value)) == repr(value)


def test_nothing_that_can_be_changed_is_shared() -> None:
    value = {"properties": {"a": {"enum": ["x"]}}}
    canonical(value)["properties"]["a"]["enum"].append("y")

    assert value == {"properties": {"a": {"enum": ["x"]}}}
