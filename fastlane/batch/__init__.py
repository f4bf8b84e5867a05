"""The offline queue: durable calls, which a worker hands to the provider's batch mode."""

from .errors import (
    JobCancelledError as JobCancelledError,
    JobConflictError as JobConflictError,
    JobFailedError as JobFailedError,
    JobNotFinishedError as JobNotFinishedError,
    LeaseLostError as LeaseLostError,
    QueueError as QueueError,
    QueueNotFoundError as QueueNotFoundError,
    QueueWaitTimeoutError as QueueWaitTimeoutError,
    StorageError as StorageError,
    UnknownJobError as UnknownJobError,
    WorkerDeniedError as WorkerDeniedError,
)
from .jobs import (
    BatchRow as BatchRow,
    BatchState as BatchState,
    Job as Job,
    JobState as JobState,
    Status as Status,
)
from .queue import Finished as Finished, Queue as Queue
from .settings import WorkerSettings as WorkerSettings

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
    "LeaseLostError",
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
