"""Tables without the columns that say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ._blocks import ReportTable, TableCell, TableRow
from ._words import NOTHING, listed

UNKNOWN: Final = TableCell(text="not known", tone="muted")
"""A figure that exists, but that nobody told."""


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
