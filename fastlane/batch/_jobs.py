"""What is in a queue: jobs, the batches that they are packed into, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

JobState: TypeAlias = Literal["waiting", "packed", "running", "done", "failed", "cancelled"]
"""Where a job is.

- waiting: to be packed into a batch, or to be sent by itself, not before its time
- packed: in a batch that is on its way
- running: sent by itself, where the provider has no batch mode
- done: its answer is kept
- failed: for good; `retry_failed()` lets it wait again
- cancelled: it is not sent any more
"""

JOB_STATES: tuple[JobState, ...] = ("waiting", "packed", "running", "done", "failed", "cancelled")

OVER: frozenset[JobState] = frozenset({"done", "failed", "cancelled"})
"""States that a job does not leave by itself."""

BatchState: TypeAlias = Literal[
    "planned", "uploading", "uploaded", "creating", "created", "ended", "collected", "abandoned"
]
"""How far a batch is. Each is recorded before the step that it names is taken.

- planned: its jobs are chosen; nothing has been sent
- uploading: its file may be on its way
- uploaded: its file is at the provider, by a known id
- creating: the request that creates the batch may be on its way
- created: the batch is at the provider, by a known id
- ended: the provider works on it no more; what it answered is being read
- collected: every job of it has its outcome, or waits again
- abandoned: it was given up before there was a batch at the provider, and its jobs wait again
"""

BATCH_STATES: tuple[BatchState, ...] = (
    "planned",
    "uploading",
    "uploaded",
    "creating",
    "created",
    "ended",
    "collected",
    "abandoned",
)

SETTLED: frozenset[BatchState] = frozenset({"collected", "abandoned"})
"""States of a batch with which nobody has anything to do any more."""

# What a line of a batch's input is around its job's body:
# {"custom_id":"job-…","method":"POST","url":"/v1/chat/completions","body":…}
LINE_BYTES = 128
"""The most bytes that a line of a batch's input has beside its job's body."""

_CUSTOM_ID = "job-"


def custom_id_of(number: int) -> str:
    """By what a job is known to the provider: nothing that the application chose."""
    return f"{_CUSTOM_ID}{number}"


def number_of(custom_id: str) -> int | None:
    """Whose line that is; None where no queue made it."""
    digits = custom_id.removeprefix(_CUSTOM_ID)
    known = custom_id.startswith(_CUSTOM_ID) and digits.isascii() and digits.isdigit() and len(digits) < 19
    return int(digits) if known and custom_id_of(int(digits)) == custom_id else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of the queue, as it is at the moment of asking."""

    key: str
    """The application's name for it."""
    number: int
    """The queue's own; later jobs have higher ones."""
    endpoint: str
    """The path that it goes to: `/v1/chat/completions`."""
    model: str
    size: int
    """Bytes of its body."""
    state: JobState
    attempts: int
    """How often it was packed or sent."""
    not_before: float
    """It waits until then, if it waits: seconds since the epoch, by the clock of the storage."""
    submitted_at: float
    """Seconds since the epoch."""
    finished_at: float | None = None
    """When it was over: seconds since the epoch."""
    batch: str | None = None
    """The name of its batch, or of the last one that it was in."""
    cancel_asked: bool = False
    """Whether it was cancelled while on its way: if it comes back without an answer it is not sent again."""
    status_code: int | None = None
    """The answer's HTTP status; None without an answer."""
    error: str | None = None
    """Why it failed, or waits again, where no answer says so: a word such as `batch_expired`."""
    input_tokens: int | None = None
    """By the provider's count, of the answer that is kept."""
    output_tokens: int | None = None
    """The same."""
    cached_tokens: int | None = None
    """The same: those of the input that came out of a cache."""

    @property
    def custom_id(self) -> str:
        """By what it is known to the provider."""
        return custom_id_of(self.number)

    @property
    def over(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to add: checked, and as the bytes that are sent."""

    key: str
    endpoint: str
    model: str
    body: bytes = field(repr=False)
    """JSON, one line."""
    digest: bytes = field(repr=False)
    """Of the endpoint and what the body says: by it a job that is submitted again is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBody:
    """What a worker sends."""

    job: Job
    body: bytes = field(repr=False)
    """JSON, one line, no newline in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job that was packed or sent."""

    number: int
    state: Literal["done", "failed", "waiting"]
    """waiting: it has to be sent again (a job that was cancelled meanwhile is cancelled instead)."""
    status_code: int | None = None
    """The HTTP status of its answer; None where there was none."""
    body: bytes = field(default=b"", repr=False)
    """The answer's body, JSON: of a good one or of an error. Kept for what is done or failed."""
    request_id: str | None = None
    """The provider's own."""
    error: str | None = None
    """Where no answer says why: a word such as `batch_expired`. Nothing of a prompt or an answer."""
    not_before_s: float = 0.0
    """Of one that waits: not sent again for so many seconds from now."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is kept of a job that is over."""

    job: Job
    sequence: int
    """Jobs that were over later have higher ones; a job whose sequence is seen is seen after all lower ones."""
    body: bytes = field(default=b"", repr=False)
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A batch: what is recorded of it, and who works on it. A change of it is compared with `(state, owner, turn)`."""

    name: str
    """Unique everywhere: the name of its file, and in the metadata of the batch at the provider."""
    state: BatchState
    origin: str
    """The base URL of the provider that it goes to."""
    endpoint: str
    model: str
    requests: int
    """Jobs in it, when it was packed; less those that were cancelled before its file was written."""
    bytes: int
    """Of its lines, LINE_BYTES for the rest of each included."""
    owner: str
    """The worker whose lease it is under, or was."""
    turn: int
    """How many leases it has been under: higher with every take-over."""
    lease_until: float
    """Seconds since the epoch, by the clock of the storage."""
    planned_at: float
    """The same."""
    changed_at: float
    """When its state changed last: the same."""
    unwanted: int = 0
    """How many of its jobs were cancelled since they were packed."""
    file_id: str | None = None
    """The provider's id of its input file."""
    batch_id: str | None = None
    """The provider's id of the batch."""
    output_file_id: str | None = None
    error_file_id: str | None = None
    provider_state: str | None = None
    """How the provider calls the state of the batch."""
    create_attempted_at: float | None = None
    """When its creation was tried last: seconds since the epoch, by the clock of the storage."""
    provider_done: int = 0
    """How many requests of it the provider has done, by its own word."""
    provider_failed: int = 0
    """How many failed, by its own word."""
    error: str | None = None
    """Why it ended as it did, where that is worth a word: `batch_expired`. Nothing of a prompt or an answer."""

    @property
    def wanted(self) -> int:
        """How many of its jobs nobody has cancelled; with none the batch itself may be cancelled."""
        return self.requests - self.unwanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Jobs that wait, may be packed now, and can go into one batch."""

    endpoint: str
    model: str
    requests: int
    bytes: int
    """Of their bodies alone."""
    oldest_at: float
    """When the first of them was submitted: seconds since the epoch, by the clock of the storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A queue at one moment."""

    jobs: Mapping[JobState, int]
    """How many there are in each state, all states named."""
    batches: tuple[BatchRow, ...]
    """Those that are not settled yet, the oldest first."""
    batches_settled: int
    """How many are collected or abandoned."""
    oldest_waiting_s: float | None
    """How long ago the first of the jobs that wait was submitted; None where none waits."""
    finished_per_s: float | None
    """Jobs that were over in the last hour, by the seconds since the first of them came; None where there was none."""
    expected_end_s: float | None
    """Seconds until all is over, if it goes on like that; None where nothing is known of that, 0 where all is over."""
    input_tokens: int
    """Of the answers that are kept, by the provider's count."""
    output_tokens: int
    """The same."""
    cached_tokens: int
    """The same."""
    failures: Mapping[str, int]
    """Why jobs have failed, and how many for each reason, the most frequent first: `batch_expired`, or `HTTP 400`."""

    @property
    def total(self) -> int:
        """All jobs."""
        return sum(self.jobs.values())

    @property
    def over(self) -> int:
        """Those that are done, failed or cancelled."""
        return sum(count for state, count in self.jobs.items() if state in OVER)
