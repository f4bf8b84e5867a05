"""A check, what it looks at, and how it is run over a run's cells and arms."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from ..findings import CellFindings, Findings
from ..recorded import ArmInfo, Cell, RecordedRun, Sample, Vitals
from ._types import CheckResult, Level

Look = TypeVar("Look", bound=Callable[..., "Answers"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run's records by cell and arm."""

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
        """Return the measured requests of a cell and arm."""
        return self._measured.get((cell.name, arm.name), ())

    def says_why(self, cell: Cell, arm: ArmInfo) -> bool:
        """Whether any answer of an arm has a finish reason: where none has, its client or server leaves it out."""
        return any(sample.finish_reason is not None for sample in self.measured(cell, arm))

    def answered(self, cell: Cell, arm: ArmInfo) -> tuple[Sample, ...]:
        """Return the requests that were answered with some output, and to the end."""
        says_why = self.says_why(cell, arm)
        return tuple(
            sample
            for sample in self.measured(cell, arm)
            if sample.error is None and sample.token_ns and not (says_why and cut(sample))
        )

    def vitals(self, cell: Cell, arm: ArmInfo | None) -> tuple[Vitals, ...]:
        """Return the vitals of an arm's processes in a cell; of the coordinators for None."""
        name = None if arm is None else arm.name
        return tuple(each for each in self.recorded.vitals if each.cell == cell.name and each.arm == name)

    def of_cell(self, cell: Cell) -> CellFindings | None:
        """Return the findings of a cell; None without findings."""
        return next((each for each in self.findings.cells if each.cell == cell.name), None) if self.findings else None

    def time_to_first_token_ms(self, cell: Cell, arm: ArmInfo) -> float | None:
        """Return the median of an arm's times to first token."""
        values = [each for sample in self.answered(cell, arm) if (each := sample.time_to_first_token_s) is not None]
        return statistics.median(values) * 1e3 if values else None


Answers = CheckResult | Iterable[CheckResult] | None
Scope = Literal["run", "cell", "arm", "compared", "process"]
"""What a check looks at, one after the other; "compared" is each arm but the references, "process" each process."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, what it looks at, and the function that makes it.

    `look` gets the view of the run, and by `scope` the cell, the arm (None for the coordinator) and its vitals.
    """

    name: str
    scope: Scope
    look: Callable[..., Answers]

    def run(self, view: RunView) -> Iterator[CheckResult]:
        """Yield what the check says of a run."""
        for place in self._places(view):
            cell, arm, *_ = (*place, None, None)
            found = self.look(view, *place)
            for each in (found,) if isinstance(found, CheckResult) else found or ():
                yield replace(each, check=self.name, cell=cell.name if cell else None, arm=arm.name if arm else None)

    def _places(self, view: RunView) -> Iterator[tuple[Any, ...]]:
        if self.scope == "run":
            yield ()
            return
        for cell in view.recorded.header.cells:
            if self.scope == "cell":
                yield (cell,)
            elif self.scope == "process":
                yield from ((cell, arm, each) for arm in (None, *view.arms) for each in view.vitals(cell, arm))
            else:
                yield from ((cell, arm) for arm in (view.others if self.scope == "compared" else view.arms))


CHECKS: Final[list[Check]] = []
"""Every check, in the order in which reports show them."""


def looks_for(name: str, scope: Scope = "arm") -> Callable[[Look], Look]:
    """Make a function a check; see `Check`."""

    def register(look: Look) -> Look:
        CHECKS.append(Check(name, scope, look))
        return look

    return register


def answer(level: Level, sentence: str, *, tails: bool = False) -> CheckResult:
    """Return what a check says; the runner adds the check's name, the cell and the arm."""
    return CheckResult(check="", level=level, sentence=sentence, tails=tails)


def of_answers(
    samples: Sequence[Sample], bad: Sequence[Sample], said: str, *, passed: str, refuse_above: float = 1.0
) -> Answers:
    """Return what it is worth that some of the samples are `bad`: flagged, and refused above a share of them."""
    if not samples:
        return None
    if not bad:
        return answer("passed", passed)
    level: Level = "refused" if len(bad) > refuse_above * len(samples) else "flagged"
    return answer(level, f"{len(bad)} of {len(samples)} {said}")


def cut(sample: Sample) -> bool:
    """Whether an answer broke off: it ended without an error and without a finish reason.

    Servers that are interrupted, or that run out of room, were seen to close such a stream as if it were whole.
    """
    return sample.error is None and sample.finish_reason is None
