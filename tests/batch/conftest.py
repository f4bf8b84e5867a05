"""Queues in a file and on a real PostgreSQL server, for the tests of the offline lane."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, Literal, NamedTuple
from uuid import uuid4

import pytest

from fastlane.batch import Queue
from fastlane.batch.jobs import BatchRow, BatchState, JobGroup, NewJob
from fastlane.batch.queue import open_storage
from fastlane.batch.storage import Storage
from fastlane.emulator import Emulator, preset
from scripts.servers import PostgresServer
from tests.programs import running

CHAT = "/v1/chat/completions"
ORIGIN = "https://provider.test/v1/"


def _running() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg")
    yield from running(PostgresServer())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    yield from _running()


@pytest.fixture
def postgres_of_its_own() -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    yield from _running()


Open = Callable[[], Storage]


@pytest.fixture(params=["sqlite", "postgres"])
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one and the same queue as often as the test likes, in a file and on a server."""
    opened: list[Storage] = []
    if request.param == "sqlite":
        where, schema = str(tmp_path / "jobs.sqlite"), "fastlane_batch"
    else:
        where, schema = request.getfixturevalue("postgres_server").url, f"test_{uuid4().hex}"

    def open_() -> Storage:
        opened.append(open_storage(where, schema=schema))
        return opened[-1]

    yield open_
    for storage in opened:
        storage.close()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """A queue in a file, without jobs yet."""
    with Queue(tmp_path / "jobs.sqlite") as queue:
        yield queue


def new(key: str, *, body: bytes = b"{}") -> NewJob:
    return NewJob(key=key, endpoint=CHAT, model="small", body=body, digest=sha256(body).digest())


class Child(NamedTuple):
    pid: int
    output: IO[str]


def forked(work: Callable[[IO[str]], object]) -> Child:
    """Do it in a child of a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return Child(child, os.fdopen(reading))
    try:
        with os.fdopen(writing, "w", buffering=1) as output:
            work(output)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - nothing of it may go on as the test
        traceback.print_exc()
    finally:
        os._exit(1)


def forked_at_once(work: Callable[[IO[str]], object]) -> Child:
    """The same, where the fork must not wait for another thread."""
    began_s = time.monotonic()
    child = forked(work)
    assert time.monotonic() - began_s < 10
    return child


def ended(child: Child) -> int:
    child.output.close()
    return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])


def claim(
    storage: Storage,
    owner: str = "worker",
    *,
    origin: str = ORIGIN,
    model: str = "small",
    most_requests: int = 1_000,
    lease_s: float = 600.0,
    state: Literal["planned", "running"] = "planned",
) -> BatchRow:
    batch = storage.claim(
        owner,
        JobGroup(CHAT, model, 1, 2, 0.0),
        origin=origin,
        most_requests=most_requests,
        most_bytes=1_000_000,
        lease_s=lease_s,
        state=state,
    )
    assert batch is not None
    return batch


def advanced(storage: Storage, batch: BatchRow, to: BatchState = "ended") -> BatchRow:
    steps: tuple[BatchState, ...] = ("uploading", "uploaded", "creating", "created", "ended")
    for step in steps[: steps.index(to) + 1]:
        batch = storage.advance(batch, step)
    return batch


@pytest.fixture(scope="session")
def _provider_of_all() -> Iterator[Emulator]:
    with Emulator(model=preset("instant"), tls=False, http2=False) as emulator:
        yield emulator


@pytest.fixture
def provider(_provider_of_all: Emulator) -> Emulator:
    """A provider without any request so far."""
    _provider_of_all.reset()
    return _provider_of_all
