"""Jobs sent by themselves, where the provider has no batch mode: several at once, each answer kept when it comes.

The calls go through the client, as `fastlane.urgency("offline")`: behind everything else of the process, and within
the provider's limits. A worker that dies between an answer and its record leaves a job that is sent once more.
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
from .errors import StorageError
from .jobs import JobBody, JobGroup, JobOutcome
from .outcomes import again, answered
from .provider import DENIED
from .results import answer_type
from .settings import WorkerSettings
from .storage import Storage

_log = logging.getLogger("fastlane.batch")

_RECORD_AGAIN_S = 2.0
# So many calls in a row that are forbidden are the key's fault, and not theirs: no more are sent.
_MOST_FORBIDDEN = 3


class LiveCalls:
    """The live calls of one worker. Its threads live as long as there are jobs for them."""

    def __init__(
        self, storage: Storage, client: openai.OpenAI, owner: str, settings: WorkerSettings, wake: Callable[[], None]
    ) -> None:
        self._storage = storage
        self._client = client
        self._owner = owner
        self._settings = settings
        self._wake = wake
        self._lock = threading.Lock()
        self._running: set[int] = set()
        # How many jobs there were of each endpoint and model; the next in turn is the first.
        self._waiting: dict[tuple[str, str], int] = {}
        self._stopping = threading.Event()
        # Daemons, and no pool's: a pool's threads are waited for at the end of the process, before they can be stopped.
        self._threads: set[threading.Thread] = set()
        self._forbidden = 0
        self.denied: int | None = None
        """The status with which the provider refused the key."""

    @property
    def running(self) -> list[int]:
        """The numbers of the jobs that are under way."""
        with self._lock:
            return list(self._running)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        with self._lock:
            return not self._threads

    def work(self, group: JobGroup) -> None:
        """Have a group's jobs worked off: in turns with the others', as many at once as are allowed."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._waiting[group.endpoint, group.model] = group.requests
            wanted = min(self._settings.max_concurrency, len(self._running) + sum(self._waiting.values()))
            while len(self._threads) < wanted:
                thread = threading.Thread(target=self._run, name="fastlane-offline", daemon=True)
                self._threads.add(thread)
                thread.start()

    def close(self) -> None:
        """Begin no more calls, and wait for those that are under way: their answers are paid for."""
        self._stopping.set()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        lease_s = self._settings.lease_s
        try:
            while not self._stopping.is_set() and self.denied is None:
                with self._lock:
                    kind = next(iter(self._waiting), None)
                    if kind is None:
                        return
                    # Models and endpoints take turns.
                    self._waiting[kind] = self._waiting.pop(kind)
                claimed = self._storage.claim_jobs(
                    self._owner, most=1, lease_s=lease_s, endpoint=kind[0], model=kind[1]
                )
                if not claimed:
                    with self._lock:
                        self._waiting.pop(kind, None)
                for one in claimed:
                    self._do(one)
        except StorageError as error:
            _log.warning("an offline call could not be recorded: %s", error)
        except Exception as error:  # noqa: BLE001 - it would be lost with this thread
            _log.warning("offline calls were left off: %s", type(error).__name__)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
            self._wake()

    def _do(self, one: JobBody) -> None:
        number = one.job.number
        with self._lock:
            self._running.add(number)
        try:
            outcome = self._outcome(one)
            if outcome is None:
                self._storage.release_running(self._owner, [number])
            else:
                self._record(outcome)
        finally:
            with self._lock:
                self._running.discard(number)

    def _record(self, outcome: JobOutcome) -> None:
        """Keep what is paid for, as soon as the storage can. Raises StorageError where it cannot for too long."""
        until_ns = now_ns() + int(self._settings.patience_s * 1e9)
        while True:
            try:
                self._storage.record_running(self._owner, [outcome])
            except StorageError as error:
                if self._stopping.is_set() or now_ns() >= until_ns:
                    raise
                _log.error("the answer of job %d cannot be written, and is tried again: %s", outcome.number, error)
                self._stopping.wait(_RECORD_AGAIN_S)
            else:
                return

    def _outcome(self, one: JobBody) -> JobOutcome | None:
        """Send a job's call; None where the key is refused, which is no fault of the job's."""
        job = one.job
        try:
            with urgency("offline"):
                # The key is the same for each attempt, also after a crash: the provider may know it.
                response = send(self._client, one, idempotency_key=f"fastlane-{self._storage.queue_id}-{job.custom_id}")
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
        with self._lock:
            self._forbidden = 0
        request_id = response.headers.get("x-request-id")
        return answered(job, response.status_code, response.content, request_id, self._settings)

    def _is_denied(self, status: int) -> bool:
        """Return whether a refusal is of the key: some providers forbid a call for what it says."""
        with self._lock:
            self._forbidden += 1
            return status != 403 or self._forbidden >= _MOST_FORBIDDEN


def send(client: openai.OpenAI, one: JobBody, *, idempotency_key: str) -> Any:
    """Send one call, and return its HTTP response. Raises openai's errors."""
    raw: Any = client.post(
        one.job.endpoint.removeprefix("/v1"),
        cast_to=answer_type(one.job.endpoint),
        body=json.loads(one.body),
        options={"headers": {RAW_RESPONSE_HEADER: "true"}, "idempotency_key": idempotency_key},
    )
    return raw.http_response
