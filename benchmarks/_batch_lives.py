"""Workers of a queue that are born quickly, one after the other, and may be killed at any moment."""

from __future__ import annotations

import logging
import multiprocessing
import resource
import signal
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from typing import Any, Self

import fastlane
from fastlane import RateLimits, Urgency
from fastlane.batch.queue import open_storage
from fastlane.batch.settings import WorkerSettings
from fastlane.batch.worker import QueueWorker

_CONTEXT = multiprocessing.get_context("forkserver")
# What a client with these plays imports only then is imported before the first fork: a life is to be spent with work.
with fastlane.OpenAI(base_url="http://localhost/v1", api_key="none", plays=[RateLimits(), Urgency()]) as _client:
    _client.files, _client.batches  # noqa: B018


class Lives:
    """Workers on one queue, one at a time. Ends with the `with` block, and the worker that lives then with it."""

    def __init__(self, where: str, base_url: str, settings: Mapping[str, Any]) -> None:
        self._where, self._base_url, self._settings = where, base_url, dict(settings)
        self._process: ForkServerProcess | None = None
        # Lives are forked from a process that has imported this module, and nothing else.
        _CONTEXT.set_forkserver_preload([__name__])

    @property
    def pid(self) -> int | None:
        """The process of the worker that lives."""
        return None if self._process is None else self._process.pid

    def begin(self, owner: str, *, where: str | None = None, most_file_bytes: int | None = None) -> None:
        """Begin a life, on another queue if `where` names one.

        With `most_file_bytes` no file may grow beyond that: a disk that is full for it.
        """
        asked = (where or self._where, self._base_url, self._settings, owner, most_file_bytes)
        self._process = _CONTEXT.Process(target=_live, args=asked, daemon=True)
        self._process.start()

    def kill(self) -> None:
        """End it on the spot: kill -9."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def wait(self) -> int:
        """Wait for its end; returns its exit code, below 0 for a signal."""
        process, self._process = self._process, None
        assert process is not None
        process.join()
        assert process.exitcode is not None
        return process.exitcode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _live(where: str, base_url: str, settings: dict[str, Any], owner: str, most_file_bytes: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if most_file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_file_bytes, most_file_bytes))
    logging.getLogger("fastlane.batch").setLevel(logging.CRITICAL)
    client = fastlane.OpenAI(base_url=base_url, api_key="sk-benchmark")
    QueueWorker(open_storage(where), client, WorkerSettings(**settings), owner=owner).work(until_empty=True)
