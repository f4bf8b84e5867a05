"""What is put together out of a stream is what the provider answers when it does not stream."""

from __future__ import annotations

from typing import Any

import pytest
from openai._models import construct_type
from openai.types.chat import ChatCompletionChunk

from fastlane.protocol.assembly import AnswerCut
from fastlane.protocol.content import Delta
from fastlane.protocol.endpoints import CHAT, COMPLETIONS, RESPONSES
from tests.attempts.events import chunk
from tests.protocol.streams import assembled, body


def piece(index: int = 0, finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish_reason}


def message(*events: dict[str, Any], cut: AnswerCut | None = None) -> dict[str, Any]:
    found: dict[str, Any] = body(CHAT, events, cut)["choices"][0]["message"]
    return found


def called(index: int | None, arguments: str, id_: str | None = None, name: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"function": {"arguments": arguments}}
    if name is not None:
        found["function"]["name"] = name
    if id_ is not None:
        found |= {"id": id_, "type": "function"}
    return found if index is None else {"index": index, **found}


def calls_in(*events: dict[str, Any]) -> list[tuple[str, str, str]]:
    calls = message(*events)["tool_calls"]
    return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]


def test_late_missing_or_repeated_role_is_assistant() -> None:
    late = [chunk(piece(content="Rhin")), chunk(piece(role="assistant", content="e"))]
    never = [chunk(piece(content="Rhine"))]
    each_time = [chunk(piece(role="assistant", content=text)) for text in ("Rhin", "e")]
    for events in (late, never, each_time):
        assert message(*events) == {"role": "assistant", "content": "Rhine"}


STOPPED = piece(content="a", finish_reason="stop")


@pytest.mark.parametrize(
    ("choices", "pieces", "finished"),
    [
        (1, [piece(content="a", finish_reason="")], False),
        (1, [piece(content="a", finish_reason=""), STOPPED], True),
        # A finish reason counts without an index or a delta.
        (1, [piece(content="a"), {"index": 0, "finish_reason": "stop"}], True),
        (1, [piece(content="a"), {"delta": {}, "finish_reason": "stop"}], True),
        (1, [piece(content="a"), {"finish_reason": "stop"}], True),
        # All choices have to end, and each ends once.
        (2, [STOPPED], False),
        (2, [STOPPED, piece(1, content="b")], False),
        (2, [STOPPED, piece(1, finish_reason="stop")], True),
        (1, [STOPPED, piece(finish_reason="stop")], True),
        (1, [STOPPED, piece(finish_reason="stop"), piece(1, content="b")], False),
    ],
)
def test_answer_is_finished_once_each_choice_is(choices: int, pieces: list[dict[str, Any]], finished: bool) -> None:
    assembly = assembled(CHAT, map(chunk, pieces), choices=choices)
    assert assembly.finished == finished
    assert not finished or assembly.body()["choices"][0]["finish_reason"] == "stop"


def test_whole_message_counts_where_no_deltas_came_before() -> None:
    whole_message = chunk({"index": 0, "message": {"role": "assistant", "content": "Rhine"}, "finish_reason": "stop"})
    assert message(whole_message)["content"] == "Rhine"
    assert message(chunk(piece(content="Rhine")), whole_message)["content"] == "Rhine"


def test_tool_calls_without_distinct_index_are_split_by_id() -> None:
    expected = [("a", "f", '{"x":1}'), ("b", "g", "{}")]
    for number in (None, 0):
        one = [called(number, '{"x"', "a", "f")]
        more = [called(number, ":1}")]
        other = [called(number, "{}", "b", "g")]
        assert calls_in(*(chunk(piece(tool_calls=calls)) for calls in (one, more, other))) == expected
    whole_calls = [called(0, '{"x":1}', "a", "f"), called(0, "{}", "b", "g")]
    assert calls_in(chunk(piece(tool_calls=whole_calls))) == expected


def test_tool_calls_keep_the_order_of_their_start() -> None:
    pieces = [
        [called(0, "{}", "a", "f"), called(0, "{}", "b", "g")],
        [called(1, "{}", "c", "h")],  # the second one stands there already
        [called(5, "{}", "d", "i"), called(None, "{}", "e", "j"), called(-1, "{}", "k", "l")],
    ]
    assembly = assembled(CHAT, [chunk(piece(tool_calls=calls)) for calls in pieces])
    ids = [call["id"] for call in assembly.body()["choices"][0]["message"]["tool_calls"]]
    assert ids == ["a", "b", "c", "d", "e", "k"]


