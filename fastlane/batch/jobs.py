"""What is in a queue: jobs, the batches that they are packed into, and their outcomes. Times are epoch seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

JobState: TypeAlias = Literal["waiting", "packed", "done", "failed", "cancelled"]
"""The state of a job.

- waiting: until it is packed, not before its time
- packed: in a batch that is under way, or a live call
- done: its answer is stored
- failed: for good; `retry_failed()` lets it wait again
- cancelled: it is not sent any more
"""
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
OVER: frozenset[JobState] = frozenset({"done", "failed", "cancelled"})
"""Final states."""

BatchState: TypeAlias = Literal[
    "planned", "uploading", "uploaded", "creating", "created", "ended", "running", "collected", "abandoned"
]
"""How far a batch is. Each state is recorded before the step that it names.

- planned: its jobs are chosen; nothing has been sent
- uploading: its file may be on its way
- uploaded: its file is at the provider, by a known id
- creating: the request that creates the batch may be on its way
- created: the batch is at the provider, by a known id
- ended: the provider has finished it; its answers are being read
- running: its jobs are sent as live calls
- collected: every job of it has its outcome, or waits again
- abandoned: it was given up, and its jobs wait again
"""
SETTLED: frozenset[BatchState] = frozenset({"collected", "abandoned"})
"""Final states."""

LINE_BYTES = 128
"""The most bytes of a line of a batch's input beside the job's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of the queue, as it was when it was read."""

    key: str
    """The application's name for it."""
    number: int
    """The queue's own; later jobs have higher ones."""
    endpoint: str
    """Such as `/v1/chat/completions`."""
    model: str
    size: int
    """Bytes of its body."""
    state: JobState
    attempts: int
    """How often it was packed or sent."""
    not_before: float
    """It waits until then."""
    submitted_at: float
    finished_at: float | None = None
    batch: str | None = None
    """The name of its batch, or of its last one."""
    cancel_asked: bool = False
    """Whether it was cancelled while under way: then it is not sent again."""
    status_code: int | None = None
    """The response's HTTP status; None without an answer."""
    error: str | None = None
    """Why it failed, or waits again, where no answer says so: a code such as `batch_expired`."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def custom_id(self) -> str:
        """Its id at the provider, which reveals nothing of the key."""
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
    """Of endpoint and body: it identifies a job that is submitted again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What became of a job that was packed or sent."""

    number: int
    state: Literal["done", "failed", "waiting"]
    """waiting: it has to be sent again. A job that was cancelled meanwhile is cancelled instead."""
    status_code: int | None = None
    body: bytes = field(default=b"", repr=False)
    """The response's body, of a job that is done or failed."""
    request_id: str | None = None
    error: str | None = None
    """A code where no answer says why. Holds nothing of a prompt or an answer."""
    not_before_s: float = 0.0
    """Of a job that waits: the pause before it is sent again."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A batch and its lease. Every change of it is compared with `(state, owner, turn)`."""

    name: str
    """Globally unique: the name of its file, and in the batch's metadata at the provider."""
    state: BatchState
    origin: str
    """The base URL of its provider."""
    endpoint: str
    model: str
    requests: int
    """Jobs that were packed, and from its upload on, lines of its file."""
    bytes: int
    """Size of its file; before its upload, with LINE_BYTES for each job beside its body."""
    owner: str
    """The worker that holds the lease, or did."""
    turn: int
    """Counts its leases: higher with every take-over."""
    lease_until: float
    planned_at: float
    changed_at: float
    """When its state changed last."""
    file_id: str | None = None
    batch_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    provider_state: str | None = None
    """The provider's name for its state."""
    provider_done: int = 0
    """Completed requests, by the provider's count."""
    provider_failed: int = 0
    error: str | None = None
    """Why it ended, such as `batch_expired`. Holds nothing of a prompt or an answer."""


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Waiting jobs that may be packed now, into one batch."""

    endpoint: str
    model: str
    requests: int
    bytes: int
    """Of their bodies alone."""
    oldest_at: float
    """When the first of them was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A queue at one moment."""

    jobs: Mapping[JobState, int]
    """How many there are in each state."""
    batches: tuple[BatchRow, ...]
    """Those that are not settled, the oldest first."""
    workers: int
    """How many work on the queue now, in any process."""
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    failures: Mapping[str, int]
    """How many jobs have failed for each reason, the most frequent first: `batch_expired`, or `HTTP 400`."""

    @property
    def total(self) -> int:
        """All jobs."""
        return sum(self.jobs.values())

    @property
    def over(self) -> int:
        """Those that are done, failed or cancelled."""
        return sum(count for state, count in self.jobs.items() if state in OVER)
