"""Whether jobs of the batch queue survive what kills their workers."""

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

from benchmarks._lives import Lives
from benchmarks._provider import MODEL
from benchmarks._report import Figure, Report
from fastlane.batch.errors import StorageError
from fastlane.batch.jobs import NewJob
from fastlane.batch.queue import open_storage
from fastlane.batch.storage import Storage
from fastlane.emulator import BatchSettings, Emulator, preset, prompt_digest
from scripts.servers import PostgresServer, available

_STATES = ("planned", "uploading", "uploaded", "creating", "created", "ended")
_LIFE_S = 0.6
_NEAR_S = 0.003
_SEEN_WITHIN_S = 3.0
_FULL_S = 2.0
_SETTINGS: Mapping[str, Any] = {
    "lane": "batch", "linger_s": 0.0, "most_requests": 25, "lease_s": 1.0, "poll_s": 0.05,
    "retry_s": 0.05, "max_attempts": 50, "listing_lag_s": 0.6,
}  # fmt: skip
_FAULTS = (
    *(
        f"{fault};on=POST {what};probability=0.1"
        for fault in ("lost_answer", "delayed=1.5")
        for what in ("batches", "files")
    ),
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
    metadata = {"number": str(number)}
    return {"model": MODEL, "input": f"job number {number}", "max_output_tokens": 4, "metadata": metadata}


def _add(storage: Storage, numbers: Iterable[int]) -> None:
    jobs = []
    for number in numbers:
        body = json.dumps(_body(number)).encode()
        digest = sha256(body).digest()
        jobs.append(NewJob(key=str(number), endpoint="/v1/responses", model=MODEL, body=body, digest=digest))
    if jobs:
        storage.add(jobs)
        storage.add(jobs)  # as one does who does not know whether the first time came through


@contextmanager
def _provider() -> Iterator[Emulator]:
    """Start a provider of whose requests some go wrong; without TLS, so that a life is short."""
    with Emulator(model=replace(preset("instant"), batches=_BATCHES), tls=False, faults=_FAULTS) as emulator:
        yield emulator


def _count(storage: Storage, emulator: Emulator, jobs: int) -> dict[str, int]:
    """Return what became of the jobs, on both sides, and close the storage."""
    with closing(storage):
        answers = storage.answers(keys=[str(number) for number in range(jobs)])
    offline = emulator.offline()
    good = Counter(line.prompt for line in offline.lines if line.status == 200)
    digests = [prompt_digest(_body(number)) for number in range(jobs)]
    done = {answer.key: answer for answer in answers if answer.job.state == "done"}
    return {
        "lost": jobs - len(done),
        "doubled": sum(good[digest] > 1 for digest in digests),
        "unmatched": sum(json.loads(answer.body)["metadata"] != {"number": key} for key, answer in done.items()),
        "answered": sum(good[digest] for digest in digests),
        "batches_made": len(offline.batches),
        "files_left": sum(file.deleted_ns is None for file in offline.files),
    }


def _let_live(lives: Lives) -> None:
    lives.begin("the last")
    code = lives.wait()
    if code != 0:
        raise RuntimeError(f"the last worker ended with {code}: its stderr says why")


def _states(where: str, owner: str) -> list[str]:
    """Return the states of a worker's batches, that of the one which changed last at the end."""
    # Past the storage, which reads more than that: some states last for a few milliseconds.
    with closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT state FROM batches WHERE owner = ? AND state NOT IN ('collected', 'abandoned') ORDER BY changed_at",
            [owner],
        )
        return [state for (state,) in rows]


def _kill_somewhere(where: str, lives: Lives, owner: str, near: str | None, random: Random) -> str:
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


def _killed(jobs: int, kills: int, random: Random) -> tuple[dict[str, int], Counter[str]]:
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
        return _count(storage, emulator, jobs), fell


def _fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


def _full_disk(jobs: int) -> tuple[dict[str, int], int, str]:
    """Return what became of the jobs, how many submissions were refused, and how the disk was full."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        emulator = stack.enter_context(_provider())
        mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", directory]
        is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if is_mounted:
            stack.callback(subprocess.run, ["umount", directory], check=False)
        where, ballast = str(Path(directory) / "jobs.sqlite"), Path(directory) / "ballast"
        storage = open_storage(where)
        _add(storage, range(jobs // 2))
        refused = 0
        with Lives(where, emulator.base_url, _SETTINGS) as lives:
            # With files that may not grow any more, where there is no disk to fill.
            largest = max(path.stat().st_size for path in Path(directory).iterdir())
            lives.begin("on a full disk", most_file_bytes=None if is_mounted else largest + 8_192)
            time.sleep(_LIFE_S)
            if is_mounted:
                _fill(ballast)
            until = time.monotonic() + _FULL_S
            waiting = list(range(jobs // 2, jobs))
            while time.monotonic() < until and is_mounted:
                try:
                    _add(storage, waiting[:1])
                    waiting.pop(0)
                except StorageError:
                    refused += 1
                time.sleep(0.02)
            lives.kill()
            ballast.unlink(missing_ok=True)
            _add(storage, waiting)
            _let_live(lives)
        how = "a full file system" if is_mounted else "a limit to the size of files"
        return _count(storage, emulator, jobs), refused, how


def _on_postgres(jobs: int, kills: int, random: Random) -> dict[str, int] | None:
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
        return _count(storage, emulator, jobs)


def batch_crash(quick: bool) -> Report:
    """Count the jobs that the batch queue loses or doubles when its worker is killed: none may be.

    5,000 jobs, each added twice; its answer repeats its number. The provider's lists lag by 0.3 s, one line in a
    hundred fails, and requests go wrong: 10 % are done without an answer, 10 % begin 1.5 s late, 5 % get a 500. A
    worker is killed 200 times, at random or up to 3 ms after a state of a batch was seen (`kills_…` count the states).
    `lost` jobs have no result, `unmatched` ones another job's, `doubled` ones were answered twice by the provider's
    log. Then once on a full disk (`disk_refused`: submissions that were made again) and on PostgreSQL with two workers.

    Inside: everything from the submission of a job to its result. Outside: what a power failure does to a disk.
    """
    random = Random(0)
    jobs, kills = (500, 24) if quick else (5_000, 200)
    postgres_jobs, postgres_kills = (100, 6) if quick else (1_000, 40)
    counted, fell = _killed(jobs, kills, random)
    disk, refused, how = _full_disk(60 if quick else 200)
    postgres = _on_postgres(postgres_jobs, postgres_kills, random)
    kinds = ("lost", "doubled", "unmatched")
    figures: dict[str, Figure] = {
        **counted,
        **{f"kills_{state}": fell[state] for state in (*_STATES, "between")},
        **{f"disk_{name}": disk[name] for name in kinds},
        "disk_refused": refused,
        **{f"postgres_{name}": None if postgres is None else postgres[name] for name in kinds},
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
