from __future__ import annotations

from array import array
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from fastlane.bench.recorded import Sample, SampleKey
from fastlane.bench.running._requests import Done, ScheduledRequest, StreamReader
from fastlane.bench.running._worker import SampleSender


def job(tag: str) -> ScheduledRequest:
    return ScheduledRequest(SampleKey(arm="baseline", tag=tag, block=0, conversation="talk", turn=1), {}, {})


def reading(chunks: int, seconds: float) -> StreamReader:
    made = StreamReader()
    made.ended_ns = round(seconds * 1e9)
    made.token_ns = array("q", range(chunks))
    return made


@pytest.fixture
def sender_and_pipe() -> tuple[SampleSender, Connection]:
    ours, theirs = Pipe()
    return SampleSender(object(), theirs), ours


def received(pipe: Connection, number: int) -> list[Any]:
    messages = []
    for _ in range(number):
        assert pipe.poll(60)
        messages.append(pipe.recv())
    return [(type(message), message.tag) for message in messages]


def test_record_goes_out_at_once_while_little_comes_in(sender_and_pipe: tuple[SampleSender, Connection]) -> None:
    sender, pipe = sender_and_pipe
    for _ in range(3):
        sender.begun()
    for tag in "abc":
        sender.finished(job(tag), reading(100, 1.0))

    assert received(pipe, 3) == [(Sample, "a"), (Sample, "b"), (Sample, "c")]


def test_samples_are_queued_under_load_and_sent_after_it(
    sender_and_pipe: tuple[SampleSender, Connection],
) -> None:
    sender, pipe = sender_and_pipe
    for _ in range(10):
        sender.begun()
    for at in range(8):
        sender.finished(job(str(at)), reading(50_000, 1.0))
    sender.finished(job("8"), reading(10, 1.0))
    sender.finished(job("9"), reading(10, 1.0))

    assert received(pipe, 8) == [(Done, str(at)) for at in range(8)]
    assert received(pipe, 4) == [(Sample, "8"), (Sample, "0"), (Sample, "9"), (Sample, "1")]


def test_queued_samples_are_sent_on_flush(sender_and_pipe: tuple[SampleSender, Connection]) -> None:
    sender, pipe = sender_and_pipe
    for _ in range(3):
        sender.begun()
    sender.finished(job("a"), reading(50_000, 1.0))
    sender.tell_kept()

    assert received(pipe, 2) == [(Done, "a"), (Sample, "a")]


def test_sample_is_sent_at_once_when_none_is_queued(
    sender_and_pipe: tuple[SampleSender, Connection],
) -> None:
    sender, pipe = sender_and_pipe
    sender.begun()
    sender.finished(job("a"), reading(50_000, 1.0))

    assert received(pipe, 1) == [(Sample, "a")]
