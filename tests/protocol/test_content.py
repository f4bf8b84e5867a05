from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from openai.types import CompletionUsage
from openai.types.chat.chat_completion_chunk import ChoiceDelta

from fastlane.protocol import fields
from fastlane.protocol.content import choices_kind, finish_reason_of, message_kind
from fastlane.protocol.fields import from_json, safe_id, safe_name
from fastlane.protocol.usage import cache_miss_reason, usage_of
from fastlane.records import Usage


def delta(**values: Any) -> ChoiceDelta:
    return ChoiceDelta.construct(**values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"content": "Hello"}, "content"),
        ({"content": " "}, "content"),
        ({"role": "assistant", "content": "Hello"}, "content"),
        ({"reasoning_content": "Let me see"}, "reasoning"),
        ({"reasoning": "Let me see"}, "reasoning"),
        ({"content": "", "reasoning_content": "Let me see"}, "reasoning"),
        ({"content": None, "tool_calls": [{"index": 0, "function": {"name": "f"}}]}, "tool_call"),
        ({"function_call": {"name": "f", "arguments": ""}}, "tool_call"),
        ({"refusal": "I cannot"}, "refusal"),
        ({"audio": {"data": "UklGRg=="}}, "audio"),
        ({"role": "assistant"}, None),
        ({"role": "assistant", "content": ""}, None),
        ({"role": "assistant", "content": None, "refusal": None, "tool_calls": None}, None),
        ({"tool_calls": []}, None),
        ({}, None),
    ],
)
def test_delta_kind_is_content_tool_call_or_reasoning(values: dict[str, Any], kind: str | None) -> None:
    assert message_kind(delta(**values)) == kind
    assert message_kind(SimpleNamespace(**values)) == kind


def test_first_choice_that_carries_anything_counts() -> None:
    silent = SimpleNamespace(index=0, delta=SimpleNamespace(role="assistant"))
    speaking = SimpleNamespace(index=1, delta=SimpleNamespace(content="Hello"))
    for text in (speaking, SimpleNamespace(index=0, text="Hello")):
        assert choices_kind([silent, text]) == "content"
    for nothing in ([silent], [], [SimpleNamespace(index=0, text="")]):
        assert choices_kind(nothing) is None


CHAT_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64},
    "completion_tokens_details": {"reasoning_tokens": 12},
}
RESPONSE_USAGE = (
    '{"input_tokens": 12, "input_tokens_details": {"cached_tokens": 0},'
    ' "output_tokens": 8, "output_tokens_details": {"reasoning_tokens": 0}}'
)
NOTHING: tuple[Any, ...] = (None, "many", 7, [], SimpleNamespace())
NO_NUMBERS: tuple[dict[str, Any], ...] = (
    {"prompt_tokens": "12", "completion_tokens": None, "prompt_tokens_details": "none"},
    {"prompt_tokens": True, "completion_tokens": 1.5, "completion_tokens_details": []},
    *({"prompt_tokens": count, "completion_tokens": count} for count in (-1, 10**30, 2**53)),
)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            CompletionUsage.model_validate(CHAT_USAGE),
            Usage(input_tokens=100, cached_tokens=64, output_tokens=20, reasoning_tokens=12),
        ),
        (
            from_json(RESPONSE_USAGE),
            Usage(input_tokens=12, cached_tokens=0, output_tokens=8, reasoning_tokens=0),
        ),
        # What is missing is unknown, and a zero is a zero.
        (SimpleNamespace(prompt_tokens=0, completion_tokens=0), Usage(input_tokens=0, output_tokens=0)),
        *((nothing, Usage()) for nothing in NOTHING),
        *((SimpleNamespace(**counts), Usage()) for counts in NO_NUMBERS),
    ],
)
def test_usage_holds_counts_and_nothing_else(usage: Any, expected: Usage) -> None:
    assert usage_of(usage) == expected


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"choices": [{"finish_reason": "stop"}, {"finish_reason": "length"}]}', "stop"),
        ('{"choices": [{"finish_reason": null}]}', None),
        ('{"choices": [{}]}', None),
        ('{"choices": []}', None),
        ('{"choices": {"0": {}}}', None),
        ('{"choices": "none"}', None),
        ('{"choices": 3}', None),
        ('{"status": "incomplete"}', "incomplete"),
        ('{"status": 3}', None),
        ("{}", None),
        ("[]", None),
    ],
)
def test_finish_reason_is_read_from_the_answer(answer: str, reason: str | None) -> None:
    assert finish_reason_of(from_json(answer)) == reason


CHANGED = "tools_changed"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"prompt_cache_diagnostics": CHANGED, "diagnostics": {"cache_miss_reason": "other"}}, CHANGED),
        ({"prompt_cache_diagnostics": {"reason": {"type": CHANGED}}}, CHANGED),
        ({"diagnostics": {"cache_miss_reason": {"type": CHANGED}}}, CHANGED),
        ({"cache_miss_reason": "a" * 64}, "a" * 64),
        ({"response": {"cache_miss_reason": {"reason": CHANGED, "type": "other"}}}, CHANGED),
        *(({"cache_miss_reason": no_reason}, None) for no_reason in ("", "a" * 65, "a text", 3, "cache_miss")),
        ({"cache_miss_reason": {"reason": {"type": {"type": CHANGED}}}}, None),
        ({}, None),
    ],
)
def test_cache_miss_reason_is_read_from_either_field(answer: dict[str, Any], reason: str | None) -> None:
    assert cache_miss_reason(answer) == reason


def test_safe_names_and_ids_replace_unsafe_text() -> None:
    for given in ("stop", "meta-llama/Llama-3.1-8B:free", "gpt-4o-2024-08-06", None):
        assert safe_name(given) == given
    for given in ("tell me a secret", "a" * 10_240, "geheim für dich", "two\nlines", "nul\0", "\ud800"):
        assert safe_name(given) == "_OTHER"
    assert safe_id("chatcmpl-1") == "chatcmpl-1"
    assert safe_id("resp_" + "a" * 400) == "resp_" + "a" * 400
    for given in ("tell me a secret", "a" * 10_240, "", None):
        assert safe_id(given) is None


def test_remembered_names_are_bounded() -> None:
    for number in range(3_000):
        assert safe_name(f"model-{number}") == f"model-{number}"
    assert len(fields.known_names) <= 1_024
