from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseUsage

from fastlane.knowledge.tokens import counter
from fastlane.protocol.answer_texts import AnswerText, answer_texts, verdict_of
from fastlane.protocol.usage import estimated_usage, prompt_tokens

CHAT, COMPLETIONS, RESPONSES = "/chat/completions", "/completions", "/responses"


def chat(*messages: dict[str, Any], finish_reason: str | None = "stop") -> dict[str, Any]:
    choices = [
        {"index": index, "message": message, "finish_reason": finish_reason} for index, message in enumerate(messages)
    ]
    return {"id": "chatcmpl-1", "choices": choices}


def call(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def responses(*output: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "status": status, "output": list(output), **fields}


def message(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(parts), **fields}


def output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


# Texts

CUSTOM_CALL = {"id": "call_2", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
PARTS = [{"type": "thinking", "thinking": [{"text": "hm"}]}, {"type": "text", "text": '{"a"'}, {"text": ": 1}"}]


@pytest.mark.parametrize(
    ("endpoint", "answer", "expected"),
    [
        (
            CHAT,
            {"choices": [{"index": 1, "message": {"content": "b"}}, {"index": 0, "message": {"content": "a"}}]},
            [AnswerText("content", "b", (1,), None), AnswerText("content", "a", (0,), None)],
        ),
        (
            CHAT,
            chat({"content": None, "tool_calls": [call("search", "{}"), CUSTOM_CALL]}, finish_reason="tool_calls"),
            [
                AnswerText("tool_call", "{}", (0, 0), "tool_calls", "search", "call_1"),
                AnswerText("tool_call", "select 1", (0, 1), "tool_calls", "sql", "call_2", "custom"),
            ],
        ),
        (CHAT, chat({"content": None, "refusal": "No."}), [AnswerText("refusal", "No.", (0,), "stop")]),
        (CHAT, chat({"content": PARTS}), [AnswerText("content", '{"a": 1}', (0,), "stop")]),
        (CHAT, chat({"content": None}), [AnswerText("content", "", (0,), "stop")]),
        (
            COMPLETIONS,
            {"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]},
            [AnswerText("content", "a", (0,), "length")],
        ),
        (
            RESPONSES,
            responses(
                {"type": "reasoning", "summary": []},
                message(output_text("a"), {"type": "refusal", "refusal": "No."}),
                {"type": "function_call", "name": "search", "call_id": "call_1", "arguments": "{}"},
                {"type": "custom_tool_call", "name": "sql", "call_id": "call_2", "input": "select 1"},
            ),
            [
                AnswerText("content", "a", (1, 0), "completed"),
                AnswerText("refusal", "No.", (1, 1), "completed"),
                AnswerText("tool_call", "{}", (2,), "completed", "search", "call_1"),
                AnswerText("tool_call", "select 1", (3,), "completed", "sql", "call_2", "custom"),
            ],
        ),
    ],
    ids=["choices", "calls", "refusal", "parts", "nothing", "completion", "response"],
)
def test_answer_texts_have_their_index_kind_and_end(
    endpoint: str, answer: dict[str, Any], expected: list[AnswerText]
) -> None:
    assert answer_texts(answer, endpoint) == expected


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        ((), [""]),
        (({"type": "reasoning", "summary": []},), [""]),
        (
            (
                message(output_text("Let me see."), phase="commentary"),
                message(output_text("{}"), phase="final_answer"),
            ),
            ["{}"],
        ),
        (({"type": "web_search_call", "id": "ws_1"},), []),
        (("no item", message(output_text("{}"))), ["{}"]),
    ],
    ids=["nothing", "thought", "commentary", "hosted tool", "malformed"],
)
def test_response_texts_are_those_of_the_final_answer(output: tuple[Any, ...], texts: list[str]) -> None:
    assert [text.text for text in answer_texts(responses(*output), RESPONSES)] == texts


# Verdicts


@pytest.mark.parametrize(
    ("endpoint", "body", "expected"),
    [
        (CHAT, chat({"content": "{}"}), None),
        (CHAT, chat({"content": '{"a'}, finish_reason="length"), "truncated"),
        (CHAT, chat({"content": '{"a'}, finish_reason="MAX_TOKENS"), "truncated"),
        (CHAT, chat({"content": ""}, finish_reason="content_filter"), "refused"),
        (CHAT, chat({"content": None, "refusal": "No."}), "refused"),
        (CHAT, chat({"content": "{}"}, {"content": None, "refusal": "No."}), "refused"),
        (CHAT, chat({"content": "{}"}, finish_reason=None), None),
        (COMPLETIONS, {"choices": [{"text": "a", "finish_reason": "length"}]}, "truncated"),
        (RESPONSES, responses(message(output_text("{}"))), None),
        (RESPONSES, responses(message({"type": "refusal", "refusal": "No."})), "refused"),
        (RESPONSES, responses(status="incomplete", incomplete_details={"reason": "max_output_tokens"}), "truncated"),
        (RESPONSES, responses(status="incomplete", incomplete_details={"reason": "content_filter"}), "refused"),
        (RESPONSES, responses(status="incomplete", incomplete_details=None), "truncated"),
        (RESPONSES, responses(status="failed"), None),
    ],
)
def test_truncated_answer_is_distinguished_from_refused(
    endpoint: str, body: dict[str, Any], expected: str | None
) -> None:
    assert verdict_of(body, endpoint) == expected


# Usage


def test_estimated_usage_has_endpoint_field_names_and_flag() -> None:
    assert estimated_usage(CHAT, input_tokens=7, output_tokens=3) == {
        "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "estimated": True,
    }  # fmt: skip
    usage = ResponseUsage.model_validate(estimated_usage(RESPONSES, input_tokens=7, output_tokens=3))
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 3, 10)


def test_schema_counts_as_prompt() -> None:
    count, schema = counter("m"), {"type": "object", "properties": {"city": {"type": "string"}}}
    shown = {"model": "m", "messages": [{"role": "user", "content": "Where?"}]}
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    more = prompt_tokens(shown | {"response_format": wanted}, count) - prompt_tokens(shown, count)
    assert more == count.text('{"type":"object","properties":{"city":{"type":"string"}}}') > 0
