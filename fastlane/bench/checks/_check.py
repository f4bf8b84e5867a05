"""What checks say of a run, what they look at, and what is withheld because of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from ..findings import ArmComparison, CellFindings, Figures, Findings
from ..recorded import ArmInfo, Cell, RecordedRun, Sample, errors_of, metric_named

if TYPE_CHECKING:
    from ...emulator import RequestLog

Level = Literal["passed", "flagged", "refused", "not checked"]
"""Sound; worth knowing; the figures must not be used; or nothing to check it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check's outcome."""

    check: str
    """Name of the check, such as "client saturated: lag"."""
    level: Level
    sentence: str
    cell: str | None = None
    arm: str | None = None
    tails: bool = False
    """Whether a refusal is of the percentiles above p75 alone: what is late now and then leaves medians as they are."""

    @property
    def where(self) -> str:
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
        found = [each for each in self._refused(tails=False) if cell is None or each.cell in (None, cell)]
        if cell is None:
            return tuple(found)
        if arm is not None:
            about = {arm, self.references.get(arm, arm)}
        else:
            references = set(self.references.values())
            about = references if references <= {each.arm for each in found} else set()
        return tuple(each for each in found if each.arm is None or each.arm in about)

    def tail_refusals(self, cell: str, *arms: str) -> tuple[CheckResult, ...]:
        """Return why percentiles above p75 of any of these arms must not be used in a cell."""
        refused = self._refused(tails=True)
        return tuple(each for each in refused if each.cell in (None, cell) and each.arm in (None, *arms))

    def _refused(self, *, tails: bool) -> list[CheckResult]:
        return [each for each in self.results if each.level == "refused" and each.tails == tails]


# What checks look at

LAG_MS: Final = 2.0
EFFECT_SHARE: Final = 0.1
"""A p99 of lags may be 2 ms, or a tenth of the smallest effect that is claimed if that is less."""


class CellView:
    def __init__(self, recorded: RecordedRun, cell: Cell, findings: Findings | None = None) -> None:
        self.recorded, self.cell = recorded, cell
        found = findings.cells if findings is not None else ()
        self.findings: CellFindings | None = next((each for each in found if each.cell == cell.name), None)
        header = recorded.header
        self.references = tuple(ArmView(self, arm) for arm in header.references)
        self.compared = tuple(ArmView(self, arm) for arm in header.arms if arm not in header.references)
        self.arms = (*self.references, *self.compared)

        # The process that hands requests out comes first.
        names = [None, *(arm.name for arm in self.arms)]
        own = [each for each in recorded.vitals if each.cell == cell.name and each.arm in names]
        self.vitals = sorted(own, key=lambda each: names.index(each.arm))

    @cached_property
    def lag_limit_ms(self) -> float:
        """What a p99 of lags may be: 2 ms, or a tenth of the smallest effect on a time that the findings claim.

        An effect on the gaps between tokens counts as often as the reference's answers have gaps.
        """
        claimed = [LAG_MS / EFFECT_SHARE]
        for each in self.findings.comparisons if self.findings else ():
            figures = self.findings.of(each.reference, each.metric) if self.findings else None
            is_claim = not each.copy and each.verdict.kind in ("better", "worse")
            if not is_claim or each.typical is None or figures is None or figures.mean is None:
                continue
            if metric_named(each.metric).unit == "ms":
                reference = next(arm for arm in self.references if arm.name == each.reference)
                gaps = {
                    "time_per_output_token": reference.output_tokens,
                    "inter_token_latency": [len(sample.token_ns) for sample in reference.answered],
                }.get(each.metric, ())
                times = statistics.median([max(1, count - 1) for count in gaps] or [1])
                claimed.append(abs(each.typical.value - 1) * figures.mean * times)
        return EFFECT_SHARE * min(claimed)


class ArmView:
    def __init__(self, cell: CellView, arm: ArmInfo) -> None:
        self.of, self.arm, self.name, self.cell = cell, arm, arm.name, cell.cell

    @property
    def reference(self) -> ArmView:
        name = self.of.recorded.header.reference_of(self.name).name
        return next(each for each in self.of.references if each.name == name)

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        return self.of.recorded.measured(self.cell.name, self.name)

    @cached_property
    def answered(self) -> tuple[Sample, ...]:
        """The requests that were answered with some output, and to the end."""
        failed = errors_of(self.samples)
        return tuple(sample for sample in self.samples if sample.token_ns and sample.key not in failed)

    @property
    def output_tokens(self) -> list[int]:
        return list(map(output_tokens, self.answered))

    @cached_property
    def time_to_first_token_ms(self) -> float | None:
        values = [each for sample in self.answered if (each := sample.time_to_first_token_s) is not None]
        return statistics.median(values) * 1e3 if values else None

    @cached_property
    def logged(self) -> list[tuple[Sample, RequestLog]] | None:
        """The answered requests, each with the last entry of the provider's log; None without a log."""
        log = self.of.recorded.log
        if log is None:
            return None
        entries = {entry.tag: entry for entry in log}
        return [(sample, entries[sample.tag]) for sample in self.answered if sample.tag in entries]


