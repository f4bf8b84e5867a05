"""What the record of a call says, by the events that came and how the call ended."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

import fastlane
from fastlane import CallRecord
from fastlane.records import Usage
from tests.attempts.events import (
    CHAT,
    COMPLETIONS,
    DONE,
    RESPONSES,
    choice_event,
    chunk,
    data,
    response,
    whole_response,
)
from tests.prepared_server import LIBRARY, Server

SERVER = Server()
ARGUMENTS: dict[str, Any] = {
    "api_key": "k",
    "base_url": "http://server",
    "max_retries": 0,
    "http_client": LIBRARY.Client(transport=SERVER),
}
CLIENT = fastlane.OpenAI(**ARGUMENTS)
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Name a river."}], "stream": True}


def opened(endpoint: str = CHAT, client: Any = CLIENT) -> Any:
    if endpoint == COMPLETIONS:
        return client.completions.create(model="m", prompt="?", stream=True)
    if endpoint == RESPONSES:
        return client.responses.create(model="m", input="?", stream=True)
    return client.chat.completions.create(**ASK)


def record_of(*events: bytes, endpoint: str = CHAT, failure: str | None = None, ending: str = "read") -> CallRecord:
    """The record of a stream of these events that is read to its end, as lines, or closed after the last of them."""
    SERVER.reads, SERVER.failure = list(events), failure
    if ending == "lines":
        with CLIENT.chat.completions.with_streaming_response.create(**ASK) as raw:
            list(raw.iter_lines())
        return CLIENT.calls[-1]
    stream = opened(endpoint)
    if ending == "closed":
        for _ in events:
            next(stream)
        stream.close()
    else:
        list(stream)
    return CLIENT.calls[-1]


def usage(count: int) -> dict[str, int]:
    return {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}


def counted(text: str | None, count: int, finish: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    return bytes(data(chunk({"index": 0, "delta": delta, "finish_reason": finish}, usage=usage(count))))


A, B, STOP = choice_event(content="a"), choice_event(content="b"), choice_event("stop")
CALL = choice_event(tool_calls=[{"index": 0, "function": {"arguments": "{"}}])
SECOND = choice_event(index=1, content="c")
COUNTED = data(chunk(usage=usage(4)))
STREAMS: dict[str, tuple[list[bytes], tuple[str, str | None, int | None, int]]] = {
    "usage on every event": ([counted("a", 1), counted("b", 2), counted("c", 3, "stop")], ("completed", "stop", 3, 3)),
    "usage in the midst": ([A, B, counted("c", 3), A, STOP], ("completed", "stop", 3, 4)),
    "a choice that comes late": ([A, B, SECOND, STOP], ("truncated", "stop", None, 3)),
    "two choices, then usage": (
        [A, SECOND, STOP, choice_event("length", index=1), COUNTED],
        ("completed", "stop", 4, 2),
    ),
    "a tool call after content": ([A, B, CALL, choice_event("tool_calls")], ("completed", "tool_calls", None, 3)),
    "a tool call alone": ([CALL, CALL, choice_event("tool_calls")], ("completed", "tool_calls", None, 2)),
}


@pytest.mark.parametrize("ending", ["read", "lines"])
@pytest.mark.parametrize("name", STREAMS)
def test_record_has_usage_tokens_and_finish_reason(name: str, ending: str) -> None:
    events, expected = STREAMS[name]
    record = record_of(*events, DONE, ending=ending)

    found = record.outcome, record.finish_reason, record.usage.output_tokens, len(record.timeline.token_ns)
    assert found == expected
    assert record.timeline.first_token_kind == ("tool_call" if events[0] == CALL else "content")
    assert (record.time_to_first_content_token_s is None) == (events[0] == CALL)


def test_record_of_a_legacy_completion() -> None:
    events = [
        data(chunk({"index": 0, "text": text, "finish_reason": end})) for text, end in (("a", None), ("", "stop"))
    ]
    record = record_of(*events, DONE, endpoint=COMPLETIONS)

    assert (record.outcome, len(record.timeline.token_ns)) == ("completed", 1)


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_last_event_of_a_response_carries_its_status(status: str) -> None:
    recorded = {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3}
    record = record_of(response(status, response=whole_response(status=status, usage=recorded)), endpoint=RESPONSES)

    assert (record.outcome, record.finish_reason) == ("completed", status)
    assert (record.usage.cached_tokens, record.usage.output_tokens) == (4, 3)


def test_response_without_its_last_event_was_cut_off() -> None:
    record = record_of(response("output_text.delta", delta="a"), endpoint=RESPONSES)

    assert (record.outcome, record.finish_reason) == ("truncated", None)


@pytest.mark.parametrize(
    ("events", "ending", "outcome"),
    [
        ([A, STOP, DONE], "read", "completed"),
        ([A, STOP], "read", "completed"),
        ([A, STOP], "closed", "completed"),
        ([A, DONE], "read", "truncated"),
        ([A], "read", "truncated"),
        ([A], "closed", "closed"),
        ([], "closed", "closed"),
        ([DONE], "read", "truncated"),
        ([], "read", "truncated"),
    ],
)
def test_stream_outcome_follows_its_events_and_end(events: list[bytes], ending: str, outcome: str) -> None:
    assert record_of(*events, ending=ending).outcome == outcome


class Breaking(LIBRARY.BaseTransport):  # type: ignore[misc]
    """Begins an answer and raises in its body."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def handle_request(self, request: Any) -> Any:
        def body() -> Iterator[bytes]:
            yield A
            raise self.error

        return LIBRARY.Response(200, headers={"content-type": "text/event-stream"}, content=body())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (LIBRARY.ReadError("secret prompt"), "failed"),
        (KeyboardInterrupt(), "cancelled"),
        (SystemExit(), "cancelled"),
        (type("Cancelled", (BaseException,), {})(), "cancelled"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_stream_outcome_follows_the_error(error: BaseException, outcome: str) -> None:
    library = LIBRARY.Client(transport=Breaking(error))
    with fastlane.OpenAI(**{**ARGUMENTS, "http_client": library}) as client:
        with pytest.raises((openai.APIConnectionError, type(error))) as raised:
            list(opened(client=client))
        (record,) = client.calls

    assert (record.outcome, record.error) == (outcome, type(raised.value).__name__)
    assert record.attempts[0].error == type(error).__name__
    assert "secret" not in json.dumps(record.to_dict())


def test_failure_after_the_end_of_a_stream_is_no_error() -> None:
    record = record_of(A, STOP, DONE, failure="ReadError")

    assert (record.outcome, record.error, record.attempts[0].error) == ("completed", None, None)


@pytest.mark.parametrize("body", [b"", b"not json", b"\xff", b"[" * 100_000])
def test_malformed_json_answer_is_recorded(body: bytes) -> None:
    library = LIBRARY.Client(transport=LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, content=body)))
    with fastlane.OpenAI(**{**ARGUMENTS, "http_client": library}) as client:
        client.models.with_raw_response.list()

        assert [(call.outcome, call.usage) for call in client.calls] == [("completed", Usage())]


