"""How the measuring process itself fared, cell by cell: what says whether its figures can be believed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """One process's own state during one cell."""

    cell: str
    shard: int = 0
    arm: str | None = None
    """None for the process that hands the requests out."""
    duration_s: float
    cpu_s: float
    """CPU time of all the process's threads."""
    loop_lag_p50_ms: float | None = None
    """By how much a thread that sleeps some milliseconds is woken late, or an event loop answers it late."""
    loop_lag_p99_ms: float | None = None

    @property
    def cpu_share(self) -> float:
        """CPU seconds per second: 1.0 is one core."""
        return self.cpu_s / self.duration_s if self.duration_s else 0.0
