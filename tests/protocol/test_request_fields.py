"""What a request asks for."""

from __future__ import annotations

from typing import Any

import pytest

from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.request_fields import FREE_TEXT, Tool, effort_in, only_tool, tools_of, wanted_of


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning": {"effort": "high"}}, "high"),
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "low"),
        ({"reasoning": "high"}, None),
        ({"reasoning_effort": 3}, None),
        ({}, None),
    ],
)
def test_reasoning_effort_is_read_from_either_field(body: dict[str, Any], effort: str | None) -> None:
    assert effort_in(body) == effort


@pytest.mark.parametrize(
    ("body", "endpoint"),
    [
        ({"response_format": {"type": "text", "json_schema": {"schema": {}}}}, CHAT),
        ({"response_format": {"type": "json_schema"}}, CHAT),
        ({"text": {"format": {"type": "text"}}}, RESPONSES),
        ({"text": "json_schema"}, RESPONSES),
        ({"response_format": {"type": "json_object"}}, "/completions"),
    ],
)
def test_text_is_wanted_unless_a_format_asks_for_more(body: dict[str, Any], endpoint: str) -> None:
    assert wanted_of(body, endpoint) is FREE_TEXT


def test_tools_are_the_functions_alone() -> None:
    function = {"type": "function", "function": {"name": "look"}}
    listed = [function, {"type": "custom", "function": {"name": "draw"}}, "look"]
    assert tools_of({"tools": listed}, CHAT) == {"look": Tool(schema=True, strict=False)}
    listed = [{"type": "function", "name": "look", "strict": True}, {"type": "custom", "name": "draw"}, "look"]
    assert tools_of({"tools": listed}, RESPONSES) == {"look": Tool(schema=True, strict=True)}


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "function": {"name": "look"}}, "look"),
        ({"type": "custom", "function": {"name": "look"}}, None),
        ({"type": "function", "function": "look"}, None),
        ({"type": "function", "function": {"name": 3}}, None),
        ("required", None),
    ],
)
def test_only_a_function_that_must_be_called_once_is_the_only_tool(choice: Any, name: str | None) -> None:
    assert only_tool({"tool_choice": choice, "parallel_tool_calls": False}, CHAT) == name
    assert only_tool({"tool_choice": choice}, CHAT) is None
    of_responses = {"type": "function", "name": "look"}
    assert only_tool({"tool_choice": of_responses, "parallel_tool_calls": False}, RESPONSES) == "look"
