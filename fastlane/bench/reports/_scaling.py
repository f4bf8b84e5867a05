"""The report of what one user's stream is like while more users share the same engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..recorded import Cell, metric_named
from . import _definitions as terms
from ._blocks import Block, Chart, Column, Heading, ReportTable, RunReport, TableCell, TableRow, Tone, VerdictLine
from ._facts import checks_section, compose
from ._material import Material, scenario_of
from ._sweep import (
    SweepPoint,
    cells_of,
    load_column,
    load_entry,
    percentiles_by_load,
    place,
    points,
)
from ._token_counts import token_counts
from ._words import NOTHING, figure, label, percent, with_unit

INSTANT_MS: Final = 20.0
"""Below this inter-token latency a stream feels instant: the boundary of a published H200 report."""
SLUGGISH_MS: Final = 70.0
"""Above this one it feels sluggish: the same."""
_SHARES: Final = (0.25, 0.5, 0.75, 0.95, 0.99)
_EntryOf = Callable[[Cell, str], TableCell]
_METRICS: Final = ("decode_speed", "inter_token_latency", "time_to_first_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """How much of a lone user's decode speed is left for each of more users."""

    scenario: str
    arm: str
    cell: Cell
    share: float
    """1.0 where more users cost nobody anything."""
    low: float | None
    high: float | None
    """The worst and the best that the intervals of both speeds allow together."""
    base: Cell


def scaling_report(material: Material) -> RunReport:
    """Return the report of one user's pace by number of users."""
    blocks: list[Block] = [Heading(text="Scenarios")]
    scenarios = [name for name in material.scenarios if cells_of(material, name)]
    for scenario in scenarios:
        blocks += [Heading(text=scenario, level=3), token_counts(material, scenario)]
    for name, title in (
        ("decode_speed", "Decode speed of each user"),
        ("inter_token_latency", "Inter-token latency and its bands"),
    ):
        blocks += [Heading(text=title), _chart(material, name)]
        for scenario in scenarios:
            blocks += [
                Heading(text=scenario, level=3),
                percentiles_by_load(material, metric_named(name), scenario, _SHARES, f"{name}_{scenario}"),
            ]
    blocks += [_bands(material)]
    blocks += _efficiency_blocks(material)
    for name, chart, title in (
        ("decode_speed", "decode_speed_range", "Range of decode speed across scenarios"),
        ("time_to_first_token", "ttft_range", "Range of time to first token across scenarios"),
    ):
        blocks += [Heading(text=title), _range(material, name, chart)]
    further = (terms.INTERVAL, terms.USERS, terms.BANDS, terms.EFFICIENCY)
    blocks += [*checks_section(material), Heading(text="Definitions"), terms.definitions(_METRICS, further)]
    return compose(
        material,
        "scaling",
        title="Scaling",
        question="How fast is one user's stream, alone and beside others?",
        verdicts=list(_verdicts(material)),
        blocks=blocks,
    )


def band_of(milliseconds: float) -> tuple[str, Tone]:
    """Return how an inter-token latency feels, and how that is meant."""
    if milliseconds < INSTANT_MS:
        return "instant", "good"
    return ("acceptable", "plain") if milliseconds <= SLUGGISH_MS else ("sluggish", "bad")


def efficiencies(material: Material) -> tuple[Efficiency, ...]:
    """Return the scaling efficiency of every cell that may be used and whose scenario's lowest load may be, too."""
    found = []
    for scenario in dict.fromkeys(material.scenarios):
        cells = cells_of(material, scenario)
        for arm in material.own_arms:
            line = points(material, "decode_speed", scenario, arm.name)
            if not line or line[0].cell != cells[0] or not line[0].value:
                # Without the lone user's figure nothing is left of what an efficiency would be of.
                continue
            found += [
                Efficiency(
                    scenario=scenario,
                    arm=arm.name,
                    cell=point.cell,
                    share=point.value / line[0].value,
                    low=point.low / line[0].high if point.low is not None and line[0].high else None,
                    high=point.high / line[0].low if point.high is not None and line[0].low else None,
                    base=cells[0],
                )
                for point in line
            ]
    return tuple(found)


