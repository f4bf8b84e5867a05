"""A stream that was stopped ends in good order: openai's own helpers take it for a whole one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai import omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

import fastlane
from fastlane.emulator import Emulator
from fastlane.protocol.assembly import AnswerCut
from fastlane.protocol.endpoints import CHAT, COMPLETIONS, RESPONSES
from tests.protocol.drawn import Drawn, chat_answers, responses
from tests.protocol.streams import assembled, request, streamed

MODELS: dict[str, Any] = {CHAT: ChatCompletionChunk, COMPLETIONS: Completion, RESPONSES: ResponseStreamEvent}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "estimated": True}
RESPONSE_USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "estimated": True}


def closed(endpoint: str, events: Iterable[dict[str, Any]], cut: AnswerCut, **more: Any) -> list[dict[str, Any]]:
    """The events that a reader gets: some that came, and those that end them."""
    given = list(events)
    assembly = assembled(endpoint, [construct_type(type_=MODELS[endpoint], value=event) for event in given])
    return [*given, *assembly.closing_events(cut, **more)]


def has_text(endpoint: str, event: dict[str, Any]) -> bool:
    if endpoint == RESPONSES:
        return bool(event["type"] == "response.output_text.delta")
    return bool(event["choices"]) and not event["choices"][0]["finish_reason"]


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [
        (RESPONSES, {}),
        (RESPONSES, {"extra_headers": {"x-emulator-reasoning-tokens": "5"}}),
        (CHAT, {"stream_options": {"include_usage": True}}),
        (CHAT, {"stream_options": {"include_usage": True}, "n": 3}),
        (COMPLETIONS, {"n": 2, "max_tokens": 1_000}),
    ],
)
def test_closing_events_are_those_of_the_provider(
    provider: Emulator, arguments: dict[str, Any], endpoint: str, asked: dict[str, Any]
) -> None:
    with fastlane.OpenAI(**arguments) as client:
        events = streamed(client, endpoint, **request(endpoint, **asked))
    if endpoint == RESPONSES:
        last = max(number for number, event in enumerate(events) if has_text(endpoint, event))
        begun, usage = events[: last + 1], events[-1]["response"]["usage"]
    else:
        begun, usage = [event for event in events if has_text(endpoint, event)], events[-1].get("usage")
    assert closed(endpoint, begun, AnswerCut(usage=usage), include_usage=endpoint == CHAT) == events


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS, RESPONSES])
def test_finished_or_unstarted_stream_gets_no_closing_events(
    provider: Emulator, arguments: dict[str, Any], endpoint: str
) -> None:
    with fastlane.OpenAI(**arguments) as client:
        events = streamed(client, endpoint, **request(endpoint))
    assert closed(endpoint, events, AnswerCut()) == events
    assert closed(endpoint, [], AnswerCut()) == []
    if endpoint == CHAT:  # whose usage alone may be missing
        *whole, last = closed(endpoint, events, AnswerCut(usage=USAGE), include_usage=True)
        assert (whole, last["choices"], last["usage"]) == (events, [], USAGE)


@given(responses(), st.data())
def test_any_response_stopped_anywhere_is_complete_for_helper(drawn: Drawn, data: st.DataObject) -> None:
    kept = drawn.events[: data.draw(st.integers(1, len(drawn.events) - 1))]
    channel = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 1)) | st.tuples(st.integers(0, 3)))
    cut = AnswerCut(ends={channel: data.draw(st.integers(0, 9))}, usage=RESPONSE_USAGE)
    sent = closed(RESPONSES, kept, cut)
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    state: Any = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in sent:
        state.handle_event(construct_type(type_=ResponseStreamEvent, value=event))
    expected = assembled(RESPONSES, kept).body(cut)
    assert sent[-1]["response"] == expected
    assert state._completed_response.status == "completed"
    # Put together again, what was sent is what it says at its end.
    assert assembled(RESPONSES, sent).body() == expected
    assert assembled(RESPONSES, sent[:-1]).body(cut) == expected


@given(responses())
def test_response_stopped_before_any_end_gets_every_end(drawn: Drawn) -> None:
    begun = [event for event in drawn.events if not event["type"].endswith((".done", "completed", "incomplete"))]
    ends = [event for event in drawn.events if event["type"].endswith(".done")]
    ours = closed(RESPONSES, begun, AnswerCut())[len(begun) :]
    by_item = sorted(ends, key=lambda event: event["output_index"])
    assert [event["type"] for event in ours] == [*(event["type"] for event in by_item), "response.completed"]
    for event, expected in zip(ours, by_item, strict=False):
        for name in ("text", "refusal", "arguments", "input", "part"):
            assert event.get(name) == expected.get(name)


@given(chat_answers(), st.data())
def test_any_completion_stopped_anywhere_is_whole(drawn: Drawn, data: st.DataObject) -> None:
    kept = drawn.events[: data.draw(st.integers(1, len(drawn.events)))]
    sent = closed(CHAT, kept, AnswerCut(usage=USAGE), include_usage=True)
    before, after = assembled(CHAT, kept).body(AnswerCut()), assembled(CHAT, sent).body()
    usages = [event["usage"] for event in kept if event.get("usage")]
    assert after["usage"] == (usages[-1] if usages else USAGE)
    assert sent[-1]["usage"] == after["usage"]
    found = [choice["finish_reason"] for choice in after["choices"]]
    assert found == ([choice["finish_reason"] for choice in before["choices"]] or ["stop"])


def test_finished_choice_without_delta_leaves_others_open() -> None:
    event = {"id": "a", "choices": [{"index": 0, "finish_reason": "stop"}, {"index": 1, "delta": {"content": "x"}}]}

    ends = closed(CHAT, [event], AnswerCut())[1:]

    assert [choice["index"] for end in ends for choice in end["choices"]] == [1]
