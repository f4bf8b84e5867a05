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
from scripts.servers import RedisServer, free_port
from tests.knowledge.redis_servers import redis_server as redis_server
from tests.programs import printed_by

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


GUNICORN = ["gunicorn", "--worker-class", "uvicorn_worker.UvicornWorker", "--workers", str(_WORKERS), "--bind"]
SERVERS = {
    "gunicorn --preload": [*GUNICORN, "{address}", "--preload"],
    "gunicorn": [*GUNICORN, "{address}"],
    "uvicorn": ["uvicorn", "--workers", str(_WORKERS), "--port", "{port}"],
}


def counted(redis: RedisServer) -> float:
    """Return the requests that the processes have counted together."""
    client = pytest.importorskip("redis").Redis.from_url(redis.url)
    with client:
        return sum(float(client.hget(key, "requests") or 0) for key in client.scan_iter("fastlane:rate_limits:*"))


def spans_in(folder: Path) -> list[int]:
    """Return how many calls each file has."""
    return [sum(line.count('"chat m"') for line in file.read_text().splitlines()) for file in folder.glob("*.jsonl")]


@pytest.mark.parametrize(
    "server", ["gunicorn --preload", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gunicorn", "uvicorn"))]
)
def test_each_worker_has_connections_threads_and_files(
    server: str, provider: Emulator, redis_server: RedisServer, tmp_path: Path
) -> None:
    port, log, traces = free_port(), tmp_path / "server.log", tmp_path / "traces"
    named = [each.format(address=f"127.0.0.1:{port}", port=port) for each in SERVERS[server]]
    environment = {**environment_of(provider), "REDIS_URL": redis_server.url, "FASTLANE_TRACE_DIR": str(traces)}
    redis_server.ask("FLUSHALL")
    with running([sys.executable, "-m", *named, "tests.deployment.prefork_app:app"], environment, log) as process:
        wait_for(lambda: accepts(port), process, log)

        def ask(_: int) -> Any:
            return httpx2.get(f"http://127.0.0.1:{port}/", timeout=60).json()

        answers: list[Any] = []
        with ThreadPoolExecutor(8) as pool:
            while len({one["worker"] for one in answers}) < _WORKERS and len(answers) < 10 * _CALLS:
                answers += pool.map(ask, range(_CALLS))
        calls = len(answers) + (1 if "--preload" in server else _WORKERS)  # one is made when it is imported
        wait_for(lambda: counted(redis_server) >= calls, process, log)
        assert counted(redis_server) == calls

    assert len({one["worker"] for one in answers}) == _WORKERS
    assert {one["outcome"] for one in answers} == {"completed"}
    assert all(one["text"] for one in answers)
    assert any(one["reused"] for one in answers)
    assert len(provider.log()) == calls  # nothing was sent twice
    files = [count for count in spans_in(traces) if count]
    assert sum(files) == calls
    assert len(files) == _WORKERS + ("--preload" in server)


FIRST_CALL = """
import os, sys
{server}
import asyncio
from fastlane import AsyncOpenAI, OpenAI

question = [{{"role": "user", "content": "Name a river."}}]
client, async_client = OpenAI(), AsyncOpenAI()

async def call():
    async for _ in await async_client.chat.completions.create(model="m", messages=question, stream=True):
        pass

if {forks} and os.fork():
    os.wait()
    sys.exit()
before = set(sys.modules)
if {is_async}:
    asyncio.run(call())
else:
    client.chat.completions.create(model="m", messages=question)
loaded = set(sys.modules) - before
print(sorted(name for name in loaded if name.startswith(("anyio", "fastlane", "openai", "encodings"))))
"""


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("worker", ["forked", "server"])
def test_first_call_of_a_worker_imports_nothing(worker: str, is_async: bool, provider: Emulator) -> None:
    server = "import uvicorn" if worker == "server" else ""
    program = FIRST_CALL.format(server=server, forks=worker == "forked", is_async=is_async)

    assert printed_by("-W", "ignore", "-c", program, environment=environment_of(provider)) == "[]\n"


@pytest.mark.slow
def test_celery_prefork_pool_runs_every_task(provider: Emulator, tmp_path: Path) -> None:
    log, folder = tmp_path / "celery.log", tmp_path / "queue"
    folder.mkdir()
    environment = {**environment_of(provider), "CELERY_FOLDER": str(folder)}
    celery = [sys.executable, "-m", "celery", "--app", "tests.deployment.celery_app"]
    queue = f"from tests.deployment.celery_app import call; [call.delay(number) for number in range({_CALLS})]"
    printed_by("-c", queue, environment=environment)
    command = [*celery, "worker", "--pool", "prefork", "--concurrency", str(_WORKERS), "--without-mingle"]
    with running(command, {**environment, "FORKS": "1"}, log) as worker:
        wait_for(lambda: len(list(folder.glob("*.result"))) == _CALLS, worker, log)

    results = [file.read_text().split() for file in folder.glob("*.result")]
    assert {outcome for _, outcome, _ in results} == {"completed"}
    assert len({worker for worker, *_ in results}) == _WORKERS
    assert len(provider.log()) == _CALLS + 1
