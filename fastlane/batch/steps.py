"""The life of one batch: what is done next in each of its states, and what is recorded before.

No step is taken before its state is recorded, and every record is compared with the lease, so that of two workers that
hold a batch for their own, only one goes on. Where a worker died, the provider is asked what it has seen:

- `uploading`: a file of the batch's name and size is taken; else it is uploaded (again: a file does nothing by itself).
- `creating`: a batch of that name, or of that file, is taken. Where none is listed, the creation may still be on its
  way: its input file is deleted, so that what comes late finds nothing to work on, and after a while the batches are
  listed once more. Only then the jobs are packed anew, under another name.
- `ended`: answers that are recorded are skipped, and files are deleted when there is nothing left to read in them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from random import uniform
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING

import openai

from .errors import LeaseLostError
from .jobs import LINE_BYTES, BatchRow, Job, JobBody, JobOutcome
from .outcomes import again, outcome_of, read_line, word
from .provider import InDoubtError, ProviderBatches, RefusedError
from .settings import WorkerSettings
from .storage import Storage

if TYPE_CHECKING:
    from openai.types import Batch

_log = logging.getLogger("fastlane.batch")

# More than the account may have in batches at once, by the codes of a batch that failed for it
# (https://learn.microsoft.com/en-us/answers/questions/2285577, looked up on 2026-11-22).
TOO_MUCH = frozenset({"token_limit_exceeded", "enqueued_token_limit_exceeded", "rate_limit_exceeded"})
FENCED = "creation_unknown"
"""Recorded of a batch before its input file is deleted: where it is created all the same, it fails for that."""
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_RECORDED_AT_ONCE = 1_000
_KEPT_IN_MEMORY_BYTES = 8 << 20
# A batch of which the provider knows nothing any more is looked for this long: its lists may lag.
_LOST_AFTER_S = 3_600.0


class DeniedError(Exception):
    """The provider refuses the key: nothing goes on before that is put right."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the provider answers {status}")
        self.status = status


@dataclass(slots=True)
class LeasedBatch:
    """A batch under this worker's lease, and what is known of it beside its record."""

    row: BatchRow
    due: float = 0.0
    """When it is looked at next: seconds, by the worker's own clock."""
    failures: int = 0
    """How often in a row its step has failed, or it was found unchanged."""
    not_created: bool = False
    """In `creating`: whether the provider is known to have made no batch."""
    is_own: bool = False
    """In `uploading`: whether this worker recorded that, and has not tried yet."""
    uploads: int = 0
    """How often this worker has begun to upload its file."""
    deleted_at: float | None = None
    """In `creating`: when its input file was deleted, by the worker's own clock."""
    cancelled: bool = False
    """Whether the provider was asked to end it."""
    unreadable: int = 0
    """How often its answers were not there, or could not be read, although it has ended."""
    too_much: bool = False
    """Whether the provider refused it for its size, or for all that waits there."""

    @property
    def may_be_twice(self) -> bool:
        """Whether its file may have been uploaded more than once."""
        return self.uploads > 1 or self.row.turn > 1

    @property
    def file_name(self) -> str:
        """The name under which its file is uploaded."""
        return f"{self.row.name}.jsonl"


def pause_s(settings: WorkerSettings, failures: int) -> float:
    """Return the seconds until a batch is looked at again: longer each time, with jitter."""
    longest = min(settings.longest_poll_s, settings.poll_s * 1.5 ** min(40, max(0, failures - 1)))
    return uniform(0.75, 1.0) * longest


def line_of_body(one: JobBody) -> bytes:
    """Return a job's line of a batch's file."""
    custom_id, url = json.dumps(one.job.custom_id).encode(), json.dumps(one.job.endpoint).encode()
    return b'{"custom_id":%b,"method":"POST","url":%b,"body":%b}\n' % (custom_id, url, one.body)


