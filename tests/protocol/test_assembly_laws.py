"""What holds for every answer and every stream of it, and for malformed events."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, strategies as st
from openai._models import construct_type
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from fastlane.protocol.answer_texts import answer_texts
from fastlane.protocol.assembly import AnswerCut
from fastlane.protocol.content import Channel, Delta
from fastlane.protocol.endpoints import CHAT, COMPLETIONS, RESPONSES
from tests.protocol.drawn import Drawn, chat_answers, completions, responses
from tests.protocol.streams import assembled


def typed(model: Any, value: Any) -> Any:
    return construct_type(type_=model, value=copy.deepcopy(value))


@given(chat_answers())
def test_assembled_chat_chunks_equal_the_completion(drawn: Drawn) -> None:
    asked = len(drawn.whole["choices"])
    before = copy.deepcopy(drawn.events)
    assembly = assembled(CHAT, drawn.events, choices=asked)
    assert assembly.finished
    assert assembly.body() == drawn.whole
    assert drawn.events == before, "events are read, not changed"


@given(completions())
def test_assembled_legacy_events_equal_the_completion(drawn: Drawn) -> None:
    assembly = assembled(COMPLETIONS, drawn.events)
    assert assembly.finished
    assert assembly.body() == drawn.whole
    shortened = assembly.body(AnswerCut(ends={(0,): 3}, usage={}))["choices"]
    assert shortened[0]["text"] == drawn.whole["choices"][0]["text"][:3]
    assert shortened[0]["finish_reason"] == "stop"
    assert shortened[1:] == drawn.whole["choices"][1:]


@given(responses())
def test_assembled_response_events_equal_the_response(drawn: Drawn) -> None:
    assembly = assembled(RESPONSES, drawn.events)
    assert assembly.finished
    assert assembly.error is None
    assert assembly.body() == drawn.whole
    # Without its last event, it has all of its output.
    assembly = assembled(RESPONSES, drawn.events[:-1])
    assert not assembly.finished
    found = assembly.body(AnswerCut(usage=drawn.whole["usage"]))
    assert found == {**drawn.whole, "status": "completed", "incomplete_details": None}


@given(responses())
def test_assembled_deltas_alone_equal_the_output(drawn: Drawn) -> None:
    begun = [event for event in drawn.events if not event["type"].endswith((".done", "completed", "incomplete"))]
    found = assembled(RESPONSES, begun).body(AnswerCut())["output"]
    for item, expected in zip(found, drawn.whole["output"], strict=True):
        if expected["type"] != "web_search_call":
            assert item == expected


def texts_of(deltas: list[Delta]) -> dict[tuple[Channel, str], str]:
    found: dict[tuple[Channel, str], str] = {}
    for delta in deltas:
        key = delta.channel, delta.kind
        found[key] = found.get(key, "") + delta.text
    return found


@given(st.tuples(st.just(CHAT), chat_answers()) | st.tuples(st.just(RESPONSES), responses()))
def test_deltas_of_typed_events_are_those_of_the_json(pair: tuple[str, Drawn]) -> None:
    endpoint, drawn = pair
    assembly, of_typed = assembled(endpoint, ()), assembled(endpoint, ())
    from_json: list[Delta] = []
    for event in drawn.events:
        deltas = list(assembly.take(event))
        assert list(of_typed.take(typed(MODELS[endpoint], event))) == deltas
        from_json += deltas
    assert of_typed.body() == assembly.body()
    whole = {one.where: one.text for one in answer_texts(assembly.body(), endpoint)}
    for (channel, kind), text in texts_of(from_json).items():
        if kind == "content":
            assert whole.get(channel, "") == text


@given(chat_answers(), st.integers(0, 30), st.integers(0, 5))
def test_cut_changes_only_text_outside_its_bounds(drawn: Drawn, end: int, start: int) -> None:
    whole = drawn.whole
    ends: dict[Channel, int] = {}
    for choice in whole["choices"]:
        ends[choice["index"],] = end
        for position, _ in enumerate(choice["message"].get("tool_calls") or ()):
            ends[choice["index"], position] = end
    cut = AnswerCut(ends=ends, starts=dict.fromkeys(ends, start), usage={"estimated": True})
    found = assembled(CHAT, drawn.events).body(cut)
    expected = copy.deepcopy(whole)
    for choice in expected["choices"]:
        message = choice["message"]
        if message["content"]:
            message["content"] = message["content"][start:end]
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = call["function"]["arguments"][start:end]
        if choice["finish_reason"] == "length":
            choice["finish_reason"] = "tool_calls" if "tool_calls" in message else "stop"
    assert found == expected


@given(responses(), st.integers(0, 9), st.integers(0, 3))
def test_cut_of_a_response_shortens_texts_and_arguments(drawn: Drawn, end: int, start: int) -> None:
    whole = answer_texts(drawn.whole, RESPONSES)
    ends = {text.where: end for text in whole}
    cut = AnswerCut(ends=ends, starts=dict.fromkeys(ends, start))
    for events in (drawn.events[:-1], drawn.events):
        found = answer_texts(assembled(RESPONSES, events).body(cut), RESPONSES)
        assert [text.text for text in found] == [text.text[start:end] for text in whole]


MODELS: dict[str, Any] = {CHAT: ChatCompletionChunk, COMPLETIONS: Completion, RESPONSES: ResponseStreamEvent}