def test_repeated_tool_name_and_id_are_not_concatenated() -> None:
    events = [chunk(piece(tool_calls=[called(0, text, "a", "f")])) for text in ("{", "}")]
    assert calls_in(*events) == [("a", "f", "{}")]
    assembly = assembled(CHAT, ())
    assert [delta for event in events for delta in assembly.take(event)] == [
        Delta((0, 0), "tool_call", "{", "f"),
        Delta((0, 0), "tool_call", "}"),
    ]


def test_object_arguments_and_extra_call_fields_are_kept() -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    signed = chunk(piece(tool_calls=[{"index": 0, "extra_content": {"signature": "s"}}]))
    assert message(chunk(piece(tool_calls=[call])), signed)["tool_calls"] == [
        {name: value for name, value in call.items() if name != "index"} | {"extra_content": {"signature": "s"}}
    ]


def test_custom_tool_and_legacy_function_call_are_assembled() -> None:
    first = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "shell", "input": "l"}}
    events = [chunk(piece(tool_calls=[first])), chunk(piece(tool_calls=[{"index": 0, "custom": {"input": "s"}}]))]
    assert message(*events)["tool_calls"] == [{"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls"}}]
    older = [
        chunk(piece(function_call={"name": "f", "arguments": "{"})),
        chunk(piece(function_call={"arguments": "}"})),
    ]
    assert message(*older)["function_call"] == {"name": "f", "arguments": "{}"}


def test_content_parts_stay_parts_and_their_text_is_streamed() -> None:
    def thought(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    events = [
        chunk(piece(role="assistant", content="")),
        chunk(piece(content=[thought("Hm")])),
        chunk(piece(content=[thought(", well.")])),
        chunk(piece(content='{"a"')),
        chunk(piece(content=[{"type": "text", "text": ":1}"}])),
    ]
    others = [{"type": "text", "text": None}, {"type": "reference", "text": "b"}]
    assert [*assembled(CHAT, ()).take(chunk(piece(content=others)))] == []
    text = {"type": "text", "text": '{"a":1}'}
    assert message(*events)["content"] == [thought("Hm, well."), text]
    assert message(*events, cut=AnswerCut(ends={(0,): 4}))["content"] == [thought("Hm, well."), text | {"text": '{"a"'}]
    assembly = assembled(CHAT, ())
    assert [delta.kind for event in events for delta in assembly.take(event)] == [
        "reasoning",
        "reasoning",
        "content",
        "content",
    ]


def test_reasoning_details_are_assembled_by_index() -> None:
    def detail(text: str) -> dict[str, Any]:
        return {"reasoning_details": [{"type": "reasoning.text", "text": text, "format": "f", "index": 0}]}

    events = [chunk(piece(reasoning="H", **detail("H"))), chunk(piece(reasoning="m", **detail("m")))]
    found = message(*events)
    assert found["reasoning"] == "Hm"
    assert found["reasoning_details"] == detail("Hm")["reasoning_details"]


def test_reasoning_under_both_of_its_names_is_one_thought() -> None:
    event = chunk(piece(reasoning="Hm", reasoning_content="Hm"))
    assert list(assembled(CHAT, ()).take(event)) == [Delta((0,), "reasoning", "Hm")]
    typed: Any = construct_type(type_=ChatCompletionChunk, value=event)
    assert list(assembled(CHAT, ()).take(typed)) == [Delta((0,), "reasoning", "Hm")]
    assert message(event)["reasoning"] == message(event)["reasoning_content"] == "Hm"


def test_annotations_and_audio_accumulate() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "https://example.com"}}
    events = [
        chunk(piece(content="a", annotations=[note], audio={"id": "x", "transcript": "a"})),
        chunk(piece(annotations=[note], audio={"transcript": "b", "expires_at": 7})),
    ]
    found = message(*events)
    assert found["annotations"] == [note, note]
    assert found["audio"] == {"id": "x", "transcript": "ab", "expires_at": 7}


