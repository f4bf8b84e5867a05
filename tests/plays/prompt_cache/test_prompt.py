"""A prompt is the list of its messages, laid out, and brings its tools and format along."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any, cast

import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

from fastlane import ConfigurationError
from fastlane.plays.prompt_cache.prompts import Marked, Prompt, session, stable, volatile

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "book",
            "strict": True,
            "parameters": {"type": "object", "properties": {"to": {}, "from": {}}, "required": ["to", "from"]},
        },
    },
    {"type": "function", "function": {"name": "ask", "description": "Ask."}},
    {"type": "web_search"},
]
FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"why": {}, "answer": {}}}},
}


class Ticket(BaseModel):
    name: str


def test_texts_become_messages_in_order() -> None:
    prompt = Prompt(
        volatile="It is 10:04.", session=["Hi.", {"role": "assistant", "content": "Yes?"}], stable="Be kind."
    )

    assert prompt == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "system", "content": "It is 10:04."},
    ]
    assert prompt.arguments() == {"messages": prompt}


def test_each_place_takes_one_or_several_or_none() -> None:
    one = {"role": "developer", "content": "a"}

    assert Prompt(stable=one, session=None) == Prompt(stable=[one]) == Prompt(stable=(part for part in [one]))
    assert Prompt() == []


def test_marked_parts_go_where_they_belong() -> None:
    now = {"type": "text", "text": "10:04"}
    prompt = Prompt(stable={"role": "system", "content": [volatile(now), {"type": "text", "text": "a"}]}, session="Hi.")

    assert [one["content"] for one in prompt] == [[{"type": "text", "text": "a"}], "Hi.", [now]]


def test_an_answers_own_message_may_be_part_of_the_session() -> None:
    answer = ChatCompletionMessage(role="assistant", content="b")

    assert list(Prompt(stable="a", session=["q", answer, "c"]))[2] is answer
    assert list(Prompt(session=answer)) == [answer]


def test_tools_and_format_are_written_in_one_way_and_stay_in_order() -> None:
    prompt = Prompt(stable="a", tools=iter(TOOLS), response_format=FORMAT)

    assert prompt.tools == [
        {**TOOLS[0], "function": {**TOOLS[0]["function"], "parameters": {
            "properties": {"to": {}, "from": {}}, "required": ["to", "from"], "type": "object"}}},
        *TOOLS[1:],
    ]  # fmt: skip
    assert list(prompt.tools[0]) == ["function", "type"]
    assert list(prompt.response_format["json_schema"]["schema"]) == ["properties", "type"]
    assert list(prompt.response_format["json_schema"]["schema"]["properties"]) == ["why", "answer"]
    assert prompt.arguments() == {"messages": prompt, "tools": prompt.tools, "response_format": prompt.response_format}


def test_responses_take_tools_and_format_in_their_own_form() -> None:
    arguments = Prompt(stable="a", session="b", tools=TOOLS, response_format=FORMAT).arguments("/responses")

    assert arguments["input"] == [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    assert [tool.get("name") for tool in arguments["tools"]] == ["book", "ask", None]
    assert [tool.get("strict") for tool in arguments["tools"]] == [True, False, None]
    assert arguments["tools"][2] == {"type": "web_search"}
    assert arguments["text"] == {"format": {"type": "json_schema", **FORMAT["json_schema"]}}
    assert arguments.keys() == {"input", "tools", "text"}


def test_a_form_of_the_other_endpoints_own_stays() -> None:
    flat = {"type": "function", "name": "ask", "parameters": {}, "strict": False}
    arguments = Prompt(tools=[flat], response_format={"type": "json_object"}).arguments("/responses")

    assert arguments["tools"] == [flat]
    assert arguments["text"] == {"format": {"type": "json_object"}}


def test_a_format_that_is_a_class_stays_one() -> None:
    prompt = Prompt(stable="a", response_format=Ticket)

    assert prompt.arguments()["response_format"] is Ticket
    assert prompt.arguments("/responses")["text_format"] is Ticket


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Prompt(stable=3), r"stable\(\) takes a text.*got int: convert it"),
        (lambda: Prompt(stable=[b"secret"]), r"stable\(\) takes a text.*got bytes"),
        (lambda: Prompt(session=3), r"session\(\) takes a text.*got int"),
        (lambda: Prompt(volatile=ChatCompletionMessage(role="assistant")), r"got ChatCompletionMessage.*model_dump"),
        (lambda: Prompt(tools={"type": "function"}), r"Prompt\(tools=.*got dict"),
        (lambda: Prompt(tools=cast("Any", 3)), r"Prompt\(tools=.*got int"),
        (lambda: Prompt(tools=["secret"]), r"Prompt\(tools=.*got str for tools\[0\]"),
        (lambda: Prompt().arguments("/embeddings"), r'takes "/chat/completions" or "/responses", got \'/embeddings\''),
        (lambda: stable(cast("Any", None)), r"fastlane.prompts.stable\(\) takes a text.*got NoneType"),
    ],
)  # fmt: skip
def test_what_is_no_prompt_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        make()

    assert "secret" not in str(refused.value)


def test_what_openai_takes_as_an_object_is_taken() -> None:
    ticket = Ticket.model_construct()

    assert Prompt(tools=(ticket,)).tools == [ticket]
    assert Prompt(response_format=ticket).response_format is ticket
    assert Prompt(response_format=openai.NOT_GIVEN).response_format is openai.NOT_GIVEN


@pytest.mark.parametrize("mark", [stable, session, volatile])
def test_a_marked_message_is_a_dictionary_to_everybody(mark: Any) -> None:
    message = {"role": "user", "content": "a"}
    marked = mark(message)

    assert marked == message
    assert repr(marked) == repr(message)
    assert json.dumps(marked) == json.dumps(message)
    assert type(dict(marked)) is type({**marked}) is dict


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda one: one.copy(), lambda one: pickle.loads(pickle.dumps(one))],
    ids=["copy", "deepcopy", "its own copy", "pickle"],
)
def test_a_copy_keeps_the_mark(copied: Any) -> None:
    message = volatile({"role": "user", "content": ["a"]})
    another = copied(message)

    assert isinstance(another, Marked)
    assert (another, another.placement) == (message, "volatile")
    assert another is not message


def test_the_last_mark_counts() -> None:
    assert stable(volatile("a")).placement == "stable"


def test_a_copied_prompt_is_the_same_prompt() -> None:
    prompt = Prompt(stable="a", session="b", volatile="c", tools=TOOLS, response_format=FORMAT)
    for another in (copy.deepcopy(prompt), pickle.loads(pickle.dumps(prompt)), copy.copy(prompt)):
        assert isinstance(another, Prompt)
        assert another.arguments() == prompt.arguments()
