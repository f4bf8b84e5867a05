"""Workers on one queue in a PostgreSQL database: several at once, and through an outage of the server."""

from __future__ import annotations

import pytest

from fastlane.batch import Queue, WorkerSettings
from fastlane.emulator import Emulator
from scripts.servers import PostgresServer
from tests.batch.offline_parts import QUICK, client_of, executions, states, submit
from tests.waiting import until


@pytest.mark.slow
def test_workers_send_each_job_once_despite_database_outage(
    provider: Emulator, postgres_of_its_own: PostgresServer
) -> None:
    provider.change(batches={"duration_s": 0.2})
    jobs = range(40)
    settings = WorkerSettings(**{**QUICK, "most_requests": 4})
    one, other = (Queue(postgres_of_its_own.url, client_of(provider), worker=settings) for _ in range(2))
    with one, other:
        submit(one, jobs)
        one.start()
        other.start()
        until(lambda: any(batch.state == "created" for batch in one.status().batches))
        postgres_of_its_own.kill()
        postgres_of_its_own.start()
        until(lambda: states(one) == {"done": len(jobs)})

    assert executions(provider, jobs) == [1] * len(jobs)
