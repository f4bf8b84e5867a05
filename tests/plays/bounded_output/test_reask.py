from __future__ import annotations

import copy
import json
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings, strategies as st
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam

from fastlane.plays.bounded_output.reask import asking_again
from fastlane.plays.bounded_output.validation import Problem, problem_in
from fastlane.protocol.answer_texts import AnswerText, answer_texts

CHAT, COMPLETIONS, RESPONSES = "/chat/completions", "/completions", "/responses"
PROBLEM = Problem("category", "not one of the allowed values", '- category: got "x"')
QUESTION = {"role": "user", "content": "Which category?"}


def asked_again(
    body: dict[str, Any], endpoint: str, answer: Any = '{"category": "x"}', **options: Any
) -> dict[str, Any]:
    before = copy.deepcopy(body)
    made = asking_again(body, endpoint, answer, PROBLEM, **options)
    assert body == before
    assert made is not None
    return made


def call(
    name: str, arguments: str, call_id: str | None = "call_1", form: Any = "function", place: int = 0
) -> AnswerText:
    return AnswerText("tool_call", arguments, (0, place), "tool_calls", name, call_id, form)


# Chat


def test_the_answer_and_what_is_wrong_with_it_are_appended() -> None:
    body = {"model": "m", "messages": [QUESTION], "response_format": {"type": "json_object"}}

    made = asked_again(body, CHAT)

    assert made["messages"] == [
        QUESTION,
        {"role": "assistant", "content": '{"category": "x"}'},
        {
            "role": "user",
            "content": "Your last answer is not valid. What is wrong with it:\n"
            '- category: got "x"\n'
            "Give the whole answer again, corrected: only the answer itself, in the form that was asked for.",
        },
    ]
    assert {**made, "messages": None} == {**body, "messages": None}
    assert made["messages"] is not body["messages"]


def test_a_second_reask_only_appends_to_the_first() -> None:
    first = asked_again({"messages": [QUESTION]}, CHAT)
    second = asked_again(first, CHAT, "{}")

    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert len(second["messages"]) == 5


def test_white_space_at_the_end_is_not_paid_for_again() -> None:
    assert asked_again({"messages": []}, CHAT, '{"a"' + " \n" * 500)["messages"][0]["content"] == '{"a"'


def test_an_empty_answer_leaves_the_roles_in_turn() -> None:
    made = asked_again({"messages": [QUESTION]}, CHAT, " ")

    assert made["messages"][1] == {"role": "assistant", "content": "(no text)"}


def test_a_call_with_wrong_arguments_is_answered_in_the_tools_place() -> None:
    made = asked_again({"messages": [QUESTION]}, CHAT, [(call("search", '{"limit": "x"}'), PROBLEM)])

    assert made["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"limit": "x"}'}}
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": "The tool was not called, because the arguments of this call are not valid. What is wrong with "
            'them:\n- category: got "x"\nMake the call again, corrected.',
        },
    ]


def test_every_call_of_the_answer_gets_a_result() -> None:
    other = Problem("limit", "missing", "limit: missing")
    answer = [(call("a", "{}", "1", place=0), None), (call("b", "{}", "2", place=1), PROBLEM)]
    answer.append((call("c", "{}", "3", place=2), other))

    said, *results = asked_again({"messages": []}, CHAT, answer)["messages"]

    assert [each["id"] for each in said["tool_calls"]] == [each["tool_call_id"] for each in results] == ["1", "2", "3"]
    assert "as it was" in results[0]["content"]
    assert PROBLEM.advice in results[1]["content"]
    assert other.advice in results[2]["content"]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"text"', "", "not json"])
