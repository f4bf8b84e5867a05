"""The errors of the offline queue."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from ..errors import ConfigurationError, FastlaneError


class QueueError(FastlaneError):
    """The base of what the queue itself raises."""


class StorageError(QueueError):
    """The queue's storage cannot do what was asked: a full disk, a file that may not be written, a server that is away.

    What was durable before is still there. Doing it again is safe, also where it was done before the connection broke.
    """


class QueueNotFoundError(QueueError, ConfigurationError):
    """There is no queue under this name: only submitting a job makes one."""

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the error for a queue of this name."""
        return cls(
            f"there is no queue {name}: check the name, or submit a job, which makes one (`fastlane batch submit`, or "
            f"`Queue.submit`)"
        )


class LeaseLostError(QueueError):
    """Another worker has taken a batch over, or it is further than was thought: nothing was written."""


class JobConflictError(QueueError, ValueError):
    """A job of this key is in the queue already, with another body or for another endpoint."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), key=self.key), (str(self),)


class UnknownJobError(QueueError, LookupError):
    """No job of this key is in the queue."""


class JobNotFinishedError(QueueError):
    """A job waits or is under way: there is no result of it yet."""


class JobCancelledError(QueueError):
    """A job was cancelled: there is no result of it."""


class JobFailedError(QueueError):
    """A job failed for good without an answer of the provider; `code` says why: `batch_expired`, for instance."""

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), code=self.code), (str(self),)


class QueueWaitTimeoutError(QueueError, TimeoutError):
    """Not all of the jobs that were waited for were over in time. They go on."""


class WorkerDeniedError(QueueError):
    """The provider refuses the worker's key: the jobs wait, and what was under way goes on at the provider."""

    def __init__(self, status: int) -> None:
        super().__init__(
            f"the provider refuses this key, or has no batches for it: it answers {status}. Nothing is lost: put the "
            'key right, or, if it is batches that are refused, take live calls (lane="live"; at the command line '
            "--lane live), and run the worker again"
        )
        self.status = status

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return type(self), (self.status,)
