"""Whatever is done to a queue in whatever order, it is where a simple model of it is, and no job is ever lost."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fastlane.batch.errors import LeaseLostError
from fastlane.batch.jobs import OVER, SETTLED, BatchRow, BatchState, JobGroup, JobOutcome
from fastlane.batch.queue import open_storage
from fastlane.batch.storage import Storage
from scripts.servers import PostgresServer
from tests.batch.conftest import CHAT, ORIGIN, new

KEYS = [f"k{i}" for i in range(8)]
OWNERS = ["one", "two"]
keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)
owners = st.sampled_from(OWNERS)
ENDS = st.sampled_from(["done", "failed", "waiting"])


@dataclass
class Known:
    state: str = "waiting"
    attempts: int = 0
    batch: str | None = None
    cancel_asked: bool = False


@dataclass
class Leased:
    row: BatchRow
    stale: list[BatchRow] = field(default_factory=list)


class QueueMachine(RuleBasedStateMachine):
    """Two workers, one of which may be thought dead at any moment, and an application."""

    where: str
    schema: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        where = getattr(type(self), "where", None) or str(Path(self.folder.name, "jobs.sqlite"))
        self.storage: Storage = open_storage(where, schema=f"test_{uuid4().hex}")
        self.jobs: dict[str, Known] = {}
        self.batches: dict[str, Leased] = {}

    def teardown(self) -> None:
        self.storage.close()
        self.folder.cleanup()

    def anything_live(self) -> bool:
        return bool(self.live())

    def live(self) -> list[Leased]:
        return [batch for batch in self.batches.values() if batch.row.state not in SETTLED]

    def inside(self, batch: BatchRow) -> list[str]:
        return [key for key, job in self.jobs.items() if job.state == "packed" and job.batch == batch.name]

    def comes_back(self, key: str, state: str) -> None:
        job = self.jobs[key]
        job.state = "cancelled" if state == "waiting" and job.cancel_asked else state

    def some(self, *states: str) -> bool:
        return any(job.state in states for job in self.jobs.values())

    @initialize()
    def begin(self) -> None:
        self.submit(KEYS)

    @precondition(lambda self: len(self.jobs) < len(KEYS))
    @rule(keys=keys)
    def submit(self, keys: list[str]) -> None:
        self.storage.add([new(key) for key in keys])
        for key in keys:
            self.jobs.setdefault(key, Known())

    @precondition(lambda self: self.some("waiting"))
    @rule(
        owner=owners,
        most=st.integers(1, 4),
        lease_s=st.sampled_from([-1.0, 600.0]),
        state=st.sampled_from(["planned", "running"]),
    )
    def pack(self, owner: str, most: int, lease_s: float, state: Any) -> None:
        batch = self.storage.claim(
            owner, JobGroup(CHAT, "small", 1, 2, 0.0), origin=ORIGIN, most_requests=most, most_bytes=9_999,
            lease_s=lease_s, state=state,
        )  # fmt: skip
        waiting = [key for key, job in self.jobs.items() if job.state == "waiting"]
        assert (batch is None) == (not waiting)
        if batch is not None:
            self.batches[batch.name] = Leased(batch)
            heads = self.storage.heads(batch)
            assert len(heads) == min(most, len(waiting)) == batch.requests
            for head in heads:
                job = self.jobs[head.key]
                assert job.state == "waiting"
                job.state, job.batch, job.attempts = "packed", batch.name, job.attempts + 1
                assert head.attempts == job.attempts

    @precondition(anything_live)
    @rule(data=st.data())
    def go_on(self, data: Any) -> None:
        batch = data.draw(st.sampled_from(self.live()))
        order: list[BatchState] = ["planned", "uploading", "created", "ended", "running"]
        step = data.draw(st.sampled_from(order[max(1, order.index(batch.row.state)) :]))
        before = batch.row
        batch.row = self.storage.advance(batch.row, step)
        if step != before.state:
            batch.stale.append(before)

    @precondition(lambda self: self.some("packed"))
    @rule(owner=owners)
    def take_over(self, owner: str) -> None:
        for taken in self.storage.take_over(owner, origin=ORIGIN, lease_s=600.0):
            batch = self.batches[taken.name]
            assert taken.turn == batch.row.turn + 1
            batch.stale.append(batch.row)
            batch.row = taken

    @precondition(lambda self: any(batch.stale for batch in self.batches.values()))
    @rule(data=st.data())
    def be_late(self, data: Any) -> None:
        batch = data.draw(st.sampled_from([batch for batch in self.batches.values() if batch.stale]))
        stale = data.draw(st.sampled_from(batch.stale))
        numbers = [job.number for job in self.storage.find(KEYS).values()]
        with pytest.raises(LeaseLostError):
            self.storage.record(stale, [JobOutcome(number=number, state="done") for number in numbers])
        with pytest.raises(LeaseLostError):
            self.storage.settle(stale, "collected")

    @precondition(anything_live)
    @rule(data=st.data(), end=ENDS)
    def record(self, data: Any, end: Any) -> None:
        batch = data.draw(st.sampled_from(self.live())).row
        some = data.draw(st.lists(st.sampled_from(KEYS), unique=True))
        numbers = {key: job.number for key, job in self.storage.find(some).items()}
        inside = [key for key in self.inside(batch) if key in numbers]
        outcomes = [JobOutcome(number=number, state=end, body=b"{}") for number in numbers.values()]
        assert self.storage.record(batch, outcomes) == len(inside)
        for key in inside:
            self.comes_back(key, end)

    @precondition(anything_live)
    @rule(data=st.data(), sent=st.booleans())
    def settle(self, data: Any, sent: bool) -> None:
        batch = data.draw(st.sampled_from(self.live()))
        inside = self.inside(batch.row)
        assert self.storage.settle(batch.row, "collected" if sent else "abandoned", sent=sent) == len(inside)
        for key in inside:
            self.jobs[key].attempts -= not sent and not self.jobs[key].cancel_asked
            self.comes_back(key, "waiting")
        batch.stale.append(batch.row)
        batch.row = replace(batch.row, state="collected" if sent else "abandoned")

    @precondition(lambda self: self.some("waiting", "packed"))
    @rule(keys=keys)
    def cancel(self, keys: list[str]) -> None:
        self.storage.cancel(keys)
        for key in keys:
            job = self.jobs.get(key)
            if job is None or job.state in OVER:
                continue
            batch = self.batches[job.batch] if job.state == "packed" and job.batch else None
            if job.state == "waiting" or (batch is not None and batch.row.state == "planned"):
                job.state = "cancelled"
            else:
                job.cancel_asked = True

    @precondition(lambda self: self.some("failed"))
    @rule(keys=st.none() | keys)
    def retry(self, keys: list[str] | None) -> None:
        failed = [key for key, job in self.jobs.items() if job.state == "failed" and (keys is None or key in keys)]
        assert self.storage.retry_failed(keys) == len(failed)
        for key in failed:
            self.jobs[key] = Known()

    @precondition(lambda self: self.some(*OVER))
    @rule(state=st.sampled_from(["done", "failed", "cancelled"]))
    def forget(self, state: Any) -> None:
        gone = [key for key, job in self.jobs.items() if job.state == state]
        assert self.storage.forget(states=[state]) == len(gone)
        for key in gone:
            del self.jobs[key]

    @invariant()
    def it_is_where_the_model_is(self) -> None:
        found = self.storage.find(KEYS)
        assert {key: (job.state, job.attempts, job.cancel_asked) for key, job in found.items()} == {
            key: (job.state, job.attempts, job.cancel_asked) for key, job in self.jobs.items()
        }
        status = self.storage.status()
        assert {state: count for state, count in status.jobs.items() if count} == Counter(
            job.state for job in self.jobs.values()
        )
        assert {batch.name for batch in status.batches} == {batch.row.name for batch in self.live()}
        for batch in status.batches:
            # Each packed job is in a batch that a worker will settle.
            assert {job.key for job in self.storage.heads(batch)} == set(self.inside(batch))
        over = {answer.job.key: answer.sequence for answer in self.storage.answers(after=0, most=100)}
        assert over.keys() == {key for key, job in self.jobs.items() if job.state in OVER}
        assert len(set(over.values())) == len(over)


def run(machine: type[QueueMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )


@pytest.mark.slow
def test_sqlite_queue_behaves_as_its_state_model() -> None:
    run(QueueMachine, 40, 30)


def test_postgres_queue_behaves_as_its_state_model(postgres_server: PostgresServer) -> None:
    run(type("ServerMachine", (QueueMachine,), {"where": postgres_server.url}), 4, 25)
