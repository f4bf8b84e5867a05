"""Two runs beside each other: figures, and no verdict, for nothing held what lay between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from .._formatting import listed, percentile_name, signed_figure
from ..checks import Checked
from ..findings import Findings, Quantile
from ..recorded import Header, RecordedRun, RequestMetric, metric_named
from ._blocks import (
    Block,
    Checks,
    Column,
    Heading,
    Paragraph,
    ReportTable,
    RunFact,
    RunReport,
    TableCell,
    TableRow,
)
from ._cells import NOTHING, label, number_entry, quantile_entry
from ._definitions import definitions
from ._facts import plain_words
from ._material import Material
from ._tables import without_empty

UNPAIRED: Final = "Unpaired: drift between the runs is not controlled."
_SHARES: Final = (0.5, 0.95)


def compare(
    first: RecordedRun,
    second: RecordedRun,
    *,
    findings: tuple[Findings, Findings],
    checked: tuple[Checked, Checked],
    names: tuple[str, str] = ("first", "second"),
) -> RunReport:
    """Return the figures of two runs beside each other, for the cells and arms that both have.

    There is no verdict in it: what a provider, a network or a machine did between the runs is in every difference.
    """
    runs = tuple(
        Material(recorded=recorded, findings=found, checked=results)
        for recorded, found, results in zip((first, second), findings, checked, strict=True)
    )
    places = _places(runs)
    blocks: list[Block] = [Paragraph(text=f"{UNPAIRED} No difference below is a verdict.", tone="warning")]
    differing = list(_differing(first.header, second.header, names))
    if differing:
        blocks.append(Paragraph(text=f"The runs differ in more than time: {'; '.join(differing)}.", tone="warning"))
    if not places:
        blocks.append(Paragraph(text="They have no cell and arm in common: there is nothing to put beside each other."))
    metrics = [name for name in first.header.metrics if name in second.header.metrics]
    for name in metrics if places else ():
        blocks += [_table(runs, metric_named(name), places, names)]
    for run, title in zip(runs, names, strict=True):
        blocks += [Heading(text=f"Checks of {title}"), Checks(results=run.checked.results)]
    blocks += [Heading(text="Definitions"), definitions(*metrics, "intervals")]
    return RunReport(
        kind="compare",
        title=f"Two runs: {first.header.name} and {second.header.name}",
        question=f"What does {names[1]} show beside {names[0]}?",
        verdicts=(Paragraph(text=UNPAIRED, tone="warning"), *_refusals(runs, names)),
        facts=tuple(_facts((first, second), names)),
        blocks=tuple(blocks),
    )


def _places(runs: Sequence[Material]) -> list[tuple[str, str]]:
    both = [{(cell.name, arm.name): None for cell in run.cells for arm in run.own_arms} for run in runs]
    return [place for place in both[0] if place in both[1]]


def _refusals(runs: Sequence[Material], names: Sequence[str]) -> Iterator[Paragraph]:
    for run, name in zip(runs, names, strict=True):
        for cell in run.cells:
            refused = run.refused(cell.name)
            if refused:
                yield Paragraph(text=f"{name}, {cell.name}: {refused}; see Checks.", tone="bad")
                continue
            for arm in run.own_arms:
                if alone := run.refused(cell.name, arm.name):
                    yield Paragraph(text=f"{name}, {cell.name}, {arm.name}: {alone}; see Checks.", tone="bad")


def _facts(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[RunFact]:
    for run, name in zip(runs, names, strict=True):
        header = run.header
        yield RunFact(
            label=name.capitalize(),
            text=f"{header.name}; {header.provider}, model {header.model}; started {header.started_at or 'not known'}, "
            f"{run.ended}; {plain_words(header.machine)}",
        )


def _differing(first: Header, second: Header, names: tuple[str, str]) -> Iterator[str]:
    for what in ("provider", "model", "workload", "one_way_s"):
        before, after = getattr(first, what), getattr(second, what)
        if before != after:
            yield f"{what.removesuffix('_s').replace('_', ' ')} ({names[0]}: {before}, {names[1]}: {after})"
    for what, ours, theirs in (
        ("setting", first.settings, second.settings),
        ("machine's", first.machine, second.machine),
    ):
        keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        if keys:
            yield f"{what} {listed(key.replace('_', ' ') for key in keys)}"


def _table(
    runs: Sequence[Material], metric: RequestMetric, places: Sequence[tuple[str, str]], names: tuple[str, str]
) -> ReportTable:
    rows = []
    for cell, arm in places:
        refused = next(
            (f"{name}: {why}" for run, name in zip(runs, names, strict=True) if (why := run.refused(cell, arm))), None
        )
        found = [run.figures(cell, arm, metric.name) for run in runs]
        entries: list[TableCell] = [label(cell), label(arm)]
        if not refused:
            entries += [number_entry(each.n) if each else NOTHING for each in found]
            for share in _SHARES:
                both = [each.quantiles.get(share) if each else None for each in found]
                entries += [quantile_entry(each, metric.unit) for each in both]
                entries.append(_difference(both, metric))
        rows.append(TableRow(entries=tuple(entries), refused=refused))
    columns = [Column(title="cell", alignment="left"), Column(title="arm", alignment="left")]
    columns += [Column(title=f"n, {name}") for name in names]
    for shown in map(percentile_name, _SHARES):
        columns += [Column(title=f"{shown}, {name}", unit=metric.unit) for name in names]
        columns.append(Column(title=f"difference of {shown}", unit=metric.unit))
    table = ReportTable(
        title=f"{metric.title}, unpaired",
        name=f"{metric.name}_unpaired",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(UNPAIRED,),
    )
    return without_empty(table)


def _difference(both: Sequence[Quantile | None], metric: RequestMetric) -> TableCell:
    values = [each.value for each in both if each is not None and each.value is not None]
    if len(values) < 2:
        return NOTHING
    difference = values[1] - values[0]
    return TableCell(text=signed_figure(difference, metric.unit), value=difference)
