"""A report as plain data, sentences and tables, and the entries and tables that all reports are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from .._formatting import change_with_interval, counted, figure, interval, listed, percent, percentile_name
from ..checks import CheckResult
from ..findings import Interval, Quantile
from ..recorded import ArmInfo, Cell, Header, RequestMetric
from ._material import Material

Kind = Literal["ab", "sweep"]
"""What a report shows: arms beside each other, or how figures change by users and by lengths."""
Tone = Literal["plain", "good", "bad", "warning", "muted"]
"""How something is meant: for colours and weights, never the only carrier of a meaning."""


class Entry(NamedTuple):
    """One cell of a table."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Line:
    """Some sentences of plain text, without mark-up."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Figures in rows and columns. All rows are as long as `columns`."""

    title: str
    """With the unit, where all figures have the same one."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    names: int = 1
    """Columns at the left that say what a row is of; the others hold figures."""
    notes: tuple[str, ...] = ()
    """Sentences below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What stands below one heading."""

    title: str
    parts: tuple[Line | Table, ...] = ()
    checks: tuple[CheckResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One report of one run, or of two."""

    kind: Kind | Literal["compare"]
    title: str
    question: str
    """What the report answers, in one sentence."""
    verdicts: tuple[Line, ...]
    """The answer, one sentence each."""
    facts: tuple[tuple[str, str], ...]
    """What was run, where, when, and how it ended: labels and texts."""
    sections: tuple[Section, ...]

    def tables(self) -> Iterator[Table]:
        """Return the tables in the order in which they stand."""
        return (part for section in self.sections for part in section.parts if isinstance(part, Table))


NOTHING: Final = Entry("-", "muted")
"""No figure: it was not measured, or does not apply."""
UNKNOWN: Final = Entry("not known", "muted")
"""A figure that exists, but that nobody reported."""
Statistic = Literal["n", "failed", "mean", "deviation", "CV", "min", "max", "p25", "p50", "p75", "p90", "p95", "p99"]
"""A column of an arm's figures."""


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
    if found is not None and found.withheld is not None:
        return Entry(f"invalid: {found.withheld.removeprefix('client saturated: ')}", "bad")
    if found is not None and found.value is None and found.n >= found.wanted:
        return Entry("failed", "bad")
    return estimate(None if found is None else found.interval, unit)


Names = Mapping[str, str]
"""The columns that say what a row is of."""
Columns = Mapping[str, Entry]
"""The figures of a row by their columns."""


def table(title: str, rows: Sequence[tuple[Names, Columns, str | None]], *, notes: Sequence[str] = ()) -> Table:
    """Return a table of rows: their names, their figures, and why the figures are refused, if they are.

    Columns without any figure are left out; a note names those that are not known.
    """
    seen: dict[str, set[Entry]] = {}
    for _, figures, refused in rows:
        for column, entry in figures.items() if refused is None else ():
            seen.setdefault(column, set()).add(entry)
    columns = [column for column, found in seen.items() if not found <= {NOTHING, UNKNOWN}]
    unknown = [column for column, found in seen.items() if column not in columns and UNKNOWN in found]
    if not columns and any(refused for _, _, refused in rows):
        columns = ["figures"]
    names = list(rows[0][0]) if rows else []
    return Table(
        title=title,
        columns=(*names, *columns),
        rows=tuple(
            (
                *map(Entry, own.values()),
                *(figures.get(column, NOTHING) for column in columns if refused is None),
                *([Entry(refused, "bad"), *[Entry("")] * (len(columns) - 1)] if refused is not None else ()),
            )
            for own, figures, refused in rows
        ),
        names=len(names),
        notes=(*notes, *((f"Not known: {listed(unknown)}.",) if unknown else ())),
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
) -> Table:
    """Return a table with a row for each cell and arm. `names` None: the cell where there are several, and the arm."""

    def usual(cell: Cell, arm: ArmInfo) -> Names:
        return ({"cell": cell.name} if material.several_cells else {}) | {"arm": arm.name}

    rows = []
    for cell in material.cells if cells is None else cells:
        for arm in material.own_arms if arms is None else arms:
            refused = material.refused(cell.name, arm.name)
            rows.append(((names or usual)(cell, arm), {} if refused else figures(cell, arm), refused))
    return table(title, rows, notes=notes)


def metric_table(material: Material, metric: RequestMetric, statistics: Sequence[Statistic], **rows: Any) -> Table:
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
            name = percentile_name(quantile.share)
            entry = percentile(quantile, metric.unit)
            # Of quartiles the median has its interval: the others show the spread.
            quartile = quantile.share in (0.25, 0.75)
            shown[name] = entry._replace(text=entry.text.partition(" [")[0]) if quartile else entry
            if name in statistics and quantile.n < quantile.wanted:
                few[f"{name} needs {quantile.wanted}"] = None
        return {name: shown[name] for name in statistics}

    made = arm_table(material, f"{metric.title} ({metric.unit})", columns, **rows)
    return replace(made, notes=(*made.notes, f"Too few requests: {listed(few)}.")) if few else made


