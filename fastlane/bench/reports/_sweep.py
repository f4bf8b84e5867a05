"""The report over several cells: how figures change by users or rate, and by lengths of input and output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import Final

from .._formatting import counted, figure, interval, lowered, percent, with_unit
from ..findings import Interval
from ..recorded import ArmInfo, Cell, Sample, metric_named
from ._ab import cold_section
from ._material import Material, scenario_of
from ._tables import (
    NOTHING,
    Entry,
    Line,
    RunReport,
    Section,
    Statistic,
    Table,
    Tone,
    arm_table,
    compose,
    errors,
    estimate,
    metric_table,
    named_row,
    number,
)

INSTANT_MS: Final = 20.0
"""Below this inter-token latency a stream feels instant: the boundary of a published H200 report."""
SLUGGISH_MS: Final = 70.0
"""Above this one it feels sluggish: the same."""
_METRICS: Final = (
    "time_to_first_token",
    "time_per_output_token",
    "inter_token_latency",
    "generation_time",
    "api_end_to_end",
    "decode_speed",
    "output_throughput",
)
_PACE: Final = ("decode_speed", "inter_token_latency", "time_to_first_token")
_SCALED: Final = ("time_to_first_token", "decode_speed", "api_end_to_end")
_STATISTICS: Final[tuple[Statistic, ...]] = (
    "n", "failed", "mean", "deviation", "CV", "min", 0.25, 0.5, 0.75, 0.95, 0.99, "max",
)  # fmt: skip
_UNSTEADY: Final = 0.2
"""The CV above which a mean is pointed out: what a published report of GPT-2 on a CPU aimed at, and missed."""


def sweep_report(material: Material) -> RunReport:
    """Return the report by users or rate, and by length of input and output."""
    metrics = [metric_named(name) for name in _METRICS]
    scenarios = [name for name in material.scenarios if _cells(material, name)]
    return compose(
        material,
        "sweep",
        title="Sweep",
        question="How do times and speeds change with the load, and with the lengths of inputs and outputs?",
        verdicts=[*_ranges(material), *_unsteady(material)],
        sections=[
            Section(title="All cells", parts=(_pace(material), *_by_length(material, scenarios))),
            *(_scenario(material, name) for name in scenarios),
            *cold_section(material),
        ],
        metrics=metrics,
    )


def median(material: Material, cell: Cell, arm: str, metric: str) -> Interval | None:
    """Return the p50 of a metric with its interval; None where there is none that may be used."""
    found = material.figures(cell.name, arm, metric)
    return found.quantiles[0.5].interval if found is not None else None


def efficiency(material: Material, cell: Cell, arm: str) -> Interval | None:
    """Return a cell's decode speed as a share of that at the fewest users of its scenario.

    None where those have no valid figure, for no other may stand in for them.
    """
    return _over(material, cell, _cells(material, scenario_of(cell))[0], arm, "decode_speed")


def _over(material: Material, cell: Cell, base: Cell, arm: str, metric: str) -> Interval | None:
    """Return one cell's p50 over another's, with the worst and best that both intervals allow."""
    top, bottom = (median(material, each, arm, metric) for each in (cell, base))
    if top is None or bottom is None or not bottom.value:
        return None
    if cell is base:
        return Interval(value=1.0)
    return Interval(
        value=top.value / bottom.value,
        low=top.low / bottom.high if top.low is not None and bottom.high else None,
        high=top.high / bottom.low if top.high is not None and bottom.low else None,
    )


def _cells(material: Material, scenario: str) -> tuple[Cell, ...]:
    return tuple(cell for cell in material.cells if scenario_of(cell) == scenario)


def _load_title(material: Material) -> str:
    return "blocks/s" if any(cell.load == "open" for cell in material.cells) else "users"


def _load(cell: Cell) -> str:
    return f"{cell.users if cell.users is not None else cell.rate or 0:g}"


def _place(material: Material, cell: Cell, arm: ArmInfo) -> str:
    """Return where a figure was seen: "chat, 4 users"; with the arm where there are several."""
    load = counted(cell.users, "user") if cell.users is not None else f"{cell.rate:g} blocks/s"
    return ", ".join([scenario_of(cell), load, *([arm.name] if len(material.own_arms) > 1 else [])])


def _ranges(material: Material) -> Iterator[Line]:
    """Return the best and the worst p50 of each metric of a user's pace."""
    for metric in map(metric_named, _PACE):
        found = [
            (value, _place(material, cell, arm))
            for cell in material.cells
            for arm in material.own_arms
            if (value := median(material, cell, arm.name, metric.name)) is not None
        ]
        found.sort(key=lambda each: each[0].value, reverse=not metric.lower_is_better)
        if not found:
            continue
        best, worst = found[0], found[-1]
        ends = [f"{with_unit(value.value, metric.unit)} ({place})" for value, place in (best, worst)]
        said = f"{metric.title} (p50) of each user: {ends[0]} at best, {ends[1]} at worst."
        if best is not worst and _overlap(best[0], worst[0]):
            said += " The intervals of the two overlap: no difference shown."
        yield Line(said)


def _overlap(one: Interval, other: Interval) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return True
    return one.low <= other.high and other.low <= one.high


