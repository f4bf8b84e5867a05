"""Whether the offline lane loses or doubles a job when its worker is killed: it must not, wherever that happens.

A queue of 5,000 jobs, each with a number of its own in its request, which the answer repeats; the embedded provider in
a process of its own, whose lists show a file or a batch only 0.3 s after it is there, where one line in a hundred fails
with 500 or 429, and requests go wrong: creations and uploads are done without an answer (10 %), are begun 1.5 s late
even if their client is gone by then (10 %), or questions are answered with 500 (5 %). A worker in a process of its own
is killed with SIGKILL 200 times: half the time at a moment drawn between 0 and 0.6 s after its start, half the time up
to 3 ms after one of the states of a batch was seen in the database, the states in turn (`kills_planned` to
`kills_ended` count what its last batch's record said when it was dead; `kills_between`: it had none). Jobs are added on
the way, each of them twice. The last worker is let live.

Counted on both sides. In the queue: `lost` have no result (or a failed one), `unmatched` a result that is another
job's. At the provider, by its log of every line that it carried out: `doubled` were answered well more than once.
`answered` is the sum of these answers, `batches_made` and `files_left` what it made and what was not deleted: uploads
that arrived after their batch was through.

Then the same on a disk that is full once, with 200 jobs (`disk_lost`, `disk_doubled`, `disk_unmatched`): a file system
in memory that is filled up while the worker works (the system's ENOSPC), or, where none can be mounted, a limit to the
size of the worker's files (EFBIG); 2 s later the worker is killed, there is room again, and another goes on.
`disk_refused` is how many submissions meanwhile were refused with a StorageError; they are made again afterwards. And
on PostgreSQL, with two workers at once, 1,000 jobs and 40 kills (`postgres_lost` and so on; unknown where there is no
server).
Inside: everything from the submission of a job to its result, and the log of the provider. Outside: what a power
failure does to a disk that has lied about what it has written.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from benchmarks._batch_lives import Lives
from benchmarks._report import Figure, Report
from fastlane.batch.errors import StorageError
from fastlane.batch.jobs import NewJob
from fastlane.batch.queue import open_storage
from fastlane.batch.storage import Storage
from fastlane.emulator import BatchSettings, Emulator, preset, prompt_digest
from scripts.postgres_server import PostgresServer
from scripts.servers import available

_MODEL = "benchmark"
_ENDPOINT = "/v1/responses"
_STATES = ("planned", "uploading", "uploaded", "creating", "created", "ended")
_IN_A_BATCH = 25
_LIFE_S = 0.6
_NEAR_S = 0.003
_SEEN_WITHIN_S = 3.0
_FULL_S = 2.0
_SETTINGS: Mapping[str, Any] = {
    "lane": "batch", "linger_s": 0.0, "most_requests": _IN_A_BATCH, "lease_s": 1.0, "poll_s": 0.05,
    "retry_s": 0.05, "max_attempts": 50, "listing_lag_s": 0.6,
}  # fmt: skip
_FAULTS = (
    "lost_answer;on=POST batches;probability=0.1",
    "lost_answer;on=POST files;probability=0.1",
    "delayed=1.5;on=POST batches;probability=0.1",
    "delayed=1.5;on=POST files;probability=0.1",
    "status=500;on=GET *;probability=0.05",
)
_BATCHES = BatchSettings(
    duration_s=0.05,
    server_error_share=0.005,
    rate_limited_share=0.005,
    listing_delay_s=0.3,
    missing_file_fails_late=True,
)


def _body(number: int) -> dict[str, Any]:
    return {
        "model": _MODEL,
        "input": f"job number {number}",
        "max_output_tokens": 4,
        "metadata": {"number": str(number)},
    }


def _job(number: int) -> NewJob:
    body = json.dumps(_body(number)).encode()
    return NewJob(key=str(number), endpoint=_ENDPOINT, model=_MODEL, body=body, digest=sha256(body).digest())


@contextmanager
def _provider() -> Iterator[Emulator]:
    """A provider of whose requests some go wrong; without TLS, so that a life is short."""
    with Emulator(model=replace(preset("instant"), batches=_BATCHES), tls=False, faults=_FAULTS) as emulator:
        yield emulator


class _Counted:
    """What became of the jobs, on both sides."""

    def __init__(self, storage: Storage, emulator: Emulator, numbers: Iterable[int]) -> None:
        wanted = set(numbers)
        offline = emulator.offline()
        good = Counter(line.prompt for line in offline.lines if line.status == 200)
        digests = {prompt_digest(_body(number)): number for number in wanted}
        self.doubled = sum(1 for digest in digests if good[digest] > 1)
        self.answered = sum(good[digest] for digest in digests)
        self.batches_made = len(offline.batches)
        self.files_left = sum(file.deleted_ns is None for file in offline.files)
        self.lost, self.unmatched = 0, 0
        answers = storage.answers([str(number) for number in wanted])
        for number in wanted:
            answer = answers.get(str(number))
            if answer is None or answer.job.state != "done":
                self.lost += 1
            elif json.loads(answer.body)["metadata"] != {"number": str(number)}:
                self.unmatched += 1


def _kill_somewhere(where: str, lives: Lives, owner: str, near: str | None, random: Random) -> str:
    """Kill the worker, and return where that was."""
    if near is None:
        time.sleep(random.uniform(0, _LIFE_S))
    else:
        until = time.monotonic() + _SEEN_WITHIN_S
        while time.monotonic() < until and near not in _states(where, owner):
            time.sleep(0.0002)
        time.sleep(random.uniform(0, _NEAR_S))
    lives.kill()
    states = _states(where, owner)
    return states[-1] if states else "between"


def _states(where: str, owner: str) -> list[str]:
    """The states of a worker's batches, that of the one which changed last at the end."""
    # Past the storage, which reads more than that: some states last for a few milliseconds.
    with closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT state FROM batches WHERE owner = ? AND state NOT IN ('collected', 'abandoned') ORDER BY changed_at",
            [owner],
        )
        return [state for (state,) in rows]


