"""A whole run as it was recorded: its header, every request, the processes' vitals and the provider's log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._header import Header
from ._sample import Sample
from ._vitals import Vitals

if TYPE_CHECKING:
    from ...emulator import RequestLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run. Every report is made from this alone, whether it has just been recorded or read from a folder."""

    header: Header
    samples: tuple[Sample, ...]
    vitals: tuple[Vitals, ...] = ()
    log: tuple[RequestLog, ...] | None = None
    """The provider's own account; None for a real provider, which gives none."""
    unlogged: tuple[str, ...] = ()
    """Tags of requests whose account was lost with a session that was killed before it could be kept."""
    duration_s: float = 0.0
    """From the first block's start to the last one's end, of each cell, added up."""
    ended: str = "finished"
    """Why it ended: "finished", "interrupted", "precision reached", or the budget that was spent."""

    def openers(self, samples: Iterable[Sample]) -> tuple[Sample, ...] | None:
        """Return those of the samples whose request opened a connection; None where it is not known of every sample.

        By the provider's log, or else by the clients' own records. Of requests that waited for one opening together
        the first counts.
        """
        if self.log is not None:
            first = {entry.tag for entry in self.log if entry.connection_request_number == 1}
            return tuple(sample for sample in samples if sample.tag in first)
        found: list[Sample] = []
        openings: set[tuple[str | None, int | None]] = set()
        for sample in samples:
            attempts = [] if sample.call is None else sample.call["attempts"]
            if not attempts or any(attempt.get("connection_reused") is None for attempt in attempts):
                return None
            # A port may be used again later, so that the connection's name is not enough.
            own = {
                (attempt["connection_id"], attempt["wire"]["connect_started_ns"])
                for attempt in attempts
                if not attempt["connection_reused"]
            }
            if own - openings:
                found.append(sample)
            openings |= own
        return tuple(found)

    def measured(self, cell: str | None = None, arm: str | None = None) -> tuple[Sample, ...]:
        """Return the samples that count, of one cell or arm or of all."""
        return tuple(
            sample
            for sample in self.samples
            if sample.part == "measured" and cell in (None, sample.cell) and arm in (None, sample.arm)
        )
