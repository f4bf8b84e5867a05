"""What every check looks at: a run's records by cell and arm, and the words in which it answers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..findings import CellFindings, Findings
from ..recorded import ArmInfo, Cell, RecordedRun, Sample, Vitals
from ._types import CheckResult, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One run, ready to be looked at cell by cell."""

    recorded: RecordedRun
    findings: Findings | None = None
    _measured: dict[tuple[str, str], tuple[Sample, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found: dict[tuple[str, str], list[Sample]] = {}
        for sample in self.recorded.samples:
            if sample.part == "measured":
                found.setdefault((sample.cell, sample.arm), []).append(sample)
        self._measured.update({key: tuple(samples) for key, samples in found.items()})

    @property
    def arms(self) -> tuple[ArmInfo, ...]:
        """All arms, the references first."""
        return (*self.recorded.header.references, *self.others)

    @property
    def others(self) -> tuple[ArmInfo, ...]:
        """All arms but the references."""
        header = self.recorded.header
        return tuple(arm for arm in header.arms if arm not in header.references)

    def reference(self, arm: ArmInfo) -> ArmInfo:
        """Return the arm that an arm is compared with; a reference is its own."""
        return self.recorded.header.reference_of(arm.name)

    def measured(self, cell: Cell, arm: ArmInfo) -> tuple[Sample, ...]:
        """Return the requests of a cell and arm that count."""
        return self._measured.get((cell.name, arm.name), ())

    def says_why(self, cell: Cell, arm: ArmInfo) -> bool:
        """Whether any answer of an arm says why it ended: where none does, that is how its client or server is."""
        return any(sample.finish_reason is not None for sample in self.measured(cell, arm))

    def answered(self, cell: Cell, arm: ArmInfo) -> tuple[Sample, ...]:
        """Return those that were answered with some output, and to the end."""
        says_why = self.says_why(cell, arm)
        return tuple(
            sample
            for sample in self.measured(cell, arm)
            if sample.error is None and sample.token_ns and not (says_why and cut(sample))
        )

    def vitals(self, cell: Cell, arm: ArmInfo | None) -> tuple[Vitals, ...]:
        """Return the vitals of an arm's processes in a cell, or of those that hand the requests out."""
        name = None if arm is None else arm.name
        return tuple(each for each in self.recorded.vitals if each.cell == cell.name and each.arm == name)

    def of_cell(self, cell: Cell) -> CellFindings | None:
        """Return what a cell shows; None where nobody has looked yet."""
        return next((each for each in self.findings.cells if each.cell == cell.name), None) if self.findings else None

    def time_to_first_token_ms(self, cell: Cell, arm: ArmInfo) -> float | None:
        """Return the middle one of an arm's times to first token: what its client's own delays are measured against."""
        values = [each for sample in self.answered(cell, arm) if (each := sample.time_to_first_token_s) is not None]
        return statistics.median(values) * 1e3 if values else None


Look = Callable[[Sight], Iterable[CheckResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: its name, one line of what it is for, and the function that makes it."""

    name: str
    line: str
    look: Look

    def say(
        self, level: Level, sentence: str, *, cell: Cell | None = None, arm: ArmInfo | None = None, **values: Any
    ) -> CheckResult:
        """Return one answer of this check."""
        return result(self.name, level, sentence, cell=cell, arm=arm, **values)


def result(
    check: str, level: Level, sentence: str, *, cell: Cell | None = None, arm: ArmInfo | None = None, **values: Any
) -> CheckResult:
    """Return one check's answer."""
    return CheckResult(
        check=check,
        level=level,
        sentence=sentence,
        cell=None if cell is None else cell.name,
        arm=None if arm is None else arm.name,
        values=values,
    )


def cut(sample: Sample) -> bool:
    """Whether an answer broke off: it ended without an error, and without saying why it was at its end.

    Servers that are interrupted, or that run out of room, were seen to close such a stream as if it were whole.
    """
    return sample.error is None and sample.finish_reason is None


def percent(share: float) -> str:
    """Return a share as people read it."""
    return f"{share * 100:.3g} %"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed. Raises IndexError for none."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
