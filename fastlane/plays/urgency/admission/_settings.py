"""What an application may say about the places of its calls."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastlane.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """How calls get their places among those that are sent at once. Raises ConfigurationError."""

    max_concurrency: int | None = None
    """The most calls at once; None: no limit until the provider refuses calls."""
    reserved: float = 0.2
    """The largest share of the places that is kept free for interactive calls: how much of it is, follows their rate.
    At least one place where there are two or more; 0: none."""
    ageing_s: float = 30.0
    """After each such time in the queue, in seconds, a call counts as one level more urgent if its level is being
    passed over; never before an interactive one of its age."""
    max_queued: int = 10_000
    """The most calls that wait at once, counting for each call those that are as urgent as it or more so."""
    pacing: bool = True
    """Whether the provider's rate limits are kept to."""
    requests_per_minute: float | None = None
    """Where the application knows its limit; None: learned from answers."""
    tokens_per_minute: float | None = None
    """Input and output together; None: learned from answers."""

    def __post_init__(self) -> None:
        self._whole("max_concurrency", self.max_concurrency, "None to learn it")
        if self.max_queued is None:
            raise ConfigurationError("max_queued takes a whole number of at least 1, got None: say how many may wait")
        self._whole("max_queued", self.max_queued, "say how many may wait")
        if not _is_number(self.reserved) or not 0 <= self.reserved < 1:
            raise ConfigurationError(
                f"reserved takes a share from 0 to below 1, got {self.reserved!r:.80}: 0.2 keeps up to a fifth of the "
                "places for interactive calls"
            )
        if not _is_number(self.ageing_s) or not self.ageing_s > 0:
            raise ConfigurationError(f"ageing_s takes seconds above 0, got {self.ageing_s!r:.80}: 30 is the default")
        if not isinstance(self.pacing, bool):
            raise ConfigurationError(f"pacing takes True or False, got {self.pacing!r:.80}")
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value) or not value > 0):
                raise ConfigurationError(f"{name} takes a number above 0, or None to learn it, got {value!r:.80}")

    @staticmethod
    def _whole(name: str, value: object, advice: str) -> None:
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ConfigurationError(f"{name} takes a whole number of at least 1, got {value!r:.80}: {advice}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
