"""What a request asks for."""

from __future__ import annotations

from typing import Any

import pytest

from fastlane.protocol.request_fields import effort_in


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
