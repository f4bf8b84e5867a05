"""Workers of a queue that are born quickly, one after the other, and may be killed at any moment.

`python -m benchmarks._batch_lives` is what bears them: a process that has everything imported, and forks a worker as
often as it is told to.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks._child import Child, questions, say

_KEY = "sk-benchmark"


class Lives(Child):
    """Workers on one queue. Ends with the `with` block, and the worker that lives then with it."""

    def __init__(
        self, where: str, base_url: str, settings: Mapping[str, Any], *, schema: str = "fastlane_batch"
    ) -> None:
        super().__init__("benchmarks._batch_lives")
        self._where = where
        self.ask({"base_url": base_url, "settings": dict(settings), "schema": schema})
        self.pid: int | None = None

    def begin(self, owner: str, *, where: str | None = None, most_file_bytes: int | None = None) -> None:
        """Begin a life, on another queue if `where` names one.

        With `most_file_bytes` no file may grow beyond that: a disk that is full for it.
        """
        asked = {"owner": owner, "where": where or self._where, "most_file_bytes": most_file_bytes}
        self.pid = self.ask(asked)["pid"]

    def kill(self) -> None:
        """End it on the spot: kill -9."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def wait(self) -> int:
        """Wait for its end; returns its exit code, below 0 for a signal."""
        self.pid = None
        return int(self.ask(None)["code"])

    def __exit__(self, *raised: object) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.kill()
        super().__exit__(*raised)


def _live(told: Mapping[str, Any], where: str, owner: str, most_file_bytes: int | None) -> None:
    import logging

    import fastlane
    from fastlane.batch.queue import open_storage
    from fastlane.batch.settings import WorkerSettings
    from fastlane.batch.worker import QueueWorker

    if most_file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_file_bytes, most_file_bytes))
    logging.getLogger("fastlane.batch").setLevel(logging.CRITICAL)
    storage = open_storage(where, schema=told["schema"])
    client = fastlane.OpenAI(base_url=told["base_url"], api_key=_KEY)
    QueueWorker(storage, client, WorkerSettings(**told["settings"]), owner=owner).run(until_empty=True)


def _import(base_url: str) -> None:
    """Have everything in memory before the first fork: a life is to be spent with work."""
    import tenacity  # noqa: F401

    import fastlane
    import fastlane.batch.storage
    import fastlane.batch.worker

    with fastlane.OpenAI(base_url=base_url, api_key=_KEY) as client:
        client.batches.list(limit=1)
        client.files.list(purpose="batch", limit=1)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked_for = questions()
    told = next(asked_for)
    _import(told["base_url"])
    say({"ready": True})
    process = 0
    for asked in asked_for:
        if asked is None:
            _, status = os.waitpid(process, 0)
            say({"code": os.waitstatus_to_exitcode(status)})
            continue
        process = os.fork()
        if process == 0:
            code = 1
            try:
                _live(told, asked["where"], asked["owner"], asked["most_file_bytes"])
                code = 0
            except BaseException as error:  # noqa: BLE001 - a life that ends by itself says why, and is over
                sys.stderr.write(f"a worker ended: {type(error).__name__}: {error}\n")
                sys.stderr.flush()
            finally:
                os._exit(code)
        say({"pid": process})


if __name__ == "__main__":
    _main()
