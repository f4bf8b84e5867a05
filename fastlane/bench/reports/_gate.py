"""What makes a run fail in a pipeline: rules that must not come true, and the document that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fastlane.errors import ConfigurationError

from ..checks import Checked
from ..findings import Findings, Interval
from ..recorded import Cell, RecordedRun, metric_named
from ._material import Material
from ._rules import Rule
from ._targets import cells_in, figure_of
from ._words import change_with_interval, interval

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
    found = _change(material, rule, cell.name, arm) if rule.relative else None
    if not rule.relative:
        found = figure_of(rule, material.figures(cell.name, arm, rule.metric))
    if found is None:
        return judgement("not available", "there is no such figure at this n")
    shown = Interval(value=found.value, low=found.low, high=found.high)
    against = f" against {material.recorded.header.reference_of(arm).name}" if material.several_references else ""
    written = _written(shown, rule) + (against if rule.relative else "")
    bounds = [found.value] if found.low is None or found.high is None else [found.low, found.high]
    kept = [rule.holds(bound - 1 if rule.relative else bound) for bound in bounds]
    if found.low is None and rule.relative:
        return judgement("not available", f"{written}: too few pairs for an interval")
    if all(kept):
        beyond = f"beyond {rule.text.rsplit(rule.operator, 1)[-1].strip()}"
        sure = beyond if found.low is None else f"the whole interval is {beyond}"
        return judgement("failed", f"{written}: {sure}")
    if rule.holds(found.value - 1 if rule.relative else found.value):
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
        return f"{found.value * 100:.3g} %"
    unit = metric_named(rule.metric).unit
    return f"{interval(found, unit)} {unit}"


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
