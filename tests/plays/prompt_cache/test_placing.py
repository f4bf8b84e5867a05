"""Marks stand at the ends of what stays, where facts say that the model takes them, and never over the caller's own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane import Call, PromptCache
from fastlane.providers import ProviderFacts, facts_named
from tests.plays.prompt_cache.provider import CHAT, call, planned_by

OPENAI, ROUTER, AZURE = (facts_named(name) for name in ("openai", "openrouter", "azure_openai"))
NOTHING = ProviderFacts(slug="nothing")
MARK = {"mode": "explicit"}
RESPONSES = "/responses"
CLAUDE = "anthropic/claude-sonnet-5"

SYSTEM = {"role": "system", "content": "be brief"}
USER = {"role": "user", "content": "hello"}
ASSISTANT = {"role": "assistant", "content": "hi"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
TOOL = {"role": "tool", "tool_call_id": "1", "content": "22 C"}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "a"},
    {"type": "image_url", "image_url": {"url": "https://a.example.com/b.png"}},
]


def body(*messages: Any, model: str = "gpt-5.6-sol", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages), **more}


def marked(items: Sequence[Any], field: str = "prompt_cache_breakpoint") -> list[int]:
    """Which of the messages or items have a mark, that of the last part of their content."""
    last = [item["content"][-1:] if isinstance(item.get("content"), list) else [] for item in items]
    return [at for at, parts in enumerate(last) if any(field in part for part in parts)]


def planned(given: dict[str, Any], facts: ProviderFacts | None = OPENAI, **fields: Any) -> Call:
    """The call as the play plans it; with a retention or with breakpoints."""
    retention = fields.pop("retention", None)
    play = PromptCache(key=False, kept_bytes=0, retention=retention, breakpoints=retention is None)
    return planned_by(play, call(given, facts=facts, **fields))


@pytest.mark.parametrize(
    ("endpoint", "content", "last"),
    [
        (CHAT, "be brief", {"type": "text", "text": "be brief"}),
        (RESPONSES, "be brief", {"type": "input_text", "text": "be brief"}),
        (CHAT, PARTS, PARTS[1]),
    ],
)
def test_last_part_of_a_message_is_marked(endpoint: str, content: Any, last: dict[str, Any]) -> None:
    name = "messages" if endpoint == CHAT else "input"
    given = {"model": "gpt-5.6", name: [{"role": "developer", "content": content}, USER]}
    made = planned(given, endpoint=endpoint, placements=("stable", "volatile"))

    first, second = made.body[name]
    assert first["content"][-1] == {**last, "prompt_cache_breakpoint": MARK}
    assert first["content"][:-1] == (content[:-1] if isinstance(content, list) else [])
    assert second == USER
    assert made.changes == (f"PromptCache put prompt_cache_breakpoint at the end of {name}[0]",)


UNFIT: list[Any] = [
    CALLS, {"role": "user", "content": ""}, {"role": "user", "content": []}, {"role": "user", "content": ["a"]},
    {"role": [], "type": {}, "content": [{"type": []}]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "placements", "where"),
    [
        ((SYSTEM, USER), None, [0, 1]),
        ((SYSTEM, USER, ASSISTANT, USER), None, [0, 1, 3]),
        # What the model did and what came of it: the last call ended before it.
        ((SYSTEM, USER, CALLS, TOOL), None, [0, 1, 3]),
        ((SYSTEM, USER, CALLS, TOOL, CALLS, TOOL, TOOL), None, [0, 3, 6]),
        ((SYSTEM, SYSTEM, USER), ("stable", "session", "volatile"), [0, 1]),
        ((SYSTEM, USER), ("volatile", "volatile"), []),
        ((USER,), None, [0]),
        *(((SYSTEM, USER, unfit), ("stable", "stable", "stable"), [1]) for unfit in UNFIT),
    ],
)
def test_ends_of_what_stays_are_marked(messages: tuple[Any, ...], placements: Any, where: list[int]) -> None:
    assert marked(planned(body(*messages), placements=placements).body["messages"]) == where


MARKED_PART = {"type": "text", "text": "a", "prompt_cache_breakpoint": MARK}
ANSWERS_OF_RESPONSES = [
    USER,
    {"type": "reasoning", "id": "r", "summary": []},
    {"type": "function_call", "name": "weather", "arguments": "{}", "call_id": "1"},
    {"type": "function_call_output", "call_id": "1", "output": "22 C"},
    {"role": "assistant", "content": "22 C"},
]


@pytest.mark.parametrize(
    ("endpoint", "given", "facts", "where"),
    [
        # The caller's own marks stay alone.
        (CHAT, body(SYSTEM, {"role": "user", "content": [MARKED_PART]}), OPENAI, [1]),
        (CHAT, body(SYSTEM, USER, prompt_cache_breakpoint=MARK), OPENAI, []),
        (CHAT, body(SYSTEM, {**USER, "prompt_cache_breakpoint": MARK}), OPENAI, []),
        (RESPONSES, {"model": "gpt-5.6", "input": ANSWERS_OF_RESPONSES}, OPENAI, [0]),
        (CHAT, body(SYSTEM, USER, model="gpt-4o"), OPENAI, []),
        (CHAT, body(SYSTEM, USER), AZURE, []),
        (CHAT, body(SYSTEM, USER), NOTHING, []),
        (CHAT, body(SYSTEM, USER), None, []),
        (CHAT, body(SYSTEM, USER, model="meta/llama"), ROUTER, []),
        (CHAT, body(SYSTEM, USER, model=CLAUDE), ROUTER, [0, 1]),
        # Of a proxy's names facts say nothing: the caller knows.
        (CHAT, body(SYSTEM, USER, model="sonnet"), facts_named("litellm"), [0, 1]),
    ],
)
def test_only_models_that_take_marks_get_them(
    endpoint: str, given: dict[str, Any], facts: ProviderFacts | None, where: list[int]
) -> None:
    made = planned(given, facts, endpoint=endpoint)
    items = made.body["messages" if endpoint == CHAT else "input"]

    assert marked(items) + marked(items, "cache_control") == where


@pytest.mark.parametrize("items", ["a prompt", [], None, {"role": "user"}])
def test_non_list_input_gets_no_breakpoints(items: Any) -> None:
    given = {"model": "gpt-5.6", "input": items}
    assert planned(given, endpoint=RESPONSES).body is given


ITEMS = st.lists(
    st.sampled_from([SYSTEM, USER, ASSISTANT, CALLS, TOOL, {"role": "user"}, {"content": [{"type": "text"}]}]),
    max_size=8,
)


@given(items=ITEMS)
def test_marks_change_nothing_else(items: list[Any]) -> None:
    given = body(*items)
    before = copy.deepcopy(given)
    made = planned(given).body

    assert given == before
    if made is given:
        return
    plain = copy.deepcopy(made["messages"])
    for at in marked(plain):
        assert plain[at]["content"][-1].pop("prompt_cache_breakpoint") == MARK
        if isinstance(items[at]["content"], str):
            (part,) = plain[at]["content"]
            assert part.pop("type") == "text"
            plain[at] = {**plain[at], "content": part.pop("text")}
            assert part == {}
    assert plain == items
    assert 1 <= len(marked(made["messages"])) <= 3
    assert planned(dict(made)).body["messages"] == made["messages"]


@pytest.mark.parametrize(
    ("endpoint", "facts", "given", "retention", "fields", "optional"),
    [
        (RESPONSES, OPENAI, {}, "12h", {"prompt_cache_options": {"ttl": "12h"}}, ("prompt_cache_options",)),
        (CHAT, OPENAI, {}, "30m", {"prompt_cache_options": {"ttl": "30m"}}, ("prompt_cache_options",)),
        (
            RESPONSES,
            OPENAI,
            {"prompt_cache_options": {"mode": "explicit"}},
            "12h",
            {"prompt_cache_options": {"mode": "explicit", "ttl": "12h"}},
            (),
        ),
        (CHAT, AZURE, {"model": "gpt-4.1"}, "24h", {"prompt_cache_retention": "24h"}, ("prompt_cache_retention",)),
        # Not over what the caller set.
        (RESPONSES, OPENAI, {"prompt_cache_options": {"ttl": "30m"}}, "12h", {}, ()),
        (RESPONSES, OPENAI, {"prompt_cache_options": "?"}, "12h", {}, ()),
        (CHAT, AZURE, {"prompt_cache_retention": "in_memory"}, "24h", {}, ()),
    ],
)
def test_retention_is_written_as_the_provider_takes_it(
    endpoint: str,
    facts: ProviderFacts,
    given: dict[str, Any],
    retention: str,
    fields: dict[str, Any],
    optional: tuple[str, ...],
) -> None:
    given = {"model": "gpt-5.6", **given}
    made = planned(given, facts, endpoint=endpoint, retention=retention)

    assert made.body == {**given, **fields}
    assert made.optional == optional


def test_retention_is_set_in_each_breakpoint_if_needed() -> None:
    made = planned(body(SYSTEM, USER, model=CLAUDE), ROUTER, retention="1h")

    assert made.body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert made.changes == ("PromptCache put cache_control at the end of messages[0], messages[1] for 1h",)


@pytest.mark.parametrize(
    ("endpoint", "facts", "model", "retention"),
    [
        (RESPONSES, OPENAI, "gpt-5.6", "12 hours"),
        (CHAT, OPENAI, "gpt-5.6", "12h"),
        (RESPONSES, OPENAI, "gpt-5.5", "12h"),
        (CHAT, ROUTER, CLAUDE, "12h"),
        ("/completions", ROUTER, CLAUDE, "1h"),
        (CHAT, NOTHING, "m", "24h"),
        (CHAT, None, "m", "24h"),
    ],
)
def test_unsent_retention_is_recorded(endpoint: str, facts: ProviderFacts | None, model: str, retention: str) -> None:
    given = body(SYSTEM, USER, model=model)
    made = planned(given, facts, endpoint=endpoint, retention=retention)

    assert made.body is given
    assert made.optional == ()
    assert made.changes == (
        f"PromptCache did not ask for a retention of {retention!r}: the provider is not known to take it here",
    )
