from __future__ import annotations

import copy
import json
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings, strategies as st
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam

from fastlane.plays.bounded_output.session import ask_again
from fastlane.plays.bounded_output.validation import Problem

CHAT, COMPLETIONS, RESPONSES = "/chat/completions", "/completions", "/responses"
PROBLEM = Problem("category", "not one of the allowed values", '- category: got "x"')
QUESTION = {"role": "user", "content": "Which category?"}
CORRECTION = {
    "role": "user",
    "content": "Your last answer is not valid. What is wrong with it:\n"
    '- category: got "x"\n'
    "Give the whole answer again, corrected: only the answer itself, in the requested form.",
}


def turns(answer: str, *, endpoint: str = CHAT, **body: Any) -> list[dict[str, Any]]:
    """The turns that are appended."""
    field = "messages" if endpoint == CHAT else "input"
    body = {field: [QUESTION], **body}
    before = copy.deepcopy(body)
    made: Any = ask_again(body, endpoint, answer, PROBLEM)
    assert body == before
    assert made[field][0] == QUESTION
    assert {**made, field: None} == {**body, field: None}
    appended: list[dict[str, Any]] = made[field][1:]
    return appended


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("text", "shown"), [('{"category": "x"}', '{"category": "x"}'), ('{"a"' + " \n" * 500, '{"a"'), (" ", "(no text)")]
)
def test_the_answer_and_its_problem_are_appended(endpoint: str, text: str, shown: str) -> None:
    assert turns(text, endpoint=endpoint, model="m") == [{"role": "assistant", "content": shown}, CORRECTION]


def test_an_input_of_text_becomes_a_message() -> None:
    assert turns("{}", endpoint=RESPONSES, previous_response_id="resp_1", input="Which category?")[1] == CORRECTION


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (CHAT, {}),
        (CHAT, {"messages": "x"}),
        (RESPONSES, {"input": 5}),
        (RESPONSES, {"input": [], "conversation": "conv_1"}),
        (COMPLETIONS, {"prompt": "Once"}),
    ],
)
def test_what_cannot_be_appended_to_is_not_asked_again(endpoint: str, body: Any) -> None:
    assert ask_again(body, endpoint, "{}", PROBLEM) is None


def test_appended_turns_are_of_openais_types() -> None:
    pydantic.TypeAdapter(list[ChatCompletionMessageParam]).validate_python(turns("{}"))
    pydantic.TypeAdapter(ResponseInputParam).validate_python(turns("{}", endpoint=RESPONSES))


@settings(max_examples=100)
@given(st.text(st.characters(exclude_categories=[]), max_size=20))
def test_appended_turns_can_be_encoded(text: str) -> None:
    json.dumps(turns(text), ensure_ascii=False).encode()
