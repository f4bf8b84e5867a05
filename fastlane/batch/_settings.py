"""How a worker works a queue off."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from typing import Literal, TypeAlias, get_args

from ..errors import ConfigurationError

Lane: TypeAlias = Literal["auto", "batch", "live"]
"""Which way jobs take: the provider's batch mode where its facts name one, else live calls; always; never."""

_AT_LEAST: dict[str, float] = {
    "linger_s": 0.0,
    "lease_s": 0.1,
    "poll_s": 0.01,
    "longest_poll_s": 0.01,
    "retry_s": 0.0,
    "listing_lag_s": 0.0,
    "patience_s": 0.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker works a queue off. Checked when made: raises ConfigurationError."""

    lane: Lane = "auto"
    """"auto": batches where the provider's facts name a batch mode for the endpoint, live calls elsewhere. "batch":
    batches, whatever the facts say. "live": live calls alone."""
    linger_s: float = 10.0
    """Seconds that jobs wait for others, from when the first of them was submitted, where they do not fill a batch."""
    most_requests: int | None = None
    """In one batch; None: what the provider's facts say."""
    most_bytes: int | None = None
    """Of one batch's file; None: what the provider's facts say."""
    most_batches: int | None = None
    """That this worker has under way at once; None: no bound."""
    max_attempts: int = 5
    """How often a job is sent before a failure that may pass is taken for one that does not."""
    retry_s: float = 30.0
    """Seconds before a job is sent again; twice as long each time, an hour at most."""
    poll_s: float = 5.0
    """Seconds between the first questions after a batch; longer from one to the next."""
    longest_poll_s: float = 300.0
    """The longest time between two questions after a batch, or two tries of a step that fails."""
    listing_lag_s: float = 10.0
    """Seconds after which the provider's lists of files and batches show what is there: after a creation of which
    nobody knows whether it was done, this long is waited, its file deleted, before its jobs are packed anew."""
    delete_files: bool = True
    """Whether a batch's files are deleted at the provider once its answers are kept."""
    lease_s: float = 60.0
    """Seconds after which another worker goes on with what a worker that is gone had begun."""
    max_concurrency: int = 8
    """Live calls at once."""
    patience_s: float = 600.0
    """Seconds for which the storage may fail (a full disk, a server that is away) before the worker gives up."""

    def __post_init__(self) -> None:
        if self.lane not in get_args(Lane):
            raise ConfigurationError(f'lane takes "auto", "batch" or "live", got {self.lane!r:.60}')
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < least:
                raise ConfigurationError(f"{name} takes a number of seconds, {least:g} or more, got {value!r:.60}")
        for field in fields(self):
            if field.name.startswith(("most_", "max_")):
                self._check_count(field.name, may_be_none=field.name.startswith("most_"))
        if not isinstance(self.delete_files, bool):
            raise ConfigurationError(f"delete_files takes True or False, got {self.delete_files!r:.60}")
        if self.longest_poll_s < self.poll_s:
            raise ConfigurationError(
                f"longest_poll_s takes a number of seconds that is not below poll_s ({self.poll_s:g}), "
                f"got {self.longest_poll_s!r:.60}"
            )

    def _check_count(self, name: str, *, may_be_none: bool) -> None:
        value = getattr(self, name)
        if value is None and may_be_none:
            return
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            none = " or None" if may_be_none else ""
            raise ConfigurationError(f"{name} takes a whole number from 1 on{none}, got {value!r:.60}")

    def retry_after_s(self, attempts: int) -> float:
        """Seconds before a job that was sent so often is sent again."""
        return min(3_600.0, self.retry_s * 2.0 ** min(30, max(0, attempts - 1)))
