"""Rules about a run's figures: "ttft_p50 > +5%" is what must not happen in a pipeline."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fastlane.errors import ConfigurationError

from .. import _formatting as words
from ..checks import Checked
from ..findings import Findings, Interval
from ..recorded import METRICS, Cell, RecordedRun, metric_named
from ._material import Material
from ._tables import Entry, ReportTable, Section, Tone

Result = Literal["passed", "failed", "invalid", "not available"]

_CHANGED: Final = ("p50", "p90", "p95", "p99")
"""The percentiles of which two arms' ratio is known."""
STATISTICS: Final = ("mean", "min", "max", "deviation", "cv", "p25", "p75", *_CHANGED)
"""Of a figure; "typical" is only of a change."""
SHORT_NAMES: Final = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "api_end_to_end",
    "throughput": "output_throughput",
    "bytes": "request_bytes",
}
_COMPARE: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_RULE: Final = re.compile(
    r"\s*(?P<what>\w+)\s*(?:@\s*(?P<scope>.+?))?\s*(?P<operator><=|>=|<|>)\s*"
    r"(?P<number>[+-]?(?:\d[\d,]*\.?\d*|\.\d+))\s*(?P<unit>%|ms|s|tokens/s|bytes|US\$)?\s*"
)
_HOW: Final = (
    'expected METRIC_STATISTIC < VALUE or METRIC_STATISTIC > VALUE, such as "ttft_p50 > +5%"; metrics: '
    f"{', '.join([*SHORT_NAMES, *METRICS])}; statistics: {', '.join(STATISTICS)}"
)
_TONES: Final[dict[Result, Tone]] = {"passed": "good", "failed": "bad", "invalid": "bad", "not available": "muted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A bound for one figure, or for one change against the reference; it says what must not be."""

    text: str
    metric: str
    statistic: str
    operator: str
    value: float
    """In the metric's unit; a share for a relative rule (0.05 is +5 %) and for a "cv"."""
    relative: bool = False
    scope: str | None = None

    @property
    def share(self) -> float | None:
        return int(self.statistic[1:]) / 100 if re.fullmatch(r"p\d\d", self.statistic) else None

    def holds(self, value: float) -> bool:
        """Whether the rule's sentence is true of a figure, or of a ratio where it bounds a change."""
        return bool(_COMPARE[self.operator](value - self.relative, self.value))

    def covers(self, cell: Cell) -> bool:
        """Whether it is about a cell. A part of the cell's name will do: "short" of "cpu-small, short, 1 user"."""
        return self.scope in (None, cell.name, cell.workload, *cell.name.split(", "))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    rule: Rule
    cell: str
    arm: str
    result: Result
    sentence: str


def parse_fail_if(text: str) -> Rule:
    """Read what must not happen, such as "ttft_p50 > +5%" (a change against the reference) or "e2e_p95 > 900 ms".

    Without a statistic a change is the typical change, and a figure its p50. Raises ConfigurationError.
    """
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"cannot read the rule {text!r}: {_HOW}")
    what, unit = found["what"], found["unit"]
    statistic = next((each for each in STATISTICS if what.endswith(f"_{each}")), None)
    name = what.removesuffix(f"_{statistic}") if statistic else what
    metric = METRICS.get(SHORT_NAMES.get(name, name))
    if metric is None:
        raise ConfigurationError(f"rule {text!r} names no figure that is known ({what!r}): {_HOW}")
    value = float(found["number"].replace(",", ""))
    relative = unit == "%" and statistic != "cv"
    if not math.isfinite(value):
        raise ConfigurationError(f"rule {text!r}: the value must be a finite number")
    if statistic == "cv" and unit != "%":
        raise ConfigurationError(f"rule {text!r}: a cv is a share, so give it in per cent, such as ttft_cv > 20%")
    if relative and statistic not in (None, *_CHANGED):
        said = f"the change of a {statistic} is not known with an interval"
        raise ConfigurationError(f"rule {text!r}: {said}; use the metric alone, or one of {', '.join(_CHANGED)}")
    factors = {None: 1.0, metric.unit: 1.0, "%": 0.01} | ({"s": 1e3} if metric.unit == "ms" else {})
    if unit not in factors:
        also = " or s" if metric.unit == "ms" else ""
        said = f"{words.lowered(metric.title)} is in {metric.unit}{also}, not in {unit}"
        raise ConfigurationError(f"rule {text!r}: {said}")
    return Rule(
        text=text.strip(),
        metric=metric.name,
        statistic=statistic or ("typical" if relative else "p50"),
        operator=found["operator"],
        value=value * factors[unit],
        relative=relative,
        scope=found["scope"],
    )


