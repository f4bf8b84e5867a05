"""The reports over several cells: by users or rate, by length of input and output, and of one user's pace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

from .._formatting import change, counted, figure, interval, lowered, percent, with_unit
from ..findings import Interval
from ..recorded import ArmInfo, Cell, Sample, metric_named
from ._ab_details import cold_blocks
from ._blocks import (
    Block,
    Chart,
    Column,
    Heading,
    Paragraph,
    ReportTable,
    RunReport,
    TableCell,
    TableRow,
    Tone,
)
from ._cells import NOTHING, counted_entry, interval_entry, label, number_entry
from ._definitions import definitions
from ._facts import checks_section, compose
from ._gate import targets_table
from ._material import Material, scenario_of
from ._rules import Rule
from ._tables import ARM, Statistic, arm_table, notes_of, statistic_cells, statistic_columns

INSTANT_MS: Final = 20.0
"""Below this inter-token latency a stream feels instant: the boundary of a published H200 report."""
SLUGGISH_MS: Final = 70.0
"""Above this one it feels sluggish: the same."""
_LOADED: Final = ("api_end_to_end", "inter_token_latency", "time_to_first_token", "output_throughput")
_PACE: Final = ("decode_speed", "inter_token_latency", "time_to_first_token")
_LENGTHS: Final = (
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
_OF_LOADS: Final[tuple[Statistic, ...]] = ("n", "failed", 0.25, 0.5, 0.75, 0.95, 0.99)
_OF_LENGTHS: Final[tuple[Statistic, ...]] = ("n", "mean", "deviation", "CV", "min", "max", 0.5, 0.95, 0.99)
_UNSTEADY: Final = 0.2
"""The CV above which a mean is pointed out: what a published report of GPT-2 on a CPU aimed at, and missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One arm's figure at one load: the p50 of a metric, or a share of the p50 at the lowest load."""

    cell: Cell
    arm: str
    found: Interval

    @property
    def value(self) -> float:
        """The figure without its bounds."""
        return self.found.value


# What the three reports have in common.


def _points(material: Material, metric: str, scenario: str | None = None, arm: str | None = None) -> list[SweepPoint]:
    """Return the p50 of a metric in every cell that may be used and has one, in the order of their load."""
    found = []
    for cell in material.valid_cells:
        for each in material.own_arms:
            if scenario not in (None, scenario_of(cell)) or arm not in (None, each.name):
                continue
            figures = material.figures(cell.name, each.name, metric)
            median = figures.quantiles.get(0.5) if figures else None
            if median is not None and median.interval is not None:
                found.append(SweepPoint(cell=cell, arm=each.name, found=median.interval))
    return found


def _scenarios(material: Material) -> list[str]:
    return [name for name in material.scenarios if _cells(material, name)]


def _cells(material: Material, scenario: str) -> tuple[Cell, ...]:
    return tuple(cell for cell in material.cells if scenario_of(cell) == scenario)


def _several(material: Material) -> bool:
    return len(material.own_arms) > 1


def _arm_column(material: Material) -> tuple[Column, ...]:
    return (ARM,) if _several(material) else ()


def _arm_name(material: Material, arm: str) -> tuple[TableCell, ...]:
    return (label(arm),) if _several(material) else ()


def _load_words(cell: Cell) -> str:
    if cell.rate is not None and cell.users is None:
        return f"{cell.rate:g} blocks/s"
    return counted(cell.users or 0, "user")


def _load_column(material: Material) -> Column:
    opened = any(cell.load == "open" for cell in material.cells)
    return Column(title="rate", unit="blocks/s") if opened else Column(title="users")


def _load_entry(cell: Cell) -> TableCell:
    load = cell.users if cell.users is not None else cell.rate
    return NOTHING if load is None else TableCell(text=f"{load:g}", value=load)


def _place(material: Material, cell: Cell, arm: str) -> str:
    """Return where a figure was seen: "Chatbot, 1 user"; with the arm where there are several."""
    return ", ".join([scenario_of(cell), _load_words(cell), *([arm] if _several(material) else [])])


