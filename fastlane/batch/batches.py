"""A batch at a provider: its files, and its next step in each of its states.

Each step is recorded before it is taken, and each record is compared with the lease, so that of two workers only one
goes on. After a crash the provider is asked what it has received:

- `uploading`: a file of the batch's name and size is used; otherwise it is uploaded again.
- `creating`: a batch of that name, or of that file, is used. Where none is listed, its input file is deleted, so that a
  late creation finds nothing to work on, and after a while the batches are listed once more. Then the jobs are packed
  anew, under another name.
- `ended`: answers that are recorded are skipped. Files are deleted when all answers are recorded.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import takewhile
from random import uniform
from tempfile import SpooledTemporaryFile
from threading import Event
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import openai

from .._clock import now_ns
from ..compat.clients import idempotency_header_of
from ..engine.upstream_failures import rest_of
from ..providers import ProviderFacts
from .answers import again, outcome_of, read_line, word
from .errors import WorkerDeniedError
from .jobs import BatchRow, Job, JobOutcome
from .settings import WorkerSettings
from .storage import Storage

if TYPE_CHECKING:
    from openai.types import Batch

T = TypeVar("T")

_log = logging.getLogger("fastlane.batch")

NAME_KEY = "fastlane_batch"
"""The key of a batch's name in its metadata."""
DENIED = frozenset({401, 402, 403})
"""Statuses that concern the key, or the account behind it."""

# Uploads and downloads may have to move 200 MB. It is the longest pause between two pieces of them.
_TRANSFER_TIMEOUT_S = 600.0
# openai's own default of 600 s is made for answers of a model.
_TIMEOUT_S = 60.0
_RETRIES = 3
# The provider's clock may differ from ours by so much.
_CLOCKS_DIFFER_S = 86_400.0
# Codes of a batch that failed because of the account's limit for all of its batches
# (https://learn.microsoft.com/en-us/answers/questions/2285577, looked up on 2026-11-22).
TOO_MUCH = frozenset({"token_limit_exceeded", "enqueued_token_limit_exceeded", "rate_limit_exceeded"})
FENCED = "creation_unknown"
"""Recorded before a batch's input file is deleted: a late creation then fails for that."""
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_RECORDED_AT_ONCE = 1_000
_KEPT_IN_MEMORY_BYTES = 8 << 20
# The provider's lists may lag: before that, a batch that it does not know is not lost.
_LOST_AFTER_S = 3_600.0


class StoppedError(Exception):
    """The worker was stopped during a download."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMode:
    """The limits of a provider's batches. The defaults are the lowest of all providers that were looked up."""

    endpoints: tuple[str, ...] | None = None
    """None if they are not known: all are tried."""
    metadata: bool = True
    most_requests: int = 50_000
    most_bytes: int = 100_000_000
    window_s: float = 86_400.0

    def takes(self, endpoint: str) -> bool:
        """Return whether an endpoint, such as "/v1/chat/completions", can be used in a batch."""
        return self.endpoints is None or endpoint in self.endpoints


def mode_of(facts: ProviderFacts, settings: WorkerSettings) -> BatchMode | None:
    """Return the limits of batches by facts and settings; None if jobs are sent as live calls.

    That is where the provider has no batch mode of OpenAI's shape, unless `lane` says otherwise.
    """
    batch = facts.batch
    has_mode = batch.shape is not None and batch.shape.value == "openai"
    if settings.lane == "live" or (settings.lane == "auto" and not has_mode):
        return None
    known = {one.name: getattr(batch, one.name) for one in fields(BatchMode)}
    mode = BatchMode(**{name: fact.value for name, fact in known.items() if fact and fact.value is not None})
    return replace(
        mode,
        most_requests=min(mode.most_requests, settings.most_requests or mode.most_requests),
        most_bytes=min(mode.most_bytes, settings.most_bytes or mode.most_bytes),
    )


