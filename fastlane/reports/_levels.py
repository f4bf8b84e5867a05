"""Calls by how urgent they were: how soon their answers came, and how long they waited for a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..records.urgency import LEVELS, Level
from ._groups import answered
from ._percentiles import Percentiles, percentiles

if TYPE_CHECKING:
    from ..engine.call import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Urgent:
    """Calls of one level of urgency. Percentiles, in seconds, are of those that were answered."""

    level: Level
    calls: int
    """However they ended."""
    answered: int
    came_s: Percentiles | None
    """From issue to the first token, the wait for a place included; of an answer without one, until it was over."""
    waited_s: Percentiles | None
    """In fastlane's own queue, all attempts together; None where no limit was kept to."""

    def to_dict(self) -> dict[str, Any]:
        """The level as plain JSON data."""
        return {
            "level": self.level,
            "calls": self.calls,
            "answered": self.answered,
            "came_s": None if self.came_s is None else self.came_s.to_dict(),
            "waited_s": None if self.waited_s is None else self.waited_s.to_dict(),
        }


def by_level(records: Sequence[CallRecord]) -> tuple[Urgent, ...]:
    """The levels that records say, the most urgent first."""
    found: dict[Level, list[CallRecord]] = {}
    for record in records:
        if record.urgency is not None:
            found.setdefault(record.urgency.urgency, []).append(record)
    return tuple(_urgent(level, found[level]) for level in LEVELS if level in found)


def _urgent(level: Level, records: Sequence[CallRecord]) -> Urgent:
    kept = [record for record in records if answered(record)]
    admissions = [record.urgency.admission for record in kept if record.urgency is not None]
    return Urgent(
        level=level,
        calls=len(records),
        answered=len(kept),
        came_s=percentiles([_came_s(record) for record in kept]),
        waited_s=percentiles([admission.waited_s for admission in admissions if admission is not None]),
    )


def _came_s(record: CallRecord) -> float:
    first_s = record.time_to_first_token_s
    return record.duration_s if first_s is None else first_s
