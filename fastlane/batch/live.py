"""Live calls, where the provider has no batch mode: several at once, each answer recorded when it comes.

The calls go through the client as `fastlane.urgency("offline")`, behind everything else of the process. A worker that
dies between an answer and its record leaves a job that is sent once more.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import openai

from .._clock import now_ns
from ..compat.clients import RAW_RESPONSE_HEADER
from ..engine.upstream_failures import rest_of
from ..plays.urgency.level import urgency
from .answers import again, answer_type, answered
from .batches import DENIED
from .errors import LeaseLostError, StorageError
from .jobs import BatchRow, Job, JobOutcome
from .settings import WorkerSettings
from .storage import Storage

_log = logging.getLogger("fastlane.batch")

_RECORD_AGAIN_S = 2.0
# Some providers forbid a call for its content. So many 403 in a row concern the key.
_MOST_FORBIDDEN = 3


class LiveCalls:
    """The live calls of one worker. Each has a thread."""

    def __init__(
        self, storage: Storage, client: openai.OpenAI, settings: WorkerSettings, wake: Callable[[], None]
    ) -> None:
        self._storage = storage
        self._client = client
        self._settings = settings
        self._wake = wake
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}
        """How many calls of each batch are under way."""
        # Daemons, and no pool's: those are joined at the end of the process, before they can be stopped.
        self._threads: set[threading.Thread] = set()
        self._stopping = threading.Event()
        self._forbidden = 0
        self.denied: int | None = None
        """The status with which the provider refused the key."""

    @property
    def batches(self) -> set[str]:
        """The names of the batches that are under way."""
        with self._lock:
            return set(self._left)

    @property
    def free(self) -> int:
        """How many more calls may begin."""
        with self._lock:
            has_ended = self._stopping.is_set() or self.denied is not None
            return 0 if has_ended else self._settings.max_concurrency - sum(self._left.values())

    def start(self, batch: BatchRow) -> None:
        """Send the calls of a batch that is `running`."""
        bodies = self._storage.bodies(batch)
        threads = [threading.Thread(target=self._run, args=[batch, *one], daemon=True) for one in bodies]
        with self._lock:
            self._left[batch.name] = len(threads)
            self._threads.update(threads)
        for thread in threads:
            thread.start()

    def close(self) -> None:
        """Begin no more calls, and wait for those that are under way: their answers are paid for."""
        self._stopping.set()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _run(self, batch: BatchRow, job: Job, body: bytes) -> None:
        try:
            outcome = self._outcome(job, body)
            if outcome is not None:
                self._write(lambda: self._storage.record(batch, [outcome]))
        except (LeaseLostError, StorageError) as error:
            _log.warning("the answer of job %d could not be recorded: %s", job.number, error)
        except Exception as error:  # noqa: BLE001 - it would be lost with this thread
            _log.warning("job %d was left off: %s", job.number, type(error).__name__)
        finally:
            self._end(batch)

    def _end(self, batch: BatchRow) -> None:
        with self._lock:
            self._left[batch.name] -= 1
            is_last = not self._left[batch.name]
        try:
            if is_last:
                # Jobs that are still in it were not sent.
                self._write(lambda: self._storage.settle(batch, "collected", sent=False))
        except (LeaseLostError, StorageError) as error:
            _log.warning("batch %s could not be ended: %s", batch.name, error)
        with self._lock:
            if is_last:
                del self._left[batch.name]
            self._threads.discard(threading.current_thread())
        self._wake()

    def _write(self, write: Callable[[], object]) -> None:
        """Write as soon as the storage can. Raises StorageError where it cannot for too long."""
        until_ns = now_ns() + int(self._settings.patience_s * 1e9)
        while True:
            try:
                write()
            except StorageError as error:
                if self._stopping.is_set() or now_ns() >= until_ns:
                    raise
                _log.error("an answer cannot be written, and is tried again: %s", error)
                self._stopping.wait(_RECORD_AGAIN_S)
            else:
                return

    def _outcome(self, job: Job, body: bytes) -> JobOutcome | None:
        """Send a job's call. Return None where the key is refused."""
        try:
            with urgency("offline"):
                raw: Any = self._client.post(
                    job.endpoint.removeprefix("/v1"),
                    cast_to=answer_type(job.endpoint),
                    body=json.loads(body),
                    options={
                        "headers": {RAW_RESPONSE_HEADER: "true"},
                        # The same for each attempt, also after a crash: the provider may know it.
                        "idempotency_key": f"fastlane-{self._storage.queue_id}-{job.custom_id}",
                    },
                )
            response = raw.http_response
        except openai.APIStatusError as error:
            if error.status_code in DENIED and self._is_denied(error.status_code):
                self.denied = error.status_code
                return None
            content, request_id = error.response.content, error.request_id
            return answered(job, error.status_code, content, request_id, self._settings, rest_s=rest_of(error))
        except openai.APITimeoutError:
            return again(job, "timeout", self._settings)
        except openai.APIConnectionError:
            return again(job, "connection", self._settings)
        except Exception as error:  # noqa: BLE001 - a call that cannot be made must not end the others
            _log.warning("job %d could not be sent: %s", job.number, type(error).__name__)
            return again(job, type(error).__name__, self._settings)
        self._forbidden = 0
        request_id = response.headers.get("x-request-id")
        return answered(job, response.status_code, response.content, request_id, self._settings)

    def _is_denied(self, status: int) -> bool:
        with self._lock:
            self._forbidden += 1
            return status != 403 or self._forbidden >= _MOST_FORBIDDEN