def test_retrieved_response_has_its_usage_and_other_answers_none() -> None:
    """A list of models is no answer of a model, whatever it says."""
    found = whole_response(usage={"input_tokens": 12, "output_tokens": 3, "total_tokens": 15})
    library = LIBRARY.Client(transport=LIBRARY.MockTransport(lambda _: LIBRARY.Response(200, json=found)))
    with fastlane.OpenAI(**{**ARGUMENTS, "http_client": library}) as client:
        client.responses.retrieve("resp_1")
        client.models.list()

        assert [call.usage.output_tokens for call in client.calls] == [3, None]


def test_stream_collected_in_a_hook_is_reported_once() -> None:
    def hook(record: CallRecord) -> None:
        reported.append(record.outcome)
        while lost:
            cycle: list[Any] = [lost.pop()]
            cycle.append(cycle)
            del cycle
            gc.collect()

    reported: list[str] = []
    SERVER.reads, SERVER.failure = [A, B, STOP, DONE], None
    with fastlane.OpenAI(**ARGUMENTS, on_call_end=[hook], raise_play_errors=True) as client:
        stream = opened(client=client)
        lost = [opened(client=client)]
        next(lost[0])
        stream.close()
        stream.close()

        outcomes = sorted(call.outcome for call in client.calls)
        assert outcomes == sorted(reported)
        # The collector ends either the body or the generator that reads it first.
        assert outcomes in (["abandoned", "closed"], ["closed", "closed"])
