"""What a request asks for."""

from __future__ import annotations

from typing import Any

import pytest

from fastlane.protocol.endpoints import CHAT, RESPONSES
from fastlane.protocol.request_fields import effort_in, tools_of


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


def test_tools_are_the_functions_alone() -> None:
    function = {"type": "function", "function": {"name": "look"}}
    listed = [function, {"type": "custom", "function": {"name": "draw"}}, "look"]
    assert list(tools_of({"tools": listed}, CHAT)) == ["look"]
    listed = [{"type": "function", "name": "look"}, {"type": "custom", "name": "draw"}, "look"]
    assert list(tools_of({"tools": listed}, RESPONSES)) == ["look"]
