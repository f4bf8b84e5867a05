"""One batch on its way: what is done next in each of its states, and what is recorded before.

No step is taken before its state is recorded, and every record is compared with the lease, so that of two workers that
hold a batch for their own, only one goes on. Where a worker died, the provider is asked what it has seen:

- `uploading`: a file of the batch's name and size is taken; else it is uploaded (again: a file does nothing by itself).
- `creating`: a batch of that name, or of that file, is taken. Where none is listed, the creation may still be on its
  way: its input file is deleted, so that what comes late finds nothing to work on, and after a while the batches are
  listed once more. Only then the jobs are packed anew, under another name.
"""

from __future__ import annotations

import logging
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING

from ._collecting import (
    FENCED,
    TOO_MUCH,
    Collecting,
    UnreadableError,
    delete_all_named,
    delete_quietly,
    file_name,
    record_all,
)
from ._errors import LeaseLostError
from ._held import DeniedError, Held, Next, patience
from ._jobs import LINE_BYTES, BatchRow, Outcome
from ._outcomes import again, word
from ._packing import lines
from ._provider_batches import InDoubtError, ProviderBatches, RefusedError
from ._settings import WorkerSettings
from ._storage import Storage

if TYPE_CHECKING:
    from openai.types import Batch

_log = logging.getLogger("fastlane.batch")

_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_KEPT_IN_MEMORY_BYTES = 8 << 20
_TOO_LARGE = 413
# A batch of which the provider knows nothing any more is asked after for so long: its lists may lag.
_LOST_AFTER_S = 3_600.0


