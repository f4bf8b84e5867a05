"""A run's figures as one JSON document, and as a table for spreadsheets."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from .._formatting import percentile_name
from ..checks import Checked
from ..findings import SHARES, Findings, Interval, Quantile
from ..recorded import METRICS, ArmInfo, RecordedRun, metric_named
from ._material import TITLES, Material
from ._sections import bytes_sent, connections, total_of, verdict_word

SCHEMA: Final = 3
"""Raised when a field changes its meaning or goes away. 3: the header's fields as they are; no reports."""


def csv_rows(recorded: RecordedRun, findings: Findings, checked: Checked) -> Iterator[dict[str, Any]]:
    """Return a row for each cell, arm and metric; all rows have the same columns, with None where there is nothing.

    An arm that may not be used in a cell has a row with "invalid: why" under `invalid` and no figure.
    """
    material = Material(recorded=recorded, findings=findings, checked=checked)
    roles = {each.name: each.role for each in recorded.header.arms}
    for cell in material.cells:
        for each in material.found(cell.name).figures:
            metric = metric_named(each.metric)
            figures = material.figures(cell.name, each.arm, each.metric)
            comparison = material.comparison(cell.name, each.arm, each.metric)
            row: dict[str, Any] = {"cell": cell.name}
            row |= _fields(cell, "workload", "scenario", "load", "users", "rate")
            row |= {"arm": each.arm, "role": roles[each.arm], "metric": each.metric, "unit": metric.unit}
            row |= {"invalid": material.refused(cell.name, each.arm)}
            row |= _fields(figures, "n", "failed", "mean", "deviation", "minimum", "maximum")
            for share in SHARES:
                row |= _bounded(percentile_name(share), figures.quantiles.get(share) if figures else None)
            row |= {"compared_with": comparison and comparison.reference, "pairs": comparison and comparison.pairs}
            row |= _bounded("typical_ratio", comparison.typical if comparison else None)
            row |= {"p_value": comparison and comparison.p_value}
            row |= {"verdict": comparison and verdict_word(comparison, metric)}
            yield row | _fields(comparison and comparison.verdict, "smallest_effect", "more_pairs")


def write_csv(path: Path, recorded: RecordedRun, findings: Findings, checked: Checked) -> None:
    """Write the figures as CSV in UTF-8. Raises OSError."""
    rows = list(csv_rows(recorded, findings, checked))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _fields(found: object, *names: str) -> dict[str, Any]:
    return {name: getattr(found, name, None) for name in names}


def _bounded(name: str, found: Interval | Quantile | None) -> dict[str, float | None]:
    value, low, high = _fields(found, "value", "low", "high").values()
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def document(recorded: RecordedRun, findings: Findings, checked: Checked) -> dict[str, Any]:
    """Return everything but the raw records, as plain JSON data; each figure is in its metric's unit.

    What belongs to a cell or an arm that may not be used is left out, and "invalid" says why.
    """
    material = Material(recorded=recorded, findings=findings, checked=checked)
    cells, comparisons = [], []
    for cell in material.cells:
        found = material.found(cell.name)
        shown = {
            "figures": [plain(each) for each in found.figures if not material.refused(cell.name, each.arm)],
            "phases": [
                {
                    "arm": each.arm,
                    "n": each.n,
                    "milliseconds": {TITLES[key]: ms for key, ms in each.milliseconds.items()},
                }
                for each in material.phases(cell.name)
            ],
            **plain(_fields(found, "throughput", "requests", "errors")),
        }
        cells.append(_unless(material.refused(cell.name), plain(cell), shown))
        for each in found.comparisons:
            named = _fields(each, "cell", "arm", "reference", "metric", "copy")
            whole = {**plain(each), "word": verdict_word(each, metric_named(each.metric))}
            comparisons.append(_unless(material.refused(cell.name, each.arm), named, whole))
    return {
        "schema": SCHEMA,
        **plain(recorded.header),
        "ended": recorded.ended,
        "duration_s": recorded.duration_s,
        "blocks": len({sample.key for sample in recorded.measured()}),
        "margin": findings.margin,
        "units": {name: metric.unit for name, metric in METRICS.items()},
        "arms": [_arm(material, arm) for arm in recorded.header.arms],
        "cells": cells,
        "comparisons": comparisons,
        "attributions": [
            _unless(material.refused_attribution(each.cell), _fields(each, "cell", "metric"), plain(each))
            for each in findings.attributions
        ],
        "cold": [_unless(material.refused_run(), {"arm": each.arm}, plain(each)) for each in findings.cold],
        "checks": plain(checked.results),
        "problems": list(dict.fromkeys(each.sentence for each in checked.refusals())),
    }


def plain(value: Any) -> Any:
    """Return data of our own types as dictionaries, lists, texts and numbers; what is no number is None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        # The shares of percentiles: 0.95 is "p95".
        return {
            percentile_name(key) if isinstance(key, float) else str(key): plain(each) for key, each in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, int | str) or value is None else str(value)


def _unless(refused: str | None, named: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    return {**named, "invalid": refused} if refused else {**named, **whole}


def _arm(material: Material, arm: ArmInfo) -> dict[str, Any]:
    refusals = [material.refused(cell.name, arm.name) for cell in material.cells]
    if refusals and all(refusals):
        return {**plain(arm), "invalid": refusals[0]}
    sent = [sample for cell in material.cells for sample in material.sent(cell.name, arm.name)]
    errors = Counter(sample.error for sample in sent if sample.error is not None)
    return {
        **plain(arm),
        "requests": len(sent),
        "failed": errors.total(),
        "errors": dict(errors),
        "connections_opened": connections(material, sent),
        "bytes_sent": bytes_sent(material, sent),
        **{name: total_of(sent, name) for name in ("input_tokens", "cached_tokens", "output_tokens", "price")},
    }
