"""Settings of a worker."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ..engine.settings import settings

_Count: TypeAlias = Annotated[int, Field(ge=1)]
_Seconds: TypeAlias = Annotated[float, Field(ge=0)]


@settings
class WorkerSettings:
    """How a worker processes a queue. Raises ConfigurationError."""

    lane: Literal["auto", "batch", "live"] = "auto"
    """"auto": batches where the provider's facts name a batch mode for the endpoint, live calls elsewhere. "batch":
    batches, whatever the facts say. "live": live calls alone."""
    linger_s: _Seconds = 10.0
    """How long jobs wait for others, from the first submission, where they do not fill a batch."""
    most_requests: _Count | None = None
    """In one batch; None: what the provider's facts say."""
    most_bytes: _Count | None = None
    """Of one batch's file; None: what the provider's facts say."""
    max_attempts: _Count = 5
    """How often a job is sent before a transient failure becomes final."""
    retry_s: _Seconds = 30.0
    """The pause before a job is sent again; doubled each time, an hour at most."""
    poll_s: Annotated[float, Field(ge=0.01)] = 5.0
    """The first interval between two polls of a batch, or two tries of a step that fails. It grows to 60 times that."""
    listing_lag_s: _Seconds = 10.0
    """How long the provider's lists may lag behind. After a creation whose result is unknown, its file is deleted and
    the worker waits so long before it packs the jobs anew."""
    lease_s: Annotated[float, Field(ge=0.1)] = 60.0
    """After so many seconds, another worker continues what a dead worker had begun."""
    max_concurrency: _Count = 8
    """Live calls at once."""

    def retry_after_s(self, attempts: int) -> float:
        """Return the pause before a job that was sent so often is sent again, in seconds."""
        return min(3_600.0, self.retry_s * 2.0 ** min(30, max(0, attempts - 1)))
