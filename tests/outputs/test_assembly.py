"""What is put together out of a stream is what the provider answers when it does not stream."""

from __future__ import annotations

from typing import Any

import pytest

import fastlane
from fastlane.emulator import Emulator
from tests.outputs.streams import CHAT, COMPLETIONS, RESPONSES, TOOL, assembled, request, streamed, whole, without_ids

USAGE = {"stream_options": {"include_usage": True}}
CHAT_TOOL = {
    "tools": [{"type": "function", "function": TOOL}],
    "tool_choice": {"type": "function", "function": {"name": "file_ticket"}},
}
RESPONSES_TOOL = {
    "tools": [{"type": "function", **TOOL}],
    "tool_choice": {"type": "function", "name": "file_ticket"},
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "t", "schema": TOOL["parameters"], "strict": True}}
REASONING = {"extra_headers": {"x-emulator-reasoning-tokens": "9"}}

WAYS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {}),
    (CHAT, {"n": 3}),
    (CHAT, {"response_format": SCHEMA}),
    (CHAT, {"max_completion_tokens": 3}),
    (CHAT, {"service_tier": "priority"}),
    (CHAT, CHAT_TOOL),
    (CHAT, CHAT_TOOL | {"n": 2}),
    (CHAT, REASONING),
    (CHAT, REASONING | CHAT_TOOL),
    (COMPLETIONS, {}),
    (COMPLETIONS, {"n": 2, "max_tokens": 5}),
    (RESPONSES, {}),
    (RESPONSES, {"max_output_tokens": 3}),
    (RESPONSES, RESPONSES_TOOL),
    (RESPONSES, REASONING),
    (RESPONSES, REASONING | RESPONSES_TOOL),
    (RESPONSES, {"instructions": "Be short.", "metadata": {"a": "b"}}),
]


@pytest.mark.parametrize(("endpoint", "asked"), WAYS)
def test_a_whole_stream_comes_to_the_answer_that_is_not_streamed(
    provider: Emulator, arguments: dict[str, Any], endpoint: str, asked: dict[str, Any]
) -> None:
    with fastlane.OpenAI(**arguments) as client:
        ask = request(endpoint, **asked)
        expected = whole(client, endpoint, **ask)
        events = streamed(client, endpoint, **ask, **({} if endpoint == RESPONSES else USAGE))
    found = assembled(endpoint, events, choices=asked.get("n", 1))
    assert found.finished
    assert found.error is None
    assert without_ids(found.body()) == without_ids(expected)
