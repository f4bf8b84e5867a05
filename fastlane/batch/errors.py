"""The errors of the offline queue."""

from __future__ import annotations

from ..errors import ConfigurationError, FastlaneError


class QueueError(FastlaneError):
    """The base of the queue's own errors."""


class StorageError(QueueError):
    """The storage failed: a full disk, a file that may not be written, a server that is unreachable.

    What was durable before is still there. It is safe to repeat the operation.
    """


class QueueNotFoundError(QueueError, ConfigurationError):
    """There is no queue of this name: only submitting a job makes one."""


class LeaseLostError(QueueError):
    """Another worker has taken a batch over, or advanced it: nothing was written."""


class JobConflictError(QueueError, ValueError):
    """A job of this key is in the queue already, with another body or for another endpoint."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class UnknownJobError(QueueError, LookupError):
    """No job of this key is in the queue."""


class JobNotFinishedError(QueueError):
    """A job has no result yet: it waits or is under way."""


class JobCancelledError(QueueError):
    """A job has no result: it was cancelled."""


class JobFailedError(QueueError):
    """A job failed for good without an answer of the provider. `code` says why, such as `batch_expired`."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class QueueWaitTimeoutError(QueueError, TimeoutError):
    """Not all of the jobs that were waited for were over in time. They go on."""


class WorkerDeniedError(QueueError):
    """The provider refuses the worker's key: the jobs wait, and what was under way goes on at the provider."""

    def __init__(self, status: int) -> None:
        super().__init__(
            f"the provider refuses this key, or has no batches for it: it returned status {status}. Nothing is lost: "
            'correct the key, or, if it is batches that are refused, use live calls (WorkerSettings(lane="live"); on '
            "the command line --lane live), and run the worker again"
        )
        self.status = status
