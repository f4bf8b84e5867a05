"""How a worker works a queue off."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ..engine.settings import settings
from ..errors import ConfigurationError

Lane: TypeAlias = Literal["auto", "batch", "live"]
_Count: TypeAlias = Annotated[int, Field(ge=1)]
_Seconds: TypeAlias = Annotated[float, Field(ge=0)]


@settings
class WorkerSettings:
    """How a worker works a queue off. Raises ConfigurationError."""

    lane: Lane = "auto"
    """"auto": batches where the provider's facts name a batch mode for the endpoint, live calls elsewhere. "batch":
    batches, whatever the facts say. "live": live calls alone."""
    linger_s: _Seconds = 10.0
    """Seconds that jobs wait for others, from when the first of them was submitted, where they do not fill a batch."""
    most_requests: _Count | None = None
    """In one batch; None: what the provider's facts say."""
    most_bytes: _Count | None = None
    """Of one batch's file; None: what the provider's facts say."""
    most_batches: _Count | None = None
    """That this worker has under way at once; None: no bound."""
    max_attempts: _Count = 5
    """How often a job is sent before a failure that may pass is taken for one that does not."""
    retry_s: _Seconds = 30.0
    """Seconds before a job is sent again; twice as long each time, an hour at most."""
    poll_s: Annotated[float, Field(ge=0.01)] = 5.0
    """Seconds until a batch is looked at for the first time; longer from one to the next."""
    longest_poll_s: Annotated[float, Field(ge=0.01)] = 300.0
    """The longest time between two looks at a batch, or two tries of a step that fails."""
    listing_lag_s: _Seconds = 10.0
    """Seconds after which the provider's lists of files and batches show what is there: after a creation of which
    nobody knows whether it was done, this long is waited, its file deleted, before its jobs are packed anew."""
    delete_files: bool = True
    """Whether a batch's files are deleted at the provider once its answers are kept."""
    lease_s: Annotated[float, Field(ge=0.1)] = 60.0
    """Seconds after which another worker goes on with what a worker that is gone had begun."""
    max_concurrency: _Count = 8
    """Live calls at once."""
    patience_s: _Seconds = 600.0
    """Seconds for which the storage may fail (a full disk, a server that is away) before the worker gives up."""

    def __post_init__(self) -> None:
        if self.longest_poll_s < self.poll_s:
            raise ConfigurationError(
                f"WorkerSettings(longest_poll_s=...) takes seconds from poll_s ({self.poll_s:g}), "
                f"got {self.longest_poll_s!r:.60}"
            )

    def retry_after_s(self, attempts: int) -> float:
        """Return the seconds before a job that was sent so often is sent again."""
        return min(3_600.0, self.retry_s * 2.0 ** min(30, max(0, attempts - 1)))