def _add(storage: Storage, numbers: Iterable[int]) -> None:
    jobs = [_job(number) for number in numbers]
    if jobs:
        storage.add(jobs)
        storage.add(jobs)  # as one does who does not know whether the first time came through


def _killed(jobs: int, kills: int, random: Random) -> tuple[_Counted, Counter[str]]:
    fell: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory, _provider() as emulator:
        where = str(Path(directory) / "jobs.sqlite")
        storage = open_storage(where)
        with Lives(where, emulator.base_url, _SETTINGS) as lives:
            for life in range(kills):
                _add(storage, range(life * jobs // kills, (life + 1) * jobs // kills))
                lives.begin(f"life-{life}")
                near = None if life % 2 else _STATES[life // 2 % len(_STATES)]
                fell[_kill_somewhere(where, lives, f"life-{life}", near, random)] += 1
            _let_live(lives)
        return _closed(storage, emulator, range(jobs)), fell


def _let_live(lives: Lives) -> None:
    lives.begin("the last")
    code = lives.wait()
    if code != 0:
        raise RuntimeError(f"the last worker ended with {code}: its stderr says why")


def _closed(storage: Storage, emulator: Emulator, numbers: Iterable[int]) -> _Counted:
    try:
        return _Counted(storage, emulator, numbers)
    finally:
        storage.close()


class _SmallDisk:
    """A place for files that can be full."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(directory)], capture_output=True, check=False
        )
        self.is_mounted = mounted.returncode == 0
        self._ballast = directory / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(b"\0" * 4096):
                pass

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", str(self.directory)], check=False)


def _full_disk(jobs: int) -> tuple[_Counted, int, str]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        emulator = stack.enter_context(_provider())
        disk = _SmallDisk(directory)
        stack.callback(disk.close)
        where = str(directory / "jobs.sqlite")
        storage = open_storage(where)
        _add(storage, range(jobs // 2))
        refused = 0
        with Lives(where, emulator.base_url, _SETTINGS) as lives:
            # With files that may not grow any more, where there is no disk to fill.
            lives.begin("on a full disk", most_file_bytes=None if disk.is_mounted else _size(directory) + 8_192)
            time.sleep(_LIFE_S)
            if disk.is_mounted:
                disk.fill()
            until = time.monotonic() + _FULL_S
            waiting = list(range(jobs // 2, jobs))
            while time.monotonic() < until and disk.is_mounted:
                try:
                    storage.add([_job(waiting[0])])
                    waiting.pop(0)
                except StorageError:
                    refused += 1
                time.sleep(0.02)
            lives.kill()
            disk.free()
            _add(storage, waiting)
            _let_live(lives)
        counted = _closed(storage, emulator, range(jobs))
        return counted, refused, "a full file system" if disk.is_mounted else "a limit to the size of files"


def _size(directory: Path) -> int:
    return max(path.stat().st_size for path in directory.iterdir())


def _on_postgres(jobs: int, kills: int, random: Random) -> _Counted | None:
    with ExitStack() as stack:
        server = stack.enter_context(available(PostgresServer()))
        if server is None:
            return None
        emulator = stack.enter_context(_provider())
        storage = open_storage(server.url)
        both = [stack.enter_context(Lives(server.url, emulator.base_url, _SETTINGS)) for _ in range(2)]
        for at, lives in enumerate(both):
            lives.begin(f"worker-{at}-0")
        for life in range(kills):
            _add(storage, range(life * jobs // kills, (life + 1) * jobs // kills))
            time.sleep(random.uniform(0, _LIFE_S))
            lives = both[life % 2]
            lives.kill()
            lives.begin(f"worker-{life % 2}-{life + 1}")
        for lives in both:
            lives.kill()
        _let_live(both[0])
        return _closed(storage, emulator, range(jobs))


def measure(quick: bool) -> Report:
    """Kill, and count."""
    random = Random(0)
    jobs, kills = (500, 24) if quick else (5_000, 200)
    postgres_jobs, postgres_kills = (100, 6) if quick else (1_000, 40)
    counted, fell = _killed(jobs, kills, random)
    disk, refused, how = _full_disk(60 if quick else 200)
    postgres = _on_postgres(postgres_jobs, postgres_kills, random)
    kinds = ("lost", "doubled", "unmatched")
    figures: dict[str, Figure] = {name: getattr(counted, name) for name in kinds}
    figures |= {
        "answered": counted.answered,
        "batches_made": counted.batches_made,
        "files_left": counted.files_left,
        **{f"kills_{state}": fell[state] for state in (*_STATES, "between")},
        **{f"disk_{name}": getattr(disk, name) for name in kinds},
        "disk_refused": refused,
        **{f"postgres_{name}": None if postgres is None else getattr(postgres, name) for name in kinds},
    }
    # What no server was there for has no bar.
    bars = [name for name, value in figures.items() if name.rpartition("_")[2] in kinds and value is not None]
    return Report(
        figures=figures,
        reach=dict.fromkeys(bars, "== 0"),
        conditions={
            "jobs": jobs,
            "kills": kills,
            "full disk": how,
            "postgres": "none" if postgres is None else f"{postgres_jobs} jobs, {postgres_kills} kills, 2 workers",
        },
    )
