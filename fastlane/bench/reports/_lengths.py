"""The report of what longer inputs and outputs cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

from ..findings import Interval
from ..recorded import Cell, metric_named
from . import _definitions as terms
from ._blocks import Block, Chart, Column, Heading, Paragraph, ReportTable, RunReport, TableCell, TableRow, VerdictLine
from ._facts import checks_section, compose
from ._material import Material, scenario_of
from ._rules import Rule
from ._sweep import SweepPoint, points
from ._targets import targets_table
from ._token_counts import token_counts
from ._words import (
    NOTHING,
    WANTS_N,
    change,
    counted,
    figure,
    interval,
    label,
    lowered,
    number_entry,
    percent,
    quantile_entry,
    share_entry,
    with_unit,
)

_METRICS: Final = (
    "time_to_first_token",
    "time_per_output_token",
    "inter_token_latency",
    "generation_time",
    "api_end_to_end",
    "decode_speed",
    "output_throughput",
)
_SCALED: Final = ("time_to_first_token", "decode_speed", "api_end_to_end")
_VARIED: Final = ("time_to_first_token", "time_per_output_token", "decode_speed", "api_end_to_end")
_CHARTED: Final = ("time_to_first_token", "time_per_output_token", "decode_speed", "api_end_to_end")
_SHARES: Final = (0.5, 0.95, 0.99)
_UNSTEADY: Final = 0.2
"""The CV above which a mean is pointed out: what a published report of GPT-2 on a CPU aimed at, and missed."""


def lengths_report(material: Material, targets: Sequence[Rule] = ()) -> RunReport:
    """Return the report by length of input and output, with the targets that were given."""
    blocks: list[Block] = []
    for cell in material.cells:
        blocks += _cell(material, cell)
    blocks += [Heading(text="Scaling")]
    for name in _SCALED:
        blocks += [_scaling(material, name), Paragraph(text=_scaling_sentence(material, name))]
    blocks += [Heading(text="Variance"), _variance(material), *_charts(material), *_cold_and_warm(material)]
    if targets:
        blocks += [Heading(text="Targets"), targets_table(material, targets)]
    further = (terms.INTERVAL, terms.CV, terms.FACTOR, terms.COLD)
    blocks += [*checks_section(material), Heading(text="Definitions"), terms.definitions(_METRICS, further)]
    return compose(
        material,
        "lengths",
        title="Lengths",
        question="What do longer inputs and outputs cost?",
        verdicts=list(_verdicts(material)),
        blocks=blocks,
    )


def _cell(material: Material, cell: Cell) -> Iterator[Block]:
    yield Heading(text=name_of(material, cell))
    if next(each for each in material.cells if scenario_of(each) == scenario_of(cell)) == cell:
        yield token_counts(material, scenario_of(cell))
    rows, wanting = [], False
    several = len(material.own_arms) > 1
    for name in _METRICS:
        metric = metric_named(name)
        for arm in material.own_arms:
            heading = f"{metric.title} ({metric.unit})"
            names = (heading, arm.name) if several else (heading,)
            found = material.figures(cell.name, arm.name, name)
            entries: tuple[TableCell, ...] = (NOTHING,) * (len(_SHARES) + 5)
            if found is not None:
                quantiles = tuple(quantile_entry(found.quantiles.get(share), metric.unit) for share in _SHARES)
                wanting = wanting or any(each.text.startswith("wants n") for each in quantiles)
                described = (found.mean, found.deviation, found.minimum, found.maximum)
                entries = (
                    number_entry(found.n),
                    *(number_entry(value, metric.unit) for value in described),
                    *quantiles,
                )
            rows.append(material.row(cell, names, entries))
    yield ReportTable(
        title=f"Figures of {name_of(material, cell)}",
        name=f"figures_{cell.name}",
        columns=(
            Column(title="metric", alignment="left"),
            *((Column(title="arm", alignment="left"),) if several else ()),
            *(Column(title=title) for title in ("n", "mean", "deviation", "min", "max", "p50", "p95", "p99")),
        ),
        rows=tuple(rows),
        notes=(WANTS_N,) if wanting else (),
    )


def name_of(material: Material, cell: Cell) -> str:
    """Return a cell's scenario where no other cell has it, and else its own name."""
    alike = [each for each in material.cells if scenario_of(each) == scenario_of(cell)]
    return scenario_of(cell) if len(alike) == 1 else cell.name