def _best_and_worst(material: Material, name: str) -> str:
    metric = metric_named(name)
    found = points(material, name)
    if not found:
        return f"{metric.title}: no cell may be used that has enough requests for a p50."
    values = sorted(found, key=lambda point: point.value, reverse=not metric.lower_is_better)
    best, worst = values[0], values[-1]
    said = (
        f"{metric.title} (p50) of each user ranges from {with_unit(best.value, metric.unit)} ({place(material, best)}) "
    )
    towards = "down" if best.value > worst.value else "up"
    said += f"{towards} to {with_unit(worst.value, metric.unit)} ({place(material, worst)})."
    if name == "inter_token_latency":
        feels = [band_of(point.value)[0] for point in (best, worst)]
        alike = feels[0] == feels[1]
        said += f" All of it is {feels[0]}." if alike else f" The best is {feels[0]}, the worst {feels[1]}."
    if best != worst and _overlap(best, worst):
        said += " The intervals of the two overlap: no difference shown."
    return said


def _overlap(one: SweepPoint, other: SweepPoint) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return True
    return one.low <= other.high and other.low <= one.high


def _chart(material: Material, name: str) -> Chart:
    metric = metric_named(name)
    return Chart(
        name=f"{name}_by_users",
        title=f"{metric.title} ({metric.unit}) by users",
        caption=_best_and_worst(material, name),
        refused=material.refused_all(),
    )


def _grid(material: Material, title: str, name: str, unit: str, entry: _EntryOf, note: str = "") -> ReportTable:
    """Return a table with a row for each load and arm, and a column for each scenario."""
    scenarios = [each for each in material.scenarios if cells_of(material, each)]
    loads = sorted({(cell.users or 0, cell.rate or 0.0) for cell in material.cells})
    several = len(material.own_arms) > 1
    rows = []
    for load in loads:
        at = {scenario_of(cell): cell for cell in material.cells if (cell.users or 0, cell.rate or 0.0) == load}
        for arm in material.own_arms:
            entries = [load_entry(next(iter(at.values())))]
            entries += [label(arm.name)] if several else []
            for scenario in scenarios:
                cell = at.get(scenario)
                refused = material.refused(cell.name, arm.name) if cell else None
                if refused:
                    entries.append(TableCell(text=refused, tone="bad"))
                else:
                    entries.append(entry(cell, arm.name) if cell else NOTHING)
            rows.append(TableRow(entries=tuple(entries)))
    return ReportTable(
        title=title,
        name=name,
        columns=(
            load_column(material),
            *((Column(title="arm", alignment="left"),) if several else ()),
            *(Column(title=scenario, unit=unit) for scenario in scenarios),
        ),
        rows=tuple(rows),
        notes=(note,) if note else (),
    )


def _bands(material: Material) -> ReportTable:
    found = {(point.cell.name, point.arm): point for point in points(material, "inter_token_latency")}

    def entry(cell: Cell, arm: str) -> TableCell:
        point = found.get((cell.name, arm))
        if point is None:
            return NOTHING
        word, tone = band_of(point.value)
        return TableCell(text=f"{figure(point.value, 'ms')}, {word}", value=point.value, tone=tone)

    note = f"Instant below {INSTANT_MS:g} ms, acceptable to {SLUGGISH_MS:g} ms, sluggish above."
    return _grid(material, "How it feels: inter-token latency, p50", "itl_bands", "ms", entry, note)


