"""A worker that is killed with SIGKILL, at each request that it makes, loses nothing and has nothing sent twice.

The provider says nothing to the request at which the worker is to die; that it has come is in the provider's log.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks._lives import Lives
from fastlane.batch import Queue
from fastlane.emulator import Emulator
from tests.batch.offline_parts import QUICK, executions, queue_of, states, submit
from tests.waiting import until

# A lease short enough for a test, and long enough that no worker on a busy machine loses it.
SETTINGS = {**QUICK, "lease_s": 0.6, "listing_lag_s": 0.3, "most_requests": 3}
JOBS = range(6)


@pytest.fixture(scope="module")
def lives(_provider_of_all: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    where = str(tmp_path_factory.mktemp("lives") / "none.sqlite")
    _provider_of_all.reset()
    with Lives(where, _provider_of_all.base_url, SETTINGS) as running:
        yield running


@pytest.fixture
def queue(provider: Emulator, tmp_path: Path) -> Iterator[Queue]:
    with queue_of(tmp_path / "jobs.sqlite", provider, **SETTINGS) as opened:
        submit(opened, JOBS[:3])
        yield opened


def live_and_die(lives: Lives, queue: Queue, provider: Emulator, *faults: str) -> None:
    """Have a worker die at the first request that a fault strikes."""
    before = struck(provider)
    provider.set_faults(*faults)
    lives.begin("mortal", where=queue.storage.name)
    until(lambda: struck(provider) > before)
    lives.kill()
    provider.set_faults()


def struck(provider: Emulator) -> int:
    return sum(record.fault is not None for record in provider.log())


def all_is_well(queue: Queue, provider: Emulator, jobs: range = JOBS) -> None:
    assert states(queue) == {"done": len(jobs)}
    assert executions(provider, jobs) == [1] * len(jobs)
    assert len({queue.result(str(number)).id for number in jobs}) == len(jobs)


AT_EACH_REQUEST = (
    ("hang;on=POST files", "uploading"),
    ("delayed=0.4;on=POST files", "uploading"),
    ("hang;on=POST batches", "creating"),
    ("hang;on=GET batches/*", "created"),
    ("hang;on=GET files/*/content", "ended"),
    ("hang;on=DELETE files/*", "ended"),
)


@pytest.mark.slow
def test_crashed_workers_batches_are_resumed(lives: Lives, queue: Queue, provider: Emulator) -> None:
    jobs = range(3 * len(AT_EACH_REQUEST))
    fell = []
    for number, (fault, _) in enumerate(AT_EACH_REQUEST):
        submit(queue, jobs[3 * number : 3 * number + 3])
        live_and_die(lives, queue, provider, fault)
        fell.append({batch.state for batch in queue.status().batches})
    assert all(state in states for (_, state), states in zip(AT_EACH_REQUEST, fell, strict=True))

    queue.run()

    all_is_well(queue, provider, jobs)


@pytest.mark.slow
def test_late_creation_of_a_lost_worker_finds_no_file(lives: Lives, queue: Queue, provider: Emulator) -> None:
    # So that it is seen when it has arrived: a batch that fails for want of its file.
    provider.change(batches={"missing_file_fails_late": True})
    submit(queue, JOBS)
    live_and_die(lives, queue, provider, "delayed=5;on=POST batches;times=1")

    queue.run()
    until(lambda: len(provider.offline().batches) == 3)
    until(lambda: all(batch.ended_ns is not None for batch in provider.offline().batches))

    assert sorted(batch.status for batch in provider.offline().batches) == ["completed", "completed", "failed"]
    all_is_well(queue, provider)


def test_batch_created_before_crash_is_found_despite_list_lag(lives: Lives, queue: Queue, provider: Emulator) -> None:
    provider.change(batches={"listing_delay_s": 0.7})
    submit(queue, JOBS)
    live_and_die(lives, queue, provider, "lost_answer;on=POST batches")

    queue.run()

    all_is_well(queue, provider)
    assert len(provider.offline().batches) == 2


def test_suspended_worker_does_not_resume_a_taken_over_batch(lives: Lives, queue: Queue, provider: Emulator) -> None:
    submit(queue, JOBS)
    provider.set_faults("hang=1.5;on=POST batches;times=1")
    lives.begin("absent", where=queue.storage.name)
    until(lambda: struck(provider))
    assert lives.pid is not None
    # While this one writes, the worker does not: stopped amid a transaction it would block every other writer.
    with closing(sqlite3.connect(queue.storage.name, timeout=60, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        os.kill(lives.pid, signal.SIGSTOP)
        # A signal takes effect soon, and not at once.
        time.sleep(0.05)
        other.execute("ROLLBACK")
    queue.run()
    os.kill(lives.pid, signal.SIGCONT)

    assert lives.wait() == 0
    all_is_well(queue, provider)
