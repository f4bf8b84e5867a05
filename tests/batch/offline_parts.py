"""A queue, jobs for it and a provider for them, as the tests of the offline lane use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from typer.testing import CliRunner, Result

from fastlane import OpenAI
from fastlane.batch import Queue, WorkerSettings
from fastlane.cli import command_line
from fastlane.emulator import Emulator, prompt_digest

CHAT = "/v1/chat/completions"
QUICK: dict[str, Any] = {
    "lane": "batch",
    "linger_s": 0.0,
    "poll_s": 0.02,
    "retry_s": 0.0,
    "listing_lag_s": 0.1,
    "lease_s": 20.0,
}


def batch(*arguments: object) -> Result:
    """Run `fastlane batch ...`."""
    return CliRunner().invoke(command_line("batch"), ["batch", *map(str, arguments)])


def body(number: int, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": f"job number {number}"}
    return {"model": "model", "messages": [message], "max_completion_tokens": 3, **more}


def client_of(emulator: Emulator, **options: Any) -> OpenAI:
    return OpenAI(base_url=emulator.base_url, api_key="sk-test", **options)


def queue_of(where: Any, emulator: Emulator, **settings: Any) -> Queue:
    return Queue(where, client_of(emulator), worker=WorkerSettings(**{**QUICK, **settings}))


def submit(queue: Queue, numbers: Iterable[int], **more: Any) -> None:
    queue.submit_many({str(number): body(number, **more) for number in numbers})


def states(queue: Queue) -> dict[str, int]:
    return {state: count for state, count in queue.status().jobs.items() if count}


def executions(emulator: Emulator, numbers: Iterable[int]) -> list[int]:
    """How often the provider has answered each job well."""
    good = Counter(line.prompt for line in emulator.offline().lines if line.status == 200)
    return [good[prompt_digest(body(number))] for number in numbers]


def files_left(emulator: Emulator) -> int:
    return sum(file.deleted_ns is None for file in emulator.offline().files)
