"""What the record of a call says of the provider's rate limits: how long it waited, and whether it was refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .section import RecordSection


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitsRecord(RecordSection):
    """How a call was kept to the provider's rate limits."""

    name: ClassVar[str] = "rate_limits"

    waited_s: float
    """Seconds for which it was held back, all attempts together."""
    waited_for: str | None
    """The limit that its last attempt waited for, as the provider's facts name it; "stated" for the application's own,
    "retry-after" for a pause that the provider asked for, "refusals" for a rate learned from them; None: it did not
    wait."""
    ahead: int
    """Calls that were to be sent before its last attempt when that came."""
    refused: int
    """Attempts that the provider refused all the same, with status 429."""
