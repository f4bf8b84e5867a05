from __future__ import annotations

import json

from fastlane.bench import code_review


def test_code_review_workload_is_whole_and_deterministic() -> None:
    workload = code_review()

    assert workload.notes == ()
    assert len(workload.conversations) == len({conversation.name for conversation in workload.conversations})
    assert all(conversation.name.startswith("review ") for conversation in workload.conversations)
    assert workload == code_review()


def test_every_tool_call_is_answered_by_the_next_message() -> None:
    for conversation in code_review().conversations:
        for message, following in zip(conversation.messages, conversation.messages[1:], strict=False):
            for call in message.get("tool_calls", ()):
                assert following["tool_call_id"] == call["id"]
                assert json.loads(call["function"]["arguments"])["path"].startswith("Lib/")
