"""A run's figures as one document of plain JSON data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from .._formatting import percentile_name
from ..checks import Checked
from ..findings import ArmComparison, Figures, Findings
from ..recorded import ArmInfo, Cell, RecordedRun, metric_named
from ._ab import verdict_word
from ._ab_details import bytes_sent, connections, total_of
from ._blocks import RunReport, block_kind
from ._material import Material

SCHEMA: Final = 2
"""Raised when a field changes its meaning or goes away. 2: figures are by cell; percentiles have intervals."""


def document(
    recorded: RecordedRun, findings: Findings, checked: Checked, reports: Sequence[RunReport] = ()
) -> dict[str, Any]:
    """Return everything but the raw records, as plain JSON data; each figure is in its metric's unit.

    What belongs to a cell that may not be used is left out, and "invalid" says why. `reports` are added as they are
    shown: tables with their figures, sentences, captions.
    """
    material = Material(recorded=recorded, findings=findings, checked=checked)
    header = recorded.header
    lanes = {(sample.cell, sample.shard, sample.lane, sample.block) for sample in recorded.measured()}
    own = {name: plain(getattr(header, name)) for name in ("name", "provider", "model", "embedded", "one_way_s")}
    data = {
        "schema": SCHEMA,
        **own,
        "started_at": header.started_at,
        "settings": {
            **plain(header.settings),
            "arms": {arm.name: arm.description for arm in header.arms},
            "workload": header.workload,
            "workload_source": header.workload_source,
            "workload_notes": list(header.workload_notes),
            "metrics": list(header.metrics),
        },
        "machine": plain(header.machine),
        "blocks": {"run": len(lanes)},
        "interrupted": recorded.ended == "interrupted",
        "ended": recorded.ended,
        "duration_s": recorded.duration_s,
        "cpu_share": max((each.cpu_share for each in recorded.vitals if each.arm is not None), default=None),
        "margin": findings.margin,
        "metrics": {name: _metric(name) for name in _metric_names(findings, header.metrics)},
        "arms": [_arm(material, arm) for arm in header.arms],
        "cells": [_cell(material, cell) for cell in material.cells],
        "comparisons": [
            _comparison(material, comparison)
            for cell in material.cells
            for comparison in material.found(cell.name).comparisons
        ],
        "attributions": [
            {"cell": each.cell, "metric": each.metric, "invalid": refused}
            if (refused := material.refused_attribution(each.cell))
            else plain(each)
            for each in findings.attributions
        ],
        "cold": [
            {"arm": each.arm, "invalid": refused} if (refused := material.refused_run()) else plain(each)
            for each in findings.cold
        ],
        "checks": plain(checked.results),
        "problems": list(dict.fromkeys(each.sentence for each in checked.refusals())),
    }
    if reports:
        data["reports"] = {report.kind: report_document(report) for report in reports}
    return data


def plain(value: Any) -> Any:
    """Return data of our own types as dictionaries, lists, texts and numbers; what is no number is None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return str(value)


def _key(key: object) -> str:
    # The shares of percentiles: 0.95 is "p95".
    return percentile_name(key) if isinstance(key, float) else str(key)


def _metric_names(findings: Findings, asked: Sequence[str]) -> tuple[str, ...]:
    computed = (figures.metric for cell in findings.cells for figures in cell.figures)
    return tuple(dict.fromkeys((*asked, *computed)))


def _metric(name: str) -> dict[str, Any]:
    metric = metric_named(name)
    return {"title": metric.title, "unit": metric.unit, "lower_is_better": metric.lower_is_better}


def _arm(material: Material, arm: ArmInfo) -> dict[str, Any]:
    data: dict[str, Any] = {"arm": arm.name, **plain(arm)}
    del data["name"]
    refusals = {cell.name: material.refused(cell.name, arm.name) for cell in material.cells}
    valid = {name for name, refused in refusals.items() if refused is None}
    if refusals and not valid:
        return {**data, "invalid": next(iter(refusals.values()))}
    sent = [sample for sample in material.recorded.measured(arm=arm.name) if sample.cell in valid]
    done = [sample for sample in sent if sample.error is None]
    errors = Counter(sample.error for sample in sent if sample.error is not None)
    first = [each.time_to_first_token_ms for each in material.findings.cold if each.arm == arm.name]
    return {
        **data,
        "requests": len(sent),
        "failed": errors.total(),
        "errors": dict(errors),
        "first_request_ms": next((value for value in first if value is not None), None),
        "connections_opened": connections(material, sent),
        "bytes_sent": bytes_sent(material, sent),
        **{
            name: total_of([getattr(sample, name) for sample in done])
            for name in ("input_tokens", "cached_tokens", "output_tokens", "price")
        },
    }


def _cell(material: Material, cell: Cell) -> dict[str, Any]:
    found, refused = material.found(cell.name), material.refused(cell.name)
    data: dict[str, Any] = {"cell": cell.name, **plain(cell), "valid": refused is None}
    del data["name"]
    if refused:
        return {**data, "invalid": refused}
    return {
        **data,
        "figures": [_figures(each) for each in found.figures if not material.refused(cell.name, each.arm)],
        "throughput": plain(found.throughput),
        "requests": plain(found.requests),
        "errors": plain(found.errors),
        "phases": [
            {"arm": each.arm, "n": each.n, "milliseconds": {phase.name: phase.milliseconds for phase in each.phases}}
            for each in material.phases(cell.name)
        ],
    }


def _figures(found: Figures) -> dict[str, Any]:
    data: dict[str, Any] = plain(found)
    del data["cell"]
    data["percentiles"] = data.pop("quantiles")
    return data


def _comparison(material: Material, found: ArmComparison) -> dict[str, Any]:
    named = {"cell": found.cell, "arm": found.arm, "compared_with": found.reference, "metric": found.metric}
    refused = material.refused(found.cell, found.arm)
    if refused:
        return {**named, "copy": found.copy, "invalid": refused}
    word = verdict_word(found, metric_named(found.metric))
    return {
        **named,
        "copy": found.copy,
        "pairs": found.pairs,
        "typical": None if found.typical is None else {**plain(found.typical), "verdict": word},
        "percentiles": plain(found.quantiles),
        "p_value": plain(found.p_value),
        "verdict": plain(found.verdict),
    }


def report_document(report: RunReport) -> dict[str, Any]:
    """Return one report as plain JSON data, as it is shown."""
    data: dict[str, Any] = plain(report)
    # The checks are in the document by themselves.
    data["blocks"] = [
        {"block": block_kind(block), **({} if "results" in shown else shown)}
        for block, shown in zip(report.blocks, data["blocks"], strict=True)
    ]
    return data