def _by_load(
    material: Material,
    scenario: str,
    title: str,
    name: str,
    columns: Sequence[Column],
    figures: Callable[[Cell, ArmInfo], Sequence[TableCell]],
    notes: Sequence[str] = (),
) -> ReportTable:
    """Return a table with a row for each load of a scenario, and arm."""
    return arm_table(
        material,
        title,
        f"{name}_{scenario}",
        (_load_column(material), *_arm_column(material)),
        columns,
        lambda cell, arm: (_load_entry(cell), *_arm_name(material, arm.name)),
        figures,
        cells=_cells(material, scenario),
        notes=notes,
    )


def _percentiles(material: Material, name: str, scenario: str) -> ReportTable:
    """Return a metric's percentiles at every load of one scenario."""
    metric = metric_named(name)
    return _by_load(
        material,
        scenario,
        metric.title,
        name,
        statistic_columns(_OF_LOADS, metric.unit),
        lambda cell, arm: statistic_cells(
            material.figures(cell.name, arm.name, name), _OF_LOADS, metric.unit, unbounded=(0.25, 0.75)
        ),
    )


def _token_counts(material: Material, scenario: str) -> ReportTable:
    """Return range, mean and deviation of a scenario's input and output tokens, meant and seen."""
    cells = _cells(material, scenario)
    refused = material.refused_all(cells)
    names = {cell.name for cell in cells}
    sent = [each for each in material.recorded.samples if each.part == "measured" and each.cell in names]
    seen = [each for each in sent if each.error is None and not material.refused(each.cell, each.arm)]
    counts: tuple[tuple[str, Sequence[Sample], Callable[[Sample], int | None]], ...] = (
        ("input, as meant", sent, lambda sample: sample.meant_input_tokens),
        ("output, at least", sent, lambda sample: sample.least_output_tokens),
        ("output, at most", sent, lambda sample: sample.asked_output_tokens),
        ("input, as seen", seen, lambda sample: sample.input_tokens),
        ("output, as seen", seen, lambda sample: sample.output_tokens),
    )
    rows = []
    for name, samples, count in counts:
        values = [value for sample in samples if (value := count(sample)) is not None]
        if refused and samples is seen:
            rows.append(TableRow(entries=(label(name),), refused=refused))
            continue
        entries = (NOTHING,) * 3
        if values:
            mean, spread = fmean(values), f" ± {figure(stdev(values))}" if len(values) > 1 else ""
            lowest, highest = (TableCell(text=f"{each:,}", value=each) for each in (min(values), max(values)))
            entries = (lowest, highest, TableCell(text=f"{figure(mean)}{spread}", value=mean))
        rows.append(TableRow(entries=(label(name), *entries)))
    left_out = sum(material.refused(cell.name) is not None for cell in cells)
    note = f"As seen: of {counted(len(seen), 'request')} that succeeded, by the provider's usage"
    note += f", without {counted(left_out, 'invalid cell')}." if left_out else "."
    return ReportTable(
        title="Test configuration",
        name=f"configuration_{scenario}",
        columns=(
            Column(title="tokens", alignment="left"),
            Column(title="lowest"),
            Column(title="highest"),
            Column(title="mean ± deviation"),
        ),
        rows=tuple(rows),
        notes=() if refused else (note,),
    )


def _end(material: Material, *terms: str) -> list[Block]:
    return [*checks_section(material), Heading(text="Definitions"), definitions(*terms)]


# By users or rate.