def judge(recorded: RecordedRun, findings: Findings, checked: Checked, rules: Sequence[Rule]) -> tuple[RuleResult, ...]:
    """Judge a run by rules that must not come true; see `parse_fail_if`.

    A rule fails only where the whole 95 % interval says so. A change is judged for every arm but the references and
    their copies, a figure for every arm but the copies. Raises ConfigurationError for a rule that fits no cell or arm.
    """
    material = Material(recorded=recorded, findings=findings, checked=checked)
    found = []
    for rule in rules:
        arms = material.compared_arms if rule.relative else material.own_arms
        if not arms:
            raise ConfigurationError(f"rule {rule.text!r} is about a change, and there is no arm beside its reference")
        if not any(map(rule.covers, recorded.header.cells)):
            names = " | ".join(cell.name for cell in recorded.header.cells)
            raise ConfigurationError(f"rule {rule.text!r} is about {rule.scope!r}, and there is no such cell: {names}")
        for cell in filter(rule.covers, material.cells):
            for arm in arms:
                result, sentence = _judged(material, rule, cell.name, arm.name)
                found.append(RuleResult(rule=rule, cell=cell.name, arm=arm.name, result=result, sentence=sentence))
    return tuple(found)


def fails(results: Sequence[RuleResult]) -> bool:
    """Whether a pipeline must stop: a rule came true, or could not be judged because its cell is invalid."""
    return any(each.result in ("failed", "invalid") for each in results)


def rules_section(results: Sequence[RuleResult]) -> Section:
    rows = []
    for each in results:
        names = map(Entry, (each.rule.text, each.cell, each.arm))
        rows.append((*names, Entry(each.result, _TONES[each.result]), Entry(each.sentence)))
    columns = ("rule", "cell", "arm", "result", "seen")
    return Section(
        title="Rules", parts=(ReportTable(title="What must not be", columns=columns, rows=tuple(rows), names=5),)
    )


def _judged(material: Material, rule: Rule, cell: str, arm: str) -> tuple[Result, str]:
    if refused := material.refused(cell, arm):
        return "invalid", refused
    found = _figure(material, rule, cell, arm)
    if found is None:
        return "not available", "there is no such figure at this n"
    bounded = found.low is not None and found.high is not None
    if rule.relative:
        seen = words.change_with_interval(found)
        if len(material.references) > 1:
            seen += f" against {material.reference_of(arm)}"
        if not bounded:
            return "not available", f"{seen}: too few pairs for an interval"
    elif rule.statistic == "cv":
        seen = words.percent(found.value)
    else:
        unit = metric_named(rule.metric).unit
        seen = f"{words.interval(found, unit)} {unit}" if bounded else words.with_unit(found.value, unit)
    bounds = [bound for bound in (found.low, found.high) if bound is not None] if bounded else [found.value]
    if all(map(rule.holds, bounds)):
        sure = "the whole interval is " if bounded else ""
        return "failed", f"{seen}: {sure}beyond {rule.text.rsplit(rule.operator, 1)[-1].strip()}"
    return "passed", f"{seen}: not shown, for the interval holds the bound" if rule.holds(found.value) else seen


def _figure(material: Material, rule: Rule, cell: str, arm: str) -> Interval | None:
    """Return what a rule bounds: a change, a percentile, or a figure without an interval."""
    if rule.relative:
        change = material.comparison(cell, arm, rule.metric)
        if change is None:
            return None
        return change.typical if rule.share is None else change.quantiles.get(rule.share)
    figures = material.figures(cell, arm, rule.metric)
    if figures is None:
        return None
    if rule.share is not None:
        return figures.quantiles[rule.share].interval
    names = {"min": "minimum", "max": "maximum", "cv": "variation"}
    value = getattr(figures, names.get(rule.statistic, rule.statistic))
    return None if value is None else Interval(value=value)


def junit(recorded: RecordedRun, checked: Checked, results: Sequence[RuleResult] = ()) -> str:
    """Return rules and checks as a JUnit XML document: a failed rule is a failure, a refusal an error."""
    suites = Element("testsuites", name=f"fastlane bench: {recorded.header.name}")
    rules = [(f"rules.{each.cell}", f"{each.rule.text} ({each.arm})", each.result, each.sentence) for each in results]
    checks = [(f"checks.{each.where}", each.check, each.level, each.sentence) for each in checked.results]
    kinds = {
        "failed": "failure", "invalid": "error", "not available": "skipped", "refused": "error",
        "not checked": "skipped",
    }  # fmt: skip
    for suite_name, cases in (("rules", rules), ("checks", checks)):
        suite = SubElement(suites, "testsuite", name=suite_name, tests=str(len(cases)))
        for classname, name, result, sentence in cases:
            case = SubElement(suite, "testcase", classname=classname, name=name)
            if result in kinds:
                SubElement(case, kinds[result], message=sentence)
            else:
                SubElement(case, "system-out").text = sentence
        for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(plural, str(len(suite.findall(f"testcase/{kind}"))))
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