def _efficiency_blocks(material: Material) -> Iterator[Block]:
    found = efficiencies(material)
    shares = {(each.cell.name, each.arm): each for each in found}

    def entry(cell: Cell, arm: str) -> TableCell:
        each = shares.get((cell.name, arm))
        if each is None:
            return NOTHING
        if each.cell == each.base or each.low is None or each.high is None:
            return TableCell(text=percent(each.share), value=each.share)
        text = f"{percent(each.share)} [{percent(each.low)}, {percent(each.high)}]".replace(" %,", ",").replace(
            " %]", "]"
        )
        return TableCell(text=text, value=each.share, low=each.low, high=each.high)

    sentence = _efficiency_sentence(material, found)
    yield Heading(text="Scaling efficiency")
    bases = {cells[0] for scenario in material.scenarios if (cells := cells_of(material, scenario))}
    without = [material.refused(base.name) for base in bases]
    note = "Of the decode speed (p50) at the fewest users of the same scenario."
    if any(without):
        note += " Empty where that cell is invalid."
    yield _grid(material, "Scaling efficiency", "scaling_efficiency", "", entry, note)
    yield Chart(
        name="efficiency",
        title="Scaling efficiency by users, one line per scenario",
        caption=sentence,
        refused=material.refused_all(),
    )


def _efficiency_sentence(material: Material, found: Sequence[Efficiency]) -> str:
    beyond = [each for each in found if each.cell != each.base]
    if not beyond:
        return "Scaling efficiency: there are no two valid loads of one scenario to compare."
    most = max(beyond, key=lambda each: (each.cell.users or 0, each.cell.rate or 0.0)).cell
    alike = [each for each in beyond if (each.cell.users, each.cell.rate) == (most.users, most.rate)]
    best, worst = max(alike, key=lambda each: each.share), min(alike, key=lambda each: each.share)
    point = SweepPoint(cell=most, arm=best.arm, value=best.share, low=None, high=None)
    if len(alike) > 1 and percent(best.share) == percent(worst.share):
        return f"At {point.load}, scaling efficiency is {percent(best.share)} everywhere."
    if len(alike) == 1:
        return f"At {point.load}, scaling efficiency is {percent(best.share)} ({_whose(material, best)})."
    return (
        f"At {point.load}, scaling efficiency ranges from {percent(best.share)} ({_whose(material, best)}) "
        f"to {percent(worst.share)} ({_whose(material, worst)})."
    )


def _whose(material: Material, each: Efficiency) -> str:
    return f"{each.scenario}, {each.arm}" if len(material.own_arms) > 1 else each.scenario


def _range(material: Material, name: str, chart: str) -> ReportTable:
    metric = metric_named(name)
    several = len(material.own_arms) > 1
    rows = []
    for load in sorted({(cell.users or 0, cell.rate or 0.0) for cell in material.cells}):
        cells = tuple(cell for cell in material.cells if (cell.users or 0, cell.rate or 0.0) == load)
        for arm in material.own_arms:
            entries = [load_entry(cells[0])] + ([label(arm.name)] if several else [])
            refused = material.refused_all(cells)
            here = [each for each in points(material, name, arm=arm.name) if each.cell in cells]
            if here and not refused:
                low, high = min(here, key=lambda each: each.value), max(here, key=lambda each: each.value)
                entries += [
                    TableCell(text=figure(low.value, metric.unit), value=low.value),
                    label(scenario_of(low.cell)),
                    TableCell(text=figure(high.value, metric.unit), value=high.value),
                    label(scenario_of(high.cell)),
                    TableCell(text=f"{len(here)} of {len(cells)}", value=len(here)),
                ]
            elif not refused:
                entries += [NOTHING] * 5
            rows.append(TableRow(entries=tuple(entries), refused=refused))
    return ReportTable(
        title=f"{metric.title} (p50), lowest and highest scenario",
        name=chart,
        columns=(
            load_column(material),
            *((Column(title="arm", alignment="left"),) if several else ()),
            Column(title="lowest", unit=metric.unit),
            Column(title="scenario", alignment="left"),
            Column(title="highest", unit=metric.unit),
            Column(title="scenario", alignment="left"),
            Column(title="scenarios"),
        ),
        rows=tuple(rows),
    )


def _verdicts(material: Material) -> Iterator[VerdictLine]:
    for name in _METRICS:
        if points(material, name):
            yield VerdictLine(text=_best_and_worst(material, name))
    found = efficiencies(material)
    if any(each.cell != each.base for each in found):
        yield VerdictLine(text=_efficiency_sentence(material, found))
