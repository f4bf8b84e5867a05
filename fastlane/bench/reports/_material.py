"""What a report is made from, and the questions that every kind of report asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Final

from .._formatting import listed
from ..checks import Checked, CheckResult, without_refused_tails
from ..findings import ArmComparison, CellFindings, Figures, Findings
from ..recorded import ArmInfo, Cell, RecordedRun, RequestMetric, Sample, metric_named
from ._phases import ArmPhases, phases

_MOST_NAMED: Final = 2
"""Checks that the place of a figure names; the section of the checks has all of them."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """One run with what was found in it and what its checks say."""

    recorded: RecordedRun
    findings: Findings
    checked: Checked

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", without_refused_tails(self.findings, self.checked))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell that was begun, by scenario, then by users or rate."""
        begun = {found.cell for found in self.findings.cells}
        scenarios = self.scenarios
        return tuple(
            sorted(
                (cell for cell in self.recorded.header.cells if cell.name in begun),
                key=lambda cell: (scenarios.index(scenario_of(cell)), cell.users or 0, cell.rate or 0.0),
            )
        )

    @cached_property
    def scenarios(self) -> tuple[str, ...]:
        """The workloads or lengths that the cells differ by, from the shortest input to the longest.

        The header has them in the order in which they were run, which was drawn at random.
        """
        inputs: dict[str, list[int]] = {scenario_of(cell): [] for cell in self.recorded.header.cells}
        names = {cell.name: scenario_of(cell) for cell in self.recorded.header.cells}
        for sample in self.recorded.samples:
            length = sample.meant_input_tokens if sample.meant_input_tokens is not None else sample.input_tokens
            if sample.part == "measured" and length is not None and sample.cell in names:
                inputs[names[sample.cell]].append(length)
        means = {name: round(fmean(lengths)) if lengths else 0 for name, lengths in inputs.items()}
        return tuple(sorted(means, key=lambda name: means[name]))

    @property
    def arms(self) -> tuple[ArmInfo, ...]:
        """All arms: each reference, then its copy, then the arms that are compared with it."""
        header = self.recorded.header
        order = {"reference": 0, "again": 1, "arm": 2}
        names = [arm.name for arm in header.references]
        return tuple(
            sorted(header.arms, key=lambda arm: (names.index(header.reference_of(arm.name).name), order[arm.role]))
        )

    @property
    def own_arms(self) -> tuple[ArmInfo, ...]:
        """The arms without the references' copies, whose figures say nothing that the references' do not."""
        return tuple(arm for arm in self.arms if arm.role != "again")

    @property
    def compared_arms(self) -> tuple[ArmInfo, ...]:
        """The arms that are compared with a reference, without the copies."""
        return tuple(arm for arm in self.own_arms if arm not in self.recorded.header.references)

    @property
    def references(self) -> str:
        """The names of the references, as words."""
        return listed([arm.name for arm in self.recorded.header.references])

    @property
    def several_references(self) -> bool:
        """Whether a comparison has to say with which reference it is."""
        return len(self.recorded.header.references) > 1

    def who(self, arm: str) -> str:
        """Return an arm's name, with its reference's where the run has several."""
        return f"{arm} against {self.recorded.header.reference_of(arm).name}" if self.several_references else arm

    @property
    def metrics(self) -> tuple[RequestMetric, ...]:
        """The metrics that the run compares its arms by."""
        return tuple(metric_named(name) for name in self.recorded.header.metrics)

    def found(self, cell: str) -> CellFindings:
        """Return what a cell shows."""
        return next(each for each in self.findings.cells if each.cell == cell)

    def figures(self, cell: str, arm: str, metric: str) -> Figures | None:
        """Return one arm's figures of one metric in one cell; None where they may not be used."""
        return None if self.refused(cell, arm) else self.found(cell).of(arm, metric)

    def comparison(self, cell: str, arm: str, metric: str) -> ArmComparison | None:
        """Return one arm's comparison; None where it may not be used."""
        return None if self.refused(cell, arm) else self.found(cell).comparison(arm, metric)

    def refused(self, cell: str, arm: str | None = None) -> str | None:
        """Return "invalid: why" for a cell, or one arm in it, whose figures must not be used."""
        return _invalid(self.checked.refusals(cell, arm))

    def refused_attribution(self, cell: str) -> str | None:
        """Return "invalid: why" for a cell in which an arm that an attribution is made of must not be used."""
        return next((why for arm in self.own_arms if (why := self.refused(cell, arm.name))), None)

    def refused_run(self) -> str | None:
        """Return "invalid: why" where no figure of the whole run may be used."""
        return _invalid(tuple(each for each in self.checked.refusals() if each.cell is None))

    def refused_all(self, cells: Sequence[Cell] | None = None) -> str | None:
        """Return "invalid: why" where none of the cells may be used: there is nothing to draw or to say of them."""
        shown = self.cells if cells is None else cells
        if not shown or not all(self.refused(cell.name) for cell in shown):
            return None
        return _invalid(tuple(refusal for cell in shown for refusal in self.checked.refusals(cell.name)))

    @property
    def valid_cells(self) -> tuple[Cell, ...]:
        """The cells whose figures may be used."""
        return tuple(cell for cell in self.cells if not self.refused(cell.name))

    @property
    def several_cells(self) -> bool:
        """Whether a row has to say of which cell it is."""
        return len(self.cells) > 1

    @property
    def naming(self) -> tuple[str, ...]:
        """The columns that say of which cell and arm a row is."""
        return ("cell", "arm") if self.several_cells else ("arm",)

    def names(self, cell: Cell, arm: ArmInfo) -> tuple[str, ...]:
        """What stands in these columns."""
        return (cell.name, arm.name) if self.several_cells else (arm.name,)

    def phases(self, cell: str) -> tuple[ArmPhases, ...]:
        """Return where the time of each arm's requests went in a cell."""
        return self._phases.get(cell, ())

    @cached_property
    def _phases(self) -> Mapping[str, tuple[ArmPhases, ...]]:
        kept = tuple(each for each in self.recorded.samples if not self.refused(each.cell, each.arm))
        return phases(replace(self.recorded, samples=kept))

    @cached_property
    def samples(self) -> Mapping[tuple[str, str], Sequence[Sample]]:
        """The samples that count and may be used, by cell and arm."""
        grouped: dict[tuple[str, str], list[Sample]] = {}
        for sample in self.recorded.samples:
            if sample.part == "measured" and not self.refused(sample.cell, sample.arm):
                grouped.setdefault((sample.cell, sample.arm), []).append(sample)
        return grouped


def scenario_of(cell: Cell) -> str:
    """Return what a cell's load was made of: its scenario, or else its workload."""
    return cell.scenario or cell.workload


def _invalid(refusals: tuple[CheckResult, ...]) -> str | None:
    names = list(dict.fromkeys(each.check for each in refusals))
    if not names:
        return None
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"invalid: {', '.join(names[:_MOST_NAMED])}{more}"
