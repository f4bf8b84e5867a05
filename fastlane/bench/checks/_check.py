"""A check, what it says and looks at, and what is withheld because of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from ..findings import CellFindings, Figures, Findings, Quantile
from ..recorded import ArmInfo, Cell, RecordedRun, Sample, Vitals, errors_of

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


Look = TypeVar("Look", bound=Callable[..., "Answers"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run's records by cell and arm."""

    recorded: RecordedRun
    findings: Findings | None = None

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
        return self.recorded.measured(cell.name, arm.name)

    def answered(self, cell: Cell, arm: ArmInfo) -> tuple[Sample, ...]:
        """Return the requests that were answered with some output, and to the end."""
        samples = self.measured(cell, arm)
        failed = errors_of(samples)
        return tuple(sample for sample in samples if sample.token_ns and sample.key not in failed)

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


TAIL: Final = 0.75
"""Percentiles above are tails."""


def without_refused_tails(findings: Findings, checked: Checked) -> Findings:
    """Return the findings without the percentiles, and the changes of them, that the checks refuse."""
    cells = tuple(_cell(cell, checked) for cell in findings.cells)
    return findings if cells == findings.cells else replace(findings, cells=cells)


def _cell(found: CellFindings, checked: Checked) -> CellFindings:
    return replace(
        found,
        figures=tuple(_figures(each, checked.tail_refusals(found.cell, each.arm)) for each in found.figures),
        comparisons=tuple(
            replace(each, quantiles={share: ratio for share, ratio in each.quantiles.items() if share <= TAIL})
            if checked.tail_refusals(found.cell, each.arm, each.reference)
            else each
            for each in found.comparisons
        ),
    )


def _figures(figures: Figures, refusals: Sequence[CheckResult]) -> Figures:
    if not refusals:
        return figures
    why = refusals[0].check
    kept = {share: _withheld(each, why) if share > TAIL else each for share, each in figures.quantiles.items()}
    # A mean, a deviation and a maximum are made by the same few that came late.
    return replace(figures, quantiles=kept, mean=None, deviation=None, maximum=None)


def _withheld(quantile: Quantile, why: str) -> Quantile:
    # One that no n of this run would have bounded is not there for another reason.
    return replace(quantile, value=None, low=None, high=None, withheld=why) if quantile.value is not None else quantile
