"""A run's figures as a table for spreadsheets and data frames."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .._formatting import percentile_name
from ..checks import Checked
from ..findings import Findings, Interval, Quantile
from ..recorded import RecordedRun, metric_named
from ._ab import verdict_word
from ._material import Material

_SHARES: Final = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


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
            for share in _SHARES:
                row |= _bounded(percentile_name(share), figures.quantiles.get(share) if figures else None)
            row |= {"compared_with": comparison and comparison.reference, "pairs": comparison and comparison.pairs}
            row |= _bounded("typical_ratio", comparison.typical if comparison else None)
            row |= {"p_value": comparison and comparison.p_value}
            row |= {"verdict": comparison and verdict_word(comparison, metric)}
            row |= _fields(comparison and comparison.verdict, "smallest_effect", "more_pairs")
            yield row


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
    if found is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
