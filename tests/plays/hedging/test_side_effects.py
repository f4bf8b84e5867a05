from __future__ import annotations

from typing import Any

import pytest

from fastlane.plays.hedging.side_effects import why_only_once
from fastlane.protocol.endpoints import CHAT, COMPLETIONS, RESPONSES

TOOL = {"type": "function", "function": {"name": "send_mail", "parameters": {}}}
FLAT = {"type": "function", "name": "send_mail", "parameters": {}}


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (CHAT, {}),
        (CHAT, {"n": 3, "tools": [TOOL], "store": None}),
        (CHAT, {"tools": [TOOL, {"type": "custom", "custom": {"name": "sql"}}]}),
        (CHAT, {"tools": "none at all", "functions": [7]}),
        (COMPLETIONS, {"prompt": "x"}),
        (RESPONSES, {"store": False, "tools": [FLAT]}),
    ],
)
def test_a_call_without_side_effects_may_be_made_twice(endpoint: str, body: dict[str, Any]) -> None:
    assert why_only_once(endpoint, body, ()) is None


@pytest.mark.parametrize(
    ("endpoint", "body", "words"),
    [
        (CHAT, {"store": True}, "keeps the answer"),
        (RESPONSES, {}, "keeps the answer"),
        (RESPONSES, {"store": True}, "keeps the answer"),
        (RESPONSES, {"store": None}, "keeps the answer"),
        (RESPONSES, {"store": False, "background": True}, "background"),
        (RESPONSES, {"store": False, "previous_response_id": "resp_1"}, "conversation"),
        (RESPONSES, {"store": False, "conversation": "conv_1"}, "conversation"),
        (RESPONSES, {"store": False, "tools": [{"type": "web_search"}]}, "runs a tool itself"),
        (RESPONSES, {"store": False, "tools": [FLAT, {"type": "mcp", "server_url": "x"}]}, "runs a tool itself"),
        (RESPONSES, {"store": False, "prompt": {"id": "pmpt_1"}}, "tools of its own"),
        (CHAT, {"web_search_options": {}}, "runs a tool itself"),
    ],
)
def test_a_call_with_side_effects_is_made_once(endpoint: str, body: dict[str, Any], words: str) -> None:
    assert words in (why_only_once(endpoint, body, ()) or "")


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [TOOL]},
        {"tools": [FLAT]},
        {"functions": [{"name": "send_mail"}]},
        {"tools": [{"type": "custom", "custom": {"name": "send_mail"}}]},
        {"tools": [{"type": "custom", "name": "send_mail"}]},
    ],
)
def test_tools_that_are_named_have_side_effects_however_they_are_written(body: dict[str, Any]) -> None:
    assert why_only_once(CHAT, body, ("pay", "send_mail")) == "a tool has side effects"
    assert why_only_once(CHAT, body, ("pay",)) is None
