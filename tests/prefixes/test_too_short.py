"""A prompt that a provider's cache cannot keep is told by its size, and no prompt whose size is not known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from fastlane.plays.prompt_cache.prefixes._outline import outline
from fastlane.plays.prompt_cache.prefixes._too_short import is_too_short

CHAT, RESPONSES = "/chat/completions", "/responses"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/1.png"}}


def too_short(endpoint: str, body: dict[str, Any], minimum_tokens: int | None = 1024) -> bool:
    return is_too_short(body, *outline(endpoint, body), minimum_tokens)


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (CHAT, {"messages": []}),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}),
        (CHAT, {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}),
        (CHAT, {"messages": [], "tools": [{"type": "function", "function": {"name": "f"}}]}),
        (CHAT, {"messages": [], "response_format": {"type": "json_object"}}),
        (RESPONSES, {"input": "Hi", "instructions": "Be brief."}),
        (RESPONSES, {"input": [{"type": "message", "role": "user", "content": "Hi"}]}),
        (RESPONSES, {"input": [{"type": "function_call_output", "call_id": "1", "output": "4"}]}),
        (RESPONSES, {"input": "Hi", "tools": [{"type": "function", "name": "f"}], "previous_response_id": None}),
    ],
)
def test_a_few_words_are_too_short(endpoint: str, body: dict[str, Any]) -> None:
    assert too_short(endpoint, body)
    assert not too_short(endpoint, body, minimum_tokens=None)


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "word " * 300}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "word " * 300}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": [IMAGE]}]}),
        (CHAT, {"messages": [7]}),
        (RESPONSES, {"input": "Hi", "previous_response_id": "resp_1"}),
        (RESPONSES, {"input": "Hi", "conversation": {"id": "conv_1"}}),
        (RESPONSES, {"input": "Hi", "prompt": {"id": "pmpt_1"}}),
        (RESPONSES, {"input": "Hi", "tools": [{"type": "web_search"}]}),
        (RESPONSES, {"input": [{"type": "reasoning", "encrypted_content": "AAAA"}]}),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]}),
    ],
)
def test_what_is_long_or_of_unknown_size_is_not(endpoint: str, body: dict[str, Any]) -> None:
    assert not too_short(endpoint, body)


@given(
    st.lists(st.text(max_size=400), max_size=8),
    st.integers(1, 2_000),
)
def test_a_conversation_that_is_long_enough_stays_so_when_it_grows(texts: list[str], minimum_tokens: int) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    judged = [too_short(CHAT, {"messages": messages[:count]}, minimum_tokens) for count in range(len(messages) + 1)]

    assert judged == sorted(judged, reverse=True)
    if judged[-1]:
        assert sum(map(len, texts)) < minimum_tokens


def test_a_prompt_of_as_many_characters_as_tokens_are_kept_may_be_kept() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    characters = sum(outline(CHAT, body)[0].sizes)

    assert not too_short(CHAT, body, minimum_tokens=characters)
    assert too_short(CHAT, body, minimum_tokens=characters + 1)
