from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.prompt_cache.prefixes._outline import outline

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("look", "book")]
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": "And kind."},
    {"role": "user", "content": "Where is it?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "There."},
    {"role": "tool", "tool_call_id": "1", "name": "look", "content": "There."},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": MESSAGES, **fields}


def test_segments_stand_in_the_order_in_which_a_provider_reads_them() -> None:
    form = {"type": "json_object"}

    found, values = outline("/chat/completions", chat(response_format=form, tools=TOOLS))

    assert found.sections == (("tools", 2), ("response_format", 1), ("messages", 6))
    assert values == [*TOOLS, form, *MESSAGES]
    assert len(found) == len(found.digests) == len(found.sizes) == 9
    assert [found.path(index) for index in (0, 1, 2, 3, 8, 9)] == [
        "tools[0]", "tools[1]", "response_format", "messages[0]", "messages[5]", "messages[6]",
    ]  # fmt: skip


def test_what_leads_ends_with_the_last_system_or_developer_message_at_the_front() -> None:
    assert outline("/chat/completions", chat(tools=TOOLS))[0].leading == 4
    assert outline("/chat/completions", {"messages": MESSAGES[2:]})[0].leading == 0
    late = [*MESSAGES[2:], MESSAGES[0]]
    assert outline("/chat/completions", {"messages": late})[0].leading == 0


def test_a_response_names_its_format_its_instructions_and_its_items() -> None:
    body = {"tools": TOOLS, "text": {"format": {"type": "text"}}, "instructions": "Be brief.", "input": MESSAGES}

    found, _ = outline("/responses", body)

    assert [found.path(index) for index in (2, 3, 4, 9)] == ["text.format", "instructions", "input[0]", "input[5]"]
    assert found.leading == 6


def test_an_input_that_is_a_text_is_one_segment_with_no_index() -> None:
    found, _ = outline("/responses", {"input": "Hello"})
    assert (found.path(0), found.leading, found.sizes) == ("input", 0, (5,))


def test_a_legacy_prompt_is_one_segment() -> None:
    assert outline("/completions", {"prompt": "Once"})[0].path(0) == "prompt"
    assert len(outline("/completions", {"prompt": ["Once", "Twice"]})[0]) == 1


def test_segments_that_are_equal_have_equal_digests_whoever_made_them() -> None:
    body = chat(tools=TOOLS)
    parsed = json.loads(json.dumps(body))
    assert outline("/chat/completions", parsed)[0].digests == outline("/chat/completions", body)[0].digests


@pytest.mark.parametrize("index", range(len(MESSAGES)))
def test_segments_that_differ_in_one_value_have_other_digests(index: int) -> None:
    changed = copy.deepcopy(MESSAGES)
    changed[index]["role"] = "user" if changed[index]["role"] != "user" else "assistant"
    mine = outline("/chat/completions", {"messages": MESSAGES})[0].digests
    theirs = outline("/chat/completions", {"messages": changed})[0].digests
    assert [at for at in range(len(MESSAGES)) if mine[at] != theirs[at]] == [index]


def test_the_order_of_keys_counts() -> None:
    turned = {key: TOOLS[0][key] for key in reversed(list(TOOLS[0]))}
    assert outline("", {"tools": [turned], "messages": []})[0].digests != outline("", {"tools": TOOLS[:1]})[0].digests


@given(body=st.dictionaries(st.sampled_from(["messages", "tools", "input", "prompt", "instructions", "text"]), JSON))
@pytest.mark.parametrize("endpoint", ["/chat/completions", "/responses", "/completions"])
def test_odd_bodies_raise_nothing_and_every_segment_has_a_path(endpoint: str, body: dict[str, Any]) -> None:
    found, values = outline(endpoint, body)

    assert len(values) == len(found) == sum(count for _, count in found.sections)
    assert found.leading <= len(found)
    assert all(found.path(index) for index in range(len(found)))


@pytest.mark.parametrize(
    "odd", [{"role": "user", "content": "\ud800"}, {"role": "user", "content": 2**70}, object(), 7]
)
def test_what_cannot_be_written_as_json_has_a_digest_all_the_same(odd: Any) -> None:
    mine, theirs = (outline("/chat/completions", {"messages": [odd]})[0] for _ in range(2))
    assert mine.digests == theirs.digests
