from __future__ import annotations

import copy
import json
import random
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from benchmarks._mutations import MUTATORS
from fastlane.plays.prompt_cache.differences import similarity
from fastlane.plays.prompt_cache.prefixes._difference import Difference, difference
from fastlane.plays.prompt_cache.prefixes._outline import outline

POLICY = "\n".join(
    f"- Rule {number}: a passenger who flies in class {number % 5} takes the bags that the class allows, and no more."
    for number in range(60)
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Use this to {name} what the user asked for, once it has been confirmed.",
            "parameters": {
                "type": "object",
                "properties": {
                    "user_id": {"type": "string", "description": "The id of the user, such as 'sara_doe_496'."},
                    "amount": {"type": "number", "description": "How much it is."},
                },
                "required": ["user_id", "amount"],
            },
        },
    }
    for name in ("look_up", "book", "cancel", "refund", "transfer")
]


def conversation(turns: int = 6) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": POLICY}]
    for turn in range(turns):
        call = {
            "id": f"call_{turn}",
            "type": "function",
            "function": {"name": "look_up", "arguments": '{"user_id": "a"}'},
        }
        result = {
            "name": "Mia",
            "seats": ["window", "aisle"] * 5,
            "paid": f"in full on day {turn}",
            "note": "none " * 20,
        }
        messages += [
            {
                "role": "user",
                "content": f"Where is the bag that I gave to you on flight number {turn} of my trip, please?",
            },
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": json.dumps(result)},
            {"role": "assistant", "content": f"It is on its way, and will be with you after {'many ' * turn} hours."},
        ]
    return {"model": "m", "tools": copy.deepcopy(TOOLS), "messages": messages}


def compared(
    before: Mapping[str, Any], after: Mapping[str, Any], endpoint: str = "/chat/completions"
) -> Difference | None:
    old, values = outline(endpoint, before)
    kept = dict(zip(old.digests, values, strict=True))
    new, values = outline(endpoint, after)
    return difference(old, new, values, kept.get)


def departed(before: Mapping[str, Any], after: Mapping[str, Any], endpoint: str = "/chat/completions") -> Difference:
    found = compared(before, after, endpoint)
    assert found is not None
    return found


def grown(body: Mapping[str, Any]) -> dict[str, Any]:
    return {**body, "messages": [*body["messages"], {"role": "user", "content": "And what does that cost me?"}]}


@pytest.mark.parametrize("kind", MUTATORS)
def test_one_thing_that_is_changed_is_named_and_found(kind: str) -> None:
    rng = random.Random(6)
    named = 0
    for _ in range(40):
        mutation = MUTATORS[kind](rng, conversation())

        found = departed(mutation.before, grown(mutation.after))

        named += found.kind == kind
        assert found.path == mutation.path, mutation.name
        if mutation.character is None:
            assert found.character is None, mutation.name
        else:
            assert found.character is not None
            assert found.character <= mutation.character < found.character + 16, mutation.name
    assert named >= 38


def test_a_conversation_that_goes_on_has_no_difference_and_neither_has_one_that_is_taken_back() -> None:
    body = conversation()
    assert compared(body, grown(body)) is None
    assert compared(grown(body), body) is None
    assert compared(body, json.loads(json.dumps(body))) is None


@pytest.mark.parametrize("index", [0, 2, 4])
def test_a_tool_that_is_gone_is_named_by_its_place(index: int) -> None:
    body, after = conversation(), conversation()
    del after["tools"][index]
    found = departed(body, after)
    assert (found.kind, found.path, found.index, found.character) == ("changed_tool", f"tools[{index}]", index, None)


def test_all_tools_gone_and_a_format_come_are_changes_of_what_leads() -> None:
    body = conversation()
    without = {key: value for key, value in body.items() if key != "tools"}
    assert departed(body, without)[:3] == ("changed_tool", 0, "tools[0]")
    found = departed(body, {**body, "response_format": {"type": "json_object"}})
    assert found[:3] == ("changed", 5, "response_format")


def test_a_property_that_is_gone_is_named() -> None:
    body, after = conversation(), conversation()
    del after["tools"][1]["function"]["parameters"]["properties"]["amount"]
    assert departed(body, after).path == "tools[1].function.parameters.properties.amount"


def test_keys_of_json_within_a_text_count_as_keys() -> None:
    body, after = conversation(), conversation()
    result = json.loads(after["messages"][3]["content"])
    after["messages"][3]["content"] = json.dumps(dict(sorted(result.items())))
    found = departed(body, after)
    assert (found.kind, found.path) == ("reordered_keys", "messages[3].content")


def test_the_arguments_of_a_call_have_a_path_of_their_own() -> None:
    body, after = conversation(), conversation()
    after["messages"][6]["tool_calls"][0]["function"]["arguments"] = '{"user_id": "b"}'
    found = departed(body, grown(after))
    assert (found.kind, found.path) == ("changed", "messages[6].tool_calls[0].function.arguments")
    assert found.character == 13


def test_the_parts_of_a_message_have_paths_of_their_own() -> None:
    def body(seen: str) -> dict[str, Any]:
        parts = [{"type": "text", "text": "Look at this."}, {"type": "text", "text": f"Seen at {seen} by all of us."}]
        return {"messages": [{"role": "user", "content": parts}, {"role": "user", "content": "Well?"}]}

    found = departed(body("10:04:33"), body("10:05:01"))
    assert (found.kind, found.path, found.character) == ("timestamp", "messages[0].content[1].text", 12)


