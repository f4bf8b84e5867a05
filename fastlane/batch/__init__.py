"""The offline queue: durable calls, which a worker hands to the provider's batch mode."""

from .answers import Finished
from .errors import (
    JobCancelledError,
    JobConflictError,
    JobFailedError,
    JobNotFinishedError,
    QueueError,
    QueueNotFoundError,
    QueueWaitTimeoutError,
    StorageError,
    UnknownJobError,
    WorkerDeniedError,
)
from .jobs import BatchRow, BatchState, Job, JobState, Status
from .queue import Queue
from .settings import WorkerSettings

__all__ = [
    "BatchRow",
    "BatchState",
    "Finished",
    "Job",
    "JobCancelledError",
    "JobConflictError",
    "JobFailedError",
    "JobNotFinishedError",
    "JobState",
    "Queue",
    "QueueError",
    "QueueNotFoundError",
    "QueueWaitTimeoutError",
    "Status",
    "StorageError",
    "UnknownJobError",
    "WorkerDeniedError",
    "WorkerSettings",
]
