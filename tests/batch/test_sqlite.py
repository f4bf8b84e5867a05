"""A queue in a file loses nothing that was durable: not by kill -9, a full disk, a fork or many processes at once."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import IO

import pytest
import sqlalchemy as sa

from fastlane import ConfigurationError
from fastlane.batch import Queue, StorageError
from fastlane.batch.queue import open_storage
from fastlane.batch.storage import Storage
from tests.batch.conftest import ended, forked, forked_at_once, new
from tests.batch.offline_parts import body


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.sqlite"


@pytest.fixture
def storage(path: Path) -> Iterator[Storage]:
    with closing(open_storage(path)) as storage:
        yield storage


def is_whole(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        bodies = connection.execute("SELECT count(*) FROM jobs LEFT JOIN bodies USING (number) WHERE body IS NULL")
        return bool(found and bodies.fetchone() == (0,))


@pytest.mark.parametrize("after", [1, 7, 40])
def test_submitted_jobs_survive_kill_9(path: Path, after: int) -> None:
    def submit(output: IO[str]) -> None:
        storage = open_storage(path)
        for number in range(100_000):
            keys = [f"{number}-{part}" for part in range(1 + number % 5)]
            storage.add([new(key, body=b"x" * 3_000) for key in keys])
            output.write(" ".join(keys) + "\n")

    child = forked(submit)
    returned = [child.output.readline() for _ in range(after)]
    os.kill(child.pid, signal.SIGKILL)
    returned += [line for line in child.output if line.endswith("\n")]
    assert ended(child) == -signal.SIGKILL

    with closing(open_storage(path)) as storage:
        keys = " ".join(returned).split()
        assert storage.find(keys).keys() == set(keys)
        # All or none of the one that did not return.
        number = len(returned)
        rest = [f"{number}-{part}" for part in range(1 + number % 5)]
        assert len(storage.find(rest)) in (0, len(rest))
        assert storage.unfinished() == len(keys) + len(storage.find(rest))
    assert is_whole(path)


def test_full_disk_is_reported_and_committed_jobs_survive(path: Path) -> None:
    def fill(output: IO[str]) -> None:
        storage = open_storage(path)
        most = resource.getrlimit(resource.RLIMIT_FSIZE)
        # What writes beyond this gets the operating system's own refusal, as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, most[1]))
        try:
            for number in range(1_000):
                storage.add([new(f"{number}", body=b"x" * 20_000)])
                output.write(f"{number}\n")
        except StorageError as error:
            output.write(f"{error}\n")
            first = storage.find(["0"])["0"]
            assert first.state == "waiting"
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        storage.add([new("later")])
        output.write("later\n")

    child = forked(fill)
    *numbers, error, later = child.output.read().splitlines()
    assert ended(child) == 0

    assert len(numbers) > 3
    assert "failed" in error
    assert "disk" in error
    assert later == "later"
    with closing(open_storage(path)) as storage:
        assert storage.find(numbers).keys() == set(numbers)
        assert storage.unfinished() == len(numbers) + 1
    assert is_whole(path)


def test_every_commit_reaches_the_disk_before_it_returns(storage: Storage) -> None:
    def settings(name: str) -> object:
        return storage.run(lambda t: t.execute(sa.text(f"PRAGMA {name}")).scalar_one())

    assert settings("journal_mode") == "wal"
    assert settings("synchronous") == 2  # FULL
    assert settings("fullfsync") == 1


def test_foreign_file_is_refused_unchanged(path: Path) -> None:
    path.write_text("a shopping list: " + "bread " * 300)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="is not: give another path"):
        Queue(path)
    assert path.read_bytes() == before

    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE groceries (name TEXT)")
    with pytest.raises(ConfigurationError, match="another application's database"):
        Queue(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("groceries",)]


def test_nothing_is_written_into_a_file_that_was_deleted(queue: Queue, path: Path) -> None:
    queue.submit(body(1))
    path.unlink()

    with pytest.raises(StorageError, match="deleted or replaced"):
        queue.submit(body(2))


def test_busy_writers_do_not_starve_other_writers(path: Path, storage: Storage) -> None:
    stop = threading.Event()

    def hog(storage: Storage) -> None:
        for number in count():
            if stop.is_set():
                return
            storage.add([new(f"{threading.get_ident()}-{number}")])

    with closing(open_storage(path)) as other:
        hogs = [threading.Thread(target=hog, args=[one]) for one in (storage, storage, other)]
        for one in hogs:
            one.start()
        try:
            with closing(open_storage(path)) as third:
                for number in range(5):
                    storage.add([new(f"beside-{number}")])
                    third.add([new(f"elsewhere-{number}")])
        finally:
            stop.set()
            for one in hogs:
                one.join()
        assert len(other.find(f"{where}-{number}" for where in ("beside", "elsewhere") for number in range(5))) == 10


READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(*[key for (key,) in connection.execute("SELECT key FROM jobs ORDER BY number")])
connection.close()
"""


def read_elsewhere(path: Path) -> str:
    command = [sys.executable, "-c", READ, str(path)]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def test_closing_second_queue_keeps_locks_of_the_first(path: Path, storage: Storage) -> None:
    storage.add([new("a")])
    open_storage(path).close()

    # Closing the last connection to a file removes its log, and later writes to that log would be lost.
    assert read_elsewhere(path) == "a\n"
    storage.add([new("b")])
    assert read_elsewhere(path) == "a b\n"


def test_forked_child_has_separate_file_locks(path: Path, storage: Storage) -> None:
    storage.add([new("a")])
    go, going = os.pipe()

    def work(output: IO[str]) -> None:
        storage.find(["a"])
        output.write("ready\n")
        os.read(go, 1)
        storage.add([new("b")])

    child = forked(work)
    assert child.output.readline() == "ready\n"
    storage.close()
    assert read_elsewhere(path) == "a\n"
    os.write(going, b"!")
    assert ended(child) == 0

    assert read_elsewhere(path) == "a b\n"
    os.close(go)
    os.close(going)


WRITES = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("writes", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_does_not_wait_for_another_writer(path: Path, storage: Storage) -> None:
    command = [sys.executable, "-c", WRITES, str(path)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"writes\n"
        begun = threading.Event()

        def add() -> None:
            begun.set()
            storage.add([new("a")])

        waiting = pool.submit(add)
        begun.wait(60)
        child = forked_at_once(lambda _: storage.add([new("b")]))
        other.stdin.write(b"end\n")
        other.stdin.flush()
        waiting.result(60)
        assert ended(child) == 0
    assert storage.find(["a", "b"]).keys() == {"a", "b"}
    assert is_whole(path)
