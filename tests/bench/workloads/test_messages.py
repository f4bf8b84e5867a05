from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastlane import ConfigurationError
from fastlane.bench import Conversation, read_workload
from fastlane.bench.workloads import salted, salted_tools

CALL = {"id": "call_9", "type": "function", "function": {"name": "read", "arguments": "{}"}}
TURN = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."})


def cleaned(folder: Path, *messages: object) -> tuple[list[Any], tuple[str, ...]]:
    """Return how messages of a file are sent, and what the workload says of changes."""
    (folder / "talks.jsonl").write_text(json.dumps({"messages": [*messages, *TURN]}))
    workload = read_workload(folder / "talks.jsonl")
    return list(workload.conversations[0].messages[:-2]), workload.notes


def test_messages_that_an_api_takes_stay_as_they_are(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Read it."}]},
        {"role": "assistant", "content": "I read it.", "tool_calls": [CALL]},
        {"role": "tool", "content": "", "tool_call_id": "call_9"},
    ]

    assert cleaned(tmp_path, *messages) == (messages, ())


def test_unknown_message_keys_and_missing_content_are_mended(tmp_path: Path) -> None:
    messages, notes = cleaned(
        tmp_path,
        {"role": "user", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "1", "tool_call_id": "call_9", "name": "read", "seconds": 3},
        {"role": "assistant", "content": None, "tool_calls": []},
    )

    assert [message.get("content") for message in messages] == ["", None, "1", ""]
    assert messages[2] == {"role": "tool", "content": "1", "tool_call_id": "call_9"}
    assert "tool_calls" not in messages[3]
    assert "left out 'name' of tool messages (1 times)" in notes
    assert "left out 'seconds' of tool messages (1 times)" in notes
    assert "set missing content of user messages to an empty text (1 times)" in notes


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Hi", 'expected an object with a "role"'),
        ({"role": "narrator", "content": "Hi"}, 'expected an object with a "role" of system'),
        ({"role": "user", "content": {"lines": 3}}, "neither a text nor a list of parts"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "read", "arguments": {}}}]}, "OpenAI's format"),
        ({"role": "tool", "content": "42"}, "expected the tool_call_id"),
    ],
)
def test_invalid_message_is_refused_with_its_number(message: object, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="message 2.*" + expected):
        cleaned(tmp_path, {"role": "user", "content": "Hi"}, message)


def test_answer_length_counts_text_and_tool_calls() -> None:
    answer = {"role": "assistant", "content": "abcdef", "tool_calls": [CALL]}
    (turn,) = Conversation(name="talk", messages=(TURN[0], answer)).turns

    # Four characters are a token, and the call has six: "read{}".
    assert turn.answer_tokens == 3


def test_salt_is_the_first_line_of_the_prompt_and_of_tools() -> None:
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})
    tools = ({"type": "function", "function": {"name": "read", "description": "Reads."}}, {"type": "other"})

    assert salted(messages, "Salt.")[0] == {"role": "system", "content": "Salt.\nBe brief."}
    assert salted(messages[1:], "Salt.") == [{"role": "system", "content": "Salt."}, messages[1]]
    assert messages[0]["content"] == "Be brief."
    assert salted_tools(tools, "Salt.")[0]["function"]["description"] == "Salt. Reads."
    assert salted_tools(tools, "Salt.")[1] == tools[1]
    assert salted_tools((), "Salt.") == []