def test_arguments_that_an_engine_could_not_read_are_shown_as_an_object(arguments: str) -> None:
    made = asked_again({"messages": []}, CHAT, [(call("search", arguments), PROBLEM)])

    sent = made["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"arguments_that_are_not_valid_json": arguments}


def test_a_call_without_an_id_is_given_one() -> None:
    made = asked_again(
        {"messages": []}, CHAT, [(call("a", "{}", None), PROBLEM), (call("b", "{}", None, place=1), None)]
    )

    said, *results = made["messages"]
    assert (
        [each["id"] for each in said["tool_calls"]]
        == [each["tool_call_id"] for each in results]
        == ["call_0", "call_1"]
    )


def test_custom_and_older_calls_keep_their_form() -> None:
    custom = asked_again({"messages": []}, CHAT, [(call("sql", "selec", form="custom"), PROBLEM)])["messages"]
    older = asked_again({"messages": []}, CHAT, [(call("f", "{}", None, form="older"), PROBLEM)])["messages"]

    assert custom[0]["tool_calls"] == [{"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": "selec"}}]
    assert older[0]["function_call"] == {"name": "f", "arguments": "{}"}
    assert (older[1]["role"], older[1]["name"]) == ("function", "f")


def test_content_beside_calls_is_corrected_behind_their_results() -> None:
    answer = [(AnswerText("content", "oops", (0,)), PROBLEM), (call("a", "{}"), None)]

    made = asked_again({"messages": []}, CHAT, answer)["messages"]

    assert [each["role"] for each in made] == ["assistant", "tool", "user"]
    assert made[0]["content"] == "oops"


def test_of_several_choices_the_first_wrong_one_is_asked_for_again() -> None:
    answer = [(AnswerText("content", text, (index,)), PROBLEM if index else None) for index, text in enumerate("abc")]

    made = asked_again({"messages": [], "n": 3}, CHAT, answer)

    assert made["messages"][0]["content"] == "b"
    assert made["n"] == 1


def test_the_problem_counts_for_the_content_where_no_text_has_one() -> None:
    made = asked_again({"messages": []}, CHAT, [(AnswerText("content", "a", (0,)), None)])

    assert PROBLEM.advice in made["messages"][1]["content"]


# Completions


def test_the_prompt_of_completions_grows() -> None:
    prompt = asked_again({"prompt": "Which category?\n"}, COMPLETIONS, "x")["prompt"]

    assert prompt.startswith("Which category?\nx\n\nYour last answer is not valid.")
    assert asked_again({"prompt": ["Which category?\n"]}, COMPLETIONS, "x")["prompt"] == prompt


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2]], ["a", "b"], None, []])
def test_a_prompt_that_is_not_one_text_cannot_be_asked_again(prompt: Any) -> None:
    assert asking_again({"prompt": prompt}, COMPLETIONS, "x", PROBLEM) is None


# Responses


def test_an_input_of_text_becomes_a_users_message() -> None:
    assert asked_again({"input": "Which?"}, RESPONSES, "x")["input"][:2] == [
        {"role": "user", "content": "Which?"},
        {"role": "assistant", "content": "x"},
    ]


def test_a_chain_goes_on_from_where_it_stood() -> None:
    made = asked_again({"input": [QUESTION], "previous_response_id": "resp_1", "store": False}, RESPONSES)

    assert (made["previous_response_id"], made["store"]) == ("resp_1", False)
    assert [item["role"] for item in made["input"]] == ["user", "assistant", "user"]


def test_a_conversation_is_told_only_what_it_does_not_hold() -> None:
    made = asked_again({"input": [QUESTION], "conversation": {"id": "conv_1"}}, RESPONSES)

    assert [item["role"] for item in made["input"]] == ["user"]
    assert made["conversation"] == {"id": "conv_1"}


def test_a_conversation_whose_answer_was_cut_cannot_be_asked_again() -> None:
    body = {"input": "Which?", "conversation": "conv_1"}

    assert asking_again(body, RESPONSES, "x", PROBLEM, cut=True) is None
    assert asking_again({**body, "conversation": None}, RESPONSES, "x", PROBLEM, cut=True) is not None


def test_a_call_of_responses_comes_back_without_an_id_of_its_own() -> None:
    answer = [(AnswerText("tool_call", "{}", (1,), "completed", "search", "call_1"), PROBLEM)]

    made = asked_again({"input": "Which?"}, RESPONSES, answer)["input"]

    assert made[1] == {"type": "function_call", "call_id": "call_1", "name": "search", "arguments": "{}"}
    assert (made[2]["type"], made[2]["call_id"]) == ("function_call_output", "call_1")
    assert PROBLEM.advice in made[2]["output"]


