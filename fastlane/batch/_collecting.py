"""The answers of a batch that has ended: read, recorded, and what no line speaks of sent again or given up.

All of it may be done again from its beginning: what is recorded once is skipped, and the files are deleted when there
is nothing left to read in them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import openai

from ._jobs import BatchRow, Job, Outcome
from ._outcomes import again, outcome_of, read_line
from ._provider_batches import ProviderBatches, RefusedError
from ._settings import WorkerSettings
from ._storage import Storage

_log = logging.getLogger("fastlane.batch")

# More than the account may have in batches at once, by the codes of a batch that failed for it
# (https://learn.microsoft.com/en-us/answers/questions/2285577, looked up on 2026-11-22).
TOO_MUCH = frozenset({"token_limit_exceeded", "enqueued_token_limit_exceeded", "rate_limit_exceeded"})
FENCED = "creation_unknown"
"""Recorded of a batch before its input file is deleted: where it comes about all the same, it fails for that."""
_RECORDED_AT_ONCE = 1_000


class Collecting:
    """Reads the answers of batches. Belongs to one thread."""

    def __init__(self, storage: Storage, provider: ProviderBatches, settings: WorkerSettings) -> None:
        self._storage = storage
        self._provider = provider
        self._settings = settings

    def collect(self, row: BatchRow, *, sweep: bool) -> bool:
        """Record every job of an ended batch. Returns whether the provider found it, or all that it has, too large.

        `sweep`: its file may have been uploaded more than once.
        """
        left = {job.number: job for job in self._storage.heads(row)}
        in_order = list(left.values())
        unmatched = 0
        if left:
            for file_id in (row.output_file_id, row.error_file_id):
                unmatched += 0 if file_id is None else self._read(row, file_id, left)
        if unmatched:
            _log.warning("batch %s: %d lines are answers to none of its jobs", row.name, unmatched)
        if left:
            record_all(self._storage, row, self._left_over(row, left, in_order))
        if self._settings.delete_files:
            for file_id in (row.file_id, row.output_file_id, row.error_file_id):
                delete_quietly(self._provider, file_id)
            if sweep:
                delete_all_named(self._provider, row)
        self._storage.settle(row, "collected", error=row.error)
        return row.provider_state == "failed" and row.error in TOO_MUCH

    def _read(self, row: BatchRow, file_id: str, left: dict[int, Job]) -> int:
        """Record what a file says, and take those jobs out of `left`. Returns how many lines meant none of them."""
        unmatched = 0
        ready: list[Outcome] = []
        try:
            for raw in self._provider.lines(file_id):
                told = read_line(raw)
                job = None if told.number is None else left.pop(told.number, None)
                if job is None:
                    unmatched += 1
                    continue
                ready.append(outcome_of(told, job, self._settings))
                if len(ready) >= _RECORDED_AT_ONCE:
                    self._storage.record(row, ready)
                    ready = []
        except openai.NotFoundError:
            _log.warning("batch %s: a file of its answers is gone", row.name)
        self._storage.record(row, ready)
        return unmatched

    def _left_over(self, row: BatchRow, left: dict[int, Job], in_order: Sequence[Job]) -> list[Outcome]:
        """What becomes of jobs that no line speaks of."""
        jobs = list(left.values())
        if row.provider_state != "failed":
            code = {"expired": "batch_expired", "cancelled": "batch_cancelled"}.get(row.provider_state or "")
            return [again(job, code or "no_answer", self._settings) for job in jobs]
        error = row.error or "batch_failed"
        if error == FENCED or error in TOO_MUCH:
            # No fault of the jobs: however often it happens, they are sent.
            wait_s = 0.0 if error == FENCED else self._settings.retry_after_s(min(job.attempts for job in jobs))
            return [Outcome(number=job.number, state="waiting", error=error, not_before_s=wait_s) for job in jobs]
        # None of its lines has been done: those that it was refused for are at fault, and who is where it says nothing?
        blamed = self._blamed(row, in_order)
        return [
            Outcome(number=job.number, state="failed", error=blamed[job.number])
            if job.number in blamed
            else again(job, error, self._settings)
            for job in jobs
        ]

    def _blamed(self, row: BatchRow, in_order: Sequence[Job]) -> dict[int, str]:
        """The jobs for whose lines the provider refused the whole file, with its codes; none where it names none."""
        if row.batch_id is None or len(in_order) != row.requests:
            return {}  # Some are recorded already, and the lines are no more those of the jobs that are left.
        errors = self._provider.batch(row.batch_id).errors
        told = errors.data if errors is not None and errors.data is not None else []
        return {
            in_order[error.line - 1].number: error.code or "batch_failed"
            for error in told
            if error.line is not None and 1 <= error.line <= len(in_order)
        }


def record_all(storage: Storage, row: BatchRow, outcomes: Sequence[Outcome]) -> None:
    """Record outcomes, a thousand at a time: meanwhile others that write wait."""
    for start in range(0, len(outcomes), _RECORDED_AT_ONCE):
        storage.record(row, outcomes[start : start + _RECORDED_AT_ONCE])


def file_name(row: BatchRow) -> str:
    """Under which name a batch's file is uploaded."""
    return f"{row.name}.jsonl"


def delete_all_named(provider: ProviderBatches, row: BatchRow) -> None:
    """Delete whatever uploads of a batch's file the provider lists, if it lets us."""
    try:
        found = provider.files_named(file_name(row), since_s=row.planned_at)
    except (RefusedError, openai.OpenAIError):
        return
    for file in found:
        delete_quietly(provider, file.id)


def delete_quietly(provider: ProviderBatches, file_id: str | None) -> None:
    """Delete a file at the provider, if it lets us: it costs nothing but room there, and most end by themselves."""
    if file_id is None:
        return
    try:
        provider.delete(file_id)
    except (RefusedError, openai.OpenAIError):
        _log.warning("the file %s could not be deleted, and stays at the provider until it expires", file_id)