def load_report(material: Material) -> RunReport:
    """Return the report by number of users, or by rate under an open load."""
    blocks: list[Block] = []
    for scenario in _scenarios(material):
        blocks += [Heading(text=scenario), _token_counts(material, scenario)]
        if any(cell.caching_forbidden for cell in _cells(material, scenario)):
            blocks.append(
                Paragraph(
                    text="Cache prevention: every prompt is unique from its first line on, so that no provider can "
                    "read it from a cache. Whether it did so all the same is among the checks."
                )
            )
        blocks += [_percentiles(material, name, scenario) for name in _LOADED]
        blocks.append(_together(material, scenario))
    blocks.append(Heading(text="By users"))
    for name in _LOADED:
        metric = metric_named(name)
        blocks.append(Chart(name=f"{name}_by_users", title=f"{metric.title} ({metric.unit})"))
    opened = any(cell.load == "open" for cell in material.cells)
    more = (
        "a request get as more of them come in per second"
        if opened
        else "each user get as more of them send at the same time"
    )
    return compose(
        material,
        "load",
        title="Load",
        question=f"What does {more}?",
        verdicts=list(_load_verdicts(material)),
        blocks=[*blocks, *_end(material, *_LOADED, "intervals", "users")],
    )


def _together(material: Material, scenario: str) -> ReportTable:
    def figures(cell: Cell, arm: ArmInfo) -> tuple[TableCell, ...]:
        found = material.found(cell.name)
        alone = material.figures(cell.name, arm.name, "output_throughput")
        median = alone.quantiles.get(0.5) if alone else None
        return (
            number_entry(found.requests.get(arm.name, 0)),
            counted_entry(sum(found.errors.get(arm.name, {}).values())),
            number_entry(median.value if median else None, "tokens/s"),
            number_entry(found.throughput.get(arm.name), "tokens/s"),
        )

    return _by_load(
        material,
        scenario,
        "Requests together",
        "together",
        (
            Column(title="requests"),
            Column(title="failed"),
            Column(title="output throughput of a request, p50", unit="tokens/s"),
            Column(title="of the arm", unit="tokens/s"),
        ),
        figures,
        (
            "Of the arm: output tokens over the seconds in which it had requests in flight.",
            "Arms share the users: with all of them to itself an arm would give more.",
        ),
    )


def _load_verdicts(material: Material) -> Iterator[Paragraph]:
    for scenario in material.scenarios:
        for arm in material.own_arms:
            said = []
            for name in ("time_to_first_token", "output_throughput"):
                metric, found = metric_named(name), _points(material, name, scenario, arm.name)
                if not found:
                    continue
                first, last = found[0], found[-1]
                text = f"{lowered(metric.title)} p50 {with_unit(first.value, metric.unit)} at {_load_words(first.cell)}"
                if last is not first:
                    text += f", {with_unit(last.value, metric.unit)} at {_load_words(last.cell)}"
                    text += f" ({change(last.value / first.value)})" if first.value else ""
                said.append(text)
            if said:
                name = f"{scenario}, {arm.name}" if _several(material) else scenario
                yield Paragraph(text=f"{name}: {'; '.join(said)}.")


# By length of input and output.


def lengths_report(material: Material, targets: Sequence[Rule] = ()) -> RunReport:
    """Return the report by length of input and output, with the targets that were given."""
    blocks: list[Block] = []
    shown: set[str] = set()
    for cell in material.cells:
        blocks.append(Heading(text=_length(material, cell)))
        if scenario_of(cell) not in shown:
            blocks.append(_token_counts(material, scenario_of(cell)))
            shown.add(scenario_of(cell))
        blocks.append(_figures(material, cell))
    blocks.append(Heading(text="Scaling"))
    blocks += [_factors(material, name) for name in _SCALED]
    blocks += [Chart(name=f"{name}_by_length", title=f"{metric_named(name).title} by length") for name in _VARIED]
    blocks += cold_blocks(material)
    if targets:
        blocks += [Heading(text="Targets"), targets_table(material, targets)]
    return compose(
        material,
        "lengths",
        title="Lengths",
        question="What do longer inputs and outputs cost?",
        verdicts=list(_length_verdicts(material)),
        blocks=[*blocks, *_end(material, *_LENGTHS, "intervals", "cv", "factor", "cold")],
    )


