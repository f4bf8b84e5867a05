"""The laws of a queue's storage, which a file and a server keep alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from fastlane import ConfigurationError
from fastlane.batch.errors import JobConflictError, LeaseLostError
from fastlane.batch.jobs import LINE_BYTES, JobOutcome, JobState
from fastlane.batch.storage import VERSION, Storage, queue
from tests.batch.conftest import ORIGIN, Open, advanced, claim, new


def states(storage: Storage, *keys: str) -> list[JobState]:
    found = storage.find(keys)
    return [found[key].state for key in keys]


def test_a_job_is_there_for_everybody_once_it_was_added(open_again: Open) -> None:
    one, other = open_again(), open_again()

    added = one.add([new("b"), new("a")])

    assert [job.key for job in added] == ["b", "a"]
    assert added[0].number < added[1].number
    assert other.find(["a", "b", "c"]) == {job.key: job for job in added}
    assert one.queue_id == other.queue_id


def test_the_same_key_is_the_same_job(storage: Storage) -> None:
    first = storage.add([new("a", body=b"1"), new("b", body=b"2")])

    again = storage.add([new("b", body=b"2"), new("c"), new("c"), new("a", body=b"1")])

    assert again == [first[1], again[1], again[1], first[0]]
    assert storage.unfinished() == 3


def test_another_body_under_a_key_is_refused_with_all_that_came_with_it(storage: Storage) -> None:
    storage.add([new("a", body=b"1")])

    with pytest.raises(JobConflictError, match="the key 'a'") as raised:
        storage.add([new("b"), new("a", body=b"2")])

    assert raised.value.key == "a"
    assert storage.find(["a", "b"]).keys() == {"a"}
    with pytest.raises(JobConflictError):
        storage.add([new("d", body=b"1"), new("d", body=b"2")])
    assert storage.unfinished() == 1


@pytest.mark.parametrize("version", [1, VERSION + 1])
def test_a_queue_of_another_version_is_refused(open_again: Open, version: int) -> None:
    open_again().run(lambda t: t.execute(sa.update(queue).values(version=version)))

    with pytest.raises(ConfigurationError, match=f"of version {version}, this one knows {VERSION}"):
        open_again()


def test_a_batch_has_the_first_jobs_of_a_group_up_to_either_limit(storage: Storage) -> None:
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


def test_a_job_that_is_too_large_for_any_batch_is_one_by_itself(storage: Storage) -> None:
    storage.add([new("huge", body=b"x" * 5_000), new("a")])

    batch = claim(storage, most_bytes=1_000)

    assert [job.key for job in storage.heads(batch)] == ["huge"]
    assert batch.bytes > 1_000


def test_who_lost_the_lease_can_write_nothing(storage: Storage) -> None:
    storage.add([new("a"), new("b")])
    mine = advanced(storage, claim(storage, "slow", lease_s=-1.0), "created")

    (theirs,) = storage.take_over("quick", origin=ORIGIN, lease_s=600.0)
    outcome = JobOutcome(number=storage.heads(mine)[0].number, state="done", status_code=200, body=b"{}")

    assert (theirs.owner, theirs.turn, theirs.state) == ("quick", 2, "created")
    with pytest.raises(LeaseLostError, match="nothing was written"):
        storage.advance(mine, "ended")
    with pytest.raises(LeaseLostError):
        storage.record(mine, [outcome])
    with pytest.raises(LeaseLostError):
        storage.settle(mine, "collected")
    assert storage.status().batches == (theirs,)
    assert states(storage, "a", "b") == ["packed", "packed"]
    assert storage.extend("slow", lease_s=600.0) == []
    assert storage.record(theirs, [outcome]) == 1


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


def test_a_file_of_answers_may_be_read_again_from_its_beginning(storage: Storage) -> None:
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


def test_a_job_of_a_batch_that_has_ended_belongs_to_the_next(storage: Storage) -> None:
    storage.add([new("a")])
    first = advanced(storage, claim(storage))
    number = storage.heads(first)[0].number
    storage.record(first, [JobOutcome(number=number, state="waiting")])
    second = claim(storage)

    assert storage.record(first, [JobOutcome(number=number, state="done", status_code=200)]) == 0
    assert storage.settle(first, "collected") == 0

    assert [job.batch for job in storage.heads(second)] == [second.name]
    assert storage.heads(second)[0].attempts == 2


def test_what_was_not_sent_is_cancelled_at_once_and_what_was_is_marked(storage: Storage) -> None:
    storage.add([new(f"{i}") for i in range(4)])
    sent = advanced(storage, claim(storage, most_requests=2), "created")
    planned = claim(storage, most_requests=1)

    jobs = storage.cancel(["0", "2", "3", "nobody"])

    assert [(job.key, job.state, job.cancel_asked) for job in jobs] == [
        ("0", "packed", True),
        ("2", "cancelled", False),
        ("3", "cancelled", False),
    ]
    assert (storage.is_wanted(planned), storage.is_wanted(sent)) == (False, True)
    assert storage.cancel(["0", "1"])[0].state == "packed"
    assert not storage.is_wanted(sent)


def test_all_that_is_not_over_is_cancelled(storage: Storage) -> None:
    storage.add([new(f"{i}") for i in range(7)])
    advanced(storage, claim(storage, most_requests=2))
    storage.cancel(["6"])

    assert [job.key for job in storage.cancel(None)] == ["0", "1", "2", "3", "4", "5"]

    assert states(storage, *"0123456") == ["packed"] * 2 + ["cancelled"] * 5
    assert storage.forget(states=["cancelled"]) == 5


def test_jobs_come_in_the_order_in_which_they_were_over(storage: Storage) -> None:
    storage.add([new(f"{i}") for i in range(5)])
    batch = advanced(storage, claim(storage, most_requests=4))
    numbers = [job.number for job in storage.heads(batch)]
    storage.record(batch, [JobOutcome(number=number, state="done", body=b"2") for number in (numbers[2], numbers[0])])
    storage.cancel(["4"])
    storage.record(batch, [JobOutcome(number=number, state="failed") for number in (numbers[3], numbers[1])])

    found = storage.answers(after=0, most=10)

    keys = [answer.job.key for answer in found]
    assert (set(keys[:2]), keys[2], set(keys[3:])) == ({"0", "2"}, "4", {"1", "3"})
    assert [answer.sequence for answer in found] == sorted({answer.sequence for answer in found})
    assert storage.answers(after=found[1].sequence, most=1) == [found[2]]


def test_running_batch_of_a_dead_worker_is_taken_over(storage: Storage) -> None:
    storage.add([new("a"), new("b"), new("c")])
    live = claim(storage, "gone", most_requests=2, lease_s=-1.0, state="running")
    first, second = storage.heads(live)
    storage.record(live, [JobOutcome(number=first.number, state="done", output_tokens=2)])
    storage.cancel(["b"])

    (taken,) = storage.take_over("other", origin="https://elsewhere.test/", lease_s=600.0)
    with pytest.raises(LeaseLostError):
        storage.record(live, [JobOutcome(number=second.number, state="done")])
    assert storage.settle(taken, "abandoned") == 1
    assert states(storage, "a", "b", "c") == ["done", "cancelled", "waiting"]


def test_a_status_counts_everything(storage: Storage) -> None:
    empty = storage.status()
    assert empty.total == 0
    storage.add([new(f"{i}") for i in range(6)])
    batch = advanced(storage, claim(storage, most_requests=3))
    numbers = [job.number for job in storage.heads(batch)]
    outcome = JobOutcome(number=numbers[0], state="done", input_tokens=5, output_tokens=7, cached_tokens=2)
    storage.record(batch, [outcome, JobOutcome(number=numbers[1], state="failed", status_code=400, body=b"{}")])
    storage.cancel(["5"])

    status = storage.status()

    assert status.jobs == {"waiting": 2, "packed": 1, "done": 1, "failed": 1, "cancelled": 1}
    assert (status.total, status.over) == (6, 3)
    assert (status.input_tokens, status.output_tokens, status.cached_tokens) == (5, 7, 2)
    assert [one.name for one in status.batches] == [batch.name]
    assert status.failures == {"HTTP 400": 1}
    assert empty.failures == {}
    assert storage.unfinished() == 3
    assert storage.unfinished(["0", "2", "nobody"]) == 1


def test_batches_at_an_address_that_is_gone_are_given_up(storage: Storage) -> None:
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


def test_a_status_says_how_many_workers_run(storage: Storage) -> None:
    storage.extend("one", lease_s=600.0)
    storage.extend("two", lease_s=600.0)
    storage.extend("one", lease_s=600.0)
    assert storage.status().workers == 2
    storage.let_go("one")
    storage.extend("two", lease_s=-1.0)
    assert storage.status().workers == 0


def test_threads_that_add_and_collect_see_every_job_once_and_in_order(open_again: Open) -> None:
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
