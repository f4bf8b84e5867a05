"""The queue that applications use: calls go in under a key, and come out as openai's own types."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from .._clock import now_ns
from .._fork import new_lock
from ..errors import ConfigurationError, MissingExtraError
from .answers import Finished
from .errors import (
    JobNotFinishedError,
    QueueError,
    QueueNotFoundError,
    QueueWaitTimeoutError,
    StorageError,
    UnknownJobError,
)
from .jobs import OVER, Job, JobState, Status
from .requests import CHAT, check_key, listed_keys, new_job
from .settings import WorkerSettings

if TYPE_CHECKING:
    from .storage import Storage
    from .worker import QueueWorker

_log = logging.getLogger("fastlane.batch")

_PAGE = 200
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0


def open_storage(where: str | os.PathLike[str], *, schema: str = "fastlane_batch", create: bool = True) -> Storage:
    """Return the storage of a queue. Raises what `storage_at` does, and MissingExtraError."""
    try:
        from .storage import storage_at
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise MissingExtraError("batch", "sqlalchemy") from error
    return storage_at(where, schema=schema, create=create)


class Queue:
    """A durable queue of calls. Several threads, processes and machines may use it at once, also across a fork.

    `where` is a path (`jobs.sqlite`, its own file) or the address of a PostgreSQL database (`postgresql://...`), in
    which `schema` names the queue. It needs the extra `batch`. `client` is the synchronous client by which a worker
    here sends the jobs; a queue that only submits and reads needs none. `worker` has the settings of that worker.
    Only `submit`, `submit_many` and `start` make a queue that is not there yet; everything else raises
    QueueNotFoundError. Raises ConfigurationError, MissingExtraError and StorageError.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        client: Any = None,
        *,
        worker: WorkerSettings | None = None,
        schema: str = "fastlane_batch",
    ) -> None:
        if worker is not None and not isinstance(worker, WorkerSettings):
            raise ConfigurationError(f"worker expects WorkerSettings(...), got {type(worker).__name__}")
        self._client = client
        self._settings = worker or WorkerSettings()
        self._running: QueueWorker | None = None
        self._running_lock = new_lock()
        self._closed = threading.Event()
        self._warned = False
        self._where, self._schema = where, schema
        self._opened: Storage | None = None
        with suppress(QueueNotFoundError):
            self._open(create=False)

    def __repr__(self) -> str:
        return f"<fastlane.batch.Queue {'not made yet' if self._opened is None else self._opened.name}>"

    @property
    def storage(self) -> Storage:
        """Its storage, for workers. Raises QueueNotFoundError."""
        return self._open(create=False)

    def _open(self, *, create: bool) -> Storage:
        if self._opened is None:
            if self._closed.is_set():
                raise StorageError("the queue is closed: open it again by `Queue(...)`")
            opened = open_storage(self._where, schema=self._schema, create=create)
            # Two threads may have submitted the first jobs at once.
            self._opened = self._opened or opened
            if self._opened is not opened:
                opened.close()
        return self._opened

    # In.

    def submit(self, body: Mapping[str, Any], *, key: str | None = None, endpoint: str = CHAT) -> Job:
        """Put a call into the queue. It is durable when this returns, and nothing was sent yet.

        `body` is what `client.chat.completions.create(**body)` takes, or the method of another `endpoint`. Submitted
        again with the same `key` it is the same job; another body under that key raises JobConflictError. Without a
        key it is a new job each time, under a random key. Raises ConfigurationError for a body that cannot be sent, and
        StorageError.
        """
        return self.submit_many([(key, body)], endpoint=endpoint)[0]

    def submit_many(
        self,
        bodies: Mapping[str, Mapping[str, Any]] | Iterable[tuple[str | None, Mapping[str, Any]]],
        *,
        endpoint: str = CHAT,
    ) -> list[Job]:
        """Put calls into the queue, all or none, in order: bodies by key, or pairs of a key (or None) and a body.

        Thousands per second: they share one commit. Raises what `submit` raises.
        """
        expected = "bodies expects a mapping of keys to bodies, or pairs of a key (or None) and a body"
        pairs: Any = bodies.items() if isinstance(bodies, Mapping) else bodies
        if not isinstance(pairs, Iterable):
            raise ConfigurationError(f"{expected}, got {type(bodies).__name__}")
        jobs = []
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ConfigurationError(f"{expected}, got {type(pair).__name__} in it")
            jobs.append(new_job(pair[1], key=uuid4().hex if pair[0] is None else pair[0], endpoint=endpoint))
        return self._open(create=True).add(jobs)

    # Out.

    def job(self, key: str) -> Job:
        """Return a job as it is now. Raises UnknownJobError."""
        return self._known([key])[0]

    def result(self, key: str, *, response_format: type | None = None) -> Any:
        """Return what the live call would have: ChatCompletion, Response, Completion or CreateEmbeddingResponse.

        With `response_format`, a class, what openai's `parse()` would have. Raises what the live call would have raised
        (openai.APIStatusError and its kinds) for a job that failed; JobFailedError where there was no answer at all,
        JobNotFinishedError, JobCancelledError and UnknownJobError.
        """
        check_key(key)
        found = self.storage.answers(keys=[key])
        if not found:
            job = self.job(key)
            raise JobNotFinishedError(f"the job {key!r} is {job.state}: queue.wait([...]) returns when it is over")
        return found[0].result(response_format=response_format)

    def results(self, *, after: int = 0, wait: bool = False, timeout_s: float | None = None) -> Iterator[Finished]:
        """Yield the jobs that are over, in that order; with `wait`, until all are.

        `after` is the `sequence` of the last one that was read. A job that failed and was retried comes again. Raises
        QueueWaitTimeoutError where `timeout_s` passes without a job.
        """
        pauses = self._pauses(timeout_s)
        while True:
            # Read before: a job that is over after this is in the next page.
            left = self.storage.unfinished() if wait else 0
            while page := self.storage.answers(after=after, most=_PAGE):
                for answer in page:
                    after = answer.sequence
                    yield answer
                pauses = self._pauses(timeout_s)
            if not left:
                return
            self._pause(next(pauses))

    def wait(self, keys: Iterable[str] | str | None = None, timeout_s: float | None = None) -> None:
        """Return when these jobs, or all, are over. Raises QueueWaitTimeoutError, and UnknownJobError.

        A worker has to process them, here (`start`, `run`) or elsewhere.
        """
        asked = self._known_keys(keys)
        pauses = self._pauses(timeout_s)
        while self.storage.unfinished(asked):
            self._pause(next(pauses))

    async def async_wait(self, keys: Iterable[str] | str | None = None, timeout_s: float | None = None) -> None:
        """Wait in an event loop. Run other methods in a thread: `await asyncio.to_thread(queue.submit, ...)`."""
        asked = await asyncio.to_thread(self._known_keys, keys)
        pauses = self._pauses(timeout_s)
        while await asyncio.to_thread(self.storage.unfinished, asked):
            await asyncio.sleep(next(pauses))
            self._raise_worker_error()

    def status(self) -> Status:
        """Return the state of the whole queue: jobs and batches by state, and why jobs have failed."""
        return self.storage.status()

    def cancel(self, keys: Iterable[str] | str | None) -> list[Job]:
        """Cancel jobs (None: all that are not over), and return them as they are now, in order. Raises UnknownJobError.

        A job that has not been sent is `cancelled` at once. One that has been sent is marked (`cancel_asked`): its
        answer is kept if it comes, and it is not sent again. A batch without any wanted job is cancelled at the
        provider.
        """
        return self.storage.cancel(self._known_keys(keys))

    def retry_failed(self, keys: Iterable[str] | str | None = None) -> int:
        """Let failed jobs, or those with these keys, wait again as if they were new. Return how many.

        Raises UnknownJobError.
        """
        return self.storage.retry_failed(self._known_keys(keys))

    def abandon(self, base_url: str) -> int:
        """Give up the batches at an address that is gone, and let their jobs wait again. Return how many.

        A batch that goes on there is answered twice. Batches that a worker leases are left alone.
        """
        return self.storage.abandon(base_url)

    def forget(
        self,
        keys: Iterable[str] | str | None = None,
        *,
        states: Sequence[JobState] = ("done", "failed", "cancelled"),
        older_than_s: float = 0.0,
    ) -> int:
        """Delete jobs that have been over for so long, in these states, with their bodies and answers. Return how many.

        All of them, or those with these keys. Nothing else deletes jobs. Their keys are free again. Raises
        ConfigurationError.
        """
        if unknown := [state for state in states if state not in OVER]:
            raise ConfigurationError(f"states expects some of {', '.join(sorted(OVER))}, got {unknown[0]!r:.40}")
        listed = None if keys is None else listed_keys(keys)
        return self.storage.forget(keys=listed, states=states, older_than_s=older_than_s)

    # A worker in this process.

    def run(self, *, until_empty: bool = True) -> None:
        """Process the queue in this thread, until every job is over, or for ever. Raises what ends a worker."""
        self._worker().work(until_empty=until_empty)

    def start(self) -> None:
        """Process the queue in a background thread until `stop()` or `close()`. Make it where there is none yet."""
        self._open(create=True)
        with self._running_lock:
            if self._running is None or not self._running.is_alive():
                self._running = self._worker()
                self._running.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """End that thread. Return whether it has ended in time. Batches go on at the provider."""
        running = self._running
        if running is None or not running.is_alive():
            return True
        running.stop()
        if running is not threading.current_thread():
            running.join(timeout_s)
        return not running.is_alive()

    def close(self) -> None:
        """End the worker of `start()` and close the storage. Idempotent."""
        self.stop()
        self._closed.set()
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _worker(self) -> QueueWorker:
        from .worker import QueueWorker

        if self._client is None:
            raise ConfigurationError("a worker sends jobs by a client, and this queue has none: Queue(where, client)")
        return QueueWorker(self.storage, self._client, self._settings)

    def _known(self, keys: Iterable[str] | str) -> list[Job]:
        listed = listed_keys(keys)
        found = self.storage.find(listed)
        missing = [key for key in listed if key not in found]
        if missing:
            more = f", nor of {len(missing) - 1} others" if len(missing) > 1 else ""
            raise UnknownJobError(f"no job of the key {missing[0]!r} is in the queue {self.storage.name}{more}")
        return [found[key] for key in listed]

    def _known_keys(self, keys: Iterable[str] | str | None) -> list[str] | None:
        return None if keys is None else [job.key for job in self._known(keys)]

    def _pauses(self, timeout_s: float | None) -> Iterator[float]:
        """Yield the pause before the next look. Raises QueueWaitTimeoutError when the time is over."""
        began_ns, pause_s = now_ns(), _FIRST_PAUSE_S
        while True:
            left_s = _LONGEST_PAUSE_S if timeout_s is None else timeout_s - (now_ns() - began_ns) / 1e9
            if left_s <= 0.0:
                raise QueueWaitTimeoutError(f"not all jobs were over within {timeout_s:g} s: they go on")
            yield min(pause_s, left_s)
            if pause_s == _LONGEST_PAUSE_S and not self._warned and not self.status().workers:
                self._warned = True
                _log.warning(
                    "no worker runs on the queue %s, so its jobs wait: call queue.start() or run `fastlane batch run`",
                    self.storage.name,
                )
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise QueueError(f"the queue {self.storage.name} was closed while something waited for its jobs")
        self._raise_worker_error()

    def _raise_worker_error(self) -> None:
        running = self._running
        if running is not None and running.error is not None:
            raise running.error
