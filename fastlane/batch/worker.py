"""Process a queue: pack what waits, take the next step of every batch, and sleep until something is due."""

from __future__ import annotations

import atexit
import json
import logging
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import openai

from .._clock import now_ns
from ..compat.clients import RAW_RESPONSE_HEADER
from ..engine.upstream_failures import rest_of
from ..errors import ConfigurationError, FastlaneError
from ..plays.urgency.level import urgency
from ..providers import facts_of
from .answers import again, answer_type, answered
from .batches import DENIED, BatchMode, BatchSteps, LeasedBatch, StoppedError, mode_of, pause_s
from .errors import LeaseLostError, StorageError, WorkerDeniedError
from .jobs import BatchRow, Job, JobGroup, JobOutcome
from .settings import WorkerSettings
from .storage import Storage

_log = logging.getLogger("fastlane.batch")

# How often a worker looks for new jobs, which come from other processes too.
_LOOK_S = 1.0
_ANY_BYTES = 1 << 62
# How long the storage may fail, such as on a full disk, before a worker ends.
_PATIENCE_NS = 600_000_000_000
# How long the end of a process waits for what its worker has under way. The rest is continued later.
_AT_EXIT_S = 10.0


class LiveCalls:
    """The live calls of one worker, where the provider has no batch mode: threads that each send one job at a time.

    They go through the client as `fastlane.urgency("offline")`, behind all other calls of the process. A worker that
    dies between an answer and its record leaves a job that is sent once more.
    """

    def __init__(
        self,
        storage: Storage,
        client: openai.OpenAI,
        settings: WorkerSettings,
        claim: Callable[[JobGroup], BatchRow | None],
        wake: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._client = client
        self._settings = settings
        self._claim = claim
        self._wake = wake
        self.lock = threading.Lock()
        """Held while a job is claimed."""
        self.batches: set[str] = set()
        """Names of the batches under way, each of one job."""
        self._groups: list[JobGroup] = []
        self._served = Counter[tuple[str, str]]()
        # Daemons, and no pool's: those are joined at the end of the process, before they can be stopped.
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self.error: Exception | None = None
        """Why a thread has ended before there was nothing left to send."""

    def send(self, groups: list[JobGroup]) -> None:
        """Send the jobs of these groups, as many at once as the settings allow. Returns at once.

        Raises what has ended one of the threads before: StorageError, and WorkerDeniedError where the key was refused.
        """
        if (error := self.error) is not None:
            self.error = None
            raise error
        with self.lock:
            self._groups = groups
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            free = self._settings.max_concurrency - len(self._threads)
            count = min(free, sum(group.requests for group in groups))
            new = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]
            self._threads += new
        for thread in new:
            thread.start()

    def close(self) -> None:
        """Begin no more calls, and wait for those that are under way: their answers are paid for."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                try:
                    self._send(batch)
                finally:
                    with self.lock:
                        self.batches.discard(batch.name)
        except LeaseLostError as error:
            _log.warning("an answer could not be recorded: %s", error)
        except Exception as error:  # noqa: BLE001 - it would be lost with this thread
            _log.warning("a live call was left off: %s", type(error).__name__)
            self.error = error
        self._wake()

    def _next(self) -> BatchRow | None:
        """Claim the next job. Groups take turns. Return None where none waits, and when the worker ends."""
        with self.lock:
            while self._groups and not self._stopping.is_set() and self.error is None:
                group = min(self._groups, key=lambda one: self._served[one.endpoint, one.model])
                self._served[group.endpoint, group.model] += 1
                if (batch := self._claim(group)) is not None:
                    self.batches.add(batch.name)
                    return batch
                self._groups.remove(group)
        return None

    def _send(self, batch: BatchRow) -> None:
        for job, body in self._storage.bodies(batch):
            if (outcome := self._outcome(job, body)) is not None:
                self._storage.record(batch, [outcome])
        # A job that is still in it was not sent.
        self._storage.settle(batch, "collected", sent=False)

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
            # Some providers forbid a call for its content, with 403: that concerns the job alone.
            if error.status_code in DENIED and error.status_code != 403:
                self.error = WorkerDeniedError(error.status_code)
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
        request_id = response.headers.get("x-request-id")
        return answered(job, response.status_code, response.content, request_id, self._settings)


class QueueWorker:
    """Processes one queue with one client. `run` belongs to one thread; `stop` may come from any."""

    def __init__(
        self, storage: Storage, client: Any, settings: WorkerSettings | None = None, *, owner: str | None = None
    ) -> None:
        if not isinstance(client, openai.OpenAI):
            raise ConfigurationError(
                f"a worker runs in a thread and needs a synchronous client such as fastlane.OpenAI(), got a "
                f"{type(client).__name__}"
            )
        self.settings = settings or WorkerSettings()
        self.owner = owner or f"worker-{uuid4().hex}"
        self._storage = storage
        client = _with_urgency(client)
        self.origin = str(client.base_url)
        self._mode = mode_of(facts_of(self.origin), self.settings)
        self._stop, self._ended, self._woken = threading.Event(), threading.Event(), threading.Event()
        self._steps = BatchSteps(storage, client, self._mode or BatchMode(), self.settings, self._stop)
        self._held: dict[str, LeasedBatch] = {}
        self._looked_ns: int | None = None
        self._warned: set[str] = set()
        self._claim = partial(storage.claim, self.owner, origin=self.origin, lease_s=self.settings.lease_s)
        claim_one = partial(self._claim, most_requests=1, most_bytes=_ANY_BYTES, state="running")
        self._live = LiveCalls(storage, client, self.settings, claim_one, self._woken.set)
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        """Why the background thread has ended by itself; None while it runs."""

    def start(self) -> None:
        """Run in a background thread, which a forked child does not have."""
        self._thread = threading.Thread(target=self._run, name="fastlane-batch", daemon=True)
        self._thread.start()
        _started.add(self)

    def is_alive(self) -> bool:
        """Return whether it runs in a background thread."""
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End `run` after what is under way. Batches go on at the provider, and any worker continues them."""
        self._stop.set()
        self._woken.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the background thread. Return whether it has ended."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self.is_alive()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - it would be lost with this thread
            self.error = error.with_traceback(None)
            # Other errors may quote what they were given.
            _log.error("the worker has ended: %s", error if isinstance(error, FastlaneError) else type(error).__name__)

    def run(self, *, until_empty: bool = False) -> None:
        """Work until `stop()`, or until every job is over.

        Raises WorkerDeniedError where the provider refuses the key, and StorageError where the storage has failed for
        ten minutes. Everything that it has begun is recorded, and the next worker continues it.
        """
        heartbeat = threading.Thread(target=self._keep_leases, name="fastlane-batch-lease", daemon=True)
        heartbeat.start()
        failing_since: int | None = None
        try:
            with urgency("offline"):
                while not self._stop.is_set():
                    try:
                        wait_s = self._round()
                        failing_since = None
                        if until_empty and self._storage.unfinished() == 0:
                            return
                    except StorageError as error:
                        failing_since = failing_since or now_ns()
                        if now_ns() - failing_since >= _PATIENCE_NS:
                            raise
                        _log.error("the queue cannot be written, and is tried again: %s", error)
                        # It is not known which changes were recorded: begin as after a crash.
                        self._held.clear()
                        self._looked_ns = None
                        wait_s = self.settings.poll_s
                    self._woken.wait(max(0.0, wait_s))
                    self._woken.clear()
        except StoppedError:
            pass
        finally:
            self._stop.set()
            try:
                # Still under its leases: calls that are under way may take longer than one lasts.
                self._live.close()
            finally:
                self._ended.set()
            heartbeat.join()
            self._held.clear()
            with suppress(StorageError):  # the leases run out by themselves
                self._storage.let_go(self.owner)

    def _round(self) -> float:
        """Do everything that is due. Return the seconds until something will be."""
        if self._looked_ns is None or now_ns() - self._looked_ns >= self.settings.lease_s / 4 * 1e9:
            self._looked_ns = now_ns()
            self._storage.take_over(self.owner, origin=self.origin, lease_s=self.settings.lease_s)
            rows = {row.name: row for row in self._extend()}
            # Other workers have taken the missing ones over.
            self._held = {name: held for name, held in self._held.items() if name in rows}
            for name in rows.keys() - self._held.keys():
                self._hold(rows[name])
            if not self._held:
                self._warn_of_other_origins()
        wait_s = self._pack()
        under_way = list(self._held.values())
        for held in under_way:
            self._go_on(held)
        if len(self._held) < len(under_way):
            return 0.0  # Jobs of a batch that has ended may wait again, and there is room for another one.
        now = _now()
        return min([wait_s, *(held.due - now for held in self._held.values())])

    def _hold(self, row: BatchRow) -> None:
        """Continue a batch that was taken over. The jobs of live calls, and of another provider, wait again."""
        if row.state != "running" and row.origin == self.origin:
            self._held[row.name] = LeasedBatch(row)
            _log.info("batch %s: continued, at %r", row.name, row.state)
            return
        # It is at no provider: its first worker would find another turn before it records a creation.
        self._held.pop(row.name, None)
        with suppress(LeaseLostError):
            self._storage.settle(row, "abandoned", error="worker_lost", sent=row.state == "running")
            _log.info("batch %s: given up, and packed anew", row.name)

    def _warn_of_other_origins(self) -> None:
        for batch in self._storage.status().batches if self._storage.unfinished() else ():
            if batch.origin != self.origin and batch.origin not in self._warned:
                self._warned.add(batch.origin)
                _log.warning(
                    "batch %s is at another provider (%s): a worker whose client has that base URL continues it; if "
                    "the address is gone, `fastlane batch retry QUEUE --abandon URL` lets its jobs wait again",
                    batch.name,
                    urlsplit(batch.origin).netloc.rpartition("@")[2],
                )

    def _pack(self) -> float:
        """Pack and send what is due. Return the seconds until more may be."""
        waits, live = [_LOOK_S], []
        for group in self._storage.groups():
            if self._mode is None or not self._mode.takes(group.endpoint):
                live.append(group)
            else:
                waits.append(self._pack_group(group, self._mode))
        self._live.send(live)
        return min(waits)

    def _pack_group(self, group: JobGroup, mode: BatchMode) -> float:
        requests = self._steps.most_requests(group.endpoint, group.model)
        if group.requests < requests and group.bytes < mode.most_bytes:
            wait_s = group.oldest_at + self.settings.linger_s - self._storage.now()
            if wait_s > 0:
                return wait_s
        row = self._claim(group, most_requests=requests, most_bytes=mode.most_bytes)
        if row is None:
            return _LOOK_S
        held = self._held[row.name] = LeasedBatch(row)
        # It is sent before the next one is packed: jobs that come meanwhile fill that.
        self._go_on(held)
        return 0.0

    def _go_on(self, held: LeasedBatch) -> None:
        """Take a batch's steps until it has to wait."""
        while not self._stop.is_set() and held.due <= _now():
            try:
                wait_s = self._steps.take(held, _now())
            except LeaseLostError:
                _log.warning("batch %s: another worker has taken it over", held.row.name)
                self._held.pop(held.row.name, None)
                return
            except (StorageError, StoppedError, WorkerDeniedError):
                raise
            except Exception as error:  # noqa: BLE001 - an unreachable provider, or a response that is none
                held.failures += 1
                _log.warning("batch %s: the step %r failed: %s", held.row.name, held.row.state, _kind_of(error))
                wait_s = pause_s(self.settings, held.failures)
            if wait_s is None:
                self._held.pop(held.row.name, None)
                return
            held.due = _now() + wait_s if wait_s > 0 else held.due

    def _extend(self) -> list[BatchRow]:
        """Extend the leases. Return the batches that are no live calls under way."""
        with self._live.lock:
            rows = self._storage.extend(self.owner, lease_s=self.settings.lease_s)
            return [row for row in rows if row.name not in self._live.batches]

    def _keep_leases(self) -> None:
        """Extend the leases while the other thread is busy."""
        while not self._ended.wait(self.settings.lease_s / 4):
            try:
                self._extend()
            except Exception as error:  # noqa: BLE001 - without this thread all leases would run out
                _log.info("the leases could not be extended: %s", type(error).__name__)


_started: weakref.WeakSet[QueueWorker] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    # Of a parent's worker, a forked child has no thread, and its events may be locked.
    running = [worker for worker in list(_started) if worker.is_alive()]
    for worker in running:
        worker.stop()
    for worker in running:
        worker.join(_AT_EXIT_S)


def _with_urgency(client: openai.OpenAI) -> openai.OpenAI:
    """Return the client with the plays Urgency and RateLimits, where it is one of ours and has not got them."""
    from ..plays import RateLimits, Urgency

    shell = getattr(client, "_fastlane", None)
    if shell is None:
        return client
    own = shell.pipeline.plays
    missing = [kind() for kind in (Urgency, RateLimits) if not any(isinstance(play, kind) for play in own)]
    with_plays: Callable[..., openai.OpenAI] = client.with_plays  # type: ignore[attr-defined]
    return with_plays(*missing) if missing else client


def _now() -> float:
    return now_ns() / 1e9


def _kind_of(error: Exception) -> str:
    """Return a status, or a class and the system's cause: no text of a provider."""
    if isinstance(error, openai.APIStatusError):
        return str(error.status_code)
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    return f"{type(error).__name__} ({cause!s:.200})" if isinstance(cause, OSError) else type(error).__name__
