"""Calls by the groups that a section puts them in: how soon their answers came, and how long they waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..records.section import section_classes
from ._groups import answered
from ._percentiles import Percentiles, percentiles

if TYPE_CHECKING:
    from ..records.record import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionGroup:
    """Calls of one group, such as a level of urgency. Percentiles, in seconds, are of those that were answered."""

    level: str
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


def by_level(records: Sequence[CallRecord]) -> dict[str, tuple[SectionGroup, ...]]:
    """The groups of each section that has any, by the name of the section, in the section's own order."""
    found: dict[str, tuple[SectionGroup, ...]] = {}
    for kind in section_classes():
        if not kind.groups:
            continue
        of: dict[str | None, list[CallRecord]] = {}
        for record in records:
            section = record.get(kind)
            if section is not None:
                of.setdefault(section.group, []).append(record)
        found[kind.name] = tuple([_level(group, of[group]) for group in kind.groups if group in of])
    return found


def _level(group: str, records: Sequence[CallRecord]) -> SectionGroup:
    kept = [record for record in records if answered(record)]
    return SectionGroup(
        level=group,
        calls=len(records),
        answered=len(kept),
        came_s=percentiles([_came_s(record) for record in kept]),
        waited_s=percentiles([waited_s for record in kept if (waited_s := record.queued_s) is not None]),
    )


def _came_s(record: CallRecord) -> float:
    first_s = record.time_to_first_token_s
    return record.duration_s if first_s is None else first_s