def compose(
    material: Material,
    kind: Kind,
    *,
    title: str,
    question: str,
    verdicts: Sequence[Line],
    sections: Sequence[Section],
    metrics: Sequence[RequestMetric],
) -> RunReport:
    """Return a report of one kind with what all kinds have in common: facts, refusals at the top, checks at the end.

    A report of which no figure may be used says why, and has its checks and definitions alone.
    """
    if material.refused_all() is not None:
        verdicts, sections = (), ()
    return RunReport(
        kind=kind,
        title=f"{title}: {material.recorded.header.name}",
        question=question,
        verdicts=(*_refusals(material), *verdicts, *_flags(material)),
        facts=tuple(_facts(material)),
        sections=(*sections, checks_section(material), definitions(metrics)),
    )


def checks_section(material: Material, title: str = "Checks") -> Section:
    """Return the section of the checks."""
    results = material.checked.results
    levels = [f"{count} {level}" for level, count in Counter(each.level for each in results).items()]
    return Section(title=title, parts=(Line(f"{listed(levels) or 'No check was made of this run'}."),), checks=results)


def definitions(metrics: Sequence[RequestMetric]) -> Section:
    """Return what the metrics of a report mean, and its brackets."""
    rows = [(metric.title, metric.meaning) for metric in metrics]
    rows.append(("Brackets", "95 % confidence intervals. Failed requests count as slower than all others."))
    made = table("Metrics", [({"metric": title, "meaning": meaning}, {}, None) for title, meaning in rows])
    return Section(title="Definitions", parts=(made,))


def _refusals(material: Material) -> Iterator[Line]:
    if material.refused_all() is not None:
        # The same check says the same of several arms and cells, with other figures.
        why = {each.check: each.sentence.removesuffix(".") for each in reversed(material.checked.refusals())}
        sentences = "; ".join(f"{check}: {sentence}" for check, sentence in reversed(why.items()))
        yield Line(f"Refused: no figure of this run may be used. {sentences}. See Checks.", "bad")
        return
    places: dict[str, list[str]] = {}
    for cell in material.cells:
        if refused := material.refused(cell.name):
            places.setdefault(refused, []).append(cell.name)
            continue
        for arm in material.arms:
            if refused := material.refused(cell.name, arm.name):
                places.setdefault(refused, []).append(f"{cell.name}, {arm.name}")
    for refused, names in places.items():
        yield Line(f"{' | '.join(names)}: {refused}; see Checks.", "bad")


def _flags(material: Material) -> Iterator[Line]:
    if material.recorded.ended == "interrupted":
        yield Line("Interrupted: the figures are of what was finished until then.", "warning")
    if flagged := list(dict.fromkeys(each.check for each in material.checked.results if each.level == "flagged")):
        yield Line(f"Flagged: {listed(flagged)}; see Checks.", "warning")


def _facts(material: Material) -> Iterator[tuple[str, str]]:
    recorded, header = material.recorded, material.recorded.header
    workload = "; ".join(material.scenarios) or header.workload
    yield "Provider", header.provider if header.embedded else f"{header.provider}, model {header.model}"
    yield "Workload", f"{workload} ({header.workload_source})" if header.workload_source else workload
    yield from (("", note) for note in dict.fromkeys(header.workload_notes))
    several = len(material.references) > 1
    roles = {"reference": f", {'a' if several else 'the'} reference", "again": "", "arm": ""}
    for at, arm in enumerate(material.arms):
        role = f", against {material.reference_of(arm.name)}" if several and arm.role == "arm" else roles[arm.role]
        yield "" if at else "Arms", f"{arm.name}: {arm.description}{role}"
    blocks = len({each.key for each in recorded.measured()})
    yield "Load", f"{_load(material)}; {counted(blocks, 'block')}, each with one request of every arm"
    counts = Counter(sample.part for sample in recorded.samples)
    yield "Requests", f"{counts['measured']:,} measured, {counts['warm-up']:,} to warm up, {counts['cold']:,} cold"
    seed = header.settings.get("seed")
    ended = f"{figure(recorded.duration_s)} s, ended: {recorded.ended}"
    yield "Run", ended if seed is None else f"{ended}; seed {seed}"
    yield "Machine", machine_words(header)
    yield "Started", header.started_at or "not known"


def machine_words(header: Header) -> str:
    """Return what a run ran on: "python 3.11.7, cores 2"."""
    return ", ".join(f"{key} {value}" for key, value in header.machine.items() if key != "packages")


def _load(material: Material) -> str:
    """Return the load in words: "closed, 1, 4 and 8 users in turn, 0.1 s between blocks"."""
    cells = material.recorded.header.cells
    if any(cell.load == "open" for cell in cells):
        rates = listed(dict.fromkeys(f"{cell.rate:g}" for cell in cells if cell.rate is not None))
        return f"open, {rates} blocks a second"
    users = sorted({cell.users for cell in cells if cell.users is not None})
    words = f"closed, {listed(map(str, users))} {'user' if users == [1] else 'users'}"
    words += " in turn" if len(users) > 1 else ""
    arms = len(material.arms)
    if arms > 1 and users:
        each = listed(f"{count / arms:.2g}" for count in users)
        words += f" shared by {arms} arms: an arm has {each} requests in flight in the mean"
    think_s = (material.recorded.header.settings.get("load") or {}).get("think_s")
    return words + (f", {think_s:g} s between blocks" if think_s else "")