def output_tokens(sample: Sample) -> int:
    """Return tokens by usage; else by a finish reason that says that the limit was reached; else the chunks."""
    if sample.output_tokens is not None:
        return sample.output_tokens
    # A token that is a part of a character comes in no chunk of its own.
    reached = sample.asked_output_tokens if sample.finish_reason == "length" else None
    return max(reached or 0, len(sample.token_ns))


# The table of checks


class Outcome(NamedTuple):
    level: Level
    sentence: str
    tails: bool = False


Outcomes = Outcome | Iterable[Outcome] | None
Scope = Literal["run", "cell", "arm", "compared", "process"]
"""What a check looks at, one after the other: a RecordedRun, a CellView, an ArmView, that of an arm that is no
reference, or a CellView with a process's arm (None for the one that hands requests out) and Vitals."""
Look = TypeVar("Look", bound=Callable[..., Outcomes])


class Check(NamedTuple):
    """One check: its name, what it looks at, and the function that makes it."""

    name: str
    scope: Scope
    look: Callable[..., Outcomes]


CHECKS: Final[list[Check]] = []
"""Every check, in the order in which reports show them."""


def looks_for(name: str, scope: Scope = "arm") -> Callable[[Look], Look]:
    def register(look: Look) -> Look:
        CHECKS.append(Check(name, scope, look))
        return look

    return register


def results_of(recorded: RecordedRun, cells: Sequence[CellView]) -> Iterator[CheckResult]:
    for check, scope, look in CHECKS:
        for cell, arm, *looked_at in _subjects(scope, recorded, cells):
            found = look(*looked_at)
            for level, sentence, tails in (found,) if isinstance(found, Outcome) else found or ():
                yield CheckResult(check=check, level=level, sentence=sentence, cell=cell, arm=arm, tails=tails)


def _subjects(scope: Scope, recorded: RecordedRun, cells: Sequence[CellView]) -> Iterator[tuple[Any, ...]]:
    """Yield the cell and the arm of each result, and what the check looks at for it."""
    if scope == "run":
        yield None, None, recorded
    for view in cells if scope != "run" else ():
        name, arms = view.cell.name, view.compared if scope == "compared" else view.arms
        if scope == "cell":
            yield name, None, view
        elif scope == "process":
            yield from ((name, each.arm, view, each.arm, each) for each in view.vitals)
        else:
            yield from ((name, each.name, each) for each in arms)


def of_share(
    samples: Sequence[Sample], bad: Callable[[Sample], Any], said: str, *, passed: str, refuse_above: float = 1.0
) -> Outcome | None:
    """Return what it is worth that some of the samples are `bad`: flagged, and refused above a share of them."""
    count = sum(map(bool, map(bad, samples)))
    if not count:
        return Outcome("passed", passed) if samples else None
    level: Level = "refused" if count > refuse_above * len(samples) else "flagged"
    return Outcome(level, f"{count} of {len(samples)} {said}")


# Tails

TAIL: Final = 0.75
"""Percentiles above are tails."""


def without_refused_tails(findings: Findings, checked: Checked) -> Findings:
    """Return the findings without the percentiles, and the changes of them, that the checks refuse."""

    def figures(each: Figures) -> Figures:
        for refusal in checked.tail_refusals(each.cell, each.arm):
            kept = {
                # One that no n of this run would have bounded is missing for another reason.
                share: replace(one, value=None, low=None, high=None, withheld=refusal.check)
                if share > TAIL and one.value is not None
                else one
                for share, one in each.quantiles.items()
            }
            # The same few late ones make a mean, a deviation and a maximum.
            return replace(each, quantiles=kept, mean=None, deviation=None, maximum=None)
        return each

    def comparison(each: ArmComparison) -> ArmComparison:
        if not checked.tail_refusals(each.cell, each.arm, each.reference):
            return each
        return replace(each, quantiles={share: one for share, one in each.quantiles.items() if share <= TAIL})

    cells = tuple(
        replace(cell, figures=tuple(map(figures, cell.figures)), comparisons=tuple(map(comparison, cell.comparisons)))
        for cell in findings.cells
    )
    return replace(findings, cells=cells)
