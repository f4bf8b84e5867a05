"""A queue on a server survives the server's end, the connection's, and many that come at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import IO, Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from fastlane.batch import StorageError
from fastlane.batch.errors import LeaseLostError
from fastlane.batch.jobs import JobOutcome
from fastlane.batch.queue import open_storage
from fastlane.batch.storage import Storage, now_of
from scripts.servers import PostgresServer
from tests.batch.conftest import ORIGIN, advanced, claim, ended, forked, forked_at_once, new


@pytest.fixture
def schema() -> str:
    return f"test_{uuid4().hex}"


@pytest.fixture
def storage(postgres_server: PostgresServer, schema: str) -> Iterator[Storage]:
    with closing(open_storage(postgres_server.url, schema=schema)) as storage:
        yield storage


def backend_of(storage: Storage) -> int:
    return int(storage.run(lambda t: t.execute(sa.select(sa.func.pg_backend_pid())).scalar_one()))


def test_server_restart_loses_no_job_and_raises_nothing(
    postgres_of_its_own: PostgresServer,
) -> None:
    server = postgres_of_its_own
    with closing(open_storage(server.url)) as storage, ThreadPoolExecutor(1) as pool:
        storage.add([new(f"{i}") for i in range(20)])
        batch = claim(storage, most_requests=10)
        server.kill()

        # Begun while there is no server.
        later = pool.submit(storage.add, [new("later")])
        server.start()

        assert later.result().pop().key == "later"
        assert storage.unfinished() == 21
        numbers = [job.number for job in storage.heads(batch)]
        ended = advanced(storage, batch)
        assert storage.record(ended, [JobOutcome(number=number, state="done") for number in numbers]) == 10


def test_unreachable_server_is_reported_without_password(
    postgres_of_its_own: PostgresServer,
) -> None:
    server = postgres_of_its_own
    with closing(open_storage(server.url)) as storage:
        storage.add([new("a")])
        server.kill()

        with pytest.raises(StorageError, match="failed") as raised:
            storage.run(now_of, patience_s=0.2)
        with pytest.raises(StorageError) as at_first:
            open_storage(server.url)

        server.start()
        assert storage.find(["a", "b"]).keys() == {"a"}
        assert server.password not in repr(storage)
        for text in (str(raised.value), str(at_first.value), storage.name):
            assert server.password not in text
            assert "127.0.0.1" in text


def test_concurrent_first_openings_create_one_queue(postgres_server: PostgresServer, schema: str) -> None:
    start = threading.Barrier(6)

    def come(_: int) -> str:
        start.wait()
        with closing(open_storage(postgres_server.url, schema=schema)) as storage:
            storage.add([new("shared")])
            return storage.queue_id

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(come, range(6)))) == 1


def test_lost_commit_acknowledgement_is_not_applied_twice(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks after the server has committed and before that is known."""

    def lose_acknowledgement() -> None:
        def broken(connection: sa.Connection) -> None:
            wire: Any = connection.connection.dbapi_connection
            wire.commit()
            wire.close()
            broken_connections.append(connection)

        sa.event.listen(storage._engine, "commit", broken, once=True)

    broken_connections: list[sa.Connection] = []
    lose_acknowledgement()
    added = storage.add([new(f"{i}") for i in range(4)])
    assert storage.unfinished() == 4 == len(added)

    batch = claim(storage, most_requests=3)
    lose_acknowledgement()
    with pytest.raises(LeaseLostError):
        storage.advance(batch, "uploading")
    (batch,) = storage.extend("worker", lease_s=600.0)
    assert batch.state == "uploading"

    batch = storage.advance(batch, "ended", error="x")
    lose_acknowledgement()
    outcomes = [JobOutcome(number=added[0].number, state="done"), JobOutcome(number=added[1].number, state="waiting")]
    storage.record(batch, outcomes)
    assert len(storage.answers(after=0, most=10)) == 1

    lose_acknowledgement()
    with pytest.raises(LeaseLostError):
        storage.settle(batch, "collected")
    assert storage.find(["2"])["2"].attempts == 1
    assert storage.unfinished() == 3
    assert len(broken_connections) == 4


def test_child_of_a_fork_leaves_its_parents_connection_alone(storage: Storage) -> None:
    storage.add([new("a")])
    pid = backend_of(storage)

    def add_and_close(_: IO[str]) -> None:
        storage.add([new("b")])
        storage.close()

    child = forked(add_and_close)
    assert ended(child) == 0
    assert storage.find(["a", "b"]).keys() == {"a", "b"}
    assert backend_of(storage) == pid


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_does_not_wait_for_a_statement(storage: Storage) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(t: sa.Connection) -> None:
        now_of(t)
        begun.set()
        go_on.wait(60)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(storage.run, hold)
        assert begun.wait(60)
        child = forked_at_once(lambda _: storage.add([new("a")]))
        go_on.set()
        assert ended(child) == 0
        held.result(60)
    assert storage.find(["a"]).keys() == {"a"}


def test_leases_use_the_clock_of_the_server(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every module that reads this machine's clock binds it by name.
    for name, module in list(sys.modules.items()):
        if name.startswith("fastlane.") and hasattr(module, "wall_ns"):
            monkeypatch.setattr(module, "wall_ns", lambda: 0)
    storage.add([new("a")])
    claim(storage, lease_s=600.0)

    assert storage.now() > 1e9
    assert storage.take_over("other", origin=ORIGIN, lease_s=1.0) == []
