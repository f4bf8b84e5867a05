"""A prompt is the list of its messages, laid out,"""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any, cast

import pytest
from openai.types.chat import ChatCompletionMessage

from fastlane import ConfigurationError
from fastlane.plays.prompt_cache.prompts import Marked
from fastlane.prompts import Prompt, session, stable, volatile


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Prompt(stable=3), r"stable\(\) takes a text.*got int: convert it"),
        (lambda: Prompt(stable=[b"secret"]), r"stable\(\) takes a text.*got bytes"),
        (lambda: Prompt(session=3), r"session\(\) takes a text.*got int"),
        (lambda: Prompt(volatile=ChatCompletionMessage(role="assistant")), r"got ChatCompletionMessage.*model_dump"),
        (lambda: stable(cast("Any", None)), r"fastlane.prompts.stable\(\) takes a text.*got NoneType"),
    ],
)  # fmt: skip
def test_what_is_no_prompt_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        make()

    assert "secret" not in str(refused.value)


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
    prompt = Prompt(stable="a", session="b", volatile="c")
    for another in (copy.deepcopy(prompt), pickle.loads(pickle.dumps(prompt)), copy.copy(prompt)):
        assert isinstance(another, Prompt)
        assert another == prompt
        assert [one.placement for one in another] == ["stable", "session", "volatile"]
