"""The answers of a batch that has ended: read, recorded, and what no line speaks of sent again or given up.

All of it may be done again from its beginning: what is recorded once is skipped, and the files are deleted when there
is nothing left to read in them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import openai

from ._jobs import BatchRow, Job, Outcome
from ._outcomes import again, outcome_of, read_line, word
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


class UnreadableError(Exception):
    """A file of answers is not there, or some of its lines cannot be read: what can be is recorded."""

    def __init__(self, what: str) -> None:
        super().__init__(what)


class Collecting:
    """Reads the answers of batches. Belongs to one thread."""

    def __init__(self, storage: Storage, provider: ProviderBatches, settings: WorkerSettings) -> None:
        self._storage = storage
        self._provider = provider
        self._settings = settings

    def collect(self, row: BatchRow, *, sweep: bool, rest_s: float, patient: bool) -> None:
        """Record every job of an ended batch.

        `sweep`: its file may have been uploaded more than once. `rest_s`: for how many seconds its jobs are left alone
        where it was too large. `patient`: raise UnreadableError where answers cannot be read, which may pass; else they
        are taken for lost. Raises RefusedError where the key is refused.
        """
        left = {job.number: job for job in self._storage.heads(row)}
        in_order = list(left.values())
        told = _Told()
        if left:
            for file_id in (row.output_file_id, row.error_file_id):
                if file_id is not None:
                    self._read(row, file_id, left, told)
        # Where some were recorded before, nobody knows whether a line is theirs.
        if told.unmatched and len(in_order) == row.requests:
            _log.warning("batch %s: %d lines are answers to none of its jobs", row.name, told.unmatched)
        if told.unreadable:
            if patient and left:
                raise UnreadableError(told.unreadable)
            _log.warning("batch %s: %s", row.name, told.unreadable)
        blameless = row.provider_state == "failed" and (row.error == FENCED or row.error in TOO_MUCH)
        if left and not blameless:
            record_all(self._storage, row, self._left_over(row, left, in_order))
        if self._settings.delete_files:
            for file_id in (row.file_id, row.output_file_id, row.error_file_id):
                delete_quietly(self._provider, file_id)
            if sweep:
                delete_all_named(self._provider, row)
        # No fault of the jobs: however often it happens, they are sent, and it counts as no attempt.
        wait_s = rest_s if blameless and row.error != FENCED else 0.0
        self._storage.settle(row, "collected", error=row.error, not_before_s=wait_s, sent=not blameless)

    def _read(self, row: BatchRow, file_id: str, left: dict[int, Job], told: _Told) -> None:
        """Record what a file says, and take those jobs out of `left`."""
        ready: list[Outcome] = []
        try:
            for raw in self._provider.lines(file_id):
                try:
                    line = read_line(raw)
                except ValueError:
                    told.bad_lines += 1
                    continue
                job = None if line.number is None else left.pop(line.number, None)
                if job is None:
                    told.unmatched += 1
                    continue
                ready.append(outcome_of(line, job, self._settings))
                if len(ready) >= _RECORDED_AT_ONCE:
                    self._storage.record(row, ready)
                    ready = []
        except RefusedError as refused:
            if refused.denied:
                raise
            told.refused = refused.status
        if ready:
            self._storage.record(row, ready)

    def _left_over(self, row: BatchRow, left: dict[int, Job], in_order: Sequence[Job]) -> list[Outcome]:
        """What becomes of jobs that no line speaks of."""
        jobs = list(left.values())
        if row.provider_state != "failed":
            code = {"expired": "batch_expired", "cancelled": "batch_cancelled"}.get(row.provider_state or "")
            return [again(job, code or "no_answer", self._settings) for job in jobs]
        error = row.error or "batch_failed"
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
            in_order[error.line - 1].number: word(error.code) or "batch_failed"
            for error in told
            if error.line is not None and 1 <= error.line <= len(in_order)
        }


@dataclass(slots=True)
class _Told:
    """What was read, beside the answers."""

    unmatched: int = 0
    """Lines that meant no job that was left."""
    bad_lines: int = 0
    """Lines that are no JSON."""
    refused: int | None = None
    """The status with which the provider refused a file."""

    @property
    def unreadable(self) -> str | None:
        """What is wrong with the files, for a log; None where nothing is."""
        if self.refused is not None:
            return f"the provider answers {self.refused} to who asks for a file of its answers"
        return f"{self.bad_lines} lines of its answers cannot be read" if self.bad_lines else None


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
