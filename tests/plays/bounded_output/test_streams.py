from __future__ import annotations

import gc
import json
import threading
from contextlib import suppress
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput
from tests.call_peer import CallPeer, Reply
from tests.plays.bounded_output import answers as sse
from tests.plays.bounded_output.answers import (
    VALID,
    Ticket,
    bounded,
    create,
    output_of,
    parse,
    streamed,
)
from tests.transport.peer_h1 import CHUNKED, LAST_CHUNK, chunk
from tests.transport.scripted_server import Script, ScriptedServer
from tests.waiting import Form


def content(answer: Any) -> str:
    text = answer.choices[0].message.content
    assert isinstance(text, str)
    return text


# How the events are written


WRITTEN: dict[str, bytes] = {
    "odd": sse.stream(
        [*sse.streamed_text(VALID)[:2], "data: null", "data: 3", "data: []", *sse.streamed_text(VALID)[2:]]
    ),
    "one chunk": sse.stream([sse.chunk(VALID, role="assistant", finish="stop"), sse.usage_chunk()]),
    "role late": sse.stream(
        [*sse.streamed_text(VALID)[1:-2], sse.chunk("", role="assistant"), *sse.streamed_text(VALID)[-2:]]
    ),
    "no done": sse.stream(sse.streamed_text(VALID), done=False),
    "usage on every chunk": sse.stream([{**one, "usage": sse.USAGE} for one in sse.streamed_text(VALID)]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_however_events_are_written_the_answer_is_theirs(one_peer: CallPeer, name: str, form: Form) -> None:
    with bounded(one_peer, form=form) as client:
        one_peer.replies = [Reply(headers=(sse.EVENT_STREAM,), body=WRITTEN[name])]
        answer = parse(client)
        record = client.last_call

    assert answer.choices[0].message.parsed == Ticket(category="bug", confidence=0.5)
    assert content(answer) == VALID
    assert answer.usage.completion_tokens == 12
    assert (record.outcome, record.usage.output_tokens, record.usage.estimated) == ("completed", 12, False)
    assert output_of(client).verdict == "valid"
    assert len(one_peer.take()) == 1


# Where they break off


def test_stream_broken_after_last_brace_is_complete(one_peer: CallPeer) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(sse.streamed_text(VALID, finish=None), done=False)]
        assert content(parse(client)) == VALID
        assert client.last_call.usage.estimated


def test_stream_broken_inside_json_is_a_connection_error(one_peer: CallPeer) -> None:
    with bounded(one_peer) as client:
        one_peer.replies = [streamed(sse.streamed_text(VALID[:-1], finish=None), done=False)]
        with pytest.raises(openai.APIConnectionError):
            parse(client)
        assert client.last_call.outcome == "failed"


@pytest.mark.parametrize(
    ("error", "expected", "tries"),
    [
        ({"message": "no", "code": 429}, openai.RateLimitError, 2),
        ({"message": "no", "type": "invalid_request_error", "code": None}, openai.BadRequestError, 1),
        ("no", openai.InternalServerError, 2),
    ],
)
def test_error_in_the_middle_is_the_one_that_is_raised(
    one_peer: CallPeer, error: Any, expected: type[Exception], tries: int
) -> None:
    with bounded(one_peer, max_retries=1) as client:
        one_peer.usually = lambda _: streamed([*sse.streamed_text(VALID[:9], finish=None), {"error": error}])
        with pytest.raises(expected, match="no"):
            create(client)
        assert len(one_peer.take()) == tries


def test_malformed_event_in_stream_is_not_retried(one_peer: CallPeer) -> None:
    with bounded(one_peer, BoundedOutput(reasks=1), max_retries=2) as client:
        one_peer.usually = lambda _: streamed([*sse.streamed_text(VALID[:9], finish=None), "data: {no json"])
        with pytest.raises(json.JSONDecodeError):
            create(client)
        assert len(one_peer.take()) == 1


# Several choices


def three(wrong: str) -> list[Any]:
    events = [sse.chunk(role="assistant", index=index) for index in range(3)]
    texts = [VALID, wrong, VALID.replace("bug", "shipping")]
    for at in range(0, max(map(len, texts)), 6):
        events += [sse.chunk(text[at : at + 6], index=index) for index, text in enumerate(texts) if text[at : at + 6]]
    return [*events, *[sse.chunk(finish="stop", index=index) for index in range(3)], sse.usage_chunk()]


def test_multiple_choices_are_not_requested_again(one_peer: CallPeer) -> None:
    with bounded(one_peer, BoundedOutput(reasks=1)) as client:
        one_peer.replies = [streamed(three(sse.WRONG))]
        with pytest.raises(fastlane.InvalidOutputError, match="category"):
            create(client, n=3)

        assert len(one_peer.take()) == 1


@pytest.mark.parametrize("ends", [True, False])
def test_body_continuing_after_done_delays_no_call(form: Form, ends: bool) -> None:
    """Over an HTTP client of the application's, whose connection is used again if the body ends soon."""
    over = threading.Event()
    script = Script([CHUNKED, chunk(sse.stream(sse.streamed_text(VALID))), 0.01, LAST_CHUNK if ends else over])
    http_client: Any = openai.DefaultAsyncHttpxClient if form.asynchronous else openai.DefaultHttpxClient
    with ScriptedServer(lambda _: script) as server:
        options: dict[str, Any] = {"api_key": "sk-test", "base_url": server.base_url, "http_client": http_client()}
        with form.make(fastlane, **options, only_plays=[BoundedOutput()], raise_play_errors=True) as client:
            for _ in range(2):
                assert content(create(client)) == VALID
                assert client.last_call.attempts[0].error is None
        assert server.connections == (1 if ends else 2)
        over.set()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("last", [sse.VALID, sse.WRONG], ids=["repaired", "never valid"])
def test_ended_call_needs_no_garbage_collection(one_peer: CallPeer, last: str) -> None:
    one_peer.replies = [streamed(sse.streamed_text(text)) for text in (sse.WRONG, last)]
    with bounded(one_peer, BoundedOutput(reasks=1)) as client:
        with suppress(fastlane.InvalidOutputError):
            create(client)
        kept = {type(one).__name__ for one in gc.get_objects()}
    assert kept.isdisjoint({"BoundedOutputSession", "JsonScanner", "OutputPlan", "WatchedAnswer"})
