"""A run's figures as a table for spreadsheets and data frames."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .._formatting import percentile_name
from ..checks import Checked
from ..findings import ArmComparison, Figures, Findings
from ..recorded import Cell, RecordedRun, metric_named
from ._ab import verdict_word
from ._material import Material

_SHARES: Final = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_CELL: Final = ("cell", "workload", "scenario", "load", "users", "rate", "arm", "role")
_PERCENTILES: Final = tuple(f"{percentile_name(share)}{end}" for share in _SHARES for end in ("", "_low", "_high"))
_COMPARED: Final = (
    "compared_with",
    "pairs",
    "typical_ratio",
    "typical_ratio_low",
    "typical_ratio_high",
    "p_value",
    "verdict",
    "smallest_effect",
    "more_pairs",
)
COLUMNS: Final = (
    *_CELL,
    "metric",
    "unit",
    "invalid",
    "n",
    "failed",
    "mean",
    "deviation",
    "minimum",
    "maximum",
    *_PERCENTILES,
    *_COMPARED,
)
"""Of `csv_rows`."""


def csv_rows(recorded: RecordedRun, findings: Findings, checked: Checked) -> Iterator[dict[str, Any]]:
    """Return a row for each cell, arm and metric.

    An arm that may not be used in a cell has a row with "invalid: why" under `invalid` and no figure.
    """
    material = Material(recorded=recorded, findings=findings, checked=checked)
    for cell in material.cells:
        for figures in material.found(cell.name).figures:
            refused = material.refused(cell.name, figures.arm)
            row = {
                **_place(material, cell, figures.arm),
                "metric": figures.metric,
                "unit": metric_named(figures.metric).unit,
                "invalid": refused,
            }
            if refused is None:
                comparison = material.comparison(cell.name, figures.arm, figures.metric)
                row |= {**_figures(figures), **(_compared(comparison) if comparison else {})}
            yield row


def write_csv(path: Path, recorded: RecordedRun, findings: Findings, checked: Checked) -> None:
    """Write the figures as CSV in UTF-8. Raises OSError."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(csv_rows(recorded, findings, checked))


def _place(material: Material, cell: Cell, arm: str) -> dict[str, Any]:
    roles = {each.name: each.role for each in material.recorded.header.arms}
    of_cell = {name: getattr(cell, name) for name in ("workload", "scenario", "load", "users", "rate")}
    return {"cell": cell.name, **of_cell, "arm": arm, "role": roles[arm]}


def _figures(figures: Figures) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: getattr(figures, name) for name in ("n", "failed", "mean", "deviation", "minimum", "maximum")
    }
    for share in _SHARES:
        quantile = figures.quantiles.get(share)
        if quantile is not None:
            name = percentile_name(share)
            row |= {name: quantile.value, f"{name}_low": quantile.low, f"{name}_high": quantile.high}
    return row


def _compared(found: ArmComparison) -> dict[str, Any]:
    row: dict[str, Any] = {
        "compared_with": found.reference,
        "pairs": found.pairs,
        "p_value": found.p_value,
        "verdict": verdict_word(found, metric_named(found.metric)),
        "smallest_effect": found.verdict.smallest_effect,
        "more_pairs": found.verdict.more_pairs,
    }
    if found.typical is not None:
        typical = found.typical
        row |= {
            "typical_ratio": typical.value,
            "typical_ratio_low": typical.low,
            "typical_ratio_high": typical.high,
        }
    return row