def _scaling(material: Material, name: str) -> ReportTable:
    metric = metric_named(name)
    rows = []
    several = len(material.own_arms) > 1
    for cell in material.cells:
        for arm in material.own_arms:
            names = (name_of(material, cell), arm.name) if several else (name_of(material, cell),)
            point = next((each for each in points(material, name, arm=arm.name) if each.cell == cell), None)
            entries: tuple[TableCell, ...] = (number_entry(_mean_input(material, cell, arm.name)), NOTHING, NOTHING)
            if point is not None:
                factor = _factor(material, name, point)
                shown = NOTHING
                if factor is not None:
                    text = f"{interval(factor)} x"
                    shown = TableCell(text=text, value=factor.value, low=factor.low, high=factor.high)
                found = Interval(value=point.value, low=point.low, high=point.high)
                value = TableCell(text=interval(found, metric.unit), value=point.value, low=point.low, high=point.high)
                entries = (entries[0], value, shown)
            rows.append(material.row(cell, names, entries))
    return ReportTable(
        title=f"{metric.title} by length",
        name=f"scaling_{name}",
        columns=(
            Column(title="scenario", alignment="left"),
            *((Column(title="arm", alignment="left"),) if several else ()),
            Column(title="input seen, mean", unit="tokens"),
            Column(title="p50", unit=metric.unit),
            Column(title="factor"),
        ),
        rows=tuple(rows),
    )


def _factor(material: Material, name: str, point: SweepPoint) -> Interval | None:
    """Return a p50 over that of the first scenario, with the worst and best that both intervals allow."""
    base = _base(material, name, point.arm)
    if base is None or not base.value:
        return None
    if point.cell == base.cell:
        return Interval(value=1.0)
    if None in (point.low, point.high, base.low, base.high) or not base.low or not base.high:
        return Interval(value=point.value / base.value)
    return Interval(
        value=point.value / base.value,
        low=(point.low or 0.0) / base.high,
        high=(point.high or 0.0) / base.low,
    )


def _base(material: Material, name: str, arm: str) -> SweepPoint | None:
    """Return the first scenario's point; None where that one is invalid, for no other may stand in for it."""
    found = points(material, name, arm=arm)
    return found[0] if found and material.cells and found[0].cell == material.cells[0] else None


def _scaling_sentence(material: Material, name: str) -> str:
    metric = metric_named(name)
    said = []
    for arm in material.own_arms:
        found = points(material, name, arm=arm.name)
        base = _base(material, name, arm.name)
        if base is None or len(found) < 2:
            continue
        factor = _factor(material, name, found[-1])
        inputs = [_mean_input(material, point.cell, arm.name) for point in (base, found[-1])]
        if factor is None:
            continue
        growth = f" for {figure(inputs[1] / inputs[0])} times the input" if inputs[0] and inputs[1] else ""
        growth_of_input = inputs[1] / inputs[0] if inputs[0] and inputs[1] else None
        bounds = _concluded(factor, growth_of_input if metric.lower_is_better else None)
        who = f"{arm.name}: " if len(material.own_arms) > 1 else ""
        said.append(f"{who}{interval(factor)} times that of {name_of(material, base.cell)}{growth} ({bounds})")
    if not said:
        return f"{metric.title} (p50): there is no valid figure of the first length and another one to compare."
    return f"{metric.title} (p50) at {name_of(material, points(material, name)[-1].cell)}: {'; '.join(said)}."


def _concluded(factor: Interval, growth: float | None) -> str:
    """Return what a factor and its bounds allow to be said, beside how much the input grew."""
    if factor.low is None or factor.high is None:
        return "too few requests for bounds: nothing follows from it"
    if factor.low <= 1 <= factor.high:
        return "its bounds hold 1: no difference shown"
    if growth is None or growth <= 1:
        return "its bounds exclude 1"
    if factor.high < growth:
        return "less than in proportion"
    return "more than in proportion" if factor.low > growth else "whether in proportion cannot be told"


