"""Tables of a run: a row for each cell and arm, without the columns that say nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from .._formatting import change_with_interval, figure, interval, listed, percent, percentile_name
from ..findings import Figures, Interval, Quantile
from ..recorded import ArmInfo, Cell, RequestMetric
from ._data import Entry, Table
from ._material import Material

NOTHING: Final = Entry("-", "muted")
"""No figure: it was not measured, or does not apply."""
UNKNOWN: Final = Entry("not known", "muted")
"""A figure that exists, but that nobody reported."""
Statistic = Literal["n", "failed", "mean", "deviation", "CV", "min", "max"] | float
"""A column of an arm's figures; a number is the share of a percentile."""


def number(value: float | None, unit: str = "", missing: Entry = NOTHING) -> Entry:
    """Return a figure, without its unit."""
    return missing if value is None else Entry(figure(value, unit))


def errors(count: int) -> Entry:
    """Return how many requests failed."""
    return Entry(f"{count:,}", "bad" if count else "plain")


def share(value: float | None, missing: Entry = NOTHING) -> Entry:
    """Return a share in per cent."""
    return missing if value is None else Entry(percent(value))


def ratio(found: Interval | None) -> Entry:
    """Return a ratio of two arms as a change, with its interval."""
    return NOTHING if found is None else Entry(change_with_interval(found))


def estimate(found: Interval | None, unit: str = "", *, signed: bool = False) -> Entry:
    """Return an estimate with its interval."""
    return NOTHING if found is None else Entry(interval(found, unit, signed=signed))


def percentile(found: Quantile | None, unit: str = "") -> Entry:
    """Return a percentile with its interval, or why there is none; nothing at an n that does not bound it."""
    if found is None:
        return NOTHING
    if found.withheld is not None:
        return Entry(f"invalid: {found.withheld.removeprefix('client saturated: ')}", "bad")
    if found.value is None and found.n >= found.wanted:
        # Enough requests, of which so many failed that the percentile is one of them.
        return Entry("failed", "bad")
    return estimate(found.interval, unit)


def arm_table(
    material: Material,
    title: str,
    columns: Sequence[str],
    figures: Callable[[Cell, ArmInfo], Sequence[Entry]],
    *,
    naming: Sequence[str] | None = None,
    names: Callable[[Cell, ArmInfo], Sequence[str]] | None = None,
    cells: Sequence[Cell] | None = None,
    arms: Sequence[ArmInfo] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Return a table with a row for each cell and arm: its names, and its figures unless they are refused.

    `naming` and `names` are the columns at the left and what stands in them; None: the cell where there are several,
    and the arm. Columns without any figure are left out.
    """
    naming, names = naming or material.naming, names or material.names
    rows = [
        named_row(names(cell, arm), figures(cell, arm), material.refused(cell.name, arm.name), len(columns))
        for cell in (material.cells if cells is None else cells)
        for arm in (material.own_arms if arms is None else arms)
    ]
    return without_empty(
        Table(title=title, columns=(*naming, *columns), rows=tuple(rows), names=len(naming), notes=tuple(notes))
    )


def named_row(names: Sequence[str], figures: Sequence[Entry], refused: str | None, width: int) -> tuple[Entry, ...]:
    """Return a row of a table: its names, and `width` figures, or why they must not be used."""
    if refused is not None:
        figures = (Entry(refused, "bad"), *(Entry(""),) * (width - 1))
    return (*map(Entry, names), *figures)


def metric_table(
    material: Material, metric: RequestMetric, statistics: Sequence[Statistic], title: str = "", **rows: Any
) -> Table:
    """Return an `arm_table` of one metric's statistics."""

    def found(cell: Cell, arm: ArmInfo) -> Figures | None:
        return material.figures(cell.name, arm.name, metric.name)

    table = arm_table(
        material,
        f"{title or metric.title} ({metric.unit})",
        [percentile_name(each) if isinstance(each, float) else each for each in statistics],
        lambda cell, arm: [_statistic(found(cell, arm), each, metric.unit) for each in statistics],
        **rows,
    )
    all_found = [figures for cell in material.cells for arm in material.arms if (figures := found(cell, arm))]
    wanted = {
        percentile_name(each): figures.quantiles[each].wanted
        for figures in all_found
        for each in statistics
        if isinstance(each, float) and figures.quantiles[each].n < figures.quantiles[each].wanted
    }
    few = [f"{name} needs {count}" for name, count in wanted.items()]
    return replace(table, notes=(*table.notes, f"Too few requests: {listed(few)}.")) if few else table


def _statistic(found: Figures | None, which: Statistic, unit: str) -> Entry:
    if found is None:
        return NOTHING
    if isinstance(which, float):
        entry = percentile(found.quantiles.get(which), unit)
        # Of quartiles the median has its interval: the others show the spread.
        return entry._replace(text=entry.text.partition(" [")[0]) if which in (0.25, 0.75) else entry
    match which:
        case "n":
            return number(found.n)
        case "failed":
            return errors(found.failed)
        case "CV":
            return share(found.variation)
    values = {"mean": found.mean, "deviation": found.deviation, "min": found.minimum, "max": found.maximum}
    return number(values[which], unit)


def without_empty(table: Table) -> Table:
    """Return a table without the columns in which no row has a figure; a note names those that are not known."""
    kept, unknown = [], []
    for at, column in enumerate(table.columns):
        seen = {row[at] for row in table.rows}
        if at < table.names or not seen <= {NOTHING, UNKNOWN, Entry("")}:
            kept.append(at)
        elif UNKNOWN in seen:
            unknown.append(column)
    return replace(
        table,
        columns=tuple(table.columns[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in table.rows),
        notes=(*table.notes, *((f"Not known: {listed(unknown)}.",) if unknown else ())),
    )