class Steps:
    """Takes the steps of batches. Belongs to one thread."""

    def __init__(self, storage: Storage, provider: ProviderBatches, settings: WorkerSettings) -> None:
        self._storage = storage
        self._provider = provider
        self._settings = settings
        self._collecting = Collecting(storage, provider, settings)
        # How often in a row batches of an endpoint and a model were too much for the account.
        self._too_much: dict[tuple[str, str], int] = {}

    def take(self, held: Held, now: float) -> Next:
        """Take the next step of a batch. `now`: seconds, by the worker's own clock.

        Raises LeaseLostError, StorageError, StoppedError, DeniedError; any error of openai's: the step is to be taken
        again later.
        """
        try:
            match held.row.state:
                case "planned":
                    return self._plan(held)
                case "uploading":
                    return self._upload(held)
                case "uploaded":
                    return self._create(held)
                case "creating":
                    return self._create(held) if held.not_created else self._look_for(held, now)
                case "created":
                    return self._ask(held)
                case "ended":
                    return self._collect(held)
                case _:
                    return Next(over=True)
        except RefusedError as refused:
            if refused.denied:
                raise DeniedError(refused.status) from None
            return self._refused(held, refused)

    def _plan(self, held: Held) -> Next:
        row = held.row
        if row.wanted <= 0:
            return self._abandon(held, None)
        most_bytes = min(self._provider.mode.most_bytes, self._settings.most_bytes or self._provider.mode.most_bytes)
        if row.bytes > most_bytes:
            heads = self._storage.heads(row)
            if len(heads) == 1 and heads[0].size + LINE_BYTES > most_bytes:
                _log.warning("job %d is larger than a batch's file may be, and has failed", heads[0].number)
                self._storage.record(row, [Outcome(number=heads[0].number, state="failed", error="too_large")])
                return self._abandon(held, "too_large")
        held.row = self._storage.advance(row, "uploading")
        held.is_own = True
        return Next()

    def _upload(self, held: Held) -> Next:
        row, known = held.row, None
        with SpooledTemporaryFile(_KEPT_IN_MEMORY_BYTES) as content:
            size = self._write(row, content)
            if size == 0:
                return self._abandon(held, None)
            if not held.is_own:
                named = self._provider.files_named(file_name(row), since_s=row.planned_at)
                known = next((file.id for file in named if file.bytes == size), None)
            held.is_own = False
            if known is None:
                held.uploads += 1
                known = self._uploaded(row, content)
        held.row = self._storage.advance(row, "uploaded", file_id=known)
        return Next()

    def _uploaded(self, row: BatchRow, content: IO[bytes]) -> str:
        try:
            return self._provider.upload(file_name(row), content).id
        except RefusedError as refused:
            if refused.status in (404, 405, 501):  # Not this file is refused: there is no place for files.
                raise DeniedError(refused.status) from None
            raise

    def _write(self, row: BatchRow, content: IO[bytes]) -> int:
        for line in lines(self._storage.bodies(row)):
            content.write(line)
        return content.tell()

    def _create(self, held: Held) -> Next:
        # Before, not after: whatever happens from here on, nobody knows until the answer has come.
        held.not_created = False
        held.row = row = self._storage.advance(held.row, "creating")
        assert row.file_id is not None
        try:
            made = self._provider.create(row.name, row.endpoint, row.file_id, idempotency_key=row.name)
        except RefusedError:
            held.not_created = True
            raise
        except InDoubtError:
            _log.info("batch %s: nobody knows whether it was made; its provider is asked", row.name)
            held.failures += 1
            return Next(wait_s=min(self._settings.listing_lag_s, self._settings.poll_s))
        return self._made(held, made)

    def _made(self, held: Held, made: Batch) -> Next:
        held.row = self._storage.advance(held.row, "created", batch_id=made.id, provider_state=made.status)
        held.failures = 0
        _log.info("batch %s: made, with %d requests", held.row.name, held.row.requests)
        return Next(wait_s=self._settings.poll_s)

    def _look_for(self, held: Held, now: float) -> Next:
        """Find out whether a creation has come about; give it up where it has not, and can no more."""
        row = held.row
        found = self._provider.batch_named(row.name, row.file_id, since_s=row.planned_at)
        if found is not None:
            return self._made(held, found)
        if held.deleted_at is None:
            held.row = row = self._storage.advance(row, "creating", error=FENCED)
            if row.file_id is not None and not self._fenced(row.file_id):
                held.failures += 1
                return Next(wait_s=patience(self._settings, held.failures))
            held.deleted_at = now
            return Next(wait_s=self._settings.listing_lag_s)
        waited = now - held.deleted_at
        if waited < self._settings.listing_lag_s:
            return Next(wait_s=self._settings.listing_lag_s - waited)
        return self._abandon(held, FENCED)

    def _as_it_is(self, row: BatchRow) -> BatchRow:
        """The record, with what others have written into it: how many of its jobs were cancelled."""
        now = self._storage.batch(row.name)
        if now is None or (now.state, now.owner, now.turn) != (row.state, row.owner, row.turn):
            raise LeaseLostError(f"batch {row.name} is another worker's now")
        return now

    def _fenced(self, file_id: str) -> bool:
        """Whether the input file is gone, so that a creation that comes late finds none."""
        try:
            self._provider.delete(file_id)
        except RefusedError as refused:
            if refused.denied:
                raise
            return False
        return True

    def _ask(self, held: Held) -> Next:
        row = held.row = self._as_it_is(held.row)
        assert row.batch_id is not None
        try:
            if row.wanted <= 0 and not held.cancelled:
                self._provider.cancel(row.batch_id)
                held.cancelled = True
            batch = self._provider.batch(row.batch_id)
        except RefusedError as refused:
            if refused.status != 404 or self._storage.now() - row.changed_at < _LOST_AFTER_S:
                raise
            _log.warning("batch %s: its provider knows nothing of it any more; its jobs have failed", row.name)
            record_all(self._storage, row, _failed(self._storage, row, "batch_lost"))
            self._storage.settle(row, "collected", error="batch_lost")
            return Next(over=True)
        counts = batch.request_counts
        done, failed = (counts.completed, counts.failed) if counts is not None else (0, 0)
        if batch.status not in ("validating", "failed"):
            self._too_much.pop((row.endpoint, row.model), None)
        if batch.status in _ENDED:
            if _lacks_files(batch, done, failed) and held.unreadable < self._settings.max_attempts:
                held.unreadable += 1
                return Next(wait_s=patience(self._settings, held.unreadable))
            held.row = self._storage.advance(
                row,
                "ended",
                output_file_id=batch.output_file_id,
                error_file_id=batch.error_file_id,
                provider_state=batch.status,
                provider_done=done,
                provider_failed=failed,
                error=row.error if row.error == FENCED and batch.status == "failed" else _code_of(batch),
            )
            held.failures = held.unreadable = 0
            _log.info("batch %s: %s", row.name, batch.status)
            return Next()
        if (batch.status, done, failed) != (row.provider_state, row.provider_done, row.provider_failed):
            held.row = self._storage.advance(
                row, "created", provider_state=batch.status, provider_done=done, provider_failed=failed
            )
        held.failures += 1
        return Next(wait_s=patience(self._settings, held.failures))

    def _collect(self, held: Held) -> Next:
        row = held.row
        held.too_much = row.provider_state == "failed" and row.error in TOO_MUCH
        try:
            self._collecting.collect(
                row,
                sweep=held.may_be_twice,
                rest_s=self._rest_s(row) if held.too_much else 0.0,
                patient=held.unreadable < self._settings.max_attempts,
            )
        except UnreadableError as error:
            held.unreadable += 1
            _log.warning("batch %s: %s; they are asked for again", row.name, error)
            return Next(wait_s=patience(self._settings, held.unreadable))
        return Next(over=True)

    def _rest_s(self, row: BatchRow) -> float:
        """Seconds for which jobs wait whose batch was too much: longer from one such batch to the next."""
        kind = (row.endpoint, row.model)
        times = self._too_much[kind] = self._too_much.get(kind, 0) + 1
        wait_s = self._settings.retry_after_s(times)
        _log.warning("batch %s: more than the account may have in batches; tried again in %.0f s", row.name, wait_s)
        return wait_s

    def _refused(self, held: Held, refused: RefusedError) -> Next:
        """The provider has said no to a file or to a batch."""
        held.failures += 1
        wait_s = max(refused.retry_after_s or 0.0, patience(self._settings, held.failures))
        row = held.row
        if row.state == "creating" and not held.not_created:
            # Not the creation was refused, but to say what became of it: packed anew, its jobs might be sent twice.
            _log.warning(
                "batch %s: nobody knows whether it was made, and its provider does not say (%d); it is asked again",
                row.name,
                refused.status,
            )
            return Next(wait_s=wait_s)
        if refused.code in TOO_MUCH and row.state == "creating":
            held.too_much = True
            wait_s = max(wait_s, self._rest_s(row))
        elif refused.status == _TOO_LARGE and row.requests > 1:
            # A gateway's own bound: the next one is half as large.
            held.too_much = True
        elif refused.passes or row.state in ("created", "ended", "uploaded", "planned"):
            return Next(wait_s=wait_s)
        elif refused.status == 404 and row.state == "creating" and held.failures <= self._settings.max_attempts:
            return Next(wait_s=wait_s)  # A file that was just uploaded may not be seen everywhere yet.
        else:
            _log.warning("batch %s: refused with %d", row.name, refused.status)
            error = word(refused.code) or f"batch_refused_{refused.status}"
            # It may be the account's fault as well as the jobs': as often as any other failure, and not for ever.
            record_all(self._storage, row, [again(job, error, self._settings) for job in self._storage.heads(row)])
        delete_quietly(self._provider, row.file_id)
        return self._abandon(held, word(refused.code) or f"batch_refused_{refused.status}", not_before_s=wait_s)

    def _abandon(self, held: Held, error: str | None, *, not_before_s: float = 0.0) -> Next:
        if held.may_be_twice and held.row.state != "planned":
            delete_all_named(self._provider, held.row)
        self._storage.settle(held.row, "abandoned", error=error, not_before_s=not_before_s, sent=False)
        return Next(over=True)


def _failed(storage: Storage, row: BatchRow, error: str) -> list[Outcome]:
    return [Outcome(number=job.number, state="failed", error=error) for job in storage.heads(row)]


def _code_of(batch: Batch) -> str | None:
    errors = batch.errors.data if batch.errors is not None and batch.errors.data is not None else []
    code = next((error.code for error in errors if error.code), None)
    return word(code) or (f"batch_{batch.status}" if batch.status in ("failed", "expired", "cancelled") else None)


def _lacks_files(batch: Batch, done: int, failed: int) -> bool:
    """Whether a batch that has ended has more answers than files: some providers name those a little later."""
    without = batch.output_file_id is None
    return (done > 0 and without) or (failed > 0 and without and batch.error_file_id is None)
