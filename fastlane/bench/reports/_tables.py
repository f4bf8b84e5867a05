"""A report as plain data: the lines and tables that all reports are made of, and their Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement
from rich.table import Table

from .. import _formatting as words
from ..checks import CheckResult
from ..findings import Interval, Quantile
from ..recorded import ArmInfo, Cell, RequestMetric
from ._material import Material

Tone = Literal["plain", "good", "bad", "warning", "muted"]


class Line(NamedTuple):
    """Some sentences of plain text, or one cell of a table."""

    text: str
    tone: Tone = "plain"


Entry = Line


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Figures in rows and columns. All rows are as long as `columns`, whose first `names` say what a row is of."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    names: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What stands below one heading."""

    title: str
    parts: tuple[Line | ReportTable, ...] = ()
    checks: tuple[CheckResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One report of one run, or of two: the question, its answer (`verdicts`), what was run (`facts`), the details."""

    kind: Literal["ab", "sweep", "compare"]
    title: str
    question: str
    verdicts: tuple[Line, ...]
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]

    def tables(self) -> Iterator[ReportTable]:
        return (part for section in self.sections for part in section.parts if isinstance(part, ReportTable))


# Entries

NOTHING: Final = Entry("-", "muted")
"""No figure: it was not measured, or does not apply."""
UNKNOWN: Final = Entry("not known", "muted")
"""A figure that exists, but was not reported."""
Statistic = Literal["n", "failed", "mean", "deviation", "CV", "min", "max", "p25", "p50", "p75", "p90", "p95", "p99"]


def number(value: float | None, unit: str = "", missing: Entry = NOTHING) -> Entry:
    return missing if value is None else Entry(words.figure(value, unit))


def errors(count: int) -> Entry:
    return Entry(f"{count:,}", "bad" if count else "plain")


def share(value: float | None, missing: Entry = NOTHING) -> Entry:
    return missing if value is None else Entry(words.percent(value))


def estimate(found: Interval | None, unit: str = "", *, signed: bool = False) -> Entry:
    return NOTHING if found is None else Entry(words.interval(found, unit, signed=signed))


def percentile(found: Quantile | None, unit: str = "") -> Entry:
    """Return a percentile with its interval, or why there is none; nothing at an n that does not bound it."""
    if found is not None and found.withheld is not None:
        return Entry(f"invalid: {found.withheld.removeprefix('client saturated: ')}", "bad")
    if found is not None and found.value is None and found.n >= found.wanted:
        return Entry("failed", "bad")
    return estimate(None if found is None else found.interval, unit)


# Tables

Names = Mapping[str, str]
"""The columns that say what a row is of."""
Columns = Mapping[str, Entry]
Row = tuple[Names, Columns, str | None]
"""Names, figures, and why the figures are refused, if they are."""


def table(title: str, rows: Sequence[Row], *, notes: Sequence[str] = ()) -> ReportTable:
    """Return a table of rows. Columns without any figure are left out; a note names those that are not known."""
    seen: dict[str, set[Entry]] = {}
    for _, figures, refused in rows:
        for column, entry in figures.items() if refused is None else ():
            seen.setdefault(column, set()).add(entry)
    columns = [column for column, found in seen.items() if not found <= {NOTHING, UNKNOWN}]
    unknown = [column for column, found in seen.items() if column not in columns and UNKNOWN in found]
    if not columns and any(refused for _, _, refused in rows):
        columns = ["figures"]
    names = list(rows[0][0]) if rows else []
    made = []
    for own, figures, refused in rows:
        shown = [figures.get(column, NOTHING) for column in columns]
        if refused is not None:
            shown = [Entry(refused, "bad"), *[Entry("")] * (len(columns) - 1)]
        made.append((*map(Entry, own.values()), *shown))
    return ReportTable(
        title=title,
        columns=(*names, *columns),
        rows=tuple(made),
        names=len(names),
        notes=(*notes, *((f"Not known: {words.listed(unknown)}.",) if unknown else ())),
    )


def arm_table(
    material: Material,
    title: str,
    figures: Callable[[Cell, ArmInfo], Columns],
    *,
    names: Callable[[Cell, ArmInfo], Names] | None = None,
    cells: Sequence[Cell] | None = None,
    arms: Sequence[ArmInfo] | None = None,
    notes: Sequence[str] = (),
) -> ReportTable:
    """Return a table with a row for each cell and arm. `names` None: the cell where there are several, and the arm."""

    def usual(cell: Cell, arm: ArmInfo) -> Names:
        return ({"cell": cell.name} if material.several_cells else {}) | {"arm": arm.name}

    rows: list[Row] = []
    for cell in material.cells if cells is None else cells:
        for arm in material.own_arms if arms is None else arms:
            refused = material.refused(cell.name, arm.name)
            rows.append(((names or usual)(cell, arm), {} if refused else figures(cell, arm), refused))
    return table(title, rows, notes=notes)


def metric_table(
    material: Material, metric: RequestMetric, statistics: Sequence[Statistic], **rows: Any
) -> ReportTable:
    """Return an `arm_table` of one metric's statistics."""
    few: dict[str, None] = {}

    def columns(cell: Cell, arm: ArmInfo) -> Columns:
        found = material.figures(cell.name, arm.name, metric.name)
        if found is None:
            return {}
        shown = {
            "n": number(found.n), "failed": errors(found.failed), "mean": number(found.mean, metric.unit),
            "deviation": number(found.deviation, metric.unit), "CV": share(found.variation),
            "min": number(found.minimum, metric.unit), "max": number(found.maximum, metric.unit),
        }  # fmt: skip
        for quantile in found.quantiles.values():
            name = words.percentile_name(quantile.share)
            entry = percentile(quantile, metric.unit)
            # Of quartiles the median has its interval: the others show the spread.
            quartile = quantile.share in (0.25, 0.75)
            shown[name] = entry._replace(text=entry.text.partition(" [")[0]) if quartile else entry
            if name in statistics and quantile.n < quantile.wanted:
                few[f"{name} needs {quantile.wanted}"] = None
        return {name: shown[name] for name in statistics}

    made = arm_table(material, f"{metric.title} ({metric.unit})", columns, **rows)
    return replace(made, notes=(*made.notes, f"Too few requests: {words.listed(few)}.")) if few else made


# Markdown, which the terminal renders too

_SPECIAL: Final = re.compile(r"([\\`*|<>]|~~)")


class _WholeTable(TableElement):
    """A table in which long words are folded, not cut off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for made in super().__rich_console__(console, options):
            for column in made.columns if isinstance(made, Table) else ():
                column.overflow = "fold"
            yield made


class _Terminal(Markdown):
    elements: ClassVar = {**Markdown.elements, "table_open": _WholeTable}


def print_terminal(report: RunReport, console: Console) -> None:
    console.print(_Terminal(markdown(report), hyperlinks=False))


def markdown(report: RunReport) -> str:
    """Return a report as GitHub-flavoured Markdown, without its charts."""
    lines = [f"# {_escaped(report.title)}", "", _escaped(report.question), ""]
    lines += [f"- {_marked(line)}" for line in report.verdicts]
    lines += ["", *_rows(("", ""), 2, (map(_escaped, fact) for fact in report.facts))]
    for section in report.sections:
        lines += ["", f"## {_escaped(section.title)}"]
        for part in section.parts:
            lines.append("")
            if isinstance(part, ReportTable):
                lines += [f"**{_escaped(part.title)}**", ""]
                lines += _rows(map(_escaped, part.columns), part.names, (map(_marked, row) for row in part.rows))
                lines += [line for note in part.notes for line in ("", _escaped(note))]
            else:
                lines.append(_marked(part))
        if section.checks:
            lines += ["", *_checks(section.checks)]
    return "\n".join(lines).strip() + "\n"


def _escaped(text: str) -> str:
    """Return plain text so that Markdown shows it as it is, in a table too."""
    return _SPECIAL.sub(r"\\\1", text).replace("\n", " ")


def _marked(what: Line) -> str:
    return f"**{_escaped(what.text)}**" if what.tone == "bad" else _escaped(what.text)


def _rows(columns: Iterable[str], names: int, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(columns)
    aligned = [":---" if at < names else "---:" for at in range(len(columns))]
    for row in (columns, aligned, *rows):
        yield f"| {' | '.join(row)} |"


def _checks(results: Iterable[CheckResult]) -> Iterator[str]:
    """Return what was refused and flagged, one row for each check, then the names of the other checks."""
    grouped: dict[tuple[str, str], list[CheckResult]] = {}
    for result in results:
        grouped.setdefault((result.level, result.check), []).append(result)
    rows = []
    for level, marked in (("refused", "**refused**"), ("flagged", "flagged")):
        for (at, check), (first, *more) in grouped.items():
            if at == level:
                others = f" ({words.counted(len(more), 'more such result')})" if more else ""
                rows.append((marked, _escaped(check), _escaped(f"{first.where}: {first.sentence}{others}")))
    if rows:
        yield from _rows(("result", "check", "what was seen"), 3, rows)
    for level in ("not checked", "passed"):
        if names := [check for at, check in grouped if at == level]:
            yield from ("", f"{level.capitalize()}: {_escaped(', '.join(names))}.")
