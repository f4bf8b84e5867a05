"""Marks stand at the ends of what stays, where facts say that the model takes them, and never over the caller's own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.engine.call import Call
from fastlane.plays.prompt_cache.placing import (
    place_breakpoints,
    place_retention,
    takes_marks,
    with_breakpoints,
    with_retention,
)
from fastlane.protocol.prompt_marks import Placement
from fastlane.providers import Fact, ProviderFacts, facts_named

OPENAI = facts_named("openai")
ROUTER = facts_named("openrouter")
PROXY = facts_named("litellm")
AZURE = facts_named("azure_openai")
NOTHING = ProviderFacts(slug="nothing")
MARK = {"mode": "explicit"}
CHAT = "/chat/completions"
RESPONSES = "/responses"

SYSTEM = {"role": "system", "content": "be brief"}
USER = {"role": "user", "content": "hello"}
ASSISTANT = {"role": "assistant", "content": "hi"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
TOOL = {"role": "tool", "tool_call_id": "1", "content": "22 C"}


def body(*messages: dict[str, Any], model: str = "gpt-5.6-sol", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages), **more}


def marked(items: Sequence[Any], field: str = "prompt_cache_breakpoint") -> list[int]:
    """Which of the messages or items have a mark, that of the last part of their content."""
    last = [item["content"][-1:] if isinstance(item.get("content"), list) else [] for item in items]
    return [at for at, parts in enumerate(last) if any(field in part for part in parts)]


def breakpoints_in(
    given: dict[str, Any],
    placements: Sequence[Placement | None] | None = None,
    *,
    facts: ProviderFacts = OPENAI,
    endpoint: str = CHAT,
    asked: bool = False,
    field: str = "prompt_cache_breakpoint",
) -> list[int]:
    placed = place_breakpoints(endpoint, given, placements, facts, asked=asked)
    return [] if placed is None else marked(next(iter(placed.fields.values())), field)


def call_of(given: dict[str, Any], facts: ProviderFacts | None, endpoint: str = CHAT) -> Call:
    return Call(call_id="1", endpoint=endpoint, origin="https://a.example.com", body=given, stream=False, facts=facts)


@pytest.mark.parametrize(
    ("model", "facts", "takes"),
    [
        ("gpt-5.6-sol", OPENAI, True),
        ("gpt-6-luna", OPENAI, True),
        ("gpt-5.5", OPENAI, False),
        ("gpt-4o", OPENAI, False),
        (None, OPENAI, False),
        ("anthropic/claude-sonnet-5", ROUTER, True),
        ("meta/llama", ROUTER, False),
        ("anything", PROXY, False),
        ("gpt-5.6-sol", AZURE, False),
        ("gpt-5.6-sol", NOTHING, False),
    ],
)
def test_facts_name_the_models_that_take_marks(model: str | None, facts: ProviderFacts, takes: bool) -> None:
    assert takes_marks(model, facts) is takes


def test_a_text_that_ends_what_is_stable_becomes_a_part_with_the_mark() -> None:
    placed = place_breakpoints(CHAT, body(SYSTEM, USER), ("stable", "volatile"), OPENAI)

    assert placed is not None
    assert placed.fields == {
        "messages": [
            {
                "role": "system",
                "content": [{"type": "text", "text": "be brief", "prompt_cache_breakpoint": MARK}],
            },
            USER,
        ]
    }
    assert placed.said == "put prompt_cache_breakpoint at the end of messages[0]"


def test_in_responses_the_part_is_an_input_text() -> None:
    given = {"model": "gpt-5.6", "input": [{"role": "developer", "content": "be brief"}]}
    placed = place_breakpoints(RESPONSES, given, None, OPENAI)

    assert placed is not None
    assert placed.fields["input"][0]["content"] == [
        {"type": "input_text", "text": "be brief", "prompt_cache_breakpoint": MARK}
    ]


def test_of_several_parts_the_last_is_marked() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "https://a.example.com/b.png"}},
    ]
    placed = place_breakpoints(CHAT, body({"role": "user", "content": parts}), ("stable",), OPENAI)

    assert placed is not None
    assert placed.fields["messages"][0]["content"] == [parts[0], {**parts[1], "prompt_cache_breakpoint": MARK}]


@pytest.mark.parametrize(
    ("messages", "placements", "where"),
    [
        ((SYSTEM, USER), None, [0, 1]),
        ((SYSTEM, USER, ASSISTANT, USER), None, [0, 1, 3]),
        # What the model did and what came of it: the last call ended before it.
        ((SYSTEM, USER, CALLS, TOOL), None, [0, 1, 3]),
        ((SYSTEM, USER, CALLS, TOOL, CALLS, TOOL, TOOL), None, [0, 3, 6]),
        ((SYSTEM, SYSTEM, USER), ("stable", "session", "volatile"), [0, 1]),
        ((SYSTEM, USER, ASSISTANT, USER, SYSTEM), ("stable", None, None, None, "volatile"), [0, 1, 3]),
        # Nothing is stable behind what is not, whatever was said of it.
        ((SYSTEM, USER, SYSTEM), ("stable", "volatile", "stable"), [0]),
        ((SYSTEM, USER), ("volatile", "volatile"), []),
        ((USER,), None, [0]),
        # Said of another list of messages: it is as if nothing had been said.
        ((SYSTEM, USER), ("stable",), [0, 1]),
    ],
)
def test_the_ends_of_what_stays_are_marked(
    messages: tuple[dict[str, Any], ...], placements: Sequence[Placement | None] | None, where: list[int]
) -> None:
    assert breakpoints_in(body(*messages), placements) == where


@pytest.mark.parametrize(
    "unfit",
    [
        CALLS,
        {"role": "user", "content": ""},
        {"role": "user", "content": []},
        {"role": "user", "content": ["a"]},
        {"role": [], "type": {}, "content": [{"type": []}]},
    ],
)
def test_what_cannot_carry_a_mark_leaves_it_to_the_message_before(unfit: dict[str, Any]) -> None:
    assert breakpoints_in(body(SYSTEM, USER, unfit), ("stable", "stable", "stable")) == [1]


def test_in_responses_what_the_model_said_carries_no_mark() -> None:
    items = [
        {"role": "user", "content": "weather?"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "name": "weather", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "22 C"},
        {"role": "assistant", "content": "22 C"},
    ]
    assert breakpoints_in({"model": "gpt-5.6", "input": items}, endpoint=RESPONSES) == [0]


def test_no_more_marks_than_the_provider_takes() -> None:
    one = Fact(value=1, source="https://docs.example.com", checked=date(2026, 11, 22), evidence="documented")
    facts = OPENAI.model_copy(update={"cache": OPENAI.cache.model_copy(update={"most_breakpoints": one})})

    assert breakpoints_in(body(SYSTEM, USER, ASSISTANT, USER), facts=facts) == [0]


@pytest.mark.parametrize(
    "given",
    [
        body(SYSTEM, {"role": "user", "content": [{"type": "text", "text": "a", "prompt_cache_breakpoint": MARK}]}),
        body(SYSTEM, USER, prompt_cache_breakpoint=MARK),
        body(SYSTEM, {**USER, "prompt_cache_breakpoint": MARK}),
    ],
)
def test_the_callers_own_marks_are_left_alone(given: dict[str, Any]) -> None:
    assert place_breakpoints(CHAT, given, None, OPENAI) is None


@pytest.mark.parametrize(
    ("facts", "model", "asked", "where"),
    [
        (OPENAI, "gpt-4o", True, []),
        (AZURE, "gpt-5.6", True, []),
        (NOTHING, "gpt-5.6", True, []),
        (ROUTER, "meta/llama", True, []),
        (ROUTER, "anthropic/claude-sonnet-5", False, [0, 1]),
        (PROXY, "sonnet", False, []),
        (PROXY, "sonnet", True, [0, 1]),
    ],
)
def test_a_model_that_is_not_known_to_take_marks_gets_them_only_if_the_caller_can_know(
    facts: ProviderFacts, model: str, asked: bool, where: list[int]
) -> None:
    given = body(SYSTEM, USER, model=model)

    assert breakpoints_in(given, facts=facts, asked=asked, field="cache_control") == where


@pytest.mark.parametrize("items", ["a prompt", [], None, {"role": "user"}])
def test_what_is_no_list_of_messages_is_left_alone(items: Any) -> None:
    assert place_breakpoints(RESPONSES, {"model": "gpt-5.6", "input": items}, None, OPENAI) is None


def test_a_completion_has_nothing_to_mark() -> None:
    assert (
        place_breakpoints("/completions", {"model": "gpt-5.6", "prompt": "a", "messages": [USER]}, None, OPENAI) is None
    )


ITEMS = st.lists(
    st.sampled_from([SYSTEM, USER, ASSISTANT, CALLS, TOOL, {"role": "user"}, {"content": [{"type": "text"}]}]),
    max_size=8,
)
PLACEMENTS = st.none() | st.lists(st.sampled_from(["stable", "session", "volatile", None]), max_size=8)


@given(items=ITEMS, placements=PLACEMENTS)
def test_marks_change_nothing_but_add_themselves(items: list[Any], placements: list[Placement | None] | None) -> None:
    given = body(*items)
    before = copy.deepcopy(given)
    placed = place_breakpoints(CHAT, given, placements, OPENAI)

    assert given == before
    if placed is None:
        return
    plain = copy.deepcopy(placed.fields["messages"])
    for at in marked(plain):
        assert plain[at]["content"][-1].pop("prompt_cache_breakpoint") == MARK
        if isinstance(items[at]["content"], str):
            (part,) = plain[at]["content"]
            assert part.pop("type") == "text"
            plain[at] = {**plain[at], "content": part.pop("text")}
            assert part == {}
    assert plain == items
    assert 1 <= len(marked(placed.fields["messages"])) <= 3
    assert place_breakpoints(CHAT, {**given, **placed.fields}, placements, OPENAI) is None


@pytest.mark.parametrize(
    ("endpoint", "facts", "given", "retention", "fields"),
    [
        (RESPONSES, OPENAI, {}, "12h", {"prompt_cache_options": {"ttl": "12h"}}),
        (CHAT, OPENAI, {}, "30m", {"prompt_cache_options": {"ttl": "30m"}}),
        # Not at this endpoint, not at all, not from this model, and not over what the caller set.
        (CHAT, OPENAI, {}, "12h", None),
        (RESPONSES, OPENAI, {}, "1y", None),
        (RESPONSES, OPENAI, {"model": "gpt-5.5"}, "12h", None),
        (RESPONSES, OPENAI, {"prompt_cache_options": {"ttl": "30m"}}, "12h", None),
        (RESPONSES, OPENAI, {"prompt_cache_options": "?"}, "12h", None),
        (
            RESPONSES,
            OPENAI,
            {"prompt_cache_options": {"mode": "explicit"}},
            "12h",
            {"prompt_cache_options": {"mode": "explicit", "ttl": "12h"}},
        ),
        (CHAT, AZURE, {"model": "gpt-4.1"}, "24h", {"prompt_cache_retention": "24h"}),
        (CHAT, AZURE, {"prompt_cache_retention": "in_memory"}, "24h", None),
        (CHAT, NOTHING, {}, "24h", None),
    ],
)
def test_a_lifetime_is_asked_for_as_the_provider_takes_it(
    endpoint: str, facts: ProviderFacts, given: dict[str, Any], retention: str, fields: dict[str, Any] | None
) -> None:
    placed = place_retention(endpoint, {"model": "gpt-5.6", **given}, facts, retention)

    assert (None if placed is None else placed.fields) == fields


def not_asked(retention: str) -> str:
    return f"PromptCache did not ask for a retention of {retention!r}: the provider is not known to take it here"


def test_a_lifetime_that_each_mark_says_is_said_by_marks() -> None:
    call = with_retention(call_of(body(SYSTEM, USER, model="anthropic/claude-sonnet-5"), ROUTER), "1h")

    assert call.body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert call.changes == ("PromptCache put cache_control at the end of messages[0], messages[1] for 1h",)
    assert with_breakpoints(call) is call


def test_a_lifetime_that_marks_cannot_have_places_none() -> None:
    call = call_of(body(SYSTEM, USER, model="anthropic/claude-sonnet-5"), ROUTER)

    asked = with_retention(call, "12h")

    assert asked.body is call.body
    assert asked.changes == (not_asked("12h"),)


@pytest.mark.parametrize(
    ("endpoint", "facts", "model", "retention"),
    [
        (RESPONSES, OPENAI, "gpt-5.6", "12 hours"),
        (CHAT, OPENAI, "gpt-5.6", "12h"),
        (RESPONSES, OPENAI, "gpt-5.5", "12h"),
        ("/completions", ROUTER, "anthropic/claude-sonnet-5", "1h"),
        (CHAT, NOTHING, "m", "24h"),
        (CHAT, None, "m", "24h"),
    ],
)
def test_a_lifetime_that_is_not_asked_for_is_said(
    endpoint: str, facts: ProviderFacts | None, model: str, retention: str
) -> None:
    call = replace(call_of(body(SYSTEM, USER, model=model), facts), endpoint=endpoint)
    asked = with_retention(call, retention)

    assert asked.body is call.body
    assert asked.optional == ()
    assert asked.changes == (not_asked(retention),)


def test_a_lifetime_that_the_caller_has_set_himself_needs_no_word() -> None:
    call = call_of(body(SYSTEM, USER, prompt_cache_options={"ttl": "30m"}), OPENAI)

    assert with_retention(call, "30m") is call


def test_what_was_added_is_said_and_can_be_taken_back() -> None:
    call = with_retention(call_of(body(SYSTEM, USER), OPENAI), "30m")

    assert call.changes == ("PromptCache set prompt_cache_options.ttl to 30m",)
    assert call.optional == ("prompt_cache_options",)


def test_what_the_caller_had_set_is_not_taken_back() -> None:
    call = call_of(body(SYSTEM, USER, prompt_cache_options={"mode": "implicit"}), OPENAI)

    assert with_retention(call, "30m").optional == ()


def test_marks_are_said() -> None:
    call = replace(call_of(body(SYSTEM, USER), OPENAI), placements=("stable", "volatile"))

    assert with_breakpoints(call).changes == ("PromptCache put prompt_cache_breakpoint at the end of messages[0]",)


def test_without_facts_nothing_is_placed() -> None:
    call = call_of(body(SYSTEM, USER), None)

    assert with_retention(call, "24h").body is call.body
    assert with_breakpoints(call) is call
    assert with_breakpoints(call_of({"model": "gpt-5.6"}, OPENAI)).changes == ()