@dataclass(slots=True)
class LeasedBatch:
    """A batch under this worker's lease, and what is known beside its record. Times are seconds by `now_s`."""

    row: BatchRow
    due: float = 0.0
    """When its next step is due."""
    failures: int = 0
    """How often in a row its step has failed, or it was found unchanged."""
    not_created: bool = False
    """In `creating`: the provider has refused to create it."""
    deleted_at: float | None = None
    """In `creating`: when its input file was deleted."""
    unreadable: int = 0
    """How often its answers were missing or unreadable although it has ended."""


def now_s() -> float:
    """Return the time of the worker's monotonic clock, in seconds."""
    return now_ns() / 1e9


def pause_s(settings: WorkerSettings, failures: int) -> float:
    """Return the pause before a step is taken again: longer each time, with jitter."""
    return uniform(0.75, 1.0) * settings.poll_s * min(60.0, 1.5 ** min(40, max(0, failures - 1)))


def line_of_body(job: Job, body: bytes) -> bytes:
    """Return a job's line of a batch's file."""
    custom_id, url = json.dumps(job.custom_id).encode(), json.dumps(job.endpoint).encode()
    return b'{"custom_id":%b,"method":"POST","url":%b,"body":%b}\n' % (custom_id, url, body)


class BatchSteps:
    """Takes the steps of batches, with the files and batches of one client's account. Belongs to one thread."""

    def __init__(
        self, storage: Storage, client: openai.OpenAI, mode: BatchMode, settings: WorkerSettings, stop: Event
    ) -> None:
        timeout = _TIMEOUT_S if client.timeout == openai.DEFAULT_TIMEOUT else client.timeout
        self._client = client.with_options(max_retries=_RETRIES, timeout=timeout)
        # A creation must not be repeated before its result is known.
        self._once = client.with_options(max_retries=0, timeout=timeout)
        self._storage = storage
        self.mode = mode
        self._settings = settings
        self._stop = stop
        self._too_much: dict[tuple[str, str], tuple[int, int]] = {}
        """By endpoint and model, where a batch was too much: the most requests of the next, and how often in a row."""

    def take(self, held: LeasedBatch) -> float | None:
        """Take the next step of a batch.

        Returns the seconds until the step after it, None if the batch is over. Raises LeaseLostError, StorageError,
        StoppedError, WorkerDeniedError, and openai's errors, after which the step has to be taken again.
        """
        steps = {
            "planned": self._upload,
            "uploading": self._upload,
            "uploaded": self._create,
            "creating": self._create if held.not_created else self._look_for,
            "created": self._poll,
            "ended": self._collect,
        }
        try:
            step = steps.get(held.row.state)
            return None if step is None else step(held)
        except openai.APIStatusError as error:
            if not (_is_refusal(error) or error.status_code in DENIED or held.not_created):
                raise
            refused = error
        # Outside of the handler: openai's error keeps the request, and with it a file of prompts.
        return self._refused(held, refused)

    def _upload(self, held: LeasedBatch) -> float | None:
        is_first = held.row.state == "planned"
        if is_first:
            held.row = self._storage.advance(held.row, "uploading")
        row, name, file_id, count = held.row, f"{held.row.name}.jsonl", None, 0
        with SpooledTemporaryFile(_KEPT_IN_MEMORY_BYTES) as content:
            for job, body in self._storage.bodies(row):
                content.write(line_of_body(job, body))
                count += 1
            size = content.tell()
            if size == 0:
                return self._abandon(held, None)
            if count == 1 and size > self.mode.most_bytes:
                _log.warning("job %d is larger than a batch's file may be, and has failed", job.number)
                self._end(row, [job], "too_large", final=True)
                return self._abandon(held, "too_large")
            if not is_first:
                files = _since(self._client.files.list(purpose="batch", order="desc"), row.planned_at)
                file_id = next((file.id for file in files if file.filename == name and file.bytes == size), None)
            if file_id is None:
                content.seek(0)
                file = (name, cast(IO[bytes], content), "application/jsonl")
                file_id = self._once.files.create(file=file, purpose="batch", timeout=_TRANSFER_TIMEOUT_S).id
        held.row = self._storage.advance(row, "uploaded", file_id=file_id, requests=count, bytes=size)
        return 0.0

    def _create(self, held: LeasedBatch) -> float | None:
        held.not_created = False
        held.row = row = self._storage.advance(held.row, "creating")
        assert row.file_id is not None
        given: dict[str, Any] = {"metadata": {NAME_KEY: row.name}} if self.mode.metadata else {}
        if (header := idempotency_header_of(self._once)) is not None:
            given["extra_headers"] = {header: row.name}
        window: Any = f"{max(1, int(self.mode.window_s // 3_600))}h"
        endpoint: Any = row.endpoint
        try:
            created = self._once.batches.create(
                completion_window=window, endpoint=endpoint, input_file_id=row.file_id, **given
            )
        except openai.OpenAIError as error:
            # A gateway's 5xx may come although the provider has created the batch. 4xx is a decision.
            status = getattr(error, "status_code", 500)
            if status < 500 and status != 408:
                held.not_created = True
                raise
            _log.info("batch %s: it is not known whether it was created; the provider is asked", row.name)
            held.failures += 1
            return min(self._settings.listing_lag_s, self._settings.poll_s)
        return self._created(held, created)

    def _created(self, held: LeasedBatch, created: Batch) -> float:
        held.row = self._storage.advance(held.row, "created", batch_id=created.id, provider_state=created.status)
        held.failures = 0
        _log.info("batch %s: created, with %d requests", held.row.name, held.row.requests)
        return self._settings.poll_s

    def _look_for(self, held: LeasedBatch) -> float | None:
        """Find out whether the batch was created; give it up where it was not, and cannot be any more."""
        row, lag_s = held.row, self._settings.listing_lag_s
        for batch in _since(self._client.batches.list(limit=100), row.planned_at):
            if (batch.metadata or {}).get(NAME_KEY) == row.name or (row.file_id and batch.input_file_id == row.file_id):
                return self._created(held, batch)
        if held.deleted_at is not None:
            left_s = held.deleted_at + lag_s - now_s()
            return left_s if left_s > 0 else self._abandon(held, FENCED)
        held.row = row = self._storage.advance(row, "creating", error=FENCED)
        assert row.file_id is not None
        with suppress(openai.NotFoundError):
            self._client.files.delete(row.file_id)
        held.deleted_at = now_s()
        return lag_s

    def _poll(self, held: LeasedBatch) -> float | None:
        row = held.row
        assert row.batch_id is not None
        try:
            if not self._storage.is_wanted(row):
                with suppress(openai.APIStatusError):  # it may have ended
                    self._client.batches.cancel(row.batch_id)
            batch = self._client.batches.retrieve(row.batch_id)
        except openai.NotFoundError:
            if self._storage.now() - row.changed_at < _LOST_AFTER_S:
                raise
            _log.warning("batch %s: the provider does not know it any more; its jobs have failed", row.name)
            self._end(row, self._storage.heads(row), "batch_lost", final=True)
            self._storage.settle(row, "collected", error="batch_lost")
            return None
        counts = batch.request_counts
        done, failed = (counts.completed, counts.failed) if counts is not None else (0, 0)
        known = {"provider_state": batch.status, "provider_done": done, "provider_failed": failed}
        if batch.status not in _ENDED:
            if any(getattr(row, name) != value for name, value in known.items()):
                held.row = self._storage.advance(row, "created", **known)
            held.failures += 1
            return pause_s(self._settings, held.failures)
        # Some providers name the files of a batch that has ended a little later.
        lacks_file = batch.output_file_id is None and (done or (failed and batch.error_file_id is None))
        if lacks_file and (wait_s := self._wait_for_answers(held)):
            return wait_s
        if batch.status == "failed":
            self._fail_lines(row, batch)
        error = FENCED if row.error == FENCED and batch.status == "failed" else _code_of(batch)
        files = {"output_file_id": batch.output_file_id, "error_file_id": batch.error_file_id}
        held.row = self._storage.advance(row, "ended", error=error, **files, **known)
        held.failures = held.unreadable = 0
        _log.info("batch %s: %s", row.name, batch.status)
        return 0.0

    def _wait_for_answers(self, held: LeasedBatch) -> float | None:
        """Return the pause before answers that should be there are looked for again; None after some tries."""
        held.unreadable += 1
        return pause_s(self._settings, held.unreadable) if held.unreadable <= self._settings.max_attempts else None

    def _collect(self, held: LeasedBatch) -> float | None:
        """Record the answers of a batch that has ended. Jobs without one are sent again, or fail."""
        row = held.row
        left = {job.custom_id: job for job in self._storage.heads(row)}
        files = [file_id for file_id in (row.output_file_id, row.error_file_id) if file_id is not None]
        for file_id in files if left else ():
            self._read(row, file_id, left)
        if left and row.provider_state == "completed" and (wait_s := self._wait_for_answers(held)):
            _log.warning("batch %s: %d of its answers are not there yet, or cannot be read", row.name, len(left))
            return wait_s
        has_failed = row.provider_state == "failed"
        is_too_much = has_failed and row.error in TOO_MUCH
        # The jobs are not at fault: it counts as no attempt.
        blameless = is_too_much or (has_failed and row.error == FENCED)
        if left and not blameless:
            codes = {"expired": "batch_expired", "cancelled": "batch_cancelled", "failed": row.error or "batch_failed"}
            self._end(row, left.values(), codes.get(row.provider_state or "", "no_answer"))
        self._delete(row.file_id, *files)
        kind = row.endpoint, row.model
        if not is_too_much and kind in self._too_much:
            self._too_much[kind] = 2 * self._too_much[kind][0], 0
        rest_s = self._halve(row) if is_too_much else 0.0
        self._storage.settle(row, "collected", error=row.error, not_before_s=rest_s, sent=not blameless)
        return None

    def _read(self, row: BatchRow, file_id: str, left: dict[str, Job]) -> None:
        """Record the answers of a file, and take those jobs out of `left`."""
        ready: list[JobOutcome] = []
        try:
            for name, line in map(read_line, self._lines(file_id)):
                # Other lines belong to jobs that were recorded before.
                if (job := left.pop(name, None)) is not None:
                    ready.append(outcome_of(line, job, self._settings))
                if len(ready) >= _RECORDED_AT_ONCE:
                    self._storage.record(row, ready)
                    ready = []
        except openai.APIStatusError as error:
            if not _is_refusal(error):
                raise
            _log.warning("batch %s: a file of its answers was refused with %d", row.name, error.status_code)
        finally:
            if ready:
                self._storage.record(row, ready)

    def _lines(self, file_id: str) -> Iterator[bytes]:
        """Yield a file's lines while it is downloaded. Raises errors of openai and its HTTP library.

        Only line feeds end lines: JSON may contain other characters that end a line elsewhere.
        """
        rest = b""
        with self._client.files.with_streaming_response.content(file_id, timeout=_TRANSFER_TIMEOUT_S) as response:
            for piece in response.iter_bytes(1 << 20):
                if self._stop.is_set():
                    raise StoppedError
                *lines, rest = (rest + piece).split(b"\n")
                yield from filter(bytes.strip, lines)
        if rest.strip():
            yield rest

    def _fail_lines(self, row: BatchRow, batch: Batch) -> None:
        """Fail the jobs whose lines are why the provider has refused a batch, before its other jobs are sent again."""
        codes = {error.line: word(error.code) or "batch_failed" for error in (batch.errors and batch.errors.data) or []}
        jobs = self._storage.heads(row)
        if len(jobs) == row.requests:  # after a crash, those that have failed are not among the jobs any more
            for code in set(codes.values()):
                at_fault = [job for line, job in enumerate(jobs, start=1) if codes.get(line) == code]
                self._end(row, at_fault, code, final=True)

    def most_requests(self, endpoint: str, model: str) -> int:
        """Return the most requests of the next batch of an endpoint and a model."""
        most = self.mode.most_requests
        return min(most, self._too_much.get((endpoint, model), (most, 0))[0])

    def _halve(self, row: BatchRow) -> float:
        """Halve the next batch after one that was too much. Return the pause before it, which grows."""
        _, times = self._too_much.get((row.endpoint, row.model), (0, 0))
        self._too_much[row.endpoint, row.model] = max(1, row.requests // 2), times + 1
        wait_s = self._settings.retry_after_s(times + 1)
        _log.warning("batch %s: more than the provider takes; tried again in %.0f s, in halves", row.name, wait_s)
        return wait_s

    def _refused(self, held: LeasedBatch, refused: openai.APIStatusError) -> float | None:
        """Go on after the provider has refused a request."""
        row, status, code = held.row, refused.status_code, word(refused.code)
        if status in DENIED or (status in (404, 405) and row.state == "uploading"):  # or there is no API for files
            raise WorkerDeniedError(status)
        held.failures += 1
        wait_s = max(rest_of(refused) or 0.0, pause_s(self._settings, held.failures))
        if row.state != "uploading" and not held.not_created:
            # Not its creation was refused. Packed anew, its jobs might be sent twice.
            _log.warning("batch %s: the provider refused a question with %d, and is asked again", row.name, status)
            return wait_s
        # 413: a gateway's own limit.
        if (code in TOO_MUCH and held.not_created) or (status == 413 and row.requests > 1):
            wait_s = max(wait_s, self._halve(row))
        elif not _is_refusal(refused) or (status == 404 and held.failures <= self._settings.max_attempts):
            return wait_s  # a new file may not be visible everywhere yet
        else:
            _log.warning("batch %s: refused with %d", row.name, status)
            # It may be the account's fault as well as the jobs': it counts as an attempt.
            self._end(row, self._storage.heads(row), code or f"batch_refused_{status}")
        self._delete(row.file_id)
        return self._abandon(held, code or f"batch_refused_{status}", not_before_s=wait_s)

    def _abandon(self, held: LeasedBatch, error: str | None, *, not_before_s: float = 0.0) -> float | None:
        self._storage.settle(held.row, "abandoned", error=error, not_before_s=not_before_s, sent=False)
        return None

    def _end(self, row: BatchRow, jobs: Iterable[Job], error: str, *, final: bool = False) -> None:
        """Have jobs without an answer sent again, or fail if that is final or they were sent often enough."""
        outcomes = [again(job, error, self._settings, final=final) for job in jobs]
        for start in range(0, len(outcomes), _RECORDED_AT_ONCE):  # other writers wait for a transaction
            self._storage.record(row, outcomes[start : start + _RECORDED_AT_ONCE])

    def _delete(self, *file_ids: str | None) -> None:
        """Delete files at the provider, if that works: they cost nothing, and most of them expire."""
        for file_id in filter(None, file_ids):
            try:
                self._client.files.delete(file_id)
            except openai.OpenAIError as error:
                if not isinstance(error, openai.NotFoundError):
                    _log.warning("the file %s could not be deleted, and stays until it expires", file_id)


def _since(listed: Iterable[T], since_s: float) -> Iterator[T]:
    """Yield what was created after some time, of a list that begins with the newest."""
    first_s = since_s - _CLOCKS_DIFFER_S
    return takewhile(lambda one: one.created_at is None or one.created_at >= first_s, cast(Any, listed))


def _is_refusal(error: openai.APIStatusError) -> bool:
    """Return whether the provider has refused a request for good, for what it holds and not for its key."""
    return 400 <= error.status_code < 500 and error.status_code not in (408, 409, 429, *DENIED)


def _code_of(batch: Batch) -> str | None:
    errors = (batch.errors.data if batch.errors is not None else None) or []
    code = next((error.code for error in errors if error.code), None)
    return word(code) or (f"batch_{batch.status}" if batch.status in ("failed", "expired", "cancelled") else None)
