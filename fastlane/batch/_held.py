"""A batch under a worker's lease: what the worker knows of it beside its record, and when it is looked at next."""

from __future__ import annotations

from dataclasses import dataclass

from ._jobs import BatchRow
from ._settings import WorkerSettings


class DeniedError(Exception):
    """The provider refuses the key: nothing goes on before somebody has put that right."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the provider answers {status}")
        self.status = status


@dataclass(slots=True)
class Held:
    """A batch under this worker's lease, and what is known of it beside its record."""

    row: BatchRow
    due: float = 0.0
    """When it is looked at next: seconds, by the worker's own clock."""
    failures: int = 0
    """How often in a row its step has failed, or the provider was asked in vain."""
    not_created: bool = False
    """In `creating`: whether the provider is known to have made no batch."""
    is_own: bool = False
    """In `uploading`: whether it was this worker that recorded that, and has not tried yet."""
    uploads: int = 0
    """How often this worker has begun to upload its file."""
    deleted_at: float | None = None
    """In `creating`: when its input file was deleted: seconds, by the worker's own clock."""
    cancelled: bool = False
    """Whether the provider was asked to end it."""
    unreadable: int = 0
    """How often its answers were not there, or could not be read, although it has ended."""
    too_much: bool = False
    """Whether the provider refused it for its size, or for all that waits there."""

    @property
    def may_be_twice(self) -> bool:
        """Whether its file may have been uploaded more than once."""
        return self.uploads > 1 or self.row.turn > 1


@dataclass(frozen=True, slots=True)
class Next:
    """What comes after a step."""

    wait_s: float = 0.0
    over: bool = False


def patience(settings: WorkerSettings, failures: int) -> float:
    """Seconds until a batch is looked at again: longer from time to time, and spread by chance."""
    from random import uniform

    longest = min(settings.longest_poll_s, settings.poll_s * 1.5 ** min(40, max(0, failures - 1)))
    return uniform(0.75, 1.0) * longest
