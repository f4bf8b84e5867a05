"""Targets that a user gave, beside what was measured: met, missed, or not shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fastlane.errors import ConfigurationError

from ..findings import Figures, Interval
from ..recorded import Cell, metric_named
from ._blocks import Column, ReportTable, TableCell, TableRow, Tone
from ._material import Material, scenario_of
from ._rules import Rule
from ._words import NOTHING, interval, label, percent, with_unit

Status = Literal["met", "missed", "not shown", "met by the figure alone", "missed by the figure alone", "not available"]
_STATUSES: Final = (
    '"met" and "missed" hold for the whole 95 % interval; "not shown": the interval holds the target itself; '
    '"by the figure alone": of this figure there is no interval; "not available": not at this n.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one rule in one cell, for one arm."""

    rule: Rule
    cell: str
    arm: str
    figure: Interval | None
    """None where there is none at this n."""
    status: Status


def outcomes(material: Material, rules: Sequence[Rule]) -> tuple[Outcome, ...]:
    """Return what became of each target in every cell that may be used.

    Raises ConfigurationError for a target whose scenario the run does not have.
    """
    return tuple(
        Outcome(rule=rule, cell=cell.name, arm=arm.name, figure=found, status=status_of(rule, found))
        for rule in rules
        for cell in cells_in(material, rule)
        for arm in material.own_arms
        if not material.refused(cell.name, arm.name)
        for found in (figure_of(rule, material.figures(cell.name, arm.name, rule.metric)),)
    )


def cells_in(material: Material, rule: Rule) -> tuple[Cell, ...]:
    """Return the cells that a rule is about. Raises ConfigurationError where there are none."""
    if not any(_about(rule, cell) for cell in material.recorded.header.cells):
        names = " | ".join(cell.name for cell in material.recorded.header.cells)
        raise ConfigurationError(f"rule {rule.text!r} is about {rule.scope!r}, and the run has no such cell: {names}")
    return tuple(cell for cell in material.cells if _about(rule, cell))


def _about(rule: Rule, cell: Cell) -> bool:
    # A part of a cell's name will do: "short" of "cpu-small, short, 1 user".
    known = (cell.name, scenario_of(cell), cell.workload, *cell.name.split(", "))
    return rule.scope is None or rule.scope in known


def figure_of(rule: Rule, figures: Figures | None) -> Interval | None:
    """Return the figure that a rule bounds, with its interval where it has one."""
    if figures is None:
        return None
    if rule.share is not None:
        quantile = figures.quantiles.get(rule.share)
        if quantile is None or quantile.value is None:
            return None
        return Interval(value=quantile.value, low=quantile.low, high=quantile.high)
    if rule.statistic == "cv":
        value = figures.deviation / figures.mean if figures.mean and figures.deviation is not None else None
    else:
        value = {
            "mean": figures.mean,
            "min": figures.minimum,
            "max": figures.maximum,
            "deviation": figures.deviation,
        }.get(rule.statistic)
    return None if value is None else Interval(value=value)


def status_of(rule: Rule, found: Interval | None) -> Status:
    """Return whether a figure keeps a target: only a whole interval on one side of it says so for sure."""
    if found is None:
        return "not available"
    if found.low is None or found.high is None:
        return "met by the figure alone" if rule.holds(found.value) else "missed by the figure alone"
    kept = [rule.holds(bound) for bound in (found.low, found.high)]
    if all(kept):
        return "met"
    return "not shown" if any(kept) or rule.holds(found.value) else "missed"


def targets_table(material: Material, rules: Sequence[Rule]) -> ReportTable:
    """Return the targets with what was measured. Raises ConfigurationError for a scenario that the run has not."""
    return ReportTable(
        title="Targets",
        name="targets",
        columns=(
            Column(title="target", alignment="left"),
            Column(title="cell", alignment="left"),
            Column(title="arm", alignment="left"),
            Column(title="measured"),
            Column(title="status", alignment="left"),
        ),
        rows=tuple(_rows(material, rules)),
        notes=(_STATUSES,),
    )


def _rows(material: Material, rules: Sequence[Rule]) -> Iterator[TableRow]:
    found = {(each.rule.text, each.cell, each.arm): each for each in outcomes(material, rules)}
    tones: dict[str, Tone] = {"met": "good", "missed": "bad", "missed by the figure alone": "bad"}
    for rule in rules:
        unit = metric_named(rule.metric).unit
        for cell in cells_in(material, rule):
            for arm in material.own_arms:
                names = (label(rule.text), label(cell.name), label(arm.name))
                refused = material.refused(cell.name, arm.name)
                if refused:
                    yield TableRow(entries=names, refused=refused)
                    continue
                outcome = found[rule.text, cell.name, arm.name]
                measured = NOTHING
                if outcome.figure is not None:
                    figure = outcome.figure
                    text = percent(figure.value) if rule.statistic == "cv" else _written(figure, unit)
                    measured = TableCell(text=text, value=figure.value, low=figure.low, high=figure.high)
                status = TableCell(text=outcome.status, value=outcome.status, tone=tones.get(outcome.status, "plain"))
                yield TableRow(entries=(*names, measured, status))


def _written(figure: Interval, unit: str) -> str:
    if figure.low is None or figure.high is None:
        return with_unit(figure.value, unit)
    return f"{interval(figure, unit)} {unit}"
