"""What is going on at a gate: for reports, and for telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastlane._urgency_records import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class GateState:
    """What is going on at a gate."""

    origin: str
    model: str | None
    limit: int
    """Calls at once that the provider is believed to serve, or that the application allows."""
    learning: bool
    """Whether no bound of the provider's was met yet."""
    in_flight: Mapping[Level, int]
    queued: Mapping[Level, int]
    oldest_wait_s: float | None
    """Seconds for which the one that came first has waited; None where nobody waits."""
    refused: int
    """Calls that were not let in, since the beginning."""
