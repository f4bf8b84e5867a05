"""Two runs beside each other: figures, and no verdict, for nothing controlled what changed between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from .._formatting import listed, signed_figure
from ..checks import Checked
from ..findings import Findings
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
    number,
    percentile,
    table,
)

UNPAIRED: Final = "Unpaired: drift between the runs is not controlled."


def compare(
    first: RecordedRun,
    second: RecordedRun,
    *,
    findings: tuple[Findings, Findings],
    checked: tuple[Checked, Checked],
    names: tuple[str, str] = ("first", "second"),
) -> RunReport:
    """Return the figures of two runs beside each other, for the cells and arms that both have, without verdicts."""
    if names[0] == names[1]:
        names = (f"{names[0]} (first)", f"{names[1]} (second)")
    runs = [
        (name, Material(recorded=recorded, findings=found, checked=results))
        for name, recorded, found, results in zip(names, (first, second), findings, checked, strict=True)
    ]
    places, others = ([(cell.name, arm.name) for cell in run.cells for arm in run.own_arms] for _, run in runs)
    places = [place for place in places if place in others]
    metrics = [metric_named(name) for name in first.header.metrics if name in second.header.metrics]
    parts: list[Line | Table] = [Line(f"{UNPAIRED} No difference below is a verdict.", "warning")]
    if differing := list(_differing(first.header, second.header, names)):
        parts.append(Line(f"The runs differ in more than time: {'; '.join(differing)}.", "warning"))
    if places:
        parts += [_table(runs, metric, places) for metric in metrics]
    else:
        parts.append(Line("They have no cell and arm in common: there is nothing to put beside each other."))
    return RunReport(
        kind="compare",
        title=f"Two runs: {first.header.name} and {second.header.name}",
        question=f"What does {names[1]} show beside {names[0]}?",
        verdicts=(Line(UNPAIRED, "warning"),),
        facts=tuple((name, _fact(run.recorded)) for name, run in runs),
        sections=(
            Section(title="Figures", parts=tuple(parts)),
            *(checks_section(run, f"Checks of {name}") for name, run in runs),
            definitions(metrics),
        ),
    )


def _fact(run: RecordedRun) -> str:
    header = run.header
    started = f"started {header.started_at or 'not known'}, {run.ended}"
    return f"{header.name}; {header.provider}, model {header.model}; {started}; {machine_words(header)}"


def _differing(first: Header, second: Header, names: tuple[str, str]) -> Iterator[str]:
    for what in ("provider", "model", "workload", "one_way_s"):
        before, after = getattr(first, what), getattr(second, what)
        if before != after:
            yield f"{what.removesuffix('_s').replace('_', ' ')} ({names[0]}: {before}, {names[1]}: {after})"
    for what, ours, theirs in (
        ("setting", first.settings, second.settings),
        ("machine's", first.machine, second.machine),
    ):
        if keys := [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]:
            yield f"{what} {listed(key.replace('_', ' ') for key in keys)}"


def _table(runs: Sequence[tuple[str, Material]], metric: RequestMetric, places: Sequence[tuple[str, str]]) -> Table:
    rows = []
    for cell, arm in places:
        refused = [f"{name}: {why}" for name, run in runs if (why := run.refused(cell, arm))]
        found = [(name, run.figures(cell, arm, metric.name)) for name, run in runs]
        columns = {f"n, {name}": number(each.n if each else None) for name, each in found}
        for share, shown in ((0.5, "p50"), (0.95, "p95")):
            both = [(name, each.quantiles.get(share) if each else None) for name, each in found]
            columns |= {f"{shown}, {name}": percentile(each, metric.unit) for name, each in both}
            first, second = (each.value if each else None for _, each in both)
            known = first is not None and second is not None
            columns[f"difference of {shown}"] = (
                Entry(signed_figure(second - first, metric.unit)) if known else NOTHING  # type: ignore[operator]
            )
        rows.append(({"cell": cell, "arm": arm}, columns, refused[0] if refused else None))
    return table(f"{metric.title}, unpaired ({metric.unit})", rows, notes=(UNPAIRED,))