def test_unknown_fields_keep_last_value_and_lists_extend() -> None:
    events = [
        chunk({**piece(content="a"), "token_ids": [1], "stop_reason": None}, sources=["x"]),
        chunk({**piece(content="b"), "token_ids": [2, 3]}, sources=["x", "y"]),
        chunk({**piece(finish_reason="stop"), "stop_reason": "###", "token_ids": None}, sources=None),
    ]
    found = body(CHAT, events)
    assert found["choices"][0]["token_ids"] == [1, 2, 3]
    assert found["choices"][0]["stop_reason"] == "###"
    assert found["sources"] == ["x", "y"]


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS, RESPONSES])
def test_error_inside_a_stream_is_reported(endpoint: str) -> None:
    error_body = {"message": "overloaded", "type": "server_error", "code": "503"}
    assert assembled(endpoint, []).error is None
    assert assembled(endpoint, [{"error": error_body}]).error == error_body
    assert assembled(endpoint, [{"error": "overloaded"}]).error == {"message": "overloaded"}
    assert assembled(endpoint, [{"error": None, "choices": []}, {"error": {}}]).error is None


def test_error_event_and_failed_response_are_reported() -> None:
    error_body = {"type": "error", "code": "server_error", "message": "sorry", "param": None, "sequence_number": 3}
    assert assembled(RESPONSES, [error_body]).error == {
        "type": "error", "code": "server_error", "message": "sorry", "param": None,
    }  # fmt: skip
    failed = {"id": "r", "status": "failed", "error": {"code": "server_error", "message": "sorry"}, "output": []}
    assembly = assembled(RESPONSES, [{"type": "response.failed", "response": failed}])
    assert assembly.error == failed["error"]
    assert assembly.finished
    assert assembly.body() == failed | {"object": "response"}
    assert assembled(RESPONSES, [{"type": "response.failed", "response": {"status": "failed"}}]).error is not None


@pytest.mark.parametrize("output", [None, []])
def test_completed_event_without_output_uses_earlier_items(output: Any) -> None:
    item = {"id": "i", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rhine"}]}
    events = [
        {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}},
    ]
    expected = {"id": "r", "model": "m", "status": "completed", "object": "response", "output": [item]}
    assert body(RESPONSES, events) == expected


def test_incomplete_annotation_event_changes_nothing() -> None:
    item = {"id": "i", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rhine"}]}
    added = {"type": "response.output_text.annotation.added", "output_index": 0}
    events = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {**added, "content_index": 0, "annotation": None},
        {**added, "content_index": 1, "annotation": {"type": "file_path"}},
    ]
    assert body(RESPONSES, events)["output"] == [item]


def test_text_that_comes_only_at_the_end_of_its_part_is_a_delta() -> None:
    at = {"item_id": "i", "output_index": 0, "content_index": 0}
    done = {"type": "response.output_text.done", "text": "Rhine", **at}
    assembly = assembled(RESPONSES, [])
    assert assembly.take(done) == (Delta((0, 0), "content", "Rhine"),)
    assert assembly.take(done) == ()


def test_cut_at_length_limit_is_stop_and_filter_stays_filter() -> None:
    def reason(finish: str, cut: AnswerCut | None) -> Any:
        return body(CHAT, [chunk(piece(content="{}  ", finish_reason=finish))], cut)["choices"][0]["finish_reason"]

    assert reason("length", None) == "length"
    assert reason("length", AnswerCut(ends={(0,): 2})) == "stop"
    assert reason("length", AnswerCut()) == "length"
    assert reason("content_filter", AnswerCut(ends={(0,): 2})) == "content_filter"

    def status(final: str, cut: AnswerCut | None) -> Any:
        item = {"id": "i", "type": "message", "status": final, "content": [{"type": "output_text", "text": "{}  "}]}
        response = {"id": "r", "status": final, "output": [item]}
        found = body(RESPONSES, [{"type": f"response.{final}", "response": response}], cut)
        return found["status"], found["output"][0]["status"]

    assert status("incomplete", AnswerCut(ends={(0, 0): 2})) == ("completed", "completed")
    assert status("incomplete", AnswerCut()) == ("incomplete", "incomplete")


def test_usage_in_every_chunk_is_preferred_to_an_estimate() -> None:
    events = [chunk(piece(content=text), usage={"completion_tokens": n}) for n, text in enumerate("abc", 1)]
    estimated = AnswerCut(usage={"completion_tokens": 9, "estimated": True})
    assert body(CHAT, events, estimated)["usage"] == {"completion_tokens": 3}
    assert body(CHAT, [chunk(piece(content="a"), usage=None)], estimated)["usage"] == estimated.usage