class BatchSteps:
    """Takes the steps of batches. Belongs to one thread."""

    def __init__(self, storage: Storage, provider: ProviderBatches, settings: WorkerSettings) -> None:
        self._storage = storage
        self._provider = provider
        self._settings = settings
        # How often in a row batches of an endpoint and a model were too much for the account.
        self._too_much: dict[tuple[str, str], int] = {}

    def take(self, held: LeasedBatch, now: float) -> float | None:
        """Take the next step of a batch. `now`: seconds, by the worker's own clock.

        Returns the seconds until the step after it, None where the batch is over. Raises LeaseLostError, StorageError,
        StoppedError, DeniedError; any error of openai's: the step is to be taken again later.
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
                    return self._poll(held)
                case "ended":
                    return self._collect(held)
                case _:
                    return None
        except RefusedError as refused:
            if refused.denied:
                raise DeniedError(refused.status) from None
            return self._refused(held, refused)

    def _plan(self, held: LeasedBatch) -> float | None:
        row, most = held.row, self._provider.mode.most_bytes
        if row.wanted <= 0:
            return self._abandon(held, None)
        most = min(most, self._settings.most_bytes or most)
        if row.bytes > most:
            heads = self._storage.heads(row)
            if len(heads) == 1 and heads[0].size + LINE_BYTES > most:
                _log.warning("job %d is larger than a batch's file may be, and has failed", heads[0].number)
                self._fail(row, heads, "too_large")
                return self._abandon(held, "too_large")
        held.row = self._storage.advance(row, "uploading")
        held.is_own = True
        return 0.0

    def _upload(self, held: LeasedBatch) -> float | None:
        row, known = held.row, None
        with SpooledTemporaryFile(_KEPT_IN_MEMORY_BYTES) as content:
            for one in self._storage.bodies(row):
                content.write(line_of_body(one))
            size = content.tell()
            if size == 0:
                return self._abandon(held, None)
            if not held.is_own:
                named = self._provider.files_named(held.file_name, since_s=row.planned_at)
                known = next((file.id for file in named if file.bytes == size), None)
            held.is_own = False
            if known is None:
                held.uploads += 1
                known = self._uploaded(held, content)
        held.row = self._storage.advance(row, "uploaded", file_id=known)
        return 0.0

    def _uploaded(self, held: LeasedBatch, content: IO[bytes]) -> str:
        try:
            return self._provider.upload(held.file_name, content).id
        except RefusedError as refused:
            if refused.status in (404, 405, 501):  # Not this file is refused: there is no place for files.
                raise DeniedError(refused.status) from None
            raise

    def _create(self, held: LeasedBatch) -> float | None:
        held.not_created = False
        held.row = row = self._storage.advance(held.row, "creating")
        assert row.file_id is not None
        try:
            made = self._provider.create(row.name, row.endpoint, row.file_id)
        except RefusedError:
            held.not_created = True
            raise
        except InDoubtError:
            _log.info("batch %s: it is not known whether it was made; its provider is asked", row.name)
            held.failures += 1
            return min(self._settings.listing_lag_s, self._settings.poll_s)
        return self._made(held, made)

    def _made(self, held: LeasedBatch, made: Batch) -> float:
        held.row = self._storage.advance(held.row, "created", batch_id=made.id, provider_state=made.status)
        held.failures = 0
        _log.info("batch %s: made, with %d requests", held.row.name, held.row.requests)
        return self._settings.poll_s

    def _look_for(self, held: LeasedBatch, now: float) -> float | None:
        """Find out whether the batch was created; give it up where it was not, and can be no more."""
        row, lag_s = held.row, self._settings.listing_lag_s
        found = self._provider.batch_named(row.name, row.file_id, since_s=row.planned_at)
        if found is not None:
            return self._made(held, found)
        if held.deleted_at is not None:
            waited_s = now - held.deleted_at
            return lag_s - waited_s if waited_s < lag_s else self._abandon(held, FENCED)
        held.row = row = self._storage.advance(row, "creating", error=FENCED)
        try:
            if row.file_id is not None:
                self._provider.delete(row.file_id)
        except RefusedError as refused:
            if refused.denied:
                raise
            held.failures += 1
            return pause_s(self._settings, held.failures)
        held.deleted_at = now
        return lag_s

    def _poll(self, held: LeasedBatch) -> float | None:
        # With what others have written into it: how many of its jobs were cancelled.
        found, row = self._storage.batch(held.row.name), held.row
        if found is None or (found.state, found.owner, found.turn) != (row.state, row.owner, row.turn):
            raise LeaseLostError(f"batch {row.name} is another worker's now")
        held.row = row = found
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
            self._fail(row, self._storage.heads(row), "batch_lost")
            self._storage.settle(row, "collected", error="batch_lost")
            return None
        counts = batch.request_counts
        done, failed = (counts.completed, counts.failed) if counts is not None else (0, 0)
        known = {"provider_state": batch.status, "provider_done": done, "provider_failed": failed}
        if batch.status not in ("validating", "failed"):
            self._too_much.pop((row.endpoint, row.model), None)
        if batch.status not in _ENDED:
            if any(getattr(row, name) != value for name, value in known.items()):
                held.row = self._storage.advance(row, "created", **known)
            held.failures += 1
            return pause_s(self._settings, held.failures)
        # Some providers name the files of a batch that has ended a little later.
        lacks_file = batch.output_file_id is None and (done or (failed and batch.error_file_id is None))
        if lacks_file and held.unreadable < self._settings.max_attempts:
            held.unreadable += 1
            return pause_s(self._settings, held.unreadable)
        held.row = self._storage.advance(
            row,
            "ended",
            output_file_id=batch.output_file_id,
            error_file_id=batch.error_file_id,
            error=row.error if row.error == FENCED and batch.status == "failed" else _code_of(batch),
            **known,
        )
        held.failures = held.unreadable = 0
        _log.info("batch %s: %s", row.name, batch.status)
        return 0.0

    def _collect(self, held: LeasedBatch) -> float | None:
        """Record the answers of a batch that has ended; what has none is sent again or given up."""
        row = held.row
        heads = self._storage.heads(row)
        left = {job.number: job for job in heads}
        problems = [
            problem
            for file_id in (row.output_file_id, row.error_file_id)
            if left and file_id is not None and (problem := self._read(row, file_id, left))
        ]
        if problems:
            _log.warning("batch %s: %s", row.name, problems[0])
            if left and held.unreadable < self._settings.max_attempts:
                held.unreadable += 1
                return pause_s(self._settings, held.unreadable)
        held.too_much = row.provider_state == "failed" and row.error in TOO_MUCH
        # No fault of the jobs: however often it happens, they are sent, and it counts as no attempt.
        blameless = held.too_much or (row.provider_state == "failed" and row.error == FENCED)
        if left and not blameless:
            self._record(row, self._without_line(row, list(left.values()), heads))
        if self._settings.delete_files:
            for file_id in (row.file_id, row.output_file_id, row.error_file_id):
                self._delete(file_id)
            if held.may_be_twice:
                self._delete_all(held)
        rest_s = self._rest_s(row) if held.too_much else 0.0
        self._storage.settle(row, "collected", error=row.error, not_before_s=rest_s, sent=not blameless)
        return None

    def _read(self, row: BatchRow, file_id: str, left: dict[int, Job]) -> str | None:
        """Record what a file says, and take those jobs out of `left`. Return what is wrong with the file."""
        ready: list[JobOutcome] = []
        bad_lines = unmatched = 0
        # Where some were recorded before, it is not known whether a line is theirs.
        is_first = len(left) == row.requests
        try:
            for raw in self._provider.lines(file_id):
                try:
                    line = read_line(raw)
                except ValueError:
                    bad_lines += 1
                    continue
                job = None if line.number is None else left.pop(line.number, None)
                if job is None:
                    unmatched += 1
                else:
                    ready.append(outcome_of(line, job, self._settings))
                if len(ready) >= _RECORDED_AT_ONCE:
                    self._storage.record(row, ready)
                    ready = []
        except RefusedError as refused:
            if refused.denied:
                raise
            return f"the provider answers {refused.status} to who asks for a file of its answers"
        finally:
            if ready:
                self._storage.record(row, ready)
        if unmatched and is_first:
            _log.warning("batch %s: %d lines are answers to none of its jobs", row.name, unmatched)
        return f"{bad_lines} lines of its answers cannot be read" if bad_lines else None

    def _without_line(self, row: BatchRow, left: Sequence[Job], heads: Sequence[Job]) -> list[JobOutcome]:
        """Return what becomes of jobs that no line speaks of."""
        if row.provider_state != "failed":
            code = {"expired": "batch_expired", "cancelled": "batch_cancelled"}.get(row.provider_state or "")
            return [again(job, code or "no_answer", self._settings) for job in left]
        # None of its lines has been done. Those that it was refused for are at fault.
        at_fault: dict[int, str] = {}
        if row.batch_id is not None and len(heads) == row.requests:
            errors = self._provider.batch(row.batch_id).errors
            at_fault = {
                heads[error.line - 1].number: word(error.code) or "batch_failed"
                for error in (errors.data if errors is not None else None) or []
                if error.line is not None and 1 <= error.line <= len(heads)
            }
        return [
            JobOutcome(number=job.number, state="failed", error=at_fault[job.number])
            if job.number in at_fault
            else again(job, row.error or "batch_failed", self._settings)
            for job in left
        ]

    def _rest_s(self, row: BatchRow) -> float:
        """Return the seconds for which jobs wait whose batch was too much: longer from one such batch to the next."""
        kind = (row.endpoint, row.model)
        times = self._too_much[kind] = self._too_much.get(kind, 0) + 1
        wait_s = self._settings.retry_after_s(times)
        _log.warning("batch %s: more than the account may have in batches; tried again in %.0f s", row.name, wait_s)
        return wait_s

    def _refused(self, held: LeasedBatch, refused: RefusedError) -> float | None:
        """Go on after the provider has refused a file or a batch."""
        held.failures += 1
        wait_s = max(refused.retry_after_s or 0.0, pause_s(self._settings, held.failures))
        row = held.row
        if row.state == "creating" and not held.not_created:
            # Not the creation was refused, but to say what became of it: packed anew, its jobs might be sent twice.
            _log.warning(
                "batch %s: it is not known whether it was made, and its provider does not say (%d); it is asked again",
                row.name,
                refused.status,
            )
            return wait_s
        error = word(refused.code) or f"batch_refused_{refused.status}"
        if refused.code in TOO_MUCH and row.state == "creating":
            held.too_much = True
            wait_s = max(wait_s, self._rest_s(row))
        elif refused.status == 413 and row.requests > 1:
            # A gateway's own bound: the next one is half as large.
            held.too_much = True
        elif refused.passes or row.state in ("created", "ended", "uploaded", "planned"):
            return wait_s
        elif refused.status == 404 and row.state == "creating" and held.failures <= self._settings.max_attempts:
            return wait_s  # A file that was just uploaded may not be seen everywhere yet.
        else:
            _log.warning("batch %s: refused with %d", row.name, refused.status)
            # It may be the account's fault as well as the jobs': as often as any other failure, and not for ever.
            self._record(row, [again(job, error, self._settings) for job in self._storage.heads(row)])
        self._delete(row.file_id)
        return self._abandon(held, error, not_before_s=wait_s)

    def _abandon(self, held: LeasedBatch, error: str | None, *, not_before_s: float = 0.0) -> float | None:
        if held.may_be_twice and held.row.state != "planned":
            self._delete_all(held)
        self._storage.settle(held.row, "abandoned", error=error, not_before_s=not_before_s, sent=False)
        return None

    def _fail(self, row: BatchRow, jobs: Sequence[Job], error: str) -> None:
        self._record(row, [JobOutcome(number=job.number, state="failed", error=error) for job in jobs])

    def _record(self, row: BatchRow, outcomes: Sequence[JobOutcome]) -> None:
        # A thousand at a time: meanwhile others that write wait.
        for start in range(0, len(outcomes), _RECORDED_AT_ONCE):
            self._storage.record(row, outcomes[start : start + _RECORDED_AT_ONCE])

    def _delete_all(self, held: LeasedBatch) -> None:
        """Delete whatever uploads of a batch's file the provider lists, if it lets us."""
        try:
            found = self._provider.files_named(held.file_name, since_s=held.row.planned_at)
        except (RefusedError, openai.OpenAIError):
            return
        for file in found:
            self._delete(file.id)

    def _delete(self, file_id: str | None) -> None:
        """Delete a file at the provider, if it lets us: it costs nothing but room there, and most end by themselves."""
        if file_id is None:
            return
        try:
            self._provider.delete(file_id)
        except (RefusedError, openai.OpenAIError):
            _log.warning("the file %s could not be deleted, and stays at the provider until it expires", file_id)


def _code_of(batch: Batch) -> str | None:
    errors = (batch.errors.data if batch.errors is not None else None) or []
    code = next((error.code for error in errors if error.code), None)
    return word(code) or (f"batch_{batch.status}" if batch.status in ("failed", "expired", "cancelled") else None)
