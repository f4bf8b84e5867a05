"""Findings and checks made by hand beside a recorded run: simple statistics, and verdicts that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, stdev
from typing import Any

from fastlane.bench.checks import Checked, CheckResult
from fastlane.bench.findings import (
    ArmComparison,
    CellFindings,
    Cold,
    ComparisonVerdict,
    Figures,
    Findings,
    Interval,
    Quantile,
)
from fastlane.bench.recorded import METRICS, Cell, RecordedRun, Sample
from tests.bench.recorded_runs import a_run

WANTED = {0.25: 13, 0.5: 6, 0.75: 13, 0.9: 36, 0.95: 72, 0.99: 368}


def findings_of(recorded: RecordedRun, kind: Any = "better", sentence: str = "faster by 20 % [17, 23]") -> Findings:
    """Return findings with the run's own figures, and one verdict for all comparisons."""
    return Findings(
        cells=tuple(_cell(recorded, cell.name, kind, sentence) for cell in recorded.header.cells),
        cold=tuple(
            Cold(
                arm=sample.arm,
                time_to_first_token_ms=(sample.time_to_first_token_s or 0.0) * 1e3,
                api_end_to_end_ms=(sample.api_end_to_end_s or 0.0) * 1e3,
                error=sample.error,
            )
            for sample in recorded.samples
            if sample.cold and sample.cell == recorded.header.cells[0].name
        ),
    )


def checks_with(*refused: str, flagged: Sequence[str] = ()) -> Checked:
    """Return checks of which one passed, and which refuse the cells named `refused`."""
    passed = CheckResult(check="answers cut off", level="passed", sentence="Every answer came to its end.")
    return Checked(
        results=(
            passed,
            *(
                CheckResult(check="client saturated", level="refused", sentence="No core was left.", cell=cell)
                for cell in refused
            ),
            *(CheckResult(check="cache hits", level="flagged", sentence="Some hits.", cell=cell) for cell in flagged),
        )
    )


def a_sweep(
    scenarios: Sequence[str] = ("chat", "agent"),
    users: Sequence[int] = (1, 4, 16),
    slower: str | None = None,
    **run: Any,
) -> RecordedRun:
    """Return a run over scenarios and users: more users are slower, later scenarios too, and cell `slower` much."""
    cells = tuple(
        Cell(name=f"{scenario}, {count}", workload=scenario, users=count) for scenario in scenarios for count in users
    )
    by_name = {cell.name: cell for cell in cells}

    def change(sample: Sample) -> Sample:
        cell = by_name[sample.cell]
        factor = (1 + (cell.users or 0) / 10) * (1 + scenarios.index(cell.workload))
        return stretched(sample, factor * (60 if sample.cell == slower else 1))

    return a_run(**{"cells": cells, "arms": ("baseline",), "pairs": 20, "input_tokens": 50, "change": change, **run})


def stretched(sample: Sample, factor: float) -> Sample:
    """Return the sample as if everything had taken `factor` times as long."""

    def at(stamp: int | None) -> int | None:
        return None if stamp is None else sample.issued_ns + round((stamp - sample.issued_ns) * factor)

    return replace(
        sample,
        token_ns=tuple(at(stamp) or 0 for stamp in sample.token_ns),
        ended_ns=at(sample.ended_ns) or 0,
        response_ns=at(sample.response_ns),
        first_content_ns=at(sample.first_content_ns),
        first_event_ns=at(sample.first_event_ns),
    )


def _cell(recorded: RecordedRun, cell: str, kind: Any, sentence: str) -> CellFindings:
    arms = [arm.name for arm in recorded.header.arms]
    sent = {arm: recorded.measured(cell, arm) for arm in arms}
    return CellFindings(
        cell=cell,
        figures=tuple(
            figures for arm in arms for metric in METRICS if (figures := _figures(cell, arm, metric, sent[arm]))
        ),
        comparisons=tuple(
            _comparison(recorded, cell, arm.name, metric, kind, sentence)
            for arm in recorded.header.arms
            for metric in recorded.header.metrics
            if arm.role != "reference"
        ),
        throughput=dict.fromkeys(arms, 123.0),
        requests={arm: len(sent[arm]) for arm in arms},
        errors={arm: _errors(sent[arm]) for arm in arms},
    )


def _errors(sent: Sequence[Sample]) -> dict[str, int]:
    errors = [sample.error for sample in sent if sample.error is not None]
    return {error: errors.count(error) for error in errors}


def _values(sent: Sequence[Sample], metric: str) -> list[float]:
    found = [METRICS[metric].value(sample) for sample in sent if sample.error is None]
    return [value for value in found if value is not None]


def _figures(cell: str, arm: str, metric: str, sent: Sequence[Sample]) -> Figures | None:
    values = sorted(_values(sent, metric))
    if not values:
        return None
    quantiles = {}
    for share, wanted in WANTED.items():
        at = min(len(values) - 1, int(share * len(values)))
        known = len(values) >= wanted
        quantiles[share] = Quantile(
            share=share,
            n=len(values),
            value=values[at] if known else None,
            low=values[max(0, at - 3)] if known else None,
            high=values[min(len(values) - 1, at + 3)] if known else None,
            wanted=wanted,
        )
    return Figures(
        cell=cell,
        arm=arm,
        metric=metric,
        n=len(values),
        failed=len(sent) - len(values),
        mean=fmean(values),
        deviation=stdev(values) if len(values) > 1 else None,
        minimum=values[0],
        maximum=values[-1],
        quantiles=quantiles,
    )


def _comparison(recorded: RecordedRun, cell: str, arm: str, metric: str, kind: Any, sentence: str) -> ArmComparison:
    reference = recorded.header.reference_of(arm).name
    copy = next(each.role for each in recorded.header.arms if each.name == arm) == "again"
    ours, theirs = (_values(recorded.measured(cell, name), metric) for name in (arm, reference))
    ratio = median(ours) / median(theirs)
    shown = (
        Interval(value=1.001, low=0.99, high=1.012)
        if copy
        else Interval(value=ratio, low=ratio - 0.03, high=ratio + 0.03)
    )
    none = ComparisonVerdict(kind="no difference shown", sentence="no difference shown; this run could have shown 4 %")
    return ArmComparison(
        cell=cell,
        arm=arm,
        reference=reference,
        metric=metric,
        pairs=len(ours),
        typical=shown,
        p_value=0.001,
        quantiles={0.5: shown},
        verdict=none
        if copy
        else ComparisonVerdict(kind=kind, sentence=sentence, smallest_effect=0.04, more_pairs=None),
        copy=copy,
    )
