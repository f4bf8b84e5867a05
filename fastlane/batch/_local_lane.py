"""Jobs sent by themselves, where the provider has no batch mode: several at once, each answer kept when it comes.

The calls go through the client, as `fastlane.urgency("offline")`: behind everything else of the process, and within
the provider's limits. A worker that dies between an answer and its record leaves a job that is sent once more.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import openai

from .._clock import now_ns
from ..compat.types import RAW_RESPONSE_HEADER
from ..engine.upstream_failures import rest_of
from ..plays.urgency.levels import urgency
from ._errors import LeaseLostError, StorageError
from ._jobs import Group, Job, JobBody, Outcome
from ._outcomes import again, answered, answered_badly
from ._provider_batches import DENIED
from ._settings import WorkerSettings
from ._storage import Storage

_log = logging.getLogger("fastlane.batch")

_VERSION = "/v1"
_RECORD_AGAIN_S = 2.0
# So many calls in a row that are forbidden are the key's fault, and not theirs: no more are sent.
_FORBIDDEN = 403
_MOST_FORBIDDEN = 3


class LocalLane:
    """The calls of one worker. Its threads live as long as there are jobs for them."""

    def __init__(
        self, storage: Storage, client: openai.OpenAI, owner: str, settings: WorkerSettings, wake: Callable[[], None]
    ) -> None:
        self._storage = storage
        self._client = with_urgency(client)
        self._owner = owner
        self._settings = settings
        self._wake = wake
        self._lock = threading.Lock()
        self._running: set[int] = set()
        # How many jobs there were of each endpoint and model when somebody looked; the next in turn is the first.
        self._waiting: dict[tuple[str, str], int] = {}
        self._stopping = threading.Event()
        # Daemons, and no pool's: a pool's threads are waited for at the end of the process, before anybody can tell
        # them to end.
        self._threads: set[threading.Thread] = set()
        self._forbidden = 0
        self.denied: int | None = None
        """The status with which the provider refused the key."""

    @property
    def running(self) -> list[int]:
        """The jobs that are under way."""
        with self._lock:
            return list(self._running)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        with self._lock:
            return not self._threads

    def work(self, group: Group) -> None:
        """See to it that a group's jobs are worked off: with the others', in turns, as many at once as are allowed."""
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
        try:
            while not self._stopping.is_set() and self.denied is None and (kind := self._next_kind()):
                endpoint, model = kind
                claimed = self._storage.claim_jobs(
                    self._owner, most=1, lease_s=self._settings.lease_s, endpoint=endpoint, model=model
                )
                if not claimed:
                    with self._lock:
                        self._waiting.pop(kind, None)
                for one in claimed:
                    self._do(one)
        except (StorageError, LeaseLostError) as error:
            _log.warning("an offline call could not be recorded: %s", error)
        except Exception as error:  # noqa: BLE001 - nobody asks what became of this thread
            _log.warning("offline calls were left off: %s", type(error).__name__)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
            self._wake()

    def _next_kind(self) -> tuple[str, str] | None:
        """Whose turn it is; None where nothing waits."""
        with self._lock:
            kind = next(iter(self._waiting), None)
            if kind is not None:
                self._waiting[kind] = self._waiting.pop(kind)
            return kind

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

    def _record(self, outcome: Outcome) -> None:
        """Keep what is paid for, as soon as the storage can. Raises StorageError where it cannot for too long."""
        since = now_ns()
        while True:
            try:
                self._storage.record_running(self._owner, [outcome])
            except StorageError as error:
                if self._stopping.is_set() or (now_ns() - since) / 1e9 >= self._settings.patience_s:
                    raise
                _log.error("the answer of job %d cannot be written, and is tried again: %s", outcome.number, error)
                self._stopping.wait(_RECORD_AGAIN_S)
            else:
                return

    def _outcome(self, one: JobBody) -> Outcome | None:
        """Send a job's call; None where the key is refused, which is no fault of the job's."""
        job = one.job
        try:
            with as_offline():
                status, body, request_id = send(self._client, job, one.body, idempotency_key=self._key_of(job))
        except openai.APIStatusError as error:
            status = error.status_code
            if status in DENIED and not (status == _FORBIDDEN and self._may_be_its_own()):
                self.denied = status
                return None
            return answered_badly(
                job, status, error.response.content, error.request_id, self._settings, rest_s=rest_of(error)
            )
        except openai.APITimeoutError:
            return again(job, "timeout", self._settings)
        except openai.APIConnectionError:
            return again(job, "connection", self._settings)
        except Exception as error:  # noqa: BLE001 - a call that cannot be made must not end the others
            _log.warning("job %d could not be sent: %s", job.number, type(error).__name__)
            return again(job, type(error).__name__, self._settings)
        with self._lock:
            self._forbidden = 0
        return answered(job, status, body, request_id, self._settings)

    def _may_be_its_own(self) -> bool:
        """Whether a call may be forbidden for what it says, as some providers do it, and not for its key."""
        with self._lock:
            self._forbidden += 1
            return self._forbidden < _MOST_FORBIDDEN

    def _key_of(self, job: Job) -> str:
        # The same for each attempt, also after a crash: where the client has a header for it, the provider may know it.
        return f"fastlane-{self._storage.queue_id}-{job.custom_id}"


def send(client: openai.OpenAI, job: Job, body: bytes, *, idempotency_key: str) -> tuple[int, bytes, str | None]:
    """Send one call, and return its answer's status, body and request id. Raises openai's errors."""
    raw: Any = client.post(
        job.endpoint.removeprefix(_VERSION),
        cast_to=_answer_type(job.endpoint),
        body=json.loads(body),
        options={"headers": {RAW_RESPONSE_HEADER: "true"}, "idempotency_key": idempotency_key},
    )
    response = raw.http_response
    return response.status_code, response.content, response.headers.get("x-request-id")


def _answer_type(endpoint: str) -> type[Any]:
    from openai.types import Completion, CreateEmbeddingResponse
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    known: dict[str, type[Any]] = {
        "/v1/chat/completions": ChatCompletion,
        "/v1/completions": Completion,
        "/v1/embeddings": CreateEmbeddingResponse,
        "/v1/responses": Response,
    }
    return known.get(endpoint, object)


def with_urgency(client: openai.OpenAI) -> openai.OpenAI:
    """The client, in which calls have an urgency: with that play where it has none and is one of ours."""
    shell = getattr(client, "_fastlane", None)
    if shell is None:
        return client
    try:
        from ..plays.urgency.play import Urgency
    except ImportError:
        return client
    if any(isinstance(play, Urgency) for play in shell.pipeline.plays):
        return client
    with_plays: Callable[..., openai.OpenAI] = client.with_plays  # type: ignore[attr-defined]
    return with_plays(Urgency())


def as_offline() -> AbstractContextManager[Any]:
    """A block whose calls are offline ones."""
    return urgency("offline")
