"""Work a queue off: pack what waits, take every batch its next step, and sleep until something is due."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import openai

from .._clock import now_ns
from .._fork import new_lock, starts_over
from ..compat.clients import azure_options_of, given_headers, given_query, http_client_of, key_provider_of
from ..errors import ConfigurationError, FastlaneError
from ..plays.urgency.level import urgency
from ..providers import facts_of
from .errors import LeaseLostError, StorageError, WorkerDeniedError
from .jobs import SETTLED, BatchRow, JobGroup
from .live import LiveCalls
from .provider import BatchMode, ProviderBatches, StoppedError, mode_of
from .settings import WorkerSettings
from .steps import BatchSteps, DeniedError, LeasedBatch, pause_s
from .storage import Storage

_log = logging.getLogger("fastlane.batch")

# How often a worker looks for new jobs, which come from other processes too, while it waits for something else.
_LOOK_S = 1.0
# How long the end of a process waits for what its worker has under way; what is not over then is gone on with later.
_AT_EXIT_S = 10.0


class QueueWorker:
    """Works one queue off with one client. `run` belongs to one thread; `stop` may come from any."""

    def __init__(
        self, storage: Storage, client: Any, settings: WorkerSettings | None = None, *, owner: str | None = None
    ) -> None:
        self.settings = settings or WorkerSettings()
        self.owner = owner or f"worker-{uuid4().hex}"
        self._storage = storage
        own = synchronous(client)
        # Made for an asynchronous client, it is this worker's alone.
        self._twin = own if own is not client else None
        client = with_urgency(own)
        self.origin = str(client.base_url)
        lane = self.settings.lane
        self._mode = None if lane == "live" else mode_of(facts_of(self.origin), forced=lane == "batch")
        self._stop, self._ended, self._woken = threading.Event(), threading.Event(), threading.Event()
        provider = ProviderBatches(client, self._mode or BatchMode(), self._stop)
        self._steps = BatchSteps(storage, provider, self.settings)
        self._held: dict[str, LeasedBatch] = {}
        # Requests and bytes of the next batch, where one of an endpoint and a model was too much.
        self._limits: dict[tuple[str, str], tuple[int, int]] = {}
        self._looked_ns: int | None = None
        self._told: set[str] = set()
        self._live = LiveCalls(storage, client, self.owner, self.settings, self._woken.set)

    def stop(self) -> None:
        """End `run` soon: after what is under way. Batches go on at the provider, and any worker goes on with them."""
        self._stop.set()
        self._woken.set()

    def run(self, *, until_empty: bool = False) -> None:
        """Work until `stop()`, or until every job is over.

        Raises WorkerDeniedError where the provider refuses the key, and StorageError where the storage has failed for
        longer than `patience_s`. Whatever ends it: what it has begun is recorded, and the next worker goes on with it.
        """
        beat = threading.Thread(target=self._beat, name="fastlane-batch-lease", daemon=True)
        beat.start()
        failing_since: int | None = None
        failures = 0
        try:
            with urgency("offline"):
                while not self._stop.is_set():
                    try:
                        if failing_since is not None:
                            self._synchronise()
                        wait_s = self._round()
                        failing_since, failures = None, 0
                        if until_empty and self._storage.unfinished() == 0:
                            return
                    except StorageError as error:
                        failures += 1
                        failing_since = failing_since or now_ns()
                        if (now_ns() - failing_since) / 1e9 >= self.settings.patience_s:
                            raise
                        _log.error("the queue cannot be written, and is tried again: %s", error)
                        wait_s = min(pause_s(self.settings, failures), 60.0)
                    self._woken.wait(max(0.0, wait_s))
                    self._woken.clear()
        except StoppedError:
            pass
        except DeniedError as denied:
            raise WorkerDeniedError(denied.status) from None
        finally:
            self._stop.set()
            try:
                # Under its leases still: calls that are under way may take longer than one lasts.
                self._live.close()
            finally:
                self._ended.set()
            beat.join()
            self._held.clear()
            try:
                self._storage.let_go(self.owner)
            except StorageError:
                _log.info("the leases could not be ended, and run out in %g s", self.settings.lease_s)
            if self._twin is not None:
                self._twin.close()

    def _round(self) -> float:
        """Do all that is due. Returns the seconds until something will be."""
        if self._live.denied is not None:
            raise DeniedError(self._live.denied)
        if self._looked_ns is None or now_ns() - self._looked_ns >= self.settings.lease_s / 4 * 1e9:
            self._looked_ns = now_ns()
            for row in self._storage.take_over(self.owner, origin=self.origin, lease_s=self.settings.lease_s):
                _log.info("batch %s: gone on with, at %r", row.name, row.state)
                self._hold(row)
            for row in self._extend():
                if row.name not in self._held:
                    self._hold(row)
            if not self._held and self._live.idle:
                self._warn_of_others()
        wait_s = self._pack()
        under_way = list(self._held.values())
        for held in under_way:
            self._go_on(held)
        if len(self._held) < len(under_way):
            return 0.0  # Jobs of what has ended may wait again, and there is room for another batch.
        now = _now()
        return min([wait_s, *(held.due - now for held in self._held.values())])

    def _hold(self, row: BatchRow) -> None:
        """Go on with a batch that was taken over; where it was meant for another provider, let its jobs wait again."""
        if row.origin == self.origin:
            self._held[row.name] = LeasedBatch(row)
            return
        # None was created there: its first worker, should it wake, finds another turn before it records a creation.
        self._held.pop(row.name, None)
        try:
            self._storage.settle(row, "abandoned", error="another_provider", sent=False)
        except LeaseLostError:
            return
        _log.info("batch %s: never created at the provider that it was meant for, and packed anew", row.name)

    def _warn_of_others(self) -> None:
        """Say of batches that no worker with this client can go on with."""
        for batch in self._storage.status().batches if self._storage.unfinished() else ():
            if batch.origin != self.origin and batch.origin not in self._told:
                self._told.add(batch.origin)
                host = urlsplit(batch.origin).netloc.rpartition("@")[2]
                _log.warning(
                    "batch %s is at another provider (%s): a worker whose client has that base URL goes on with it; "
                    "if the address is gone, `fastlane batch retry QUEUE --abandon URL` lets its jobs wait again",
                    batch.name,
                    host,
                )

    def _pack(self) -> float:
        """Pack and send what is to go now. Returns the seconds until more may have to."""
        waits = [_LOOK_S]
        for group in self._storage.groups():
            if self._mode is None or not self._mode.takes(group.endpoint):
                self._live.work(group)
            else:
                waits.append(self._pack_group(group, self._mode))
        return min(waits)

    def _limits_of(self, mode: BatchMode) -> tuple[int, int]:
        given = self.settings.most_requests or mode.most_requests, self.settings.most_bytes or mode.most_bytes
        return min(mode.most_requests, given[0]), min(mode.most_bytes, given[1])

    def _pack_group(self, group: JobGroup, mode: BatchMode) -> float:
        requests, size = self._limits.get((group.endpoint, group.model)) or self._limits_of(mode)
        if group.requests < requests and group.bytes < size:
            wait_s = group.oldest_at + self.settings.linger_s - self._storage.now()
            if wait_s > 0:
                return wait_s
        if self.settings.most_batches is not None and len(self._held) >= self.settings.most_batches:
            return _LOOK_S
        row = self._storage.claim(
            self.owner,
            origin=self.origin,
            endpoint=group.endpoint,
            model=group.model,
            most_requests=requests,
            most_bytes=size,
            lease_s=self.settings.lease_s,
        )
        if row is None:
            return _LOOK_S
        held = self._held[row.name] = LeasedBatch(row)
        # To the provider before the next one is packed: jobs that come meanwhile fill it.
        self._go_on(held)
        return 0.0

    def _go_on(self, held: LeasedBatch) -> None:
        """Take a batch's steps until it has to wait for something."""
        while not self._stop.is_set() and held.due <= _now():
            try:
                wait_s = self._steps.take(held, _now())
            except LeaseLostError:
                _log.warning("batch %s: another worker has gone on with it", held.row.name)
                self._held.pop(held.row.name, None)
                return
            except (StorageError, StoppedError, DeniedError):
                raise
            except Exception as error:  # noqa: BLE001 - a provider that is away, or an answer that is none
                held.failures += 1
                _log.warning("batch %s: the step %r failed: %s", held.row.name, held.row.state, _kind_of(error))
                wait_s = pause_s(self.settings, held.failures)
            if wait_s is None:
                self._held.pop(held.row.name, None)
                self._learn(held)
                return
            held.due = _now() + wait_s if wait_s > 0 else held.due

    def _learn(self, held: LeasedBatch) -> None:
        """Halve batches of a group where one was too much for the provider, and double them again where not."""
        row = held.row
        kind, most = (row.endpoint, row.model), self._limits_of(self._mode or BatchMode())
        if held.too_much:
            self._limits[kind] = max(1, row.requests // 2), max(1, row.bytes // 2)
        elif row.state == "ended" and kind in self._limits:
            requests, size = self._limits[kind]
            self._limits[kind] = min(most[0], requests * 2), min(most[1], size * 2)

    def _synchronise(self) -> None:
        """Find out, after the storage failed, which of the last changes were recorded."""
        known = {row.name: row for row in self._extend()}
        self._held = {name: held for name, held in self._held.items() if name in known}
        for name, row in known.items():
            held = self._held.get(name)
            if held is None or (held.row.state, held.row.turn) != (row.state, row.turn):
                # As after a crash: what this worker believed of the step is no more than what a dead one did.
                self._hold(row)

    def _extend(self) -> list[BatchRow]:
        rows = self._storage.extend(self.owner, lease_s=self.settings.lease_s, running=self._live.running)
        return [row for row in rows if row.state not in SETTLED]

    def _beat(self) -> None:
        """Keep the leases while the other thread is busy with something that takes its time."""
        while not self._ended.wait(self.settings.lease_s / 4):
            try:
                self._extend()
            except Exception as error:  # noqa: BLE001 - it may pass, and without this thread all leases run out
                _log.info("the leases could not be renewed: %s", type(error).__name__)


class BackgroundWorker:
    """Runs a worker in a daemon thread, which ends with `stop()` or the process. A fork's child has none."""

    def __init__(self, make: Callable[[], QueueWorker]) -> None:
        self._make = make
        self._lock = new_lock()
        self._worker: QueueWorker | None = None
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        """Why the worker ended by itself; None while it runs, and after `stop()`."""
        _all.add(self)
        starts_over(self)

    @property
    def is_running(self) -> bool:
        """Whether the worker is at work."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def start(self) -> None:
        """Begin, unless it is at work already. Raises what making a worker raises."""
        with self._lock:
            if self.is_running:
                return
            self.error = None
            worker = self._worker = self._make()
            self._thread = threading.Thread(target=self._run, args=[worker], name="fastlane-batch", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """End it, and wait for that; return whether it has. What is at the provider goes on there."""
        with self._lock:
            worker, thread = self._worker, self._thread
        if worker is None or thread is None:
            return True
        worker.stop()
        if thread is not threading.current_thread():
            thread.join(timeout_s)
        if thread.is_alive():
            return False
        self.error = None
        return True

    def _run(self, worker: QueueWorker) -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - it would be lost with this thread: it is logged and kept
            self.error = error.with_traceback(None)
            # Other errors may quote what they were given.
            _log.error("the worker has ended: %s", error if isinstance(error, FastlaneError) else type(error).__name__)

    def begin_in_child(self) -> None:
        """See `StartsOver`: the thread stayed with the parent."""
        self._worker = self._thread = None


_all: weakref.WeakSet[BackgroundWorker] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    running = [one for one in _all if one.is_running]
    for one in running:
        one.stop(0.0)
    for one in running:
        one.stop(_AT_EXIT_S)


def with_urgency(client: openai.OpenAI) -> openai.OpenAI:
    """Return the client with the play Urgency, where it is one of ours and has none."""
    from ..plays.urgency.play import Urgency

    shell = getattr(client, "_fastlane", None)
    if shell is None or any(isinstance(play, Urgency) for play in shell.pipeline.plays):
        return client
    with_plays: Callable[..., openai.OpenAI] = client.with_plays  # type: ignore[attr-defined]
    return with_plays(Urgency())


def synchronous(client: Any) -> openai.OpenAI:
    """Return a synchronous client with the settings of `client`: itself, where it is one.

    A worker runs in a thread of its own. Raises ConfigurationError for what is no client, and for an asynchronous one
    whose key or HTTP client only an event loop can use.
    """
    if isinstance(client, openai.OpenAI):
        return client
    if not isinstance(client, openai.AsyncOpenAI):
        raise ConfigurationError(
            f"expected a client such as fastlane.OpenAI() or openai.AsyncOpenAI(), got a {type(client).__name__}"
        )
    shell = getattr(client, "_fastlane", None)
    is_own = http_client_of(client) if shell is None else None
    has_own = shell.transport == "caller" if shell else type(is_own).__module__.partition(".")[0] != "openai"
    if has_own or key_provider_of(client) is not None:
        raise ConfigurationError(
            "the client has an asynchronous HTTP client of its own, or asks for its key on an event loop: give the "
            "queue a synchronous client, such as fastlane.OpenAI(api_key=...)"
        )
    given: dict[str, Any] = {
        name: getattr(client, name)
        for name in ("api_key", "base_url", "timeout", "max_retries", "organization", "project")
    }
    given |= {"default_headers": given_headers(client), "default_query": given_query(client)}
    is_azure = isinstance(client, openai.AsyncAzureOpenAI)
    given |= azure_options_of(client) if is_azure else {}
    if shell is None:
        return (openai.AzureOpenAI if is_azure else openai.OpenAI)(**given)
    from ..client import clients

    pipeline = shell.pipeline
    given |= {
        "only_plays": pipeline.plays,
        "on_call_end": pipeline.on_call_end,
        "raise_play_errors": pipeline.raise_play_errors,
    }
    return (clients.AzureOpenAI if is_azure else clients.OpenAI)(**given)


def _now() -> float:
    return now_ns() / 1e9


def _kind_of(error: Exception) -> str:
    """Return what an error is without any text of a provider: a status, or a class and the system's cause."""
    if isinstance(error, openai.APIStatusError):
        return str(error.status_code)
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    return f"{type(error).__name__} ({cause!s:.200})" if isinstance(cause, OSError) else type(error).__name__
