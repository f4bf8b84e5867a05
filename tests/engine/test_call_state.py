from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from fastlane import CallRecord, Play
from fastlane.engine.call_state import CallState
from fastlane.engine.pipeline import Pipeline
from fastlane.protocol.fields import from_json
from fastlane.records import Usage


class Told:
    """A pipeline of no plays whose hook keeps what it is told."""

    def __init__(self, *plays: Play, strict: bool = True) -> None:
        self.records: list[CallRecord] = []
        self.pipeline = Pipeline(plays, [self.records.append], raise_play_errors=strict)

    def begin(self, endpoint: str = "/chat/completions", *, streaming: bool = True) -> CallState:
        state = CallState(
            self.pipeline, method="POST", endpoint=endpoint, origin="https://x:443", stream=streaming, transport="fake"
        )
        state.streaming = streaming
        state.decoded = streaming
        return state


def chunk(text: str | None = None, *, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    delta = fields.pop("delta", {} if text is None else {"content": text})
    choice = {"index": fields.pop("index", 0), "delta": delta, "finish_reason": finish}
    return {
        "id": "c",
        "created": 1,
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
        **fields,
    }


def typed(event: dict[str, Any]) -> Any:
    return ChatCompletionChunk.construct(**event) if "type" not in event else from_json(json.dumps(event))


def seen(
    events: Iterable[dict[str, Any]], *, endpoint: str = "/chat/completions", done: bool = True, parse: Any = None
) -> CallRecord:
    """The record of a stream of these events, which arrive at 1,000, 2,000, ... nanoseconds."""
    state = Told().begin(endpoint)
    for number, event in enumerate(events, 1):
        state.answer.arrived_ns = number * 1_000
        state.answer.event(from_json(json.dumps(event)) if parse is None else parse(event))
    if done:
        state.done()
    state.finish()
    return state.record()


@pytest.fixture(params=["json", "openai"])
def parse(request: pytest.FixtureRequest) -> Any:
    """Events as a reader of raw bytes sees them, and as openai's own objects."""
    if request.param == "json":
        return lambda event: from_json(json.dumps(event))
    from openai._models import construct_type

    return lambda event: construct_type(type_=ChatCompletionChunk, value=event)


def test_usage_on_every_event_keeps_the_last(parse: Any) -> None:
    def usage(count: int) -> dict[str, int]:
        return {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}

    record = seen(
        [chunk("a", usage=usage(1)), chunk("b", usage=usage(2)), chunk("c", usage=usage(3), finish="stop")], parse=parse
    )

    assert record.usage.output_tokens == 3
    assert len(record.timeline.token_ns) == 3
    assert record.outcome == "completed"


def test_usage_that_comes_on_a_content_event_in_the_midst_is_not_missed(parse: Any) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    record = seen([chunk("a"), chunk("b"), chunk("c", usage=usage), chunk("d"), chunk(finish="stop")], parse=parse)

    assert record.usage.output_tokens == 3
    assert len(record.timeline.token_ns) == 4


def test_a_choice_that_appears_late_is_not_missed(parse: Any) -> None:
    record = seen([chunk("a"), chunk("b"), chunk("c", index=1), chunk(finish="stop")], parse=parse)

    assert record.outcome == "truncated"


def test_the_completions_endpoint() -> None:
    def event(text: str, finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": 0, "text": text, "finish_reason": finish}], "model": "m"}

    record = seen([event("a"), event("b"), event("", "stop")], endpoint="/completions")

    assert record.outcome == "completed"
    assert list(record.timeline.token_ns) == [1_000, 2_000]


RESPONSE = {
    "model": "m",
    "status": "completed",
    "service_tier": "flex",
    "usage": {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3},
}


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_each_end_of_a_response_carries_its_status(status: str) -> None:
    response = {**RESPONSE, "status": status}
    record = seen([{"type": f"response.{status}", "response": response}], endpoint="/responses", done=False)

    assert record.outcome == "completed"
    assert record.finish_reason == status
    assert record.usage.output_tokens == 3


def test_a_response_without_its_final_event_was_cut_off() -> None:
    record = seen([{"type": "response.output_text.delta", "delta": "a"}], endpoint="/responses")

    assert record.outcome == "truncated"
    assert record.finish_reason is None


class Ending:
    """Ways in which a stream of the given events can end, by what is known at the end."""

    @staticmethod
    def done(state: CallState) -> None:
        state.done()

    @staticmethod
    def exhausted(state: CallState) -> None:
        state.exhausted = True

    @staticmethod
    def closed(state: CallState) -> None:
        pass


@pytest.mark.parametrize(
    ("events", "ending", "outcome"),
    [
        ([chunk("a"), chunk(finish="stop")], Ending.done, "completed"),
        ([chunk("a"), chunk(finish="stop")], Ending.exhausted, "completed"),
        ([chunk("a"), chunk(finish="stop")], Ending.closed, "completed"),
        ([chunk("a")], Ending.done, "truncated"),
        ([chunk("a")], Ending.exhausted, "truncated"),
        ([chunk("a")], Ending.closed, "closed"),
        ([], Ending.closed, "closed"),
        ([], Ending.done, "truncated"),
        ([], Ending.exhausted, "truncated"),
    ],
)
def test_how_a_stream_ended(events: list[dict[str, Any]], ending: Any, outcome: str) -> None:
    state = Told().begin()
    for event in events:
        state.answer.event(from_json(json.dumps(event)))
    ending(state)
    state.finish()

    assert state.record().outcome == outcome


@pytest.mark.parametrize(
    ("error", "outcome", "name"),
    [
        (ValueError("the prompt"), "failed", "ValueError"),
        (asyncio.CancelledError(), "cancelled", "CancelledError"),
        (KeyboardInterrupt(), "cancelled", "KeyboardInterrupt"),
        (SystemExit(), "cancelled", "SystemExit"),
        (GeneratorExit(), "closed", None),
        (type("Cancelled", (BaseException,), {})(), "cancelled", "Cancelled"),
    ],
)
def test_how_an_error_ends_a_call(error: BaseException, outcome: str, name: str | None) -> None:
    state = Told().begin()
    state.answer.event(typed(chunk("a")))
    state.failed(error)
    state.finish()

    assert state.record().outcome == outcome
    assert state.record().error == name


def test_the_error_that_reaches_the_application_names_the_failure_and_no_message_is_kept() -> None:
    state = Told().begin()
    state.begin_attempt(10)
    state.body_failed(ConnectionError("secret prompt"))
    state.failed(RuntimeError("secret prompt"))
    state.finish()
    record = state.record()

    assert record.error == "RuntimeError"
    assert record.attempts[0].error == "ConnectionError"
    assert "secret" not in json.dumps(record.to_dict())


@pytest.mark.parametrize("body", [b"", b"not json", b"\xff", b"[" * 100_000])
def test_an_answer_that_is_no_json_is_not_ours_to_complain_about(body: bytes) -> None:
    state = Told().begin(streaming=False)
    state.note_raw_answer(body)
    state.finish()

    assert state.record().usage == Usage()


def test_a_tool_call_after_content_leaves_the_short_path(parse: Any) -> None:
    call = {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}
    record = seen([chunk("a"), chunk("b"), chunk(delta=call), chunk(finish="tool_calls")], parse=parse)

    assert len(record.timeline.token_ns) == 3
    assert record.timeline.first_token_kind == "content"
    assert record.finish_reason == "tool_calls"


# Exactly one record


def test_a_call_that_is_finished_twice_is_reported_once() -> None:
    told = Told()
    state = told.begin()
    state.finish()
    state.finish()
    state.abandoned()
    state.body_closed()

    assert told.records == [state.record()]
    assert told.pipeline.calls == (state.record(),)


def test_a_finaliser_that_runs_while_a_call_is_reported_reports_its_own() -> None:
    told = Told()
    inner = told.begin()
    outer = Told()

    class Dropped:
        def __del__(self) -> None:
            inner.abandoned()
            state.abandoned()

    def hook(_: CallRecord) -> None:
        dropped: Any = Dropped()
        dropped.itself = dropped
        del dropped
        gc.collect()

    outer.pipeline = Pipeline([], [outer.records.append, hook], raise_play_errors=True)
    state = outer.begin()
    state.finish()

    assert [record.outcome for record in outer.pipeline.calls] == ["closed"]
    assert len(outer.records) == 1
    assert [record.outcome for record in told.pipeline.calls] == ["abandoned"]
    assert len(told.records) == 1


def test_headers_give_the_request_id_where_the_answer_does_not() -> None:
    state = Told().begin()
    state.begin_attempt(3)
    headers = {"x-request-id": "req-7"}
    state.attempt_answered(SimpleNamespace(status_code=200, headers=headers, extensions={}, is_closed=False))
    state.finish()
    record = state.record()

    assert record.request_id == "req-7"
    assert record.status_code == 200
    assert record.attempts[0].request_body_bytes == 3
    assert record.attempts[0].connection_reused is None


def test_what_fails_after_done_while_openai_reads_on_is_no_error_of_the_call() -> None:
    state = Told().begin()
    state.begin_attempt(3)
    for event in (chunk("a"), chunk(finish="stop")):
        state.answer.event(typed(event))
    state.pulling = True
    state.body_failed(ConnectionError())
    state.body_closed()
    state.done()
    state.finish()
    record = state.record()

    assert record.outcome == "completed"
    assert record.error is None
    assert record.attempts[0].error is None


def test_what_fails_while_the_application_waits_for_an_event_ends_the_call() -> None:
    state = Told().begin()
    state.begin_attempt(3)
    state.answer.event(typed(chunk("a")))
    state.pulling = True
    state.body_failed(ConnectionError())
    state.failed(RuntimeError())
    state.finish()
    record = state.record()

    assert record.outcome == "failed"
    assert record.error == "RuntimeError"
    assert record.attempts[0].error == "ConnectionError"
