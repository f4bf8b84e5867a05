from __future__ import annotations

from array import array
from multiprocessing import Pipe

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


def sent(chunks: dict[str, int], *, in_flight: int = 0, expected: int, flush: bool = False) -> list[tuple[type, str]]:
    """What is sent of requests that took a second each and had so many chunks, with more requests in flight."""
    ours, theirs = Pipe()
    sender = SampleSender(object(), theirs)
    for _ in range(len(chunks) + in_flight):
        sender.begun()
    for tag, count in chunks.items():
        sender.finished(job(tag), reading(count, 1.0))
    if flush:
        sender.tell_kept()
    messages = []
    for _ in range(expected):
        assert ours.poll(60)
        messages.append(ours.recv())
    return [(type(message), message.tag) for message in messages]


def test_sample_goes_out_at_once_while_little_comes_in() -> None:
    assert sent(dict.fromkeys("abc", 100), expected=3) == [(Sample, "a"), (Sample, "b"), (Sample, "c")]
    # Nothing else is in flight that could wait for it.
    assert sent({"a": 50_000}, expected=1) == [(Sample, "a")]


def test_samples_are_queued_under_load_and_sent_after_it() -> None:
    messages = sent(dict.fromkeys("01234567", 50_000) | {"8": 10, "9": 10}, expected=12)

    assert messages[:8] == [(Done, str(at)) for at in range(8)]
    assert messages[8:] == [(Sample, "8"), (Sample, "0"), (Sample, "9"), (Sample, "1")]
    assert sent({"a": 50_000}, in_flight=2, flush=True, expected=2) == [(Done, "a"), (Sample, "a")]
