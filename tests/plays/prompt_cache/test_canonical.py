"""Tools and schemas are written in one way, in every process, and say what they said."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.prompt_cache.prompts import canonical, ordered_tools

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["b", "a", "required", "properties", "enum", "anyOf", "examples", "default", "$defs", "prefixItems"]
            )
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


def sorted_arrays(value: Any) -> Any:
    """The value with every array in order, to see whether something was lost or doubled."""
    if isinstance(value, dict):
        return {name: sorted_arrays(member) for name, member in value.items()}
    return sorted((sorted_arrays(member) for member in value), key=repr_of) if isinstance(value, list) else value


def repr_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(JSON, st.randoms(use_true_random=False))
def test_the_bytes_do_not_depend_on_the_order_of_keys(value: Any, chance: random.Random) -> None:
    assert json.dumps(canonical(shuffled(value, chance))) == json.dumps(canonical(value))


@given(JSON)
def test_nothing_is_lost_or_doubled_and_once_is_enough(value: Any) -> None:
    before = json.dumps(value)
    written = canonical(value)

    assert json.dumps(value) == before
    assert sorted_arrays(written) == sorted_arrays(value)
    assert json.dumps(canonical(written)) == json.dumps(written)


def test_required_is_sorted_and_no_other_array() -> None:
    parameters = canonical(TOOL)["function"]["parameters"]
    properties = parameters["properties"]

    assert list(parameters) == ["default", "examples", "properties", "required", "type"]
    assert parameters["required"] == ["from", "to"]
    assert properties["enum"]["required"] == ["y", "z"]
    assert properties["to"]["enum"] == ["SFO", "JFK"]
    assert properties["from"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert properties["required"]["prefixItems"] == [{"type": "string"}, {"type": "integer"}]


def test_what_is_called_required_in_data_is_not_sorted() -> None:
    parameters = canonical(TOOL)["function"]["parameters"]

    assert parameters["examples"] == [{"to": "SFO", "required": ["b", "a"]}]
    assert parameters["default"] == {"required": ["b", "a"], "enum": ["z", "a"]}


def test_the_order_of_properties_is_kept_on_request() -> None:
    parameters = canonical(TOOL, keep_property_order=True)["function"]["parameters"]

    assert list(parameters["properties"]) == ["to", "from", "required", "enum"]
    assert list(parameters["properties"]["enum"]) == ["properties", "required", "type"]
    assert list(canonical(TOOL)["function"]["parameters"]["properties"]) == ["enum", "from", "required", "to"]


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


def test_tools_come_in_the_order_of_their_names() -> None:
    nested = [{"type": "function", "function": {"name": name, "description": name}} for name in "cab"]
    flat = [{"type": "function", "name": "bb"}, {"type": "web_search"}, {"type": "mcp", "server_label": "ba"}]
    twins = [{"type": "function", "name": "z", "strict": strict} for strict in (True, False)]
    tools: list[Any] = [*nested, *flat, *twins]

    in_order = ordered_tools(tools)

    assert [tool.get("type") if tool == flat[1] else name_of(tool) for tool in in_order] == [
        "web_search", "a", "b", "ba", "bb", "c", "z", "z",
    ]  # fmt: skip
    for seed in range(5):
        another = list(tools)
        random.Random(seed).shuffle(another)
        assert ordered_tools(another) == in_order


def name_of(tool: Any) -> Any:
    return tool["function"]["name"] if "function" in tool else tool.get("name") or tool.get("server_label")


BUILD = """
import json, sys
from fastlane.plays.prompt_cache.prompts import Prompt, ordered_tools
names = {"to", "from", "date", "cabin", "class", "seat", "meal"}
properties = {name: {"type": "string", "description": name} for name in names}
tools = [{"type": "function", "function": {"name": f"by_{name}", "parameters": {
    "type": "object", "properties": properties, "required": list(names)}}} for name in names]
prompt = Prompt(stable="Be brief.", session="Hi.", volatile="10:04", tools=ordered_tools(tools),
                response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {
                    "required": list(names), "properties": properties}}})
sys.stdout.write(json.dumps([list(names), prompt.arguments(), prompt.arguments("/responses")]))
"""


def test_every_process_writes_the_same_bytes() -> None:
    seen: set[str] = set()
    orders: set[str] = set()
    for seed in ("1", "2"):
        written = subprocess.run(
            [sys.executable, "-c", BUILD],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names, *rest = json.loads(written)
        orders.add(json.dumps(names))
        seen.add(json.dumps(rest))

    assert len(orders) > 1  # or the seeds would say nothing
    assert len(seen) == 1
