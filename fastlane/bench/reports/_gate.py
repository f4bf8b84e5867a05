"""Rules about a run's figures: targets that it meets or misses, and what makes it fail in a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fastlane.errors import ConfigurationError

from .._formatting import change_with_interval, interval, percent, with_unit
from ..checks import Checked
from ..findings import Figures, Findings, Interval
from ..recorded import Cell, RecordedRun, metric_named
from ._blocks import Column, ReportTable, TableCell, TableRow, Tone
from ._cells import NOTHING, label
from ._material import Material, scenario_of
from ._rules import Rule

Status = Literal["met", "missed", "not shown", "met by the figure alone", "missed by the figure alone", "not available"]
_STATUSES: Final = (
    '"met" and "missed" hold for the whole 95 % interval; "not shown": the interval holds the target itself; '
    '"by the figure alone": of this figure there is no interval; "not available": not at this n.'
)
_TONES: Final[dict[str, Tone]] = {"met": "good", "missed": "bad", "missed by the figure alone": "bad"}
Result = Literal["passed", "failed", "invalid", "not available"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """What became of one rule, for one arm in one cell."""

    rule: Rule
    cell: str
    arm: str
    result: Result
    sentence: str


def judge(recorded: RecordedRun, findings: Findings, checked: Checked, rules: Sequence[Rule]) -> tuple[RuleResult, ...]:
    """Judge a run by rules that must not come true; see `parse_fail_if`.

    A rule fails only where the whole 95 % interval says so: an interval that holds the bound is no proof of a
    regression. A change is judged for every arm but the references and their copies, a figure for every arm but the
    copies. Raises ConfigurationError for a rule about a scenario that the run does not have, and for a change where
    there is no arm to compare.
    """
    material = Material(recorded=recorded, findings=findings, checked=checked)
    found = []
    for rule in rules:
        arms = material.compared_arms if rule.relative else material.own_arms
        if not arms:
            raise ConfigurationError(
                f"rule {rule.text!r} is about a change, and the run has no arm beside its reference: compare two arms"
            )
        for cell in cells_in(material, rule):
            found += [_judged(material, rule, cell, arm.name) for arm in arms]
    return tuple(found)


def fails(judgements: Sequence[RuleResult]) -> bool:
    """Whether a pipeline must stop: a rule came true, or could not be judged because its cell is invalid."""
    return any(each.result in ("failed", "invalid") for each in judgements)


def _judged(material: Material, rule: Rule, cell: Cell, arm: str) -> RuleResult:
    def judgement(result: Result, sentence: str) -> RuleResult:
        return RuleResult(rule=rule, cell=cell.name, arm=arm, result=result, sentence=sentence)

    refused = material.refused(cell.name, arm)
    if refused:
        return judgement("invalid", refused)
    found = (
        _change(material, rule, cell.name, arm)
        if rule.relative
        else figure_of(rule, material.figures(cell.name, arm, rule.metric))
    )
    if found is None:
        return judgement("not available", "there is no such figure at this n")
    against = f" against {material.recorded.header.reference_of(arm).name}" if material.several_references else ""
    written = _written(found, rule) + (against if rule.relative else "")
    status = status_of(rule, found)
    if rule.relative and found.low is None:
        return judgement("not available", f"{written}: too few pairs for an interval")
    if status in ("met", "met by the figure alone"):
        sure = "" if found.low is None else "the whole interval is "
        return judgement("failed", f"{written}: {sure}beyond {rule.text.rsplit(rule.operator, 1)[-1].strip()}")
    if status == "not shown" and rule.holds(found.value):
        return judgement("passed", f"{written}: not shown, for the interval holds the bound")
    return judgement("passed", written)


def _change(material: Material, rule: Rule, cell: str, arm: str) -> Interval | None:
    comparison = material.comparison(cell, arm, rule.metric)
    if comparison is None:
        return None
    return comparison.typical if rule.share is None else comparison.quantiles.get(rule.share)


def _written(found: Interval, rule: Rule) -> str:
    if rule.relative:
        return change_with_interval(found)
    if rule.statistic == "cv":
        return percent(found.value)
    unit = metric_named(rule.metric).unit
    return with_unit(found.value, unit) if found.low is None else f"{interval(found, unit)} {unit}"


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
        return quantile.interval if quantile else None
    values = {
        "mean": figures.mean,
        "min": figures.minimum,
        "max": figures.maximum,
        "deviation": figures.deviation,
        "cv": figures.variation,
    }
    value = values.get(rule.statistic)
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
    """Return the targets with what was measured. Raises ConfigurationError for an unknown scenario."""
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
        rows=tuple(_target_rows(material, rules)),
        notes=(_STATUSES,),
    )


def _target_rows(material: Material, rules: Sequence[Rule]) -> Iterator[TableRow]:
    for rule in rules:
        for cell in cells_in(material, rule):
            for arm in material.own_arms:
                names = (label(rule.text), label(cell.name), label(arm.name))
                if refused := material.refused(cell.name, arm.name):
                    yield TableRow(entries=names, refused=refused)
                    continue
                found = figure_of(rule, material.figures(cell.name, arm.name, rule.metric))
                status = status_of(rule, found)
                measured = NOTHING
                if found is not None:
                    text = _written(found, rule)
                    measured = TableCell(text=text, value=found.value, low=found.low, high=found.high)
                yield TableRow(
                    entries=(*names, measured, TableCell(text=status, value=status, tone=_TONES.get(status, "plain")))
                )


def junit(recorded: RecordedRun, checked: Checked, judgements: Sequence[RuleResult] = ()) -> str:
    """Return rules and checks as a JUnit XML document: a failed rule is a failure, a refusal an error."""
    suites = Element("testsuites", name=f"fastlane bench: {recorded.header.name}")
    rules = SubElement(suites, "testsuite", name="rules", tests=str(len(judgements)))
    for each in judgements:
        name = f"{each.rule.text} ({each.arm})"
        case = SubElement(rules, "testcase", classname=f"rules.{each.cell}", name=name)
        kinds = {"failed": "failure", "invalid": "error", "not available": "skipped"}
        if each.result in kinds:
            SubElement(case, kinds[each.result], message=each.sentence)
        else:
            SubElement(case, "system-out").text = each.sentence
    checks = SubElement(suites, "testsuite", name="checks", tests=str(len(checked.results)))
    for result in checked.results:
        where = ", ".join(each for each in (result.cell or "run", result.arm) if each)
        case = SubElement(checks, "testcase", classname=f"checks.{where}", name=result.check)
        if result.level == "refused":
            SubElement(case, "error", message=result.sentence)
        elif result.level == "not checked":
            SubElement(case, "skipped", message=result.sentence)
        else:
            SubElement(case, "system-out").text = result.sentence
    for suite in (rules, checks):
        for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(plural, str(len(suite.findall(f"testcase/{kind}"))))
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
