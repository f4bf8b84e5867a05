"""What is in a queue: jobs, the batches that they are packed into, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

JobState: TypeAlias = Literal["waiting", "packed", "running", "done", "failed", "cancelled"]
"""The state of a job.

- waiting: to be packed into a batch, or to be sent by itself, not before its time
- packed: in a batch that is under way
- running: sent by itself, where the provider has no batch mode
- done: its answer is kept
- failed: for good; `retry_failed()` lets it wait again
- cancelled: it is not sent any more
"""
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
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
- ended: the provider works on it no more; its answers are being read
- collected: every job of it has its outcome, or waits again
- abandoned: it was given up, and its jobs wait again
"""
BATCH_STATES: tuple[BatchState, ...] = get_args(BatchState)
SETTLED: frozenset[BatchState] = frozenset({"collected", "abandoned"})
"""States that a batch never leaves."""

LINE_BYTES = 128
"""The most bytes that a line of a batch's input has beside its job's body."""


def number_of(custom_id: str) -> int | None:
    """Return the number of the job that the provider knows by this id; None where no queue made it."""
    digits = custom_id.removeprefix("job-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        return None
    return int(digits) if custom_id == f"job-{int(digits)}" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of the queue, as it was when it was looked at. Times are seconds since the epoch."""

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
    """It waits until then, if it waits."""
    submitted_at: float
    finished_at: float | None = None
    batch: str | None = None
    """The name of its batch, or of the last one that it was in."""
    cancel_asked: bool = False
    """Whether it was cancelled while under way: if it comes back without an answer it is not sent again."""
    status_code: int | None = None
    """The answer's HTTP status; None without an answer."""
    error: str | None = None
    """Why it failed, or waits again, where no answer says so: a word such as `batch_expired`."""
    input_tokens: int | None = None
    """By the provider's count, of the answer that is kept."""
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def custom_id(self) -> str:
        """The id by which the provider knows it: nothing that the application chose."""
        return f"job-{self.number}"

    @property
    def over(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to add."""

    key: str
    endpoint: str
    model: str
    body: bytes = field(repr=False)
    """JSON, one line."""
    digest: bytes = field(repr=False)
    """Of the endpoint and what the body says: by it a job that is submitted again is known."""


@dataclass(frozen=True, slots=True)
class JobBody:
    """What a worker sends."""

    job: Job
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What became of a job that was packed or sent."""

    number: int
    state: Literal["done", "failed", "waiting"]
    """waiting: it has to be sent again (a job that was cancelled meanwhile is cancelled instead)."""
    status_code: int | None = None
    body: bytes = field(default=b"", repr=False)
    """The answer's body, JSON: of a good one or of an error. Kept of what is done or failed."""
    request_id: str | None = None
    error: str | None = None
    """Where no answer says why: a word such as `batch_expired`. Nothing of a prompt or an answer."""
    not_before_s: float = 0.0
    """Of one that waits: not sent again for so many seconds from now."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """What is kept of a job that is over."""

    job: Job
    sequence: int
    """Jobs that were over later have higher ones, and none is seen before those that are lower."""
    body: bytes = field(default=b"", repr=False)
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A batch, and which worker it belongs to. Every change of it is compared with `(state, owner, turn)`."""

    name: str
    """Unique everywhere: the name of its file, and in the metadata of the batch at the provider."""
    state: BatchState
    origin: str
    """The base URL of the provider that it goes to."""
    endpoint: str
    model: str
    requests: int
    """Jobs in it when it was packed, less those that were cancelled before its file was written."""
    bytes: int
    """Of its lines, each with LINE_BYTES beside its body."""
    owner: str
    """The worker that leases it, or did."""
    turn: int
    """How many leases it has been under: higher with every take-over."""
    lease_until: float
    planned_at: float
    changed_at: float
    """When its state changed last."""
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
    provider_done: int = 0
    """Requests of it that are done, by the provider's word."""
    provider_failed: int = 0
    error: str | None = None
    """Why it ended as it did: `batch_expired`. Nothing of a prompt or an answer."""

    @property
    def wanted(self) -> int:
        """How many of its jobs are not cancelled; without any the batch itself may be cancelled."""
        return self.requests - self.unwanted


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Waiting jobs that may be packed now, and can go into one batch."""

    endpoint: str
    model: str
    requests: int
    bytes: int
    """Of their bodies alone."""
    oldest_at: float
    """When the first of them was submitted: seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A queue at one moment."""

    jobs: Mapping[JobState, int]
    """How many there are in each state, all states named."""
    batches: tuple[BatchRow, ...]
    """Those that are not settled yet, the oldest first."""
    batches_settled: int
    """How many are collected or abandoned."""
    workers: int
    """How many work on the queue now, in any process."""
    oldest_waiting_s: float | None
    """How long ago the first of the waiting jobs was submitted; None without any."""
    finished_per_s: float | None
    """Jobs that were over in the last hour, by the seconds since the first of them came; None without any."""
    expected_end_s: float | None
    """Seconds until all is over, if it goes on like that; None where that is not known, 0 where all is over."""
    input_tokens: int
    """Of the answers that are kept, by the provider's count."""
    output_tokens: int
    cached_tokens: int
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