def test_a_custom_call_of_responses_keeps_its_form() -> None:
    answer = [(AnswerText("tool_call", "selec", (0,), "completed", "sql", "call_1", "custom"), PROBLEM)]

    made = asked_again({}, RESPONSES, answer)["input"]

    assert made[0] == {"type": "custom_tool_call", "call_id": "call_1", "name": "sql", "input": "selec"}
    assert made[1]["type"] == "custom_tool_call_output"


# Whatever comes


@pytest.mark.parametrize("body", [{}, {"messages": None}, {"messages": "text"}, {"input": 5}, {"prompt": 5}])
@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS])
def test_what_cannot_be_appended_to_is_left_alone(endpoint: str, body: dict[str, Any]) -> None:
    assert asking_again(body, endpoint, "x", PROBLEM) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.builds(
    AnswerText,
    st.sampled_from(["content", "tool_call", "refusal"]),
    st.text(st.characters(), max_size=20),
    st.tuples(st.integers(0, 2)) | st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.none(),
    st.none() | st.text(max_size=3),
    st.none() | st.text(max_size=3),
    st.sampled_from(["function", "custom", "older"]),
)


@given(
    st.dictionaries(st.sampled_from(["messages", "input", "prompt", "n", "conversation", "n"]), JSON),
    st.sampled_from([CHAT, COMPLETIONS, RESPONSES]),
    st.text(st.characters(), max_size=20) | st.lists(st.tuples(TEXTS, st.none() | st.just(PROBLEM)), max_size=4),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_no_body_is_an_error_and_none_is_changed(body: dict[str, Any], endpoint: str, answer: Any, cut: bool) -> None:
    before = copy.deepcopy(body)

    made = asking_again(body, endpoint, answer, PROBLEM, cut=cut)

    assert body == before
    if made is not None:
        said = json.dumps(made[{CHAT: "messages", COMPLETIONS: "prompt", RESPONSES: "input"}[endpoint]])
        assert (
            PROBLEM.advice in json.loads(said) if endpoint == COMPLETIONS else json.dumps(PROBLEM.advice)[1:-1] in said
        )


@pytest.mark.parametrize("form", ["function", "custom", "older"])
def test_what_is_appended_is_of_openais_own_types(form: Any) -> None:
    content = (AnswerText("content", "oops", (0,)), PROBLEM)
    calls = [content, (call("f", "{}", form=form), None)]
    chat: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(list[ChatCompletionMessageParam])
    items: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseInputParam)

    for answer in ([content], calls):
        chat.validate_python(asked_again({"messages": [QUESTION]}, CHAT, answer)["messages"], strict=True)
        items.validate_python(asked_again({"input": "Which?"}, RESPONSES, answer)["input"], strict=True)


@given(st.text(st.characters(categories=["Cs", "L"]), max_size=10))
@settings(max_examples=50, deadline=None)
def test_what_is_sent_can_be_encoded(text: str) -> None:
    problem = problem_in(json.dumps(text), {"type": "integer"})
    assert problem is not None

    for answer in (text, [(call("f", text), problem)]):
        made = asking_again({"messages": []}, CHAT, answer, problem)

        assert made is not None
        assert json.dumps(made, ensure_ascii=False).encode()


def test_a_whole_answer_goes_from_reading_to_asking_again() -> None:
    body = {"messages": [QUESTION], "tools": []}
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"limit": 0}'}}]
    answer = {
        "choices": [{"index": 0, "message": {"content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}]
    }
    schema = {"properties": {"limit": {"minimum": 1}}}

    judged = [(text, problem_in(text.text, schema)) for text in answer_texts(answer, CHAT)]

    problem = judged[0][1]
    assert problem is not None
    made = asking_again(body, CHAT, judged, problem)
    assert made is not None
    assert "limit: the value is less than the minimum of 1. Got 0." in made["messages"][-1]["content"]
