from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

import fastlane
from fastlane import BoundedOutput, Connection
from tests.call_peer import CallPeer, Reply
from tests.plays.bounded_output import answers as sse
from tests.plays.bounded_output.answers import (
    VALID,
    Ticket,
    bounded,
    create,
    output_of,
    parse,
    refusing,
    streamed,
    whole,
)
from tests.transport.peer_h1 import PeerH1
from tests.waiting import Form


def content(answer: Any) -> str:
    text = answer.choices[0].message.content
    assert isinstance(text, str)
    return text


# How the events are written


WRITTEN: dict[str, bytes] = {
    "crlf": sse.stream(sse.streamed_text(VALID), end="\r\n"),
    "cr": sse.stream(sse.streamed_text(VALID), end="\r"),
    "comments": sse.stream(
        [": keep-alive", *sse.streamed_text(VALID)[:3], ": keep-alive\n: more", *sse.streamed_text(VALID)[3:]]
    ),
    "named": sse.stream(["event: ping\ndata: {}", *sse.streamed_text(VALID), "event: bye\ndata: null"]),
    "odd": sse.stream(
        [*sse.streamed_text(VALID)[:2], "data: null", "data: 3", "data: []", *sse.streamed_text(VALID)[2:]]
    ),
    "one chunk": sse.stream([sse.chunk(VALID, role="assistant", finish="stop"), sse.usage_chunk()]),
    "role late": sse.stream(
        [*sse.streamed_text(VALID)[1:-2], sse.chunk("", role="assistant"), *sse.streamed_text(VALID)[-2:]]
    ),
    "no done": sse.stream(sse.streamed_text(VALID), done=False),
    "bom": b"\xef\xbb\xbf" + sse.stream(sse.streamed_text(VALID)),
    "usage on every chunk": sse.stream([{**one, "usage": sse.USAGE} for one in sse.streamed_text(VALID)]),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_however_events_are_written_the_answer_is_theirs(peer: CallPeer, name: str, form: Form) -> None:
    with bounded(peer, form=form) as client:
        peer.replies = [Reply(headers=(sse.EVENT_STREAM,), body=WRITTEN[name])]
        answer = parse(client)
        record = client.last_call

    assert answer.choices[0].message.parsed == Ticket(category="bug", confidence=0.5)
    assert content(answer) == VALID
    assert answer.usage.completion_tokens == 12
    assert (record.outcome, record.usage.output_tokens, record.usage.estimated) == ("completed", 12, False)
    assert output_of(client).verdict == "valid"
    assert len(peer.take()) == 1


# Where they break off


def test_stream_broken_after_last_brace_is_complete(peer: CallPeer) -> None:
    with bounded(peer) as client:
        peer.replies = [streamed(sse.streamed_text(VALID, finish=None), done=False)]
        assert content(parse(client)) == VALID
        assert client.last_call.usage.estimated


def test_stream_broken_inside_json_is_a_connection_error(peer: CallPeer) -> None:
    with bounded(peer) as client:
        peer.replies = [streamed(sse.streamed_text(VALID[:-1], finish=None), done=False)]
        with pytest.raises(openai.APIConnectionError):
            parse(client)
        assert client.last_call.outcome == "failed"


@pytest.mark.parametrize(
    ("error", "expected", "tries"),
    [
        ({"message": "no", "code": 429}, openai.RateLimitError, 2),
        ({"message": "no", "code": 400}, openai.BadRequestError, 1),
        ({"message": "no", "type": "invalid_request_error", "code": None}, openai.BadRequestError, 1),
        ({"message": "no", "type": "server_error"}, openai.InternalServerError, 2),
        ("no", openai.InternalServerError, 2),
    ],
)
@pytest.mark.parametrize("done", [True, False])
def test_error_in_the_middle_is_the_one_that_is_raised(
    one_peer: CallPeer, error: Any, expected: type[Exception], tries: int, done: bool
) -> None:
    with bounded(one_peer, max_retries=1) as client:
        one_peer.usually = lambda _: streamed([*sse.streamed_text(VALID[:9], finish=None), {"error": error}], done=done)
        with pytest.raises(expected, match="no"):
            create(client)
        assert len(one_peer.take()) == tries


@pytest.mark.parametrize("done", [True, False])
def test_malformed_event_in_stream_is_not_retried(one_peer: CallPeer, done: bool) -> None:
    with (
        bounded(one_peer, BoundedOutput(reasks=1), max_retries=2) as client,
        openai.OpenAI(api_key="sk-test", base_url=f"{one_peer.url}/v1") as stock,
    ):
        one_peer.usually = lambda _: Reply(body=b"{no json")
        with pytest.raises(json.JSONDecodeError):
            create(stock)
        one_peer.take()
        one_peer.usually = lambda _: streamed([*sse.streamed_text(VALID[:9], finish=None), "data: {no json"], done=done)
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


def test_multiple_choices_are_not_requested_again(peer: CallPeer) -> None:
    with bounded(peer, BoundedOutput(reasks=1)) as client:
        peer.replies = [streamed(three(sse.WRONG))]
        with pytest.raises(fastlane.InvalidOutputError, match="category"):
            create(client, n=3)

        assert len(peer.take()) == 1


# The end of the body


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("is_stock", [False, True], ids=["ours", "stock"])
def test_body_continuing_after_done_delays_no_call(
    trusting_peers: None, form: Form, is_stock: bool, ends: bool
) -> None:
    over = threading.Event()
    waited_for: list[bool] = []

    def answer(request: Any) -> None:
        request.body()
        body = sse.stream(sse.streamed_text(VALID))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        request.send(head + b"%x\r\n" % len(body) + body + (b"\r\n0\r\n\r\n" if ends else b"\r\n"))
        if not ends:
            waited_for.append(over.wait(10))

    stock: Any = openai.DefaultAsyncHttpxClient if form.asynchronous else openai.DefaultHttpxClient
    plays = (Connection(http2="never"), BoundedOutput())
    with PeerH1(answer, tls=True) as server:
        made: Any = {"api_key": "sk-test", "base_url": f"{server.url}/v1", "max_retries": 0, "raise_play_errors": True}
        with form.make(fastlane, **made, only_plays=plays, http_client=stock() if is_stock else None) as client:
            for number in range(2):
                assert content(create(client)) == VALID
                (attempt,) = client.last_call.attempts
                assert attempt.error is None
                assert attempt.connection_reused is (ends and number > 0)
                time.sleep(0.15)  # longer than the rest of a body is read
        assert waited_for == []
        over.set()


SECRET = "the-prompt-that-nobody-may-keep"
TICKETS: list[Any] = [{"role": "user", "content": SECRET}]
HELD = ("BoundedOutputSession", "JsonScanner", "OutputPlan", "OutputPlanner", "Problem", "WatchedAnswer")


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Nothing of a call's output is there behind it, without a garbage collection."""
    gc.disable()
    gc.freeze()  # what is there already need not be looked through
    try:
        yield
        kept = [type(one).__name__ for one in gc.get_objects() if type(one).__name__ in HELD]
        assert kept == []
    finally:
        gc.unfreeze()
        gc.enable()


ANSWERS: dict[str, list[Any]] = {
    "valid": [streamed(sse.streamed_text(sse.VALID))],
    "runs on": [streamed(sse.streamed_text(f"{sse.VALID}{' ' * 50}{sse.VALID}"))],
    "repaired": [streamed(sse.streamed_text(sse.WRONG)), streamed(sse.streamed_text(sse.VALID))],
    "never valid": [streamed(sse.streamed_text(sse.WRONG))] * 2,
    "whole, never valid": [whole(sse.WRONG)] * 2,
    "broken off": [streamed(sse.streamed_text(sse.VALID[:9], finish=None), done=False)],
    "refused": [refusing("no such model")],
    "field refused": [refusing("Unknown parameter: stream_options"), streamed(sse.streamed_text(sse.VALID))],
    "error in the middle": [streamed([*sse.streamed_text(sse.VALID[:9], finish=None), {"error": {"message": "no"}}])],
    "no JSON": [streamed(["data: {no"])],
    "cut off": [streamed(sse.streamed_text(sse.VALID[:9], finish="length"))],
}


@pytest.mark.parametrize("reasks", [0, 1])
@pytest.mark.parametrize("method", [create, parse])
def test_ended_call_leaves_nothing_in_memory(one_peer: CallPeer, method: Any, reasks: int) -> None:
    reports: list[fastlane.CallRecord] = []
    with bounded(one_peer, BoundedOutput(reasks=reasks), on_call_end=[reports.append]) as client:
        for name, replies in ANSWERS.items():
            one_peer.replies = list(replies)
            with nothing_kept():
                try:
                    method(client, messages=TICKETS)
                except Exception:  # noqa: BLE001 - it is what it leaves that counts
                    pass
            assert len(reports) == 1, name
            report = repr(reports.pop())
            for secret in (SECRET, "refund", "sk-test", sse.VALID[:9]):
                assert secret not in report, name
