"""What a check says of a run, a cell or an arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["passed", "flagged", "refused", "not checked"]
"""Sound; worth knowing; the cell's figures must not be used; or nothing to check it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check's outcome."""

    check: str
    """Name of the check, such as "client saturated"."""
    level: Level
    sentence: str
    """What was seen, what was expected, and what to do about it."""
    cell: str | None = None
    """None for the whole run."""
    arm: str | None = None
    """None for all arms."""
    tails: bool = False
    """Whether a refusal is of the percentiles above p75 alone: what is late now and then leaves medians as they are."""

    @property
    def where(self) -> str:
        """The cell and the arm that it is about."""
        return ", ".join(filter(None, (self.cell, self.arm))) or "whole run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All checks of a run."""

    results: tuple[CheckResult, ...]
    references: Mapping[str, str] = field(default_factory=dict)
    """By an arm's name that of the arm that it is compared with; a reference's is its own."""

    def refusals(self, cell: str | None = None, arm: str | None = None) -> tuple[CheckResult, ...]:
        """Return why figures must not be used: all of a cell's, or one arm's in it; without a cell, all refusals.

        A refusal of one arm voids the figures of that arm and of those that are compared with it. Refusals of all
        references void the cell.
        """
        found = [each for each in self.results if each.level == "refused" and not each.tails]
        if cell is None:
            return tuple(found)
        found = [each for each in found if each.cell in (None, cell)]
        references = set(self.references.values())
        if arm is not None:
            about = {arm, self.references.get(arm, arm)}
        else:
            about = references if references <= {each.arm for each in found} else set()
        return tuple(each for each in found if each.arm is None or each.arm in about)

    def tail_refusals(self, cell: str, *arms: str) -> tuple[CheckResult, ...]:
        """Return why percentiles above p75 of any of these arms must not be used in a cell."""
        return tuple(
            each
            for each in self.results
            if each.level == "refused" and each.tails and each.cell in (None, cell) and each.arm in (None, *arms)
        )

    def valid(self, cell: str, arm: str | None = None) -> bool:
        """Whether figures of a cell may be used; with an arm, whether that arm's may."""
        return not self.refusals(cell, arm)