def _mean_input(material: Material, cell: Cell, arm: str) -> float | None:
    if material.refused(cell.name, arm):
        return None
    sent = material.samples().get((cell.name, arm), ())
    counts = [sample.input_tokens for sample in sent if sample.error is None and sample.input_tokens is not None]
    return fmean(counts) if counts else None


def _variance(material: Material) -> ReportTable:
    rows = []
    several = len(material.own_arms) > 1
    for cell in material.cells:
        for arm in material.own_arms:
            entries = []
            for name in _VARIED:
                found = material.figures(cell.name, arm.name, name)
                known = found is not None and found.mean and found.deviation is not None
                value = found.deviation / found.mean if found and found.mean and found.deviation is not None else None
                entries.append(share_entry(value) if known else NOTHING)
            rows.append(
                material.row(
                    cell, (name_of(material, cell), arm.name) if several else (name_of(material, cell),), tuple(entries)
                )
            )
    return ReportTable(
        title="Coefficient of variation (CV)",
        name="variance",
        columns=(
            Column(title="scenario", alignment="left"),
            *((Column(title="arm", alignment="left"),) if several else ()),
            *(Column(title=lowered(metric_named(name).title)) for name in _VARIED),
        ),
        rows=tuple(rows),
    )


def _charts(material: Material) -> Iterator[Chart]:
    for name in _CHARTED:
        metric = metric_named(name)
        found = points(material, name)
        said = ", ".join(f"{_who(material, each)} {with_unit(each.value, metric.unit)}" for each in found)
        yield Chart(
            name=f"{name}_by_length",
            title=f"{metric.title} by length",
            caption=f"{metric.title}, p50: {said}." if said else "No cell has enough requests for a p50.",
            refused=material.refused_all(),
        )


def _who(material: Material, point: SweepPoint) -> str:
    name = name_of(material, point.cell)
    return f"{name}, {point.arm}" if len(material.own_arms) > 1 else name


def _cold_and_warm(material: Material) -> Iterator[Block]:
    yield Heading(text="Cold and warm")
    refused = material.refused_run()
    rows = []
    for arm in material.own_arms:
        found = next((each for each in material.findings.cold if each.arm == arm.name), None)
        cold, warm = (found.time_to_first_token_ms, found.warm_time_to_first_token_ms) if found else (None, None)
        ratio = TableCell(text=change(cold / warm), value=cold / warm) if cold and warm else NOTHING
        entries = (number_entry(cold, "ms"), number_entry(warm, "ms"), ratio)
        name = (label(arm.name),)
        rows.append(TableRow(entries=name if refused else name + entries, refused=refused))
    yield ReportTable(
        title="Time to first token, cold and warm",
        name="cold_and_warm",
        columns=(
            Column(title="arm", alignment="left"),
            Column(title="cold, the very first", unit="ms"),
            Column(title="warm, the same prompt", unit="ms"),
            Column(title="cold against warm"),
        ),
        rows=tuple(rows),
        notes=("Warm: the same prompt, sent once more to warm up. Making the client is outside.",),
    )


def _verdicts(material: Material) -> Iterator[VerdictLine]:
    for name in _SCALED:
        if any(_base(material, name, arm.name) for arm in material.own_arms) and len(points(material, name)) > 1:
            yield VerdictLine(text=_scaling_sentence(material, name))
    for cell in material.valid_cells:
        for arm in material.own_arms:
            found = material.figures(cell.name, arm.name, "time_to_first_token")
            if (
                found is not None
                and found.mean
                and found.deviation is not None
                and found.deviation / found.mean > _UNSTEADY
            ):
                name = name_of(material, cell)
                who = f"{name}, {arm.name}" if len(material.own_arms) > 1 else name
                yield VerdictLine(
                    text=f"{who}: time to first token varies by {percent(found.deviation / found.mean)} "
                    f"(CV of {counted(found.n, 'request')}): its mean says little by itself.",
                    tone="warning",
                )
