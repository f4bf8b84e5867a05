"""Work a queue off: pack what waits, take every batch its next step, and sleep until something is due."""

from __future__ import annotations

import logging
import threading
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import openai

from .._clock import now_ns
from ..providers import facts_of
from ._errors import LeaseLostError, StorageError, WorkerDeniedError
from ._held import DeniedError, Held, patience
from ._jobs import SETTLED, BatchRow, Group
from ._local_lane import LocalLane, as_offline, with_urgency
from ._packing import BatchMode, Room, goes_at, mode_of
from ._provider_batches import ProviderBatches, StoppedError
from ._settings import WorkerSettings
from ._steps import Steps
from ._storage import Storage
from ._sync_client import synchronous

_log = logging.getLogger("fastlane.batch")

# How often a worker looks for new jobs, which come from other processes too, while it waits for something else.
_LOOK_S = 1.0


class Worker:
    """Works one queue off with one client. `run` belongs to one thread; `stop` may come from any."""

    def __init__(
        self, storage: Storage, client: Any, settings: WorkerSettings | None = None, *, owner: str | None = None
    ) -> None:
        self.settings = settings or WorkerSettings()
        self.owner = owner or f"worker-{uuid4().hex}"
        self._storage = storage
        own = synchronous(client)
        # A twin is this worker's alone, and goes with it.
        self._twin = own if own is not client else None
        self._client = with_urgency(own)
        self.origin = str(self._client.base_url)
        self._mode = self._mode_of(self.origin)
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._provider = ProviderBatches(self._client, self._mode or BatchMode(), self._stop)
        self._steps = Steps(storage, self._provider, self.settings)
        self._held: dict[str, Held] = {}
        self._rooms: dict[tuple[str, str], Room] = {}
        self._looked: int | None = None
        self._told: set[str] = set()
        self._lane = LocalLane(storage, self._client, self.owner, self.settings, self._woken.set)

    def _mode_of(self, origin: str) -> BatchMode | None:
        lane = self.settings.lane
        return None if lane == "live" else mode_of(facts_of(origin), forced=lane == "batch")

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
            with as_offline():
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
                        wait_s = min(patience(self.settings, failures), 60.0)
                    self._sleep(wait_s)
        except StoppedError:
            pass
        except DeniedError as denied:
            raise WorkerDeniedError(denied.status) from None
        finally:
            self._stop.set()
            try:
                # Under its leases still: calls that are under way may take longer than one lasts.
                self._lane.close()
            finally:
                self._ended.set()
            beat.join()
            self._held.clear()
            self._let_go()
            if self._twin is not None:
                self._twin.close()

    def _round(self) -> float:
        """Do all that is due. Returns the seconds until something will be."""
        if self._lane.denied is not None:
            raise DeniedError(self._lane.denied)
        if self._looked is None or now_ns() - self._looked >= self.settings.lease_s / 4 * 1e9:
            self._looked = now_ns()
            for row in self._storage.take_over(self.owner, origin=self.origin, lease_s=self.settings.lease_s):
                _log.info("batch %s: gone on with, at %r", row.name, row.state)
                self._hold(row)
            # Also what was taken over without a word: where a connection breaks, nobody hears of it.
            for row in self._extend():
                if row.name not in self._held:
                    self._hold(row)
            if not self._held and self._lane.idle:
                self._tell_of_others()
        wait_s = self._pack()
        under_way = list(self._held.values())
        for held in under_way:
            self._go_on(held)
        if len(self._held) < len(under_way):
            return 0.0  # Jobs of what has ended may wait again, and there is room for another batch.
        now = _now()
        return min([_LOOK_S, wait_s, *(held.due - now for held in self._held.values())])

    def _hold(self, row: BatchRow) -> None:
        """Go on with a batch that was taken over; where it was meant for another provider, let its jobs wait again."""
        if row.origin == self.origin:
            self._held[row.name] = Held(row)
            return
        # None was created there: its first worker, should it wake, finds another turn before it records a creation.
        self._held.pop(row.name, None)
        try:
            self._storage.settle(row, "abandoned", error="another_provider", not_before_s=0.0, sent=False)
        except LeaseLostError:
            return
        _log.info("batch %s: never created at the provider that it was meant for, and packed anew", row.name)

    def _tell_of_others(self) -> None:
        """Say of batches that no worker with this client can go on with."""
        for batch in self._storage.status().batches if self._storage.unfinished() else ():
            if batch.origin != self.origin and batch.origin not in self._told:
                self._told.add(batch.origin)
                _log.warning(
                    "batch %s is at another provider (%s), and is gone on with by a worker whose client has that base "
                    "URL",
                    batch.name,
                    urlsplit(batch.origin).netloc.rpartition("@")[2],
                )

    def _pack(self) -> float:
        """Pack and send what is to go now. Returns the seconds until more may have to."""
        waits = [_LOOK_S]
        groups = self._storage.groups()
        for group in groups:
            if self._mode is None or not self._mode.takes(group.endpoint):
                self._lane.work(group)
            else:
                waits.append(self._pack_group(group, self._mode))
        if not groups:
            next_s = self._storage.next_s()
            waits.append(_LOOK_S if next_s is None else next_s)
        return min(waits)

    def _pack_group(self, group: Group, mode: BatchMode) -> float:
        room = self._rooms.get((group.endpoint, group.model)) or self._room(mode)
        wait_s = goes_at(group, room, self.settings.linger_s) - self._storage.now()
        if wait_s > 0:
            return wait_s
        if not self._may_begin():
            return _LOOK_S
        row = self._storage.claim(
            self.owner,
            origin=self.origin,
            endpoint=group.endpoint,
            model=group.model,
            most_requests=room.requests,
            most_bytes=room.bytes,
            lease_s=self.settings.lease_s,
        )
        if row is None:
            return _LOOK_S
        held = self._held[row.name] = Held(row)
        # To the provider before the next one is packed: jobs that come meanwhile fill it.
        self._go_on(held)
        return 0.0

    def _may_begin(self) -> bool:
        return self.settings.most_batches is None or len(self._held) < self.settings.most_batches

    def _room(self, mode: BatchMode) -> Room:
        requests, size = self.settings.most_requests, self.settings.most_bytes
        return Room(
            min(mode.most_requests, requests or mode.most_requests), min(mode.most_bytes, size or mode.most_bytes)
        )

    def _go_on(self, held: Held) -> None:
        """Take a batch's steps until it has to wait for something."""
        while not self._stop.is_set() and held.due <= _now():
            try:
                following = self._steps.take(held, _now())
            except LeaseLostError:
                _log.warning("batch %s: another worker has gone on with it", held.row.name)
                self._held.pop(held.row.name, None)
                return
            except (StorageError, StoppedError, DeniedError):
                raise
            except Exception as error:  # noqa: BLE001 - a provider that is away, or an answer that is none
                held.failures += 1
                _log.warning("batch %s: the step %r failed: %s", held.row.name, held.row.state, _kind_of(error))
                held.due = _now() + patience(self.settings, held.failures)
                return
            if following.over:
                self._held.pop(held.row.name, None)
                self._learn(held)
                return
            held.due = _now() + following.wait_s if following.wait_s > 0 else held.due

    def _learn(self, held: Held) -> None:
        """Make batches of a group smaller where one was too much for the provider, and larger again where not."""
        row, mode = held.row, self._mode or BatchMode()
        most, kind = self._room(mode), (row.endpoint, row.model)
        if held.too_much:
            self._rooms[kind] = Room(row.requests, row.bytes).halved()
        elif row.state == "ended" and kind in self._rooms:
            self._rooms[kind] = self._rooms[kind].doubled(most)

    def _synchronise(self) -> None:
        """After the storage failed: nobody knows which of the last changes came through, so it is asked."""
        known = {row.name: row for row in self._extend()}
        for name in [name for name in self._held if name not in known]:
            del self._held[name]
        for name, row in known.items():
            held = self._held.get(name)
            if held is None or (held.row.state, held.row.turn) != (row.state, row.turn):
                # As after a crash: what this worker believed of the step is no more than what a dead one did.
                self._hold(row)

    def _extend(self) -> list[BatchRow]:
        rows = self._storage.extend(self.owner, lease_s=self.settings.lease_s, running=self._lane.running)
        return [row for row in rows if row.state not in SETTLED]

    def _beat(self) -> None:
        """Keep the leases while the other thread is busy with something that takes its time."""
        while not self._ended.wait(self.settings.lease_s / 4):
            try:
                self._extend()
            except Exception as error:  # noqa: BLE001 - it may pass, and without this thread all leases run out
                _log.info("the leases could not be renewed: %s", type(error).__name__)

    def _sleep(self, wait_s: float) -> None:
        self._woken.wait(max(0.0, wait_s))
        self._woken.clear()

    def _let_go(self) -> None:
        try:
            self._storage.let_go(self.owner)
        except StorageError:
            _log.info("the leases could not be ended, and run out in %g s", self.settings.lease_s)


def _now() -> float:
    return now_ns() / 1e9


def _kind_of(error: Exception) -> str:
    """What an error is, without any text of a provider: a status, or a class and what the system says of the cause."""
    if isinstance(error, openai.APIStatusError):
        return str(error.status_code)
    cause: BaseException = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    # A refused connection, an unknown host, a certificate that nobody trusts: whoever reads it can mend that.
    return f"{type(error).__name__} ({cause!s:.200})" if isinstance(cause, OSError) else type(error).__name__
