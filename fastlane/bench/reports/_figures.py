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
from ..findings import MARGIN, SHARES, Findings, Interval, Quantile
from ..recorded import METRICS, RecordedRun, metric_named
from ._material import TITLES, Material
from ._sections import taken_by, verdict_word

SCHEMA: Final = 3


def csv_rows(recorded: RecordedRun, findings: Findings, checked: Checked) -> Iterator[dict[str, Any]]:
    """Return a row for each cell, arm and metric, with the same columns; "invalid: why" replaces refused figures."""
    material = Material(recorded=recorded, findings=findings, checked=checked)
    roles = {each.name: each.role for each in recorded.header.arms}
    for cell in material.cells:
        for each in material.found(cell.name).figures:
            metric = metric_named(each.metric)
            found = material.figures(cell.name, each.arm, each.metric)
            change = material.comparison(cell.name, each.arm, each.metric)
            row: dict[str, Any] = {"cell": cell.name}
            row |= _fields(cell, "workload", "load", "users", "rate")
            row |= {"arm": each.arm, "role": roles[each.arm], "metric": each.metric, "unit": metric.unit}
            row |= {"invalid": material.refused(cell.name, each.arm)}
            row |= _fields(found, "n", "failed", "mean", "deviation", "minimum", "maximum")
            for share in SHARES:
                row |= _bounded(percentile_name(share), found.quantiles.get(share) if found else None)
            row |= {"compared_with": change and change.reference, "pairs": change and change.pairs}
            row |= _bounded("typical_ratio", change.typical if change else None)
            row |= {"p_value": change and change.p_value, "verdict": change and verdict_word(change, metric)}
            yield row | _fields(change and change.verdict, "smallest_effect", "more_pairs")


def write_csv(path: Path, recorded: RecordedRun, findings: Findings, checked: Checked) -> None:
    rows = list(csv_rows(recorded, findings, checked))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _fields(found: object, *names: str) -> dict[str, Any]:
    return {name: getattr(found, name, None) for name in names}


def _bounded(name: str, found: Interval | Quantile | None) -> dict[str, Any]:
    bounds = _fields(found, "value", "low", "high")
    return {name: bounds["value"], f"{name}_low": bounds["low"], f"{name}_high": bounds["high"]}


def document(recorded: RecordedRun, findings: Findings, checked: Checked) -> dict[str, Any]:
    """Return everything but the raw records as plain JSON data; "invalid: why" replaces what may not be used."""
    material = Material(recorded=recorded, findings=findings, checked=checked)
    cells, comparisons, arms = [], [], []
    for cell in material.cells:
        found = material.found(cell.name)
        shown = {
            "figures": [each for each in found.figures if not material.refused(cell.name, each.arm)],
            "phases": [
                {
                    "arm": each.arm,
                    "n": each.n,
                    "milliseconds": {TITLES[key]: ms for key, ms in each.milliseconds.items()},
                }
                for each in material.phases(cell.name)
            ],
            **_fields(found, "throughput", "requests", "errors"),
        }
        cells.append(_unless(material.refused(cell.name), plain(cell), shown))
        for each in found.comparisons:
            named = _fields(each, "cell", "arm", "reference", "metric", "copy")
            whole = {**plain(each), "word": verdict_word(each, metric_named(each.metric))}
            comparisons.append(_unless(material.refused(cell.name, each.arm), named, whole))
    for arm in recorded.header.arms:
        refusals = [material.refused(cell.name, arm.name) for cell in material.cells]
        sent = [sample for cell in material.cells for sample in material.sent(cell.name, arm.name)]
        errors = Counter(sample.error for sample in sent if sample.error is not None)
        taken = {
            "requests": len(sent),
            "failed": errors.total(),
            "errors": errors,
            **taken_by(recorded, sent),
        }
        arms.append(_unless(refusals[0] if refusals and all(refusals) else None, plain(arm), taken))
    return {
        "schema": SCHEMA,
        **plain(recorded.header),
        "ended": recorded.ended,
        "duration_s": recorded.duration_s,
        "blocks": material.blocks,
        "margin": MARGIN,
        "units": {name: metric.unit for name, metric in METRICS.items()},
        "arms": arms,
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


def _unless(refused: str | None, named: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    return {**named, "invalid": refused} if refused else {**named, **plain(whole)}


def plain(value: Any) -> Any:
    """Return data of our own types as dictionaries, lists, texts and numbers; what is no number is None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        # The shares of percentiles: 0.95 is "p95".
        names = (percentile_name(key) if isinstance(key, float) else str(key) for key in value)
        return dict(zip(names, map(plain, value.values()), strict=True))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, int | str) or value is None else str(value)
