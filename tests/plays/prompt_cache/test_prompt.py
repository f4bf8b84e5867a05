"""A prompt is the list of its messages, laid out,"""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import pytest
from hypothesis import given, strategies as st
from openai.types.chat import ChatCompletionMessage

import fastlane
from fastlane import Call, ConfigurationError, PromptCache
from fastlane.plays import Stage
from fastlane.prompts import Prompt, session, stable, volatile
from tests.call_peer import ANSWER
from tests.prepared_server import LIBRARY
from tests.session_play import SessionPlay


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


def test_prompt_part_takes_one_message_several_or_none() -> None:
    one = {"role": "developer", "content": "a"}

    assert Prompt(stable=one, session=None) == Prompt(stable=[one]) == Prompt(stable=(part for part in [one]))
    assert Prompt() == []


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
def test_invalid_prompt_part_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        make()

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("mark", [stable, session, volatile])
def test_marked_message_equals_a_plain_dict(mark: Any) -> None:
    message = {"role": "user", "content": "a"}
    marked = mark(message)

    assert marked == message
    assert repr(marked) == repr(message)
    assert json.dumps(marked) == json.dumps(message)
    assert type(dict(marked)) is type({**marked}) is dict


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copy_keeps_the_marks(copied: Any) -> None:
    message = volatile({"role": "user", "content": ["a"]})
    prompt = Prompt(stable="a", session="b", volatile="c")

    for another in (copied(message), message.copy()):
        assert (another, another.placement) == (message, "volatile")
        assert another is not message
    again = copied(prompt)
    assert (type(again), again) == (Prompt, prompt)
    assert [one.placement for one in again] == ["stable", "session", "volatile"]


# Messages come in the order of how long they stay, each once, as they were written


ORDER = {"stable": 0, "session": 1, "volatile": 2}
MARKS: list[Any] = [None, stable, session, volatile]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def message(role: str, content: Any, **others: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **others}


def calling(*ids: str) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(of: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": of, "content": f"what {of} gave"}


@dataclass(frozen=True, slots=True)
class LastPlay(SessionPlay):
    """Sees each call as it is sent."""

    stage: ClassVar[Stage] = Stage.ENCODE

    def plan(self, call: Call) -> Call:
        PLANNED.append(call)
        return call


PLANNED: list[Call] = []
HTTP = LIBRARY.Client(transport=LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, json=ANSWER)))
CLIENT = fastlane.OpenAI(
    api_key="k", base_url="http://server", http_client=HTTP, only_plays=[PromptCache(), LastPlay()]
)


def laid(*messages: Any, field: str = "messages") -> list[Any]:
    """The messages that are sent for these."""
    create: Any = CLIENT.chat.completions.create if field == "messages" else CLIENT.responses.create
    create(model="m", **{field: list(messages)})
    sent: list[Any] = PLANNED[-1].body[field]
    return sent


@st.composite
def conversations(draw: st.DrawFn) -> list[Any]:
    """Messages with marks on some of them, on some of their parts, and with whole exchanges with tools."""
    messages: list[Any] = []
    for number in range(draw(st.integers(0, 8))):
        role = draw(st.sampled_from(["system", "developer", "user", "assistant", "tools"]))
        mark = draw(st.sampled_from(MARKS))
        new: list[Any]
        if role == "tools":
            ids = [f"{number}.{one}" for one in range(draw(st.integers(1, 3)))]
            new = [calling(*ids), *(result(one) for one in ids)]
        elif role != "assistant" and draw(st.booleans()):
            parts = [text(f"{number}.{one}") for one in range(draw(st.integers(0, 3)))]
            marks = [draw(st.sampled_from(MARKS)) for _ in parts]
            new = [message(role, [one(part) if one else part for one, part in zip(marks, parts, strict=True)])]
        else:
            new = [message(role, f"{number}")]
        messages += [mark(one) if mark else one for one in new]
    return messages


def parts_of(messages: Any) -> Counter[str]:
    """Every part with its role, and all other fields of its message."""
    found: Counter[str] = Counter()
    for one in messages:
        rest = {name: value for name, value in one.items() if name != "content"}
        parts = one["content"] if isinstance(one.get("content"), list) and one["content"] else [one.get("content")]
        found.update(json.dumps([rest, part], sort_keys=True) for part in parts)
    return found


@given(conversations())
def test_arranged_messages_are_the_same_in_order_of_placement(messages: list[Any]) -> None:
    before = copy.deepcopy(messages)
    arranged = laid(*messages)
    found = PLANNED[-1].placements

    assert messages == before
    assert parts_of(arranged) == parts_of(messages)
    if found is None:
        assert arranged == messages
    else:
        assert len(found) == len(arranged)
        assert list(found) == sorted(found, key=ORDER.__getitem__)
    open_calls: list[str] = []
    for one in arranged:
        if one["role"] == "tool":
            assert open_calls.pop(0) == one["tool_call_id"], "a result follows its call"
        else:
            assert open_calls == []
            open_calls = [call["id"] for call in one.get("tool_calls", ())]
    assert open_calls == []


@given(conversations())
def test_unmarked_messages_keep_their_order(messages: list[Any]) -> None:
    """A system message in the midst of a conversation belongs to it."""
    plain = json.loads(json.dumps(messages))

    assert laid(*plain) == plain


def test_items_of_a_response_stay_together() -> None:
    items = [
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        stable({"type": "function_call_output", "call_id": "b", "output": "2"}),
        {"type": "reasoning", "id": "rs2", "summary": []},
        volatile({"type": "message", "role": "assistant", "content": "So."}),
    ]
    question, another = message("user", "Hi."), message("user", "And now?")

    sent = laid(question, *items, another, volatile("10:04"), field="input")

    assert sent == [question, *items, another, message("system", "10:04")]


def test_assistant_prefill_stays_last() -> None:
    clock, question, beginning = volatile("10:04"), message("user", "Hi."), message("assistant", "Dear")

    assert laid(clock, question, beginning) == [question, clock, beginning]
    # A question that is declared volatile is none of those.
    assert laid(question, session(beginning), volatile(message("user", "And?")))[-1] == message("user", "And?")
