from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.bench.workloads._workload import UnusableMessageError, answer_characters, salted, salted_tools, sendable

CALL = {"id": "call_9", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def cleaned(*messages: object) -> tuple[list[Any], Counter[str]]:
    changes: Counter[str] = Counter()
    return list(sendable(messages, changes)), changes


def test_messages_that_an_api_takes_stay_as_they_are() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Read it."}]},
        {"role": "assistant", "content": "I read it.", "tool_calls": [CALL]},
        {"role": "tool", "content": "", "tool_call_id": "call_9"},
    ]

    assert cleaned(*messages) == (messages, Counter())


def test_unknown_message_keys_are_dropped_and_counted() -> None:
    messages, changes = cleaned(
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "content": "1", "tool_call_id": "call_9", "name": "read", "seconds": 3},
    )

    assert messages[1] == {"role": "tool", "content": "1", "tool_call_id": "call_9"}
    assert changes == {"left out 'name' of tool messages": 1, "left out 'seconds' of tool messages": 1}


def test_content_may_be_missing_only_with_tool_calls() -> None:
    messages, changes = cleaned(
        {"role": "user", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": None, "tool_calls": []},
    )

    assert [message.get("content") for message in messages] == ["", None, ""]
    assert "tool_calls" not in messages[2]
    assert changes["set missing content of user messages to an empty text"] == 1


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Hi", 'expected an object with a "role"'),
        ({"content": "Hi"}, 'expected an object with a "role"'),
        ({"role": "narrator", "content": "Hi"}, 'expected an object with a "role" of system'),
        ({"role": "user", "content": {"lines": 3}}, "neither a text nor a list of parts"),
        ({"role": "assistant", "tool_calls": ["read"]}, "OpenAI's format"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "read", "arguments": {}}}]}, "OpenAI's format"),
        ({"role": "tool", "content": "42"}, "expected the tool_call_id"),
    ],
)
def test_invalid_message_is_refused_with_its_number(message: object, expected: str) -> None:
    with pytest.raises(UnusableMessageError, match="message 2.*" + expected):
        cleaned({"role": "user", "content": "Hi"}, message)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["system", "user", "assistant"])},
            optional={
                "content": st.none() | st.text() | st.lists(st.just({"type": "text", "text": "x"})),
                "tool_calls": st.none() | st.lists(st.just(CALL), max_size=2),
                "tool_call_id": st.just("call_9"),
                "other": st.integers(),
            },
        ),
        max_size=8,
    )
)
def test_cleaning_messages_twice_changes_nothing_more(messages: list[dict[str, Any]]) -> None:
    once, _ = cleaned(*messages)
    twice, changes = cleaned(*once)

    assert twice == once
    assert not changes


def test_answer_length_counts_text_and_tool_calls() -> None:
    assert answer_characters({"role": "assistant", "content": "abc", "tool_calls": [CALL]}) == len(
        "abc" + "read" + "{}"
    )


def test_salt_is_the_first_line_of_the_prompt() -> None:
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})

    assert salted(messages, "Salt.")[0] == {"role": "system", "content": "Salt.\nBe brief."}
    assert salted(messages[1:], "Salt.") == [{"role": "system", "content": "Salt."}, messages[1]]
    assert messages[0]["content"] == "Be brief."


def test_tool_descriptions_are_salted() -> None:
    tools = ({"type": "function", "function": {"name": "read", "description": "Reads."}}, {"type": "other"})

    salt = salted_tools(tools, "Salt.")

    assert salt[0]["function"]["description"] == "Salt. Reads."
    assert salt[1] == tools[1]
    assert salted_tools((), "Salt.") == []
