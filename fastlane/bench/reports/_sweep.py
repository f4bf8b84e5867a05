"""What reports over several loads have in common: rows by users or rate, and sentences about the ends of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..findings import Quantile
from ..recorded import Cell, RequestMetric
from ._blocks import Column, ReportTable, TableCell, TableRow
from ._material import Material, scenario_of
from ._words import NOTHING, WANTS_N, number_entry, percentile_name, quantile_entry, with_unit

BOUNDED: Final = frozenset({0.5, 0.95, 0.99})
"""The percentiles that are shown with their intervals; the others would only make a table wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One arm's p50 of a metric at one load."""

    cell: Cell
    arm: str
    value: float
    low: float | None
    high: float | None

    @property
    def load(self) -> str:
        """The load in words: "10 users"."""
        return load_words(self.cell)


def load_words(cell: Cell) -> str:
    """Return a cell's load in words: "1 user", "10 users", "2.5 blocks/s"."""
    if cell.rate is not None and cell.users is None:
        return f"{cell.rate:g} blocks/s"
    users = cell.users or 0
    return f"{users} user{'' if users == 1 else 's'}"


def load_column(material: Material) -> Column:
    """Return the column that says how much was asked at once."""
    opened = any(cell.load == "open" for cell in material.cells)
    return Column(title="rate", unit="blocks/s") if opened else Column(title="users")


def load_entry(cell: Cell) -> TableCell:
    """Return a cell's users or rate as a place in a table."""
    load = cell.users if cell.users is not None else cell.rate
    return NOTHING if load is None else TableCell(text=f"{load:g}", value=load)


def arm_column(material: Material) -> tuple[Column, ...]:
    """Return the column that names the arm, where there is more than one."""
    return (Column(title="arm", alignment="left"),) if len(material.own_arms) > 1 else ()


def sweep_row(material: Material, cell: Cell, arm: str, entries: Sequence[TableCell]) -> TableRow:
    """Return one row of a sweep: load, arm where there are several, and figures unless they are refused."""
    refused = material.refused(cell.name, arm)
    name: tuple[TableCell, ...] = (load_entry(cell),)
    if len(material.own_arms) > 1:
        name += (TableCell(text=arm, value=arm),)
    return TableRow(entries=name if refused else (*name, *entries), refused=refused)


def cells_of(material: Material, scenario: str) -> tuple[Cell, ...]:
    """Return a scenario's cells, in the order of their load."""
    return tuple(cell for cell in material.cells if scenario_of(cell) == scenario)


def percentiles_by_load(
    material: Material, metric: RequestMetric, scenario: str, shares: Sequence[float], name: str
) -> ReportTable:
    """Return a metric's percentiles at every load of one scenario."""
    rows, wanting = [], False
    for cell in cells_of(material, scenario):
        for arm in material.own_arms:
            found = material.figures(cell.name, arm.name, metric.name)
            entries: tuple[TableCell, ...] = (NOTHING,) * (len(shares) + 2)
            if found is not None:
                quantiles = tuple(
                    quantile_entry(found.quantiles.get(share), metric.unit, bounds=share in BOUNDED) for share in shares
                )
                wanting = wanting or any(each.text.startswith("wants n") for each in quantiles)
                failed = TableCell(
                    text=f"{found.failed:,}", value=found.failed, tone="bad" if found.failed else "plain"
                )
                entries = (number_entry(found.n), failed, *quantiles)
            rows.append(sweep_row(material, cell, arm.name, entries))
    columns = (
        load_column(material),
        *arm_column(material),
        Column(title="n"),
        Column(title="failed"),
        *(Column(title=percentile_name(share), unit=metric.unit) for share in shares),
    )
    return ReportTable(
        title=metric.title, name=name, columns=columns, rows=tuple(rows), notes=(WANTS_N,) if wanting else ()
    )


def points(material: Material, metric: str, scenario: str | None = None, arm: str | None = None) -> list[SweepPoint]:
    """Return the p50 of a metric in every cell that may be used and has one, in the order of their load."""
    return list(_points(material, metric, scenario, arm))


def _points(material: Material, metric: str, scenario: str | None, arm: str | None) -> Iterator[SweepPoint]:
    for cell in material.valid_cells:
        if scenario not in (None, scenario_of(cell)):
            continue
        for each in material.own_arms:
            median = _median(material, cell, each.name, metric) if arm in (None, each.name) else None
            if median is not None and median.value is not None:
                yield SweepPoint(cell=cell, arm=each.name, value=median.value, low=median.low, high=median.high)


def _median(material: Material, cell: Cell, arm: str, metric: str) -> Quantile | None:
    found = material.figures(cell.name, arm, metric)
    return found.quantiles.get(0.5) if found else None


def ends(found: Sequence[SweepPoint], unit: str) -> str:
    """Return where a sweep begins and ends: "480 ms at 1 user, 580 ms at 50 users"."""
    first, last = found[0], found[-1]
    if len(found) == 1:
        return f"{with_unit(first.value, unit)} at {first.load}"
    return f"{with_unit(first.value, unit)} at {first.load}, {with_unit(last.value, unit)} at {last.load}"


def place(material: Material, point: SweepPoint) -> str:
    """Return where a figure was seen: "Chatbot, 1 user"; with the arm where there are several."""
    words = [scenario_of(point.cell), point.load]
    if len(material.own_arms) > 1:
        words.append(point.arm)
    return ", ".join(words)