def _unsteady(material: Material) -> Iterator[Line]:
    for cell in material.cells:
        for arm in material.own_arms:
            found = material.figures(cell.name, arm.name, "time_to_first_token")
            if found is not None and found.variation is not None and found.variation > _UNSTEADY:
                yield Line(
                    f"{_place(material, cell, arm)}: time to first token varies by {percent(found.variation)} (CV of "
                    f"{counted(found.n, 'request')}): its mean says little by itself.",
                    "warning",
                )


def _pace(material: Material) -> Table:
    """Return one user's pace in every cell: medians, how a stream feels, scaling efficiency."""

    def figures(cell: Cell, arm: ArmInfo) -> Sequence[Entry]:
        found, shares = material.found(cell.name), efficiency(material, cell, arm.name)
        latency = median(material, cell, arm.name, "inter_token_latency")
        return (
            number(found.requests.get(arm.name, 0)),
            errors(sum(found.errors.get(arm.name, {}).values())),
            *(_value(median(material, cell, arm.name, name), metric_named(name).unit) for name in _PACE),
            Entry(*_feels(latency.value)) if latency else NOTHING,
            NOTHING if shares is None else Entry(_share_with_interval(shares)),
            number(found.throughput.get(arm.name), "tokens/s"),
        )

    return arm_table(
        material,
        "Pace of each user, p50",
        (
            "requests",
            "failed",
            *(f"{lowered(metric_named(name).title)} ({metric_named(name).unit})" for name in _PACE),
            "feels",
            "scaling efficiency",
            "of the arm (tokens/s)",
        ),
        figures,
        naming=("scenario", _load_title(material), "arm"),
        names=lambda cell, arm: (scenario_of(cell), _load(cell), arm.name),
        notes=(
            f"Instant below {INSTANT_MS:g} ms between tokens, acceptable to {SLUGGISH_MS:g} ms, sluggish above.",
            "Scaling efficiency: of the decode speed at the fewest users.",
            "Of the arm: output tokens over the seconds in which it had requests in flight; arms share the users.",
        ),
    )


def _value(found: Interval | None, unit: str) -> Entry:
    return number(found.value if found else None, unit)


def _feels(milliseconds: float) -> tuple[str, Tone]:
    """Return how an inter-token latency feels, and how that is meant."""
    if milliseconds < INSTANT_MS:
        return "instant", "good"
    return ("acceptable", "plain") if milliseconds <= SLUGGISH_MS else ("sluggish", "bad")


def _share_with_interval(found: Interval) -> str:
    if found.low is None or found.high is None:
        return percent(found.value)
    return f"{percent(found.value)} [{percent(found.low)[:-2]}, {percent(found.high)[:-2]}]"


def _by_length(material: Material, scenarios: Sequence[str]) -> Iterator[Table]:
    """Return how each p50 grows from the first scenario, which has the shortest inputs, at the fewest users."""
    cells = [_cells(material, name)[0] for name in scenarios]

    def figures(cell: Cell, arm: ArmInfo) -> Iterator[Entry]:
        yield number(_mean_input(material, cell, arm.name), "tokens")
        for name in _SCALED:
            yield estimate(median(material, cell, arm.name, name), metric_named(name).unit)
            factor = _over(material, cell, cells[0], arm.name, name)
            yield NOTHING if factor is None else Entry(f"{interval(factor)} x")

    if len(cells) > 1:
        titles = [f"{lowered(metric_named(name).title)} ({metric_named(name).unit})" for name in _SCALED]
        yield arm_table(
            material,
            "By length, p50",
            ("input seen (tokens)", *(title for each in titles for title in (each, "factor"))),
            lambda cell, arm: tuple(figures(cell, arm)),
            naming=("scenario", "arm"),
            names=lambda cell, arm: (scenario_of(cell), arm.name),
            cells=cells,
        )


def _mean_input(material: Material, cell: Cell, arm: str) -> float | None:
    sent = material.sent(cell.name, arm)
    counts = [sample.input_tokens for sample in sent if sample.error is None and sample.input_tokens is not None]
    return fmean(counts) if counts else None


def _scenario(material: Material, scenario: str) -> Section:
    cells = _cells(material, scenario)
    table = partial(
        metric_table,
        material,
        statistics=_STATISTICS,
        naming=(_load_title(material), "arm"),
        names=lambda cell, arm: (_load(cell), arm.name),
        cells=cells,
    )
    parts: list[Line | Table] = [_token_counts(material, cells)]
    if any(cell.caching_forbidden for cell in cells):
        parts.append(
            Line(
                "Cache prevention: every prompt is unique from its first line on, so that no provider can read it from "
                "a cache. Whether it did so all the same is among the checks."
            )
        )
    return Section(title=scenario, parts=(*parts, *(table(metric_named(name)) for name in _METRICS)))


def _token_counts(material: Material, cells: Sequence[Cell]) -> Table:
    """Return range, mean and deviation of a scenario's input and output tokens, meant and seen."""
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
        entries = [NOTHING] * 3
        if values:
            spread = f" ± {figure(stdev(values))}" if len(values) > 1 else ""
            entries = [number(min(values)), number(max(values)), Entry(f"{figure(fmean(values))}{spread}")]
        rows.append(named_row((name,), entries, material.refused_all(cells) if samples is seen else None, 3))
    return Table(
        title="Test configuration",
        columns=("tokens", "lowest", "highest", "mean ± deviation"),
        rows=tuple(rows),
        notes=("As seen: of the requests that succeeded in valid cells, by the provider's usage.",),
    )
