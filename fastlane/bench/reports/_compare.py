"""Two runs beside each other: figures, and no verdict, for nothing held what lay between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from .._formatting import listed, percentile_name, signed_figure
from ..checks import Checked
from ..findings import Findings, Quantile
from ..recorded import Header, RecordedRun, RequestMetric, metric_named
from ._material import Material
from ._tables import (
    NOTHING,
    Entry,
    Line,
    RunReport,
    Section,
    Table,
    checks_section,
    definitions,
    machine_words,
    named_row,
    number,
    percentile,
    without_empty,
)

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
    places, others = ([(cell.name, arm.name) for cell in run.cells for arm in run.own_arms] for run in runs)
    places = [place for place in places if place in others]
    metrics = [metric_named(name) for name in first.header.metrics if name in second.header.metrics]
    parts: list[Line | Table] = [Line(f"{UNPAIRED} No difference below is a verdict.", "warning")]
    if differing := list(_differing(first.header, second.header, names)):
        parts.append(Line(f"The runs differ in more than time: {'; '.join(differing)}.", "warning"))
    if places:
        parts += [_table(runs, metric, places, names) for metric in metrics]
    else:
        parts.append(Line("They have no cell and arm in common: there is nothing to put beside each other."))
    return RunReport(
        kind="compare",
        title=f"Two runs: {first.header.name} and {second.header.name}",
        question=f"What does {names[1]} show beside {names[0]}?",
        verdicts=(Line(UNPAIRED, "warning"),),
        facts=tuple((name, _fact(run)) for run, name in zip((first, second), names, strict=True)),
        sections=(
            Section(title="Figures", parts=tuple(parts)),
            *(checks_section(run, f"Checks of {name}") for run, name in zip(runs, names, strict=True)),
            definitions(metrics),
        ),
    )


def _fact(run: RecordedRun) -> str:
    header = run.header
    whom = f"{header.name}; {header.provider}, model {header.model}"
    return f"{whom}; started {header.started_at or 'not known'}, {run.ended}; {machine_words(header)}"


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
) -> Table:
    columns = [f"n, {name}" for name in names]
    for shown in map(percentile_name, _SHARES):
        columns += [*(f"{shown}, {name}" for name in names), f"difference of {shown}"]
    rows = []
    for cell, arm in places:
        refused = next(
            (f"{name}: {why}" for run, name in zip(runs, names, strict=True) if (why := run.refused(cell, arm))), None
        )
        found = [run.figures(cell, arm, metric.name) for run in runs]
        entries = [number(each.n if each else None) for each in found]
        for share in _SHARES:
            both = [each.quantiles.get(share) if each else None for each in found]
            entries += [percentile(each, metric.unit) for each in both]
            entries.append(_difference(both, metric))
        rows.append(named_row((cell, arm), entries, refused, len(columns)))
    return without_empty(
        Table(
            title=f"{metric.title}, unpaired ({metric.unit})",
            columns=("cell", "arm", *columns),
            rows=tuple(rows),
            names=2,
            notes=(UNPAIRED,),
        )
    )


def _difference(both: Sequence[Quantile | None], metric: RequestMetric) -> Entry:
    values = [each.value for each in both if each is not None and each.value is not None]
    return Entry(signed_figure(values[1] - values[0], metric.unit)) if len(values) == 2 else NOTHING
