from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import pytest
from openai.types.responses import Response, ResponseCompletedEvent
from openai.types.responses.response import PromptCacheDiagnosticsCacheMiss

from fastlane.protocol.cache_reasons import cache_miss_reason

REASONS = get_args(PromptCacheDiagnosticsCacheMiss.model_fields["reason"].annotation)


def response(diagnostics: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": True, "prompt_cache_diagnostics": diagnostics,
    }  # fmt: skip


def missed(reason: str) -> dict[str, Any]:
    return {"type": "cache_miss", "reason": reason, "cache_missed_tokens": 900}


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_that_openai_knows_is_read(reason: str) -> None:
    answer = Response.model_validate(response(missed(reason)))

    assert cache_miss_reason(answer) == reason


def test_reason_is_read_from_mappings_and_last_events() -> None:
    plain = response(missed("tools_changed"))
    event = ResponseCompletedEvent.model_validate(
        {"type": "response.completed", "sequence_number": 3, "response": plain}
    )

    assert cache_miss_reason(plain) == "tools_changed"
    assert cache_miss_reason(event) == "tools_changed"
    assert cache_miss_reason({"type": "response.completed", "response": plain}) == "tools_changed"


@pytest.mark.parametrize(
    "answer",
    [
        {"diagnostics": {"cache_miss_reason": {"type": "system_changed", "cache_missed_input_tokens": 7}}},
        {"diagnostics": {"cache_miss_reason": "system_changed"}},
        {"cache_miss_reason": {"type": "system_changed"}},
        SimpleNamespace(diagnostics=SimpleNamespace(cache_miss_reason=SimpleNamespace(type="system_changed"))),
    ],
)
def test_reason_of_anthropic_is_read(answer: Any) -> None:
    assert cache_miss_reason(answer) == "system_changed"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        "text",
        17,
        response(None),
        response({"type": "cache_hit"}),
        response({"type": "unavailable"}),
        response({"type": "comparison_response_not_found"}),
        response({"type": "cache_miss"}),
        response(missed("a whole sentence, perhaps of the prompt")),
        response(missed("x" * 65)),
        {"diagnostics": {"cache_miss_reason": {"type": "previous_message_not_found"}}},
        {"diagnostics": {"cache_miss_reason": 3}},
        {"diagnostics": []},
        {"response": {"response": response(missed("tools_changed"))}},
    ],
)
def test_other_answers_have_no_reason(answer: Any) -> None:
    assert cache_miss_reason(answer) is None


def test_unreadable_answer_is_no_error() -> None:
    class Broken:
        @property
        def prompt_cache_diagnostics(self) -> Any:
            raise RuntimeError

    assert cache_miss_reason(Broken()) is None
