"""Process a queue: pack what waits, take the next step of every batch, and sleep until something is due.

Where the provider has no batch mode, each job is a live call in a thread of its own. A worker that dies between an
answer and its record leaves a job that is sent once more.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import weakref
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import openai

from ..compat.clients import RAW_RESPONSE_HEADER
from ..engine.upstream_failures import rest_of
from ..errors import ConfigurationError, FastlaneError
from ..plays.urgency.level import urgency
from ..providers import facts_of
from .answers import again, answer_type, answered
from .batches import DENIED, BatchMode, BatchSteps, LeasedBatch, StoppedError, mode_of, now_s, pause_s
from .errors import LeaseLostError, StorageError, WorkerDeniedError
from .jobs import BatchRow, Job, JobGroup, JobOutcome
from .settings import WorkerSettings
from .storage import Storage

_log = logging.getLogger("fastlane.batch")

# How often a worker looks for new jobs, which come from other processes too.
_LOOK_S = 1.0
# How long the storage may fail, such as on a full disk, before a worker ends.
_PATIENCE_S = 600.0
# How long the end of a process waits for what its worker has under way. The rest is continued later.
_AT_EXIT_S = 10.0


class QueueWorker(threading.Thread):
    """Processes one queue with one client: in the calling thread by `work`, or in a thread of its own by `start`."""

    def __init__(
        self, storage: Storage, client: Any, settings: WorkerSettings | None = None, *, owner: str | None = None
    ) -> None:
        super().__init__(name="fastlane-batch", daemon=True)
        if not isinstance(client, openai.OpenAI):
            raise ConfigurationError(
                f"a worker runs in a thread and needs a synchronous client such as fastlane.OpenAI(), got a "
                f"{type(client).__name__}"
            )
        self.settings = settings or WorkerSettings()
        self.owner = owner or f"worker-{uuid4().hex}"
        self._storage = storage
        self._client = _with_urgency(client)
        self.origin = str(client.base_url)
        self._mode = mode_of(facts_of(self.origin), self.settings)
        self._stopping, self._ended, self._woken = threading.Event(), threading.Event(), threading.Event()
        self._steps = BatchSteps(storage, self._client, self._mode or BatchMode(), self.settings, self._stopping)
        self._held: dict[str, LeasedBatch] = {}
        self._live_groups: list[JobGroup] = []
        # Daemons, and no pool's: those are joined at the end of the process, before they can be stopped.
        self._live_calls: dict[str, threading.Thread] = {}
        """By the names of their batches, each of one job."""
        self._live_error: Exception | None = None
        self._look_at = self._pack_at = 0.0
        self._warned: set[str] = set()
        self.error: BaseException | None = None
        """Why the thread has ended by itself; None while it runs."""
        _workers.add(self)

    def stop(self) -> None:
        """End `work` after what is under way. Batches go on at the provider, and any worker continues them."""
        self._stopping.set()
        self._woken.set()

    def run(self) -> None:
        """Work in the thread of `start()`, and keep what ends it."""
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - it would be lost with this thread
            self.error = error.with_traceback(None)
            # Other errors may quote what they were given.
            _log.error("the worker has ended: %s", error if isinstance(error, FastlaneError) else type(error).__name__)

    def work(self, *, until_empty: bool = False) -> None:
        """Work until `stop()`, or until every job is over.

        Raises WorkerDeniedError if the provider refuses the key, and StorageError where the storage has failed for
        ten minutes. Everything that it has begun is recorded, and the next worker continues it.
        """
        heartbeat = threading.Thread(target=self._keep_leases, name="fastlane-batch-lease", daemon=True)
        heartbeat.start()
        failing_since: float | None = None
        try:
            while not self._stopping.is_set():
                try:
                    with urgency("offline"):
                        wait_s = self._round()
                    failing_since = None
                    is_idle = not (self._held or self._live_groups or self._live_calls)
                    if until_empty and is_idle and self._storage.unfinished() == 0:
                        return
                except StorageError as error:
                    failing_since = failing_since or now_s()
                    if now_s() - failing_since >= _PATIENCE_S:
                        raise
                    _log.error("the queue cannot be written, and is tried again: %s", error)
                    # It is not known which changes were recorded: begin as after a crash.
                    self._held.clear()
                    self._look_at = self._pack_at = 0.0
                    wait_s = self.settings.poll_s
                self._woken.wait(max(0.0, wait_s))
                self._woken.clear()
        except StoppedError:
            pass
        finally:
            self._stopping.set()
            try:
                # Still under its leases. Answers of calls that are under way are paid for.
                for call in list(self._live_calls.values()):
                    call.join()
            finally:
                self._ended.set()
            heartbeat.join()
            self._held.clear()
            with suppress(StorageError):  # the leases run out by themselves
                self._storage.let_go(self.owner)

    def _round(self) -> float:
        """Do everything that is due. Return the seconds until something will be."""
        if now_s() >= self._look_at:
            self._look_at = now_s() + self.settings.lease_s / 4
            self._look()
        if now_s() >= self._pack_at:
            self._pack_at = now_s() + self._pack()
        self._send_live()
        under_way = list(self._held.values())
        for held in under_way:
            self._go_on(held)
        if len(self._held) < len(under_way):
            self._pack_at = 0.0  # Jobs of a batch that has ended may wait again, and there is room for another one.
        return min([self._pack_at, *(held.due for held in self._held.values())]) - now_s()

    def _look(self) -> None:
        """Extend the leases, and take over what dead workers had begun."""
        self._storage.take_over(self.owner, origin=self.origin, lease_s=self.settings.lease_s)
        rows = {row.name: row for row in self._storage.extend(self.owner, lease_s=self.settings.lease_s)}
        # Other workers have taken the missing ones over.
        self._held = {name: held for name, held in self._held.items() if name in rows}
        for name in rows.keys() - self._held.keys() - self._live_calls.keys():
            self._hold(rows[name])
        if not self._held:
            self._warn_of_other_origins()

    def _hold(self, row: BatchRow) -> None:
        """Continue a batch that was taken over. The jobs of live calls, and of another provider, wait again."""
        if row.state != "running" and row.origin == self.origin:
            self._held[row.name] = LeasedBatch(row)
            _log.info("batch %s: continued, at %r", row.name, row.state)
            return
        # It is at no provider: its first worker would find another turn before it records a creation.
        with suppress(LeaseLostError):
            self._storage.settle(row, "abandoned", error="worker_lost", sent=row.state == "running")
            _log.info("batch %s: given up, and packed anew", row.name)

    def _warn_of_other_origins(self) -> None:
        for batch in self._storage.status().batches if self._storage.unfinished() else ():
            if batch.origin != self.origin and batch.origin not in self._warned:
                self._warned.add(batch.origin)
                host = urlsplit(batch.origin).netloc.rpartition("@")[2]
                _log.warning(
                    "batch %s is at another provider (%s): a worker whose client has that base URL continues it; if "
                    "the address is gone, `fastlane batch retry QUEUE --abandon URL` lets its jobs wait again",
                    batch.name,
                    host,
                )

    def _pack(self) -> float:
        """Pack and send what is due, and find what to send as live calls. Return the seconds until more may be."""
        mode, groups = self._mode, self._storage.groups()
        in_batches = [group for group in groups if mode is not None and mode.takes(group.endpoint)]
        live = [group for group in groups if group not in in_batches]
        # Groups that were found before keep their turns.
        turns = {(group.endpoint, group.model): turn for turn, group in enumerate(self._live_groups)}
        self._live_groups = sorted(live, key=lambda group: turns.get((group.endpoint, group.model), len(turns)))
        return min([_LOOK_S, *(self._pack_group(group) for group in in_batches)])

    def _pack_group(self, group: JobGroup) -> float:
        requests = self._steps.most_requests(group.endpoint, group.model)
        if group.requests < requests and group.bytes < self._steps.mode.most_bytes:
            wait_s = group.oldest_at + self.settings.linger_s - self._storage.now()
            if wait_s > 0:
                return wait_s
        row = self._claim(group, most_requests=requests, most_bytes=self._steps.mode.most_bytes)
        if row is None:
            return _LOOK_S
        held = self._held[row.name] = LeasedBatch(row)
        # It is sent before the next one is packed: jobs that come meanwhile fill that.
        self._go_on(held)
        return 0.0

    def _claim(self, group: JobGroup, **limits: Any) -> BatchRow | None:
        return self._storage.claim(self.owner, group, origin=self.origin, lease_s=self.settings.lease_s, **limits)

    def _go_on(self, held: LeasedBatch) -> None:
        """Take a batch's steps until it has to wait."""
        while not self._stopping.is_set() and held.due <= now_s():
            try:
                wait_s = self._steps.take(held)
            except LeaseLostError:
                _log.warning("batch %s: another worker has taken it over", held.row.name)
                wait_s = None
            except (StorageError, StoppedError, WorkerDeniedError):
                raise
            except Exception as error:  # noqa: BLE001 - an unreachable provider, or a response that is none
                held.failures += 1
                _log.warning("batch %s: the step %r failed: %s", held.row.name, held.row.state, _kind_of(error))
                wait_s = pause_s(self.settings, held.failures)
            if wait_s is None:
                self._held.pop(held.row.name, None)
                return
            held.due = now_s() + wait_s if wait_s > 0 else held.due

    def _send_live(self) -> None:
        """Send live calls, as many at once as the settings allow. Groups take turns.

        Raises what has ended a call without a record: StorageError, and WorkerDeniedError where the key was refused.
        """
        if (error := self._live_error) is not None:
            self._live_error = None
            raise error
        while self._live_groups and len(self._live_calls) < self.settings.max_concurrency:
            group = self._live_groups.pop(0)
            batch = self._claim(group, most_requests=1, most_bytes=group.bytes, state="running")
            if batch is not None:
                self._live_groups.append(group)
                call = self._live_calls[batch.name] = threading.Thread(target=self._call, args=[batch], daemon=True)
                call.start()

    def _call(self, batch: BatchRow) -> None:
        try:
            for job, body in self._storage.bodies(batch):
                if (outcome := self._outcome(job, body)) is not None:
                    self._storage.record(batch, [outcome])
            # A job that is still in it was not sent.
            self._storage.settle(batch, "collected", sent=False)
        except LeaseLostError as error:
            _log.warning("an answer could not be recorded: %s", error)
        except Exception as error:  # noqa: BLE001 - it would be lost with this thread
            _log.warning("a live call was left off: %s", type(error).__name__)
            self._live_error = error
        del self._live_calls[batch.name]
        if not self._live_groups:
            self._pack_at = 0.0  # its job may wait again
        self._woken.set()

    def _outcome(self, job: Job, body: bytes) -> JobOutcome | None:
        """Send a job's call. Return None if the key is refused."""
        options: Any = {
            "headers": {RAW_RESPONSE_HEADER: "true"},
            # The same for each attempt, also after a crash: the provider may know it.
            "idempotency_key": f"fastlane-{self._storage.queue_id}-{job.custom_id}",
        }
        path, kind = job.endpoint.removeprefix("/v1"), answer_type(job.endpoint)
        rest_s = None
        try:
            with urgency("offline"):
                raw: Any = self._client.post(path, cast_to=kind, body=json.loads(body), options=options)
            response = raw.http_response
        except openai.APIStatusError as error:
            # Some providers forbid a call for its content, with 403: that concerns the job alone.
            if error.status_code in DENIED and error.status_code != 403:
                self._live_error = WorkerDeniedError(error.status_code)
                return None
            response, rest_s = error.response, rest_of(error)
        except openai.APIConnectionError as error:
            return again(job, "timeout" if isinstance(error, openai.APITimeoutError) else "connection", self.settings)
        except Exception as error:  # noqa: BLE001 - a call that cannot be made must not end the others
            _log.warning("job %d could not be sent: %s", job.number, type(error).__name__)
            return again(job, type(error).__name__, self.settings)
        request_id = response.headers.get("x-request-id")
        return answered(job, response.status_code, response.content, request_id, self.settings, rest_s=rest_s)

    def _keep_leases(self) -> None:
        """Extend the leases while the other thread is busy."""
        while not self._ended.wait(self.settings.lease_s / 4):
            try:
                self._storage.extend(self.owner, lease_s=self.settings.lease_s)
            except Exception as error:  # noqa: BLE001 - without this thread all leases would run out
                _log.info("the leases could not be extended: %s", type(error).__name__)


_workers: weakref.WeakSet[QueueWorker] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    # Of a parent's worker, a forked child has no thread, and its events may be locked.
    running = [worker for worker in list(_workers) if worker.is_alive()]
    for worker in running:
        worker.stop()
    for worker in running:
        worker.join(_AT_EXIT_S)


def _with_urgency(client: openai.OpenAI) -> openai.OpenAI:
    """Return the client with the plays Urgency and RateLimits, where it is one of ours and has not got them."""
    from ..plays import RateLimits, Urgency

    shell = getattr(client, "_fastlane", None)
    own = () if shell is None else shell.pipeline.plays
    missing = [kind() for kind in (Urgency, RateLimits) if not any(isinstance(play, kind) for play in own)]
    with_plays: Any = getattr(client, "with_plays", None)
    return client if shell is None or not missing else with_plays(*missing)


def _kind_of(error: Exception) -> str:
    """Return a class, and the system's cause: no text of a provider."""
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    return f"{type(error).__name__} ({cause!s:.200})" if isinstance(cause, OSError) else type(error).__name__