def _length(material: Material, cell: Cell) -> str:
    """Return a cell's scenario where no other cell has it, and else its own name."""
    return scenario_of(cell) if len(_cells(material, scenario_of(cell))) == 1 else cell.name


def _figures(material: Material, cell: Cell) -> ReportTable:
    """Return a row for each metric and arm of one cell."""
    rows = []
    for metric in map(metric_named, _LENGTHS):
        for arm in material.own_arms:
            refused = material.refused(cell.name, arm.name)
            found = material.figures(cell.name, arm.name, metric.name)
            figures = () if refused else statistic_cells(found, _OF_LENGTHS, metric.unit)
            names = (label(f"{metric.title} ({metric.unit})"), *_arm_name(material, arm.name))
            rows.append(TableRow(entries=(*names, *figures), refused=refused))
    return ReportTable(
        title=f"Figures of {_length(material, cell)}",
        name=f"figures_{cell.name}",
        columns=(Column(title="metric", alignment="left"), *_arm_column(material), *statistic_columns(_OF_LENGTHS)),
        rows=tuple(rows),
        notes=notes_of(rows),
    )


def _factors(material: Material, name: str) -> ReportTable:
    metric = metric_named(name)

    def figures(cell: Cell, arm: ArmInfo) -> tuple[TableCell, ...]:
        mean = number_entry(_mean_input(material, cell, arm.name))
        point = next((each for each in _points(material, name, arm=arm.name) if each.cell == cell), None)
        if point is None:
            return (mean, NOTHING, NOTHING)
        value = interval_entry(point.found, metric.unit)
        factor = _factor(material, name, point)
        if factor is None:
            return (mean, value, NOTHING)
        shown = TableCell(text=f"{interval(factor)} x", value=factor.value, low=factor.low, high=factor.high)
        return (mean, value, shown)

    return arm_table(
        material,
        f"{metric.title} by length",
        f"scaling_{name}",
        (Column(title="scenario", alignment="left"), *_arm_column(material)),
        (
            Column(title="input seen, mean", unit="tokens"),
            Column(title="p50", unit=metric.unit),
            Column(title="factor"),
        ),
        lambda cell, arm: (label(_length(material, cell)), *_arm_name(material, arm.name)),
        figures,
    )


def _ratio(over: Interval, base: Interval) -> Interval:
    """Return one p50 over another, with the worst and best that both intervals allow."""
    return Interval(
        value=over.value / base.value,
        low=over.low / base.high if over.low is not None and base.high else None,
        high=over.high / base.low if over.high is not None and base.low else None,
    )


def _factor(material: Material, name: str, point: SweepPoint) -> Interval | None:
    """Return a p50 over that of the first scenario."""
    base = _first_length(material, name, point.arm)
    if base is None or not base.value:
        return None
    return Interval(value=1.0) if point.cell == base.cell else _ratio(point.found, base.found)


def _first_length(material: Material, name: str, arm: str) -> SweepPoint | None:
    """Return the first scenario's point; None where that one is invalid, for no other may stand in for it."""
    found = _points(material, name, arm=arm)
    return found[0] if found and material.cells and found[0].cell == material.cells[0] else None


def _factor_sentence(material: Material, name: str) -> str:
    metric = metric_named(name)
    said = []
    for arm in material.own_arms:
        found, base = _points(material, name, arm=arm.name), _first_length(material, name, arm.name)
        factor = _factor(material, name, found[-1]) if base is not None and len(found) > 1 else None
        if base is None or factor is None:
            continue
        before, after = (_mean_input(material, point.cell, arm.name) for point in (base, found[-1]))
        growth = after / before if before and after else None
        times = f" for {figure(growth)} times the input" if growth else ""
        meaning = _concluded(factor, growth if metric.lower_is_better else None)
        who = f"{arm.name}: " if _several(material) else ""
        said.append(f"{who}{interval(factor)} times that of {_length(material, base.cell)}{times} ({meaning})")
    if not said:
        return f"{metric.title} (p50): there is no valid figure of the first length and another one to compare."
    return f"{metric.title} (p50) at {_length(material, _points(material, name)[-1].cell)}: {'; '.join(said)}."


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
    sent = material.samples.get((cell.name, arm), ())
    counts = [sample.input_tokens for sample in sent if sample.error is None and sample.input_tokens is not None]
    return fmean(counts) if counts else None


