"""What a check says of a run, a cell or an arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
    values: Mapping[str, Any] = field(default_factory=dict)
    """The figures behind the sentence."""
    tails: bool = False
    """Whether a refusal is of the percentiles above p75 alone: what is late now and then leaves medians as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All checks of a run."""

    results: tuple[CheckResult, ...]

    def refusals(self, cell: str | None = None) -> tuple[CheckResult, ...]:
        """Return why a cell's figures must not be used, those of the whole run included; without a name, of all."""
        return tuple(
            each
            for each in self.results
            if each.level == "refused" and not each.tails and (cell is None or each.cell in (None, cell))
        )

    def tail_refusals(self, cell: str) -> tuple[CheckResult, ...]:
        """Return why a cell's percentiles above p75 must not be used."""
        return tuple(
            each for each in self.results if each.level == "refused" and each.tails and each.cell in (None, cell)
        )

    def valid(self, cell: str) -> bool:
        """Whether a cell's figures may be used."""
        return not self.refusals(cell)
