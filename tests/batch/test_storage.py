"""The laws of a queue's storage, which a file and a server keep alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from fastlane import ConfigurationError
from fastlane.batch.errors import LeaseLostError
from fastlane.batch.jobs import LINE_BYTES, JobOutcome, JobState
from fastlane.batch.storage import VERSION, Storage, queue
from tests.batch.conftest import ORIGIN, Open, advanced, claim, new


def states(storage: Storage, *keys: str) -> list[JobState]:
    found = storage.find(keys)
    return [found[key].state for key in keys]


@pytest.mark.parametrize("version", [1, VERSION + 1])
def test_queue_of_another_version_is_refused(open_again: Open, version: int) -> None:
    open_again().run(lambda t: t.execute(sa.update(queue).values(version=version)))

    with pytest.raises(ConfigurationError, match=f"of version {version}, this one knows {VERSION}"):
        open_again()


def test_claimed_batch_stops_at_request_or_byte_limit(storage: Storage) -> None:
    storage.add([new(f"s{i}", body=b"x" * 100) for i in range(10)] + [new("l", model="large")])
    line = 100 + LINE_BYTES

    by_number = claim(storage, most_requests=3)
    by_bytes = claim(storage, most_bytes=4 * line + 1)

    assert [job.key for job in storage.heads(by_number)] == ["s0", "s1", "s2"]
    assert [job.key for job in storage.heads(by_bytes)] == ["s3", "s4", "s5", "s6"]
    assert (by_bytes.requests, by_bytes.bytes, by_bytes.state) == (4, 4 * line, "planned")
    assert by_bytes.name.startswith(f"fastlane-{storage.queue_id}-")
    assert by_bytes.name != by_number.name
    assert [(group.model, group.requests, group.bytes) for group in storage.groups()] == [
        ("small", 3, 300),
        ("large", 1, 2),
    ]
    assert by_bytes in storage.status().batches
    assert storage.find(["s3"])["s3"].attempts == 1


def test_only_a_lease_that_has_run_out_is_taken_over(storage: Storage) -> None:
    storage.add([new("a"), new("b"), new("c")])
    claim(storage, "alive", most_requests=1)
    late = claim(storage, "late", most_requests=1, lease_s=-1.0)
    gone = claim(storage, "gone", most_requests=1)
    gone = storage.advance(gone, "creating")  # Before that, any address may have it.

    storage.extend("late", lease_s=600.0)
    assert storage.take_over("other", origin=ORIGIN, lease_s=600.0) == []
    storage.let_go("gone")

    assert storage.take_over("other", origin="https://elsewhere.test/", lease_s=600.0) == []
    (taken,) = storage.take_over("other", origin=ORIGIN, lease_s=600.0)
    assert taken.name == gone.name
    assert [batch.name for batch in storage.extend("late", lease_s=600.0)] == [late.name]
    assert storage.take_over("third", origin=ORIGIN, lease_s=600.0) == []


def test_file_of_answers_may_be_read_again_from_its_beginning(storage: Storage) -> None:
    storage.add([new(f"{i}") for i in range(4)])
    batch = advanced(storage, claim(storage))
    numbers = [job.number for job in storage.heads(batch)]
    outcomes = [
        JobOutcome(number=numbers[0], state="done", status_code=200, body=b'{"a":1}', request_id="r", input_tokens=3),
        JobOutcome(number=numbers[1], state="failed", status_code=400, body=b'{"error":{}}'),
        JobOutcome(number=numbers[2], state="waiting", status_code=500, error="server_error", not_before_s=600.0),
    ]

    assert storage.record(batch, outcomes) == 3
    assert storage.record(batch, outcomes) == 0
    assert storage.settle(batch, "collected", error="batch_expired") == 1

    assert states(storage, "0", "1", "2", "3") == ["done", "failed", "waiting", "waiting"]
    found = {answer.key: answer for answer in storage.answers(keys=["0", "1", "2", "3"])}
    assert {key: (answer.body, answer.request_id) for key, answer in found.items()} == {
        "0": (b'{"a":1}', "r"),
        "1": (b'{"error":{}}', None),
    }
    assert found["0"].job.input_tokens == 3
    assert storage.find(["3"])["3"].error == "batch_expired"
    # One waits for its time, the other for nothing.
    assert [group.requests for group in storage.groups()] == [1]
    assert storage.status().batches == ()


def test_batches_of_a_removed_base_url_are_abandoned(storage: Storage) -> None:
    storage.add([new("a"), new("b"), new("c")])
    gone = advanced(storage, claim(storage, "gone", most_requests=2, lease_s=-1.0), "created")
    leased = advanced(storage, claim(storage, "alive"), "created")
    storage.cancel(["b"])

    assert storage.abandon("https://elsewhere.test") == 0
    assert storage.abandon(ORIGIN.rstrip("/")) == 2
    assert states(storage, "a", "b", "c") == ["waiting", "cancelled", "packed"]
    assert storage.status().batches == (leased,)
    with pytest.raises(LeaseLostError):
        storage.record(gone, [])


def test_status_counts_running_workers(storage: Storage) -> None:
    storage.extend("one", lease_s=600.0)
    storage.extend("two", lease_s=600.0)
    storage.extend("one", lease_s=600.0)
    assert storage.status().workers == 2
    storage.let_go("one")
    storage.extend("two", lease_s=-1.0)
    assert storage.status().workers == 0


def test_concurrent_reader_gets_each_answer_once_in_order(open_again: Open) -> None:
    feeding, working, reading = open_again(), open_again(), open_again()
    total = 120

    def feed(part: int) -> None:
        for i in range(part, total, 2):
            feeding.add([new(f"{i}"), new(f"{i ^ 1}")])  # each by both of them

    def work() -> None:
        done = 0
        while done < total:
            if working.groups():
                batch = claim(working, most_requests=7, state="running")
                outcomes = [JobOutcome(number=job.number, state="done") for job in working.heads(batch)]
                done += working.record(batch, outcomes)

    seen: list[str] = []
    with ThreadPoolExecutor(3) as pool:
        parts = [pool.submit(feed, 0), pool.submit(feed, 1), pool.submit(work)]
        last = 0
        while len(seen) < total and not any(part.done() and part.exception() for part in parts):
            for answer in reading.answers(after=last, most=50):
                assert answer.sequence > last
                last = answer.sequence
                seen.append(answer.job.key)
        for part in parts:
            part.result()

    assert sorted(seen, key=int) == [f"{i}" for i in range(total)]
