"""A run's figures and requests as tables for spreadsheets and data frames."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..checks import Checked
from ..findings import ArmComparison, Figures, Findings
from ..recorded import METRICS, Cell, RecordedRun, Sample, metric_named
from ._ab import verdict_word
from ._material import Material
from ._words import percentile_name

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
REQUEST_COLUMNS: Final = (
    *_CELL,
    "tag",
    "shard",
    "lane",
    "block",
    "position",
    "conversation",
    "turn",
    "part",
    "invalid",
    "error",
    "finish_reason",
    "dispatch_delay_ms",
    *METRICS,
    "meant_input_tokens",
    "input_tokens",
    "cached_tokens",
    "least_output_tokens",
    "asked_output_tokens",
    "output_tokens",
    "reasoning_tokens",
)
"""Of `request_rows`: each metric in its own unit (ms, tokens/s, bytes, US$)."""


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


def request_rows(recorded: RecordedRun, findings: Findings, checked: Checked) -> Iterator[dict[str, Any]]:
    """Return a row for each request, warm-up and cold ones included.

    One that may not be used has "invalid: why" under `invalid` and no duration: the raw records have them.
    """
    material = Material(recorded=recorded, findings=findings, checked=checked)
    cells = {cell.name: cell for cell in recorded.header.cells}
    for sample in recorded.samples:
        refused = material.refused(sample.cell, sample.arm)
        kept = ("tag", "shard", "lane", "block", "position", "conversation", "turn", "part", "error", "finish_reason")
        row = {
            **_place(material, cells.get(sample.cell), sample.arm),
            **{name: getattr(sample, name) for name in kept},
            "invalid": refused,
        }
        yield row if refused else row | _measured(sample)


def write_csv(
    path: Path, recorded: RecordedRun, findings: Findings, checked: Checked, *, requests: bool = False
) -> None:
    """Write the figures, or the requests one by one, as CSV in UTF-8. Raises OSError."""
    rows = (request_rows if requests else csv_rows)(recorded, findings, checked)
    with path.open("w", encoding="utf-8", newline="") as file:
        _write(file, REQUEST_COLUMNS if requests else COLUMNS, rows)


def _write(file: Any, columns: Sequence[str], rows: Iterator[Mapping[str, Any]]) -> None:
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)


def _place(material: Material, cell: Cell | None, arm: str) -> dict[str, Any]:
    roles = {each.name: each.role for each in material.recorded.header.arms}
    of_cell = {name: getattr(cell, name) for name in ("workload", "scenario", "load", "users", "rate")} if cell else {}
    return {"cell": cell.name if cell else None, **of_cell, "arm": arm, "role": roles.get(arm)}


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


def _measured(sample: Sample) -> dict[str, Any]:
    delay = sample.dispatch_delay_s
    tokens = REQUEST_COLUMNS[REQUEST_COLUMNS.index("meant_input_tokens") :]
    return {
        "dispatch_delay_ms": None if delay is None else delay * 1e3,
        **{name: metric.value(sample) for name, metric in METRICS.items()},
        **{name: getattr(sample, name) for name in tokens},
    }