def test_items_instructions_and_formats_of_a_response_have_paths_of_their_own() -> None:
    def body(instructions: str = POLICY, called: str = "call_1", form: str = "text") -> dict[str, Any]:
        call = {"type": "function_call", "call_id": called, "name": "look_up", "arguments": "{}"}
        items = [{"role": "user", "content": "Where?"}, call, {"role": "user", "content": "Well?"}]
        return {"instructions": instructions, "input": items, "text": {"format": {"type": form}}}

    after = body(instructions=f"Session {uuid.uuid4()}\n{POLICY}")
    before = body(instructions=f"Session {uuid.uuid4()}\n{POLICY}")
    found = departed(before, after, "/responses")
    assert (found.kind, found.path, found.character) == ("uuid", "instructions", 8)
    assert departed(body(), body(called="call_2"), "/responses")[:3] == ("counter", 3, "input[1].call_id")
    assert departed(body(), body(form="json_object"), "/responses")[2] == "text.format.type"


def test_sizes_say_what_comes_before_the_difference_and_what_was_lost_by_it() -> None:
    body, after = conversation(), conversation()
    after["messages"][0]["content"] = POLICY.replace("Rule 30:", "Rule 3000:")
    total = sum(outline("/chat/completions", after)[0].sizes)
    tools = sum(outline("/chat/completions", {"tools": TOOLS})[0].sizes)

    found = departed(body, grown(after))

    true = tools + POLICY.index("Rule 30:") + 6
    assert true <= found.before_size <= true + 64
    assert found.before_size + found.lost_size == pytest.approx(total, abs=200)


def test_two_changes_are_named_by_the_first() -> None:
    def body(clock: str, count: int) -> dict[str, Any]:
        return {
            "messages": [
                {"role": "system", "content": f"It is {clock}.\n{POLICY}\nThis is request {count}."},
                {"role": "user", "content": "Well?"},
            ]
        }

    found = departed(body("9:59 AM", 99), body("10:04 AM", 100))
    assert (found.kind, found.path, found.character) == ("timestamp", "messages[0].content", 6)
    assert similarity(body("9:59 AM", 99)["messages"][0], body("10:04 AM", 100)["messages"][0]) > 0.95


def test_a_forgotten_segment_costs_the_place_in_the_segment_and_nothing_else() -> None:
    body, after = conversation(), conversation()
    after["messages"][0]["content"] = POLICY + " Be kind."
    old, _ = outline("/chat/completions", body)
    new, values = outline("/chat/completions", after)
    found = difference(old, new, values, lambda _: None)
    assert found is not None
    assert found[:4] == ("changed", 5, "messages[0]", None)


def test_similar_prompts_are_similar_and_others_are_not() -> None:
    message = {"role": "system", "content": POLICY}
    kept = message
    assert similarity(kept, message) == 1.0
    assert similarity(kept, {**message, "content": "It is noon.\n" + POLICY}) > 0.9
    assert similarity(kept, {**message, "content": "You name conversations in at most five words."}) < 0.2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
SEGMENTS = st.lists(st.dictionaries(st.sampled_from(["role", "content", "x"]), JSON, max_size=3) | JSON, max_size=5)


@settings(max_examples=300, deadline=None)
@given(old=SEGMENTS, new=SEGMENTS, old_tools=SEGMENTS, new_tools=SEGMENTS)
def test_any_two_prompts_are_compared_and_the_difference_lies_where_they_cease_to_be_alike(
    old: list[Any], new: list[Any], old_tools: list[Any], new_tools: list[Any]
) -> None:
    before, after = {"tools": old_tools, "messages": old}, {"tools": new_tools, "messages": new}

    found = compared(before, after)

    mine, theirs = outline("/chat/completions", before)[0], outline("/chat/completions", after)[0]
    if found is None:
        shorter = min(len(mine), len(theirs))
        assert mine.digests[:shorter] == theirs.digests[:shorter]
    else:
        assert theirs.digests[: found.index] == mine.digests[: found.index]
        assert found.before_size <= sum(theirs.sizes)
        assert found.lost_size >= 0
        assert found.path.startswith(("tools", "messages"))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    value=st.text(st.sampled_from("ab1 2.:-\n"), min_size=1, max_size=40),
    other=st.text(st.sampled_from("ab1 2.:-\n"), max_size=40),
    at=st.integers(0, len(POLICY)),
)
def test_the_first_character_that_differs_is_never_before_the_one_that_is_named(
    value: str, other: str, at: int
) -> None:
    before, after = POLICY[:at] + value + POLICY[at:], POLICY[:at] + other + POLICY[at:]

    def body(text: str) -> dict[str, Any]:
        return {"messages": [{"role": "system", "content": text}, {"role": "user"}]}

    found = compared(body(before), body(after))

    if before == after:
        assert found is None
    else:
        true = next((one for one in range(len(after)) if before[one : one + 1] != after[one : one + 1]), len(after))
        assert found is not None
        assert found.character is not None
        assert found.character <= true < found.character + 16
