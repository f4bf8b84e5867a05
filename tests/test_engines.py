"""Answers of real engines, byte for byte, through both clients."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter_ns as now_ns
from typing import Any

import openai
import pytest

import fastlane
from fastlane import CallRecord
from fastlane.records import Usage
from tests.attempts.events import DONE, choice_event, chunk as completion_chunk, data
from tests.transport.peer_h1 import CHUNKED, LAST_CHUNK, chunk
from tests.transport.scripted_server import Script, ScriptedServer, Seen
from tests.waiting import SYNC, Form

RECORDED = Path(__file__).parent / "data/engine_transcripts"
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
STREAMS = sorted(
    path.stem
    for path in RECORDED.glob("*.txt")
    if path.stem.rpartition("_")[2] not in ("keepalive", "responses")
    and path.stem not in ("llamacpppython_interrupted_0", "llamacpppython_schema")
)

Cut = Callable[[bytes], Sequence[bytes]]
Ask = Callable[[Any], Any]


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.txt").read_bytes()


def whole(answer: bytes) -> Sequence[bytes]:
    return [answer]


def by_bytes(answer: bytes) -> Sequence[bytes]:
    return [answer[at : at + 1] for at in range(len(answer))]


def at_random(answer: bytes) -> Sequence[bytes]:
    random = Random(len(answer))
    places = sorted(random.sample(range(1, len(answer)), min(40, len(answer) // 8)))
    return [answer[start:end] for start, end in zip([0, *places], [*places, len(answer)], strict=True)]


def closes(answer: bytes) -> bool:
    return b"\r\nconnection: close" in answer.lower().partition(b"\r\n\r\n")[0] + b"\r\n"


def serving(*answers: bytes, cut: Cut = whole) -> ScriptedServer:
    """A server that gives these answers in turn, and over again."""
    given = 0

    def respond(_: Seen) -> Script:
        nonlocal given
        answer = answers[given % len(answers)]
        given += 1
        return Script(cut(answer), closes=closes(answer))

    return ScriptedServer(respond)


def chat(client: Any) -> Any:
    return client.chat.completions.create(**ASK, stream=True)


def respond(client: Any) -> Any:
    return client.responses.create(model="m", input="Hello", stream=True)


def read(library: Any, server: ScriptedServer, ask: Ask = chat, form: Form = SYNC) -> tuple[list[Any], Any]:
    """The events that a client of the library reads, and the client."""
    with form.make(library, base_url=server.base_url, api_key="sk-test", max_retries=0) as client:
        return list(ask(client)), client


def record_of_equal_reads(server: ScriptedServer, ask: Ask = chat, form: Form = SYNC) -> CallRecord:
    """The record of our client's call, whose events are those of the stock client."""
    theirs, _ = read(openai, server, ask, form)
    ours, client = read(fastlane, server, ask, form)
    assert dumped(ours) == dumped(theirs)
    record: CallRecord = client.last_call
    return record


def dumped(events: list[Any]) -> list[tuple[type[Any], Any]]:
    return [(type(each), each.to_dict()) for each in events]


def content_events(answer: bytes) -> int:
    return len(re.findall(rb'"delta": ?\{[^}]*"content": ?"[^"]', answer))


def expected_usage(answer: bytes) -> Usage:
    counts = re.findall(rb'"(prompt_tokens|completion_tokens)": ?(\d+)', answer)
    found = {name.decode(): int(count) for name, count in counts}
    return Usage(input_tokens=found.get("prompt_tokens"), output_tokens=found.get("completion_tokens"))


CUTS = {"whole": whole, "at random places": at_random, "by bytes": by_bytes}


def check_record(record: CallRecord, answer: bytes) -> None:
    timeline = record.timeline
    assert record.outcome == "completed"
    assert record.finish_reason == "length"
    assert record.usage == expected_usage(answer)
    assert record.usage.cached_tokens is None
    assert record.usage.reasoning_tokens is None
    assert len(timeline.token_ns) == content_events(answer)
    assert record.events == answer.count(b"data: {")
    assert timeline.first_event_ns is not None
    assert timeline.first_token_ns is not None
    assert timeline.first_event_ns <= timeline.first_token_ns == timeline.first_content_token_ns
    assert timeline.first_token_kind == "content"
    assert list(timeline.token_ns) == sorted(timeline.token_ns)
    assert record.status_code == 200
    assert record.error is None
    assert len(record.attempts) == 1
    assert record.attempts[0].http_version == "HTTP/1.1"
    assert (record.time_per_output_token_s is None) == (b"completion_tokens" not in answer)


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        *((name, cut) for name in STREAMS for cut in CUTS if cut != "by bytes"),
        *((name, "by bytes") for name in ("llamacpppython_warm", "transformers_warm")),
    ],
)
def test_recorded_stream_matches_the_stock_client(form: Form, name: str, cut: str) -> None:
    answer = recorded(name)
    with serving(answer, cut=CUTS[cut]) as server:
        record = record_of_equal_reads(server, form=form)

    check_record(record, answer)
    assert record.request_id == re.findall(rb"x-request-id: (\S+)", answer)[0].decode()


