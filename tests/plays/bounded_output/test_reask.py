from __future__ import annotations

import copy
import json
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings, strategies as st
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam

from fastlane.plays.bounded_output.reask import Judged, ask_again
from fastlane.plays.bounded_output.validation import Problem, problem_in
from fastlane.protocol.answer_texts import AnswerText, answer_texts

CHAT, COMPLETIONS, RESPONSES = "/chat/completions", "/completions", "/responses"
PROBLEM = Problem("category", "not one of the allowed values", '- category: got "x"')
QUESTION = {"role": "user", "content": "Which category?"}
CORRECTION = {
    "role": "user",
    "content": "Your last answer is not valid. What is wrong with it:\n"
    '- category: got "x"\n'
    "Give the whole answer again, corrected: only the answer itself, in the form that was asked for.",
}


def content(text: str = '{"category": "x"}', problem: Problem | None = PROBLEM) -> Judged:
    return AnswerText("content", text, (0,)), problem


def call(arguments: str = "{}", call_id: str | None = "1", problem: Problem | None = PROBLEM, **more: Any) -> Judged:
    return AnswerText("tool_call", arguments, (0, 0), "tool_calls", "search", call_id, **more), problem


def turns(*answer: Judged, endpoint: str = CHAT, **body: Any) -> list[dict[str, Any]]:
    """The turns that are appended."""
    field = "messages" if endpoint == CHAT else "input"
    body = {field: [QUESTION], **body}
    before = copy.deepcopy(body)
    made = ask_again(body, endpoint, answer, PROBLEM)
    assert body == before
    assert made is not None
    assert made[field][0] == QUESTION
    assert {**made, field: None} == {**body, field: None}
    appended: list[dict[str, Any]] = made[field][1:]
    return appended


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("text", "shown"), [('{"category": "x"}', '{"category": "x"}'), ('{"a"' + " \n" * 500, '{"a"'), (" ", "(no text)")]
)
def test_the_answer_and_its_problem_are_appended(endpoint: str, text: str, shown: str) -> None:
    assert turns(content(text), endpoint=endpoint, model="m") == [{"role": "assistant", "content": shown}, CORRECTION]


def test_an_input_of_text_becomes_a_message() -> None:
    assert turns(content(), endpoint=RESPONSES, previous_response_id="resp_1", input="Which category?")[1] == CORRECTION


def test_a_call_with_wrong_arguments_gets_a_result() -> None:
    said, result = turns(call('{"limit": "x"}'))

    inner = {"name": "search", "arguments": '{"limit": "x"}'}
    assert said == {
        "role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": inner}]
    }  # fmt: skip
    assert result == {
        "role": "tool",
        "tool_call_id": "1",
        "content": "The tool was not called, because the arguments of this call are not valid. What is wrong with "
        'them:\n- category: got "x"\nMake the call again, corrected.',
    }
    item, output = turns(call('{"limit": "x"}'), endpoint=RESPONSES)
    assert item == {"type": "function_call", "call_id": "1", **inner}
    assert output == {"type": "function_call_output", "call_id": "1", "output": result["content"]}


def test_every_call_of_an_answer_gets_a_result() -> None:
    said, first, second = turns(call(call_id=None, problem=None), call(call_id=None))

    ids = ["call_0", "call_1"]
    assert [each["id"] for each in said["tool_calls"]] == ids
    assert [each["tool_call_id"] for each in (first, second)] == ids
    assert "as it was" in first["content"]
    assert PROBLEM.advice in second["content"]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"text"', "", "not json"])
def test_arguments_that_are_no_object_are_shown_as_one(arguments: str) -> None:
    said, _ = turns(call(arguments))

    sent = said["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"arguments_that_are_not_valid_json": arguments}


def test_a_problem_without_a_text_counts_for_the_content() -> None:
    assert turns(content(problem=None), call(problem=None))[-1] == CORRECTION
    assert turns(call(problem=None))[-1] == CORRECTION


@pytest.mark.parametrize(
    ("endpoint", "body", "answer"),
    [
        (CHAT, {}, [content()]),
        (CHAT, {"messages": "x"}, [content()]),
        (RESPONSES, {"input": 5}, [content()]),
        (RESPONSES, {"input": [], "conversation": "conv_1"}, [content()]),
        (COMPLETIONS, {"prompt": "Once"}, [content()]),
        (CHAT, {"messages": []}, [call(form="custom")]),
    ],
)
def test_what_cannot_be_appended_to_is_not_asked_again(endpoint: str, body: Any, answer: list[Judged]) -> None:
    assert ask_again(body, endpoint, answer, PROBLEM) is None


def test_appended_turns_are_of_openais_types() -> None:
    chat = pydantic.TypeAdapter(list[ChatCompletionMessageParam])
    responses = pydantic.TypeAdapter(ResponseInputParam)

    for answer in ([content()], [call()], [content(problem=None), call()]):
        chat.validate_python(turns(*answer))
        responses.validate_python(turns(*answer, endpoint=RESPONSES))


@settings(max_examples=100)
@given(st.text(st.characters(exclude_categories=[]), max_size=20))
def test_appended_turns_can_be_encoded(text: str) -> None:
    json.dumps(turns(content(text), call(text)), ensure_ascii=False).encode()


def test_a_whole_answer_is_read_judged_and_asked_again() -> None:
    schema = {"type": "object", "properties": {"category": {"enum": ["billing", "bug"]}}, "required": ["category"]}
    message = {"role": "assistant", "content": '{"category": "other"}'}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    (text,) = answer_texts(answer, CHAT)
    problem = problem_in(text.text, schema)

    assert problem is not None
    made = ask_again({"messages": [QUESTION]}, CHAT, [(text, problem)], problem)
    assert made is not None
    assert 'category: the value is not one of "billing" or "bug". Got "other".' in made["messages"][-1]["content"]
