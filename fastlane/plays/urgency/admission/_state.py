"""What is going on at a gate: for reports, and for telemetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastlane.records.urgency import LEVELS, Level

from ._core import Core


@dataclass(frozen=True, slots=True, kw_only=True)
class GateState:
    """What is going on at a gate."""

    origin: str
    model: str | None
    limit: int | None
    """Calls at once that the provider was found to serve, or that the application allows; None: no limit is known."""
    in_flight: Mapping[Level, int]
    queued: Mapping[Level, int]
    oldest_wait_s: float | None
    """Seconds for which the one that came first has waited; None where nobody waits."""
    refused: int
    """Calls that were not let in, since the beginning."""


def state_of(origin: str, model: str | None, core: Core, now_ns: int) -> GateState:
    """What is going on behind a gate, whose lock the caller has."""
    oldest_ns = core.oldest_ns()
    return GateState(
        origin=origin,
        model=model,
        limit=core.limit.places,
        in_flight=dict(zip(LEVELS, core.in_flight, strict=True)),
        queued=dict(zip(LEVELS, core.queued, strict=True)),
        oldest_wait_s=None if oldest_ns is None else (now_ns - oldest_ns) / 1e9,
        refused=core.refused,
    )
