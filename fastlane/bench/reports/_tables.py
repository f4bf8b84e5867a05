"""Tables of a run: a row for each cell and arm, without the columns that say nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

from .._formatting import listed, percentile_name
from ..findings import Figures
from ..recorded import ArmInfo, Cell
from ._blocks import Column, ReportTable, TableCell, TableRow
from ._cells import NOTHING, WANTS_N, counted_entry, number_entry, quantile_entry, share_entry
from ._material import Material

UNKNOWN: Final = TableCell(text="not known", tone="muted")
"""A figure that exists, but that nobody told."""

Statistic = Literal["n", "failed", "mean", "deviation", "CV", "min", "max"] | float
"""A column of an arm's figures; a number is the share of a percentile."""
ARM: Final = Column(title="arm", alignment="left")


def statistic_columns(statistics: Sequence[Statistic], unit: str = "") -> tuple[Column, ...]:
    """Return the columns of some statistics of one metric, in its unit."""
    return tuple(
        Column(
            title=percentile_name(each) if isinstance(each, float) else each,
            unit="" if _counts(each) else unit,
        )
        for each in statistics
    )


def statistic_cells(
    found: Figures | None, statistics: Sequence[Statistic], unit: str, *, unbounded: Sequence[float] = ()
) -> tuple[TableCell, ...]:
    """Return what stands in these columns; percentiles have their intervals, but those of `unbounded` shares."""
    if found is None:
        return (NOTHING,) * len(statistics)
    values = {"mean": found.mean, "deviation": found.deviation, "min": found.minimum, "max": found.maximum}
    cells = []
    for each in statistics:
        if isinstance(each, float):
            cells.append(quantile_entry(found.quantiles.get(each), unit, bounds=each not in unbounded))
        elif each == "failed":
            cells.append(counted_entry(found.failed))
        elif each == "CV":
            cells.append(share_entry(found.variation))
        else:
            cells.append(number_entry(found.n) if each == "n" else number_entry(values[each], unit))
    return tuple(cells)


def _counts(statistic: Statistic) -> bool:
    return statistic in ("n", "failed", "CV")


def arm_table(
    material: Material,
    title: str,
    name: str,
    naming: Sequence[Column],
    columns: Sequence[Column],
    names: Callable[[Cell, ArmInfo], Sequence[TableCell]],
    figures: Callable[[Cell, ArmInfo], Sequence[TableCell]],
    *,
    cells: Sequence[Cell] | None = None,
    arms: Sequence[ArmInfo] | None = None,
    notes: Sequence[str] = (),
) -> ReportTable:
    """Return a table with a row for each cell and arm: its names, and its figures unless they are refused."""
    rows = []
    for cell in material.cells if cells is None else cells:
        for arm in material.own_arms if arms is None else arms:
            refused = material.refused(cell.name, arm.name)
            shown = () if refused else figures(cell, arm)
            rows.append(TableRow(entries=(*names(cell, arm), *shown), refused=refused))
    return ReportTable(
        title=title,
        name=name,
        columns=(*naming, *columns),
        rows=tuple(rows),
        notes=(*notes_of(rows), *notes),
    )


def notes_of(rows: Sequence[TableRow]) -> tuple[str, ...]:
    """Return the note that a table needs in which a percentile is left out."""
    return (WANTS_N,) if any(entry.text.startswith("wants n") for row in rows for entry in row.entries) else ()


def without_empty(table: ReportTable) -> ReportTable:
    """Return a table without the columns in which no row has a figure; a note names those that are not known."""
    rows = [row for row in table.rows if row.refused is None]
    if not rows:
        return table
    empty, unknown = set(), []
    for at, column in enumerate(table.columns):
        seen = {row.entries[at].text for row in rows}
        if seen <= {NOTHING.text, UNKNOWN.text}:
            empty.add(at)
            if UNKNOWN.text in seen:
                unknown.append(column.title)
    notes = (f"Not known: {listed(unknown)}.",) if unknown else ()
    return replace(
        table,
        columns=tuple(column for at, column in enumerate(table.columns) if at not in empty),
        rows=tuple(_without(row, empty) for row in table.rows),
        notes=(*table.notes, *notes),
    )


def _without(row: TableRow, columns: set[int]) -> TableRow:
    return replace(row, entries=tuple(entry for at, entry in enumerate(row.entries) if at not in columns))