@pytest.mark.parametrize("name", ["transformers_keepalive", "llamacpppython_keepalive"])
def test_recorded_answers_in_a_row_use_one_connection(form: Form, name: str) -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    answers = [head + rest for rest in recorded(name).split(head)[1:]]
    with serving(*answers) as server:
        with form.make(fastlane, base_url=server.base_url, api_key="sk-test", max_retries=0) as client:
            for _ in answers:
                assert list(chat(client))
            calls = client.calls

        assert server.connections == 1
    assert [call.connection_reused for call in calls] == [False, True, True]
    assert [call.outcome for call in calls] == ["completed"] * 3


def test_done_without_a_finish_reason_was_cut_off() -> None:
    answer = recorded("llamacpppython_interrupted_0")
    # The recording ends with the connection, right after [DONE].
    with ScriptedServer(lambda _: Script([answer], closes=True)) as server:
        record = record_of_equal_reads(server)

    assert (record.outcome, record.finish_reason, record.error) == ("truncated", None, None)
    assert record.usage == Usage()


@pytest.mark.parametrize("cut", CUTS)
def test_recorded_stream_of_the_responses_api(form: Form, cut: str) -> None:
    with serving(recorded("transformers_responses"), cut=CUTS[cut]) as server:
        record = record_of_equal_reads(server, respond, form)

    assert record.outcome == "completed"
    assert record.finish_reason == "completed"
    assert record.usage == Usage(
        input_tokens=12, cached_tokens=0, cache_write_tokens=0, output_tokens=8, reasoning_tokens=0
    )
    assert len(record.timeline.token_ns) == 8
    assert record.time_per_output_token_s is not None


HELLO = choice_event(content="Hello")
ERROR = data({"error": {"message": "overloaded", "type": "server_error", "code": 503}})
UNPROCESSABLE_422 = (
    b'HTTP/1.1 422 Unprocessable Entity\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n{"detail":[1]}'
)
REFUSALS: dict[str, tuple[bytes, Ask]] = {
    "404 with JSON": (recorded("llamacpppython_responses"), respond),
    "500 with JSON": (recorded("llamacpppython_schema"), chat),
    "422 with a list": (UNPROCESSABLE_422, chat),
    "an error event": (CHUNKED + chunk(HELLO + ERROR) + LAST_CHUNK, chat),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_http_error_has_the_openai_class(refusal: str) -> None:
    answer, ask = REFUSALS[refusal]
    with serving(answer) as server:
        with pytest.raises(openai.APIError) as theirs:
            read(openai, server, ask)
        with (
            fastlane.OpenAI(base_url=server.base_url, api_key="sk-test", max_retries=0) as client,
            pytest.raises(openai.APIError) as ours,
        ):
            list(ask(client))
    record = client.last_call

    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value)
    assert ours.value.body == theirs.value.body
    assert record is not None
    assert record.outcome == "failed"
    assert record.error == type(theirs.value).__name__
    assert record.status_code == getattr(theirs.value, "status_code", 200)
    assert len(record.timeline.token_ns) == content_events(answer)
    assert (record.api_end_to_end_s is None) == (refusal != "an error event")


def test_reasoning_that_is_streamed_counts_from_its_first_delta() -> None:
    details = {"reasoning_tokens": 10}
    usage = {"prompt_tokens": 1, "completion_tokens": 12, "total_tokens": 13, "completion_tokens_details": details}
    thought = chunk(choice_event(reasoning_content="hm"))
    counted = data(completion_chunk({"index": 0, "delta": {}, "finish_reason": "stop"}, usage=usage))
    go_on = threading.Event()
    rest = [chunk(HELLO), chunk(counted), chunk(DONE), LAST_CHUNK]
    with (
        ScriptedServer(lambda _: Script([CHUNKED, thought, thought, go_on, *rest])) as server,
        fastlane.OpenAI(base_url=server.base_url, api_key="sk-test", max_retries=0) as client,
    ):
        stream = chat(client)
        next(stream)
        between_ns = now_ns()
        go_on.set()
        list(stream)
        record = client.last_call

    assert record is not None
    timeline = record.timeline
    assert timeline.first_token_kind == "reasoning"
    assert timeline.first_token_ns is not None
    assert timeline.first_content_token_ns is not None
    assert timeline.first_token_ns <= between_ns <= timeline.first_content_token_ns
    assert record.streamed_output_tokens == 12
