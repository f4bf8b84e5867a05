"""Marks stand at the ends of what stays, where facts say that the model takes them, and never over the caller's own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import Call
from fastlane.plays.prompt_cache.placing import place_breakpoints, with_breakpoints, with_retention
from fastlane.protocol.prompt_marks import Placement
from fastlane.providers import ProviderFacts, facts_named
from tests.plays.prompt_cache.provider import CHAT, call as call_to

OPENAI = facts_named("openai")
ROUTER = facts_named("openrouter")
PROXY = facts_named("litellm")
AZURE = facts_named("azure_openai")
NOTHING = ProviderFacts(slug="nothing")
MARK = {"mode": "explicit"}
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
    given: dict[str, Any], placements: Sequence[Placement | None] | None = None, endpoint: str = CHAT, **facts: Any
) -> list[int]:
    known = OPENAI.model_copy(update={"cache": OPENAI.cache.model_copy(update=facts)})
    placed = place_breakpoints(endpoint, given, placements, known)
    assert placed is None or placed[2] == marked(placed[1])
    return [] if placed is None else placed[2]


def call_of(given: dict[str, Any], facts: ProviderFacts | None, endpoint: str = CHAT) -> Call:
    return call_to(given, facts=facts, endpoint=endpoint)


PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "a"},
    {"type": "image_url", "image_url": {"url": "https://a.example.com/b.png"}},
]


@pytest.mark.parametrize(
    ("endpoint", "content", "last"),
    [
        (CHAT, "be brief", {"type": "text", "text": "be brief"}),
        (RESPONSES, "be brief", {"type": "input_text", "text": "be brief"}),
        (CHAT, PARTS, PARTS[1]),
    ],
)
def test_last_part_of_a_message_is_marked(endpoint: str, content: Any, last: dict[str, Any]) -> None:
    message = {"role": "developer", "content": content}
    name = "messages" if endpoint == CHAT else "input"
    placed = place_breakpoints(endpoint, {"model": "gpt-5.6", name: [message, USER]}, ("stable", "volatile"), OPENAI)

    assert placed is not None
    _, items, _ = placed
    assert items[0]["content"][-1] == {**last, "prompt_cache_breakpoint": MARK}
    assert items[0]["content"][:-1] == (content[:-1] if isinstance(content, list) else [])
    assert items[1] == USER


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
def test_ends_of_what_stays_are_marked(
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
def test_unfit_message_leaves_its_mark_to_the_one_before(unfit: dict[str, Any]) -> None:
    assert breakpoints_in(body(SYSTEM, USER, unfit), ("stable", "stable", "stable")) == [1]


def test_answers_in_responses_carry_no_mark() -> None:
    items = [
        {"role": "user", "content": "weather?"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "name": "weather", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "22 C"},
        {"role": "assistant", "content": "22 C"},
    ]
    assert breakpoints_in({"model": "gpt-5.6", "input": items}, endpoint=RESPONSES) == [0]


@pytest.mark.parametrize(
    "given",
    [
        body(SYSTEM, {"role": "user", "content": [{"type": "text", "text": "a", "prompt_cache_breakpoint": MARK}]}),
        body(SYSTEM, USER, prompt_cache_breakpoint=MARK),
        body(SYSTEM, {**USER, "prompt_cache_breakpoint": MARK}),
    ],
)
def test_marks_of_the_caller_are_left_alone(given: dict[str, Any]) -> None:
    assert place_breakpoints(CHAT, given, None, OPENAI) is None


@pytest.mark.parametrize(
    ("facts", "model", "where"),
    [
        (OPENAI, "gpt-4o", []),
        (AZURE, "gpt-5.6", []),
        (NOTHING, "gpt-5.6", []),
        (ROUTER, "meta/llama", []),
        (ROUTER, "anthropic/claude-sonnet-5", [0, 1]),
        # Of a proxy's names facts say nothing: the caller knows.
        (PROXY, "sonnet", [0, 1]),
    ],
)
def test_only_models_that_take_marks_get_them(facts: ProviderFacts, model: str, where: list[int]) -> None:
    planned = with_breakpoints(call_of(body(SYSTEM, USER, model=model), facts))

    assert marked(planned.body["messages"], "cache_control") == where


@pytest.mark.parametrize("items", ["a prompt", [], None, {"role": "user"}])
def test_what_is_no_list_of_messages_is_left_alone(items: Any) -> None:
    assert place_breakpoints(RESPONSES, {"model": "gpt-5.6", "input": items}, None, OPENAI) is None


def test_completion_has_nothing_to_mark() -> None:
    assert (
        place_breakpoints("/completions", {"model": "gpt-5.6", "prompt": "a", "messages": [USER]}, None, OPENAI) is None
    )


ITEMS = st.lists(
    st.sampled_from([SYSTEM, USER, ASSISTANT, CALLS, TOOL, {"role": "user"}, {"content": [{"type": "text"}]}]),
    max_size=8,
)
PLACEMENTS = st.none() | st.lists(st.sampled_from(["stable", "session", "volatile", None]), max_size=8)


@given(items=ITEMS, placements=PLACEMENTS)
def test_marks_change_nothing_else(items: list[Any], placements: list[Placement | None] | None) -> None:
    given = body(*items)
    before = copy.deepcopy(given)
    placed = place_breakpoints(CHAT, given, placements, OPENAI)

    assert given == before
    if placed is None:
        return
    _, changed, _ = placed
    plain = copy.deepcopy(changed)
    for at in marked(plain):
        assert plain[at]["content"][-1].pop("prompt_cache_breakpoint") == MARK
        if isinstance(items[at]["content"], str):
            (part,) = plain[at]["content"]
            assert part.pop("type") == "text"
            plain[at] = {**plain[at], "content": part.pop("text")}
            assert part == {}
    assert plain == items
    assert 1 <= len(marked(changed)) <= 3
    assert place_breakpoints(CHAT, {**given, "messages": changed}, placements, OPENAI) is None


@pytest.mark.parametrize(
    ("endpoint", "facts", "given", "retention", "fields"),
    [
        (RESPONSES, OPENAI, {}, "12h", {"prompt_cache_options": {"ttl": "12h"}}),
        (CHAT, OPENAI, {}, "30m", {"prompt_cache_options": {"ttl": "30m"}}),
        (
            RESPONSES,
            OPENAI,
            {"prompt_cache_options": {"mode": "explicit"}},
            "12h",
            {"prompt_cache_options": {"mode": "explicit", "ttl": "12h"}},
        ),
        (CHAT, AZURE, {"model": "gpt-4.1"}, "24h", {"prompt_cache_retention": "24h"}),
        # Not over what the caller set.
        (RESPONSES, OPENAI, {"prompt_cache_options": {"ttl": "30m"}}, "12h", None),
        (RESPONSES, OPENAI, {"prompt_cache_options": "?"}, "12h", None),
        (CHAT, AZURE, {"prompt_cache_retention": "in_memory"}, "24h", None),
    ],
)
def test_retention_is_written_as_the_provider_takes_it(
    endpoint: str, facts: ProviderFacts, given: dict[str, Any], retention: str, fields: dict[str, Any] | None
) -> None:
    call = call_of({"model": "gpt-5.6", **given}, facts, endpoint)

    assert with_retention(call, retention).body == {**call.body, **(fields or {})}


def not_asked(retention: str) -> str:
    return f"PromptCache did not ask for a retention of {retention!r}: the provider is not known to take it here"


def test_retention_is_said_by_marks_if_each_mark_says_it() -> None:
    call = with_retention(call_of(body(SYSTEM, USER, model="anthropic/claude-sonnet-5"), ROUTER), "1h")

    assert call.body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert call.changes == ("PromptCache put cache_control at the end of messages[0], messages[1] for 1h",)
    assert with_breakpoints(call) is call


def test_retention_that_marks_cannot_have_places_none() -> None:
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
def test_retention_that_is_not_sent_is_said(
    endpoint: str, facts: ProviderFacts | None, model: str, retention: str
) -> None:
    call = replace(call_of(body(SYSTEM, USER, model=model), facts), endpoint=endpoint)
    asked = with_retention(call, retention)

    assert asked.body is call.body
    assert asked.optional == ()
    assert asked.changes == (not_asked(retention),)


def test_retention_of_the_caller_needs_no_word() -> None:
    call = call_of(body(SYSTEM, USER, prompt_cache_options={"ttl": "30m"}), OPENAI)

    assert with_retention(call, "30m") is call


def test_added_retention_is_said_and_optional() -> None:
    call = with_retention(call_of(body(SYSTEM, USER), OPENAI), "30m")

    assert call.changes == ("PromptCache set prompt_cache_options.ttl to 30m",)
    assert call.optional == ("prompt_cache_options",)


def test_field_of_the_caller_is_not_optional() -> None:
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
