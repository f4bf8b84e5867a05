"""Servers that fork after the application was imported: each worker has connections of its own, and no call is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fastlane.emulator import Emulator
from scripts.servers import free_port

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")

_START_S = 100
_WORKERS = 2
_CALLS = 40


@contextmanager
def running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def environment_of(provider: Emulator) -> dict[str, str]:
    return {**provider.environment, "OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "sk-test"}


def accepts(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_gunicorn_preload_workers_answer_every_request(provider: Emulator, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "gunicorn.log"
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(_WORKERS)]
    command += ["--worker-class", "uvicorn_worker.UvicornWorker", "--bind", f"127.0.0.1:{port}"]
    with running([*command, "tests.deployment.prefork_app:app"], environment_of(provider), log) as server:
        wait_for(lambda: accepts(port), server, log)

        def ask(_: int) -> Any:
            return httpx2.get(f"http://127.0.0.1:{port}/", timeout=60).json()

        answers: list[Any] = []
        with ThreadPoolExecutor(8) as pool:
            while len({one["worker"] for one in answers}) < _WORKERS and len(answers) < 10 * _CALLS:
                answers += pool.map(ask, range(_CALLS))

    assert len({one["worker"] for one in answers}) == _WORKERS
    assert {one["outcome"] for one in answers} == {"completed"}
    assert all(one["text"] for one in answers)
    assert any(one["reused"] for one in answers)
    assert len(provider.log()) == len(answers) + 1  # nothing was sent twice; one call was made in the master


@pytest.mark.slow
def test_celery_prefork_pool_runs_every_task(provider: Emulator, tmp_path: Path) -> None:
    log, folder = tmp_path / "celery.log", tmp_path / "queue"
    folder.mkdir()
    environment = {**environment_of(provider), "CELERY_FOLDER": str(folder)}
    celery = [sys.executable, "-m", "celery", "--app", "tests.deployment.celery_app"]
    queue = f"from tests.deployment.celery_app import call; [call.delay(number) for number in range({_CALLS})]"
    subprocess.run([sys.executable, "-c", queue], env={**os.environ, **environment}, check=True, timeout=300)
    command = [*celery, "worker", "--pool", "prefork", "--concurrency", str(_WORKERS), "--without-mingle"]
    with running(command, {**environment, "FORKS": "1"}, log) as worker:
        wait_for(lambda: len(list(folder.glob("*.result"))) == _CALLS, worker, log)

    results = [file.read_text().split() for file in folder.glob("*.result")]
    assert {outcome for _, outcome, _ in results} == {"completed"}
    assert len({worker for worker, *_ in results}) == _WORKERS
    assert len(provider.log()) == _CALLS + 1