def _length_verdicts(material: Material) -> Iterator[Paragraph]:
    for name in _SCALED:
        based = any(_first_length(material, name, arm.name) for arm in material.own_arms)
        if based and len(_points(material, name)) > 1:
            yield Paragraph(text=_factor_sentence(material, name))
    for cell in material.valid_cells:
        for arm in material.own_arms:
            found = material.figures(cell.name, arm.name, "time_to_first_token")
            if found is not None and found.variation is not None and found.variation > _UNSTEADY:
                who = f"{_length(material, cell)}{f', {arm.name}' if _several(material) else ''}"
                yield Paragraph(
                    text=f"{who}: time to first token varies by {percent(found.variation)} (CV of "
                    f"{counted(found.n, 'request')}): its mean says little by itself.",
                    tone="warning",
                )


# One user's pace among many.


def scaling_report(material: Material) -> RunReport:
    """Return the report of one user's pace by number of users."""
    scenarios = _scenarios(material)
    blocks: list[Block] = [Heading(text="Scenarios")]
    for scenario in scenarios:
        blocks += [Heading(text=scenario, level=3), _token_counts(material, scenario)]
    for name, title in (
        ("decode_speed", "Decode speed of each user"),
        ("inter_token_latency", "Inter-token latency of each user"),
    ):
        metric = metric_named(name)
        blocks += [
            Heading(text=title),
            Chart(name=f"{name}_by_users", title=f"{metric.title} ({metric.unit}) by users"),
        ]
        for scenario in scenarios:
            blocks += [Heading(text=scenario, level=3), _percentiles(material, name, scenario)]
    found = efficiencies(material)
    blocks += [
        Heading(text="All scenarios"),
        _pace(material, found),
        Chart(name="efficiency", title="Scaling efficiency by users, one line per scenario"),
    ]
    verdicts = [Paragraph(text=_best_and_worst(material, name)) for name in _PACE if _points(material, name)]
    if any(not _is_base(material, each) for each in found):
        verdicts.append(Paragraph(text=_efficiency_sentence(material, found)))
    return compose(
        material,
        "scaling",
        title="Scaling",
        question="How fast is one user's stream, alone and beside others?",
        verdicts=verdicts,
        blocks=[*blocks, *_end(material, *_PACE, "intervals", "users", "bands", "efficiency")],
    )


def efficiencies(material: Material) -> tuple[SweepPoint, ...]:
    """Return each cell's decode speed as a share of that at the fewest users of its scenario, which comes first.

    A scenario of which the fewest users have no valid figure has none.
    """
    found = []
    for scenario in _scenarios(material):
        for arm in material.own_arms:
            line = _points(material, "decode_speed", scenario, arm.name)
            if not line or not _is_base(material, line[0]) or not line[0].value:
                continue
            for point in line:
                share = Interval(value=1.0) if point is line[0] else _ratio(point.found, line[0].found)
                found.append(SweepPoint(cell=point.cell, arm=arm.name, found=share))
    return tuple(found)


def _is_base(material: Material, point: SweepPoint) -> bool:
    return point.cell == _cells(material, scenario_of(point.cell))[0]


def _band(milliseconds: float | None) -> tuple[str, Tone]:
    """Return how an inter-token latency feels, and how that is meant."""
    if milliseconds is None:
        return "-", "muted"
    if milliseconds < INSTANT_MS:
        return "instant", "good"
    return ("acceptable", "plain") if milliseconds <= SLUGGISH_MS else ("sluggish", "bad")


def _best_and_worst(material: Material, name: str) -> str:
    metric = metric_named(name)
    found = sorted(_points(material, name), key=lambda point: point.value, reverse=not metric.lower_is_better)
    best, worst = found[0], found[-1]
    ends = [f"{with_unit(each.value, metric.unit)} ({_place(material, each.cell, each.arm)})" for each in (best, worst)]
    towards = "down" if best.value > worst.value else "up"
    said = f"{metric.title} (p50) of each user ranges from {ends[0]} {towards} to {ends[1]}."
    if name == "inter_token_latency":
        feels = [_band(point.value)[0] for point in (best, worst)]
        alike = feels[0] == feels[1]
        said += f" All of it is {feels[0]}." if alike else f" The best is {feels[0]}, the worst {feels[1]}."
    if best != worst and _overlap(best.found, worst.found):
        said += " The intervals of the two overlap: no difference shown."
    return said


def _overlap(one: Interval, other: Interval) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return True
    return one.low <= other.high and other.low <= one.high


def _pace(material: Material, found: Sequence[SweepPoint]) -> ReportTable:
    """Return one user's pace at every load of every scenario: medians, how a stream feels, scaling efficiency."""
    medians = {(name, each.cell.name, each.arm): each.value for name in _PACE for each in _points(material, name)}
    shares = {(each.cell.name, each.arm): each.found for each in found}

    def figures(cell: Cell, arm: ArmInfo) -> tuple[TableCell, ...]:
        values = {name: medians.get((name, cell.name, arm.name)) for name in _PACE}
        latency = values["inter_token_latency"]
        word, tone = _band(latency)
        return (
            *(number_entry(values[name], metric_named(name).unit) for name in _PACE),
            TableCell(text=word, value=word, tone=tone),
            _efficiency_cell(shares.get((cell.name, arm.name))),
        )

    note = f"Instant below {INSTANT_MS:g} ms between tokens, acceptable to {SLUGGISH_MS:g} ms, sluggish above."
    return arm_table(
        material,
        "Pace of each user, p50",
        "pace",
        (Column(title="scenario", alignment="left"), _load_column(material), *_arm_column(material)),
        (
            *(Column(title=lowered(metric_named(name).title), unit=metric_named(name).unit) for name in _PACE),
            Column(title="feels", alignment="left"),
            Column(title="scaling efficiency"),
        ),
        lambda cell, arm: (label(scenario_of(cell)), _load_entry(cell), *_arm_name(material, arm.name)),
        figures,
        notes=(note, "Scaling efficiency: of the decode speed at the fewest users of the same scenario."),
    )


def _efficiency_cell(share: Interval | None) -> TableCell:
    if share is None:
        return NOTHING
    text = percent(share.value)
    if share.low is not None and share.high is not None:
        text += f" [{', '.join(percent(bound).removesuffix(' %') for bound in (share.low, share.high))}]"
    return TableCell(text=text, value=share.value, low=share.low, high=share.high)


def _efficiency_sentence(material: Material, found: Sequence[SweepPoint]) -> str:
    beyond = [each for each in found if not _is_base(material, each)]
    most = max(beyond, key=lambda each: (each.cell.users or 0, each.cell.rate or 0.0)).cell
    alike = [each for each in beyond if (each.cell.users, each.cell.rate) == (most.users, most.rate)]
    best, worst = (pick(alike, key=lambda each: each.value) for pick in (max, min))
    said = f"At {_load_words(most)}, scaling efficiency"
    ends = [percent(each.value) for each in (best, worst)]
    if len(alike) > 1 and ends[0] == ends[1]:
        return f"{said} is {ends[0]} everywhere."
    whose = [
        f"{scenario_of(each.cell)}, {each.arm}" if _several(material) else scenario_of(each.cell)
        for each in (best, worst)
    ]
    if len(alike) == 1:
        return f"{said} is {ends[0]} ({whose[0]})."
    return f"{said} ranges from {ends[0]} ({whose[0]}) to {ends[1]} ({whose[1]})."
