"""What charts show, as plain figures: taken from findings and raw records, before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ..checks import Checked
from ..findings import CellFindings, Figures, Findings
from ..recorded import Cell, RecordedRun, RequestMetric, Sample, metric_named

MOST_PANELS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSource:
    """A run with what it shows and which of its cells may be used."""

    recorded: RecordedRun
    findings: Findings
    checked: Checked | None = None

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells that have findings, in the header's order."""
        found = {each.cell for each in self.findings.cells}
        return tuple(cell for cell in self.recorded.header.cells if cell.name in found)

    def found(self, cell: str) -> CellFindings:
        """Return what one cell shows."""
        return next(each for each in self.findings.cells if each.cell == cell)

    def refused(self, cell: str, arm: str | None = None) -> str | None:
        """Return which check refuses a cell, or one arm in it; None where the figures may be used."""
        refusals = self.checked.refusals(cell, arm) if self.checked is not None else ()
        return refusals[0].check if refusals else None

    def valid_cells(self) -> tuple[Cell, ...]:
        """Return the cells whose figures may be used."""
        return tuple(cell for cell in self.cells() if self.refused(cell.name) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpread:
    """One arm's metric in one cell, in the metric's unit."""

    middle: float
    """The median, or the mean where the requests are too few for a median."""
    low: float | None
    """p25."""
    high: float | None
    """p75."""
    minimum: float | None
    maximum: float | None
    n: int
    mean: bool = False
    """Whether `middle` is the mean."""


def usable(recorded: RecordedRun, findings: Findings, checked: Checked | None) -> ChartSource:
    """Return a run without the figures and requests of cells and arms that the checks refuse."""
    if checked is None:
        return ChartSource(recorded=recorded, findings=findings)
    valid = {
        (cell.name, arm.name): checked.valid(cell.name, arm.name)
        for cell in recorded.header.cells
        for arm in recorded.header.arms
    }
    return ChartSource(
        recorded=replace(
            recorded, samples=tuple(each for each in recorded.samples if valid.get((each.cell, each.arm), True))
        ),
        findings=replace(
            findings,
            cells=tuple(
                replace(
                    cell,
                    figures=tuple(each for each in cell.figures if checked.valid(cell.cell, each.arm)),
                    comparisons=tuple(each for each in cell.comparisons if checked.valid(cell.cell, each.arm)),
                )
                for cell in findings.cells
            ),
            # An attribution is made of all arms.
            attributions=tuple(
                each
                for each in findings.attributions
                if all(valid.get((each.cell, arm.name), True) for arm in recorded.header.arms if arm.role != "again")
            ),
        ),
        checked=checked,
    )


def spread(figures: Figures | None) -> MetricSpread | None:
    """Return the place and the band of some figures; None without any."""
    if figures is None or not figures.n:
        return None
    by_share = {share: quantile.value for share, quantile in figures.quantiles.items()}
    middle = by_share.get(0.5)
    mean = middle is None
    if mean:
        middle = figures.mean
    if middle is None or not math.isfinite(middle):
        return None
    low, high = _finite(by_share.get(0.25)), _finite(by_share.get(0.75))
    return MetricSpread(
        middle=middle,
        low=None if mean else low,
        high=None if mean else high,
        minimum=_finite(figures.minimum),
        maximum=_finite(figures.maximum),
        n=figures.n,
        mean=mean,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def group_name(cell: Cell) -> str:
    """Return the name of what a cell has in common with those at other loads."""
    return cell.workload if cell.scenario is None else cell.scenario


def groups(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Return cells by workload and scenario, each group by its load."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(group_name(cell), []).append(cell)
    for listed in found.values():
        listed.sort(key=lambda cell: load_of(cell) or 0.0)
    return found


def load_of(cell: Cell) -> float | None:
    """Return what a sweep varies: users under a closed load, blocks per second under an open one."""
    return float(cell.users) if cell.users is not None else cell.rate


def load_title(source: ChartSource, cells: Iterable[Cell]) -> str:
    """Return the title of the axis that a sweep varies."""
    if any(cell.load == "open" for cell in cells):
        return "Requests sent per arm (per second)"
    arms = len(source.recorded.header.arms)
    return f"Users at a time, shared by {arms} arms" if arms > 1 else "Users at a time"


def swept(cells: Sequence[Cell]) -> bool:
    """Whether some workload was measured at several loads."""
    return any(len({load_of(cell) for cell in listed}) > 1 for listed in groups(cells).values())


def values(samples: Iterable[Sample], metric: RequestMetric) -> list[float]:
    """Return the metric's values of the requests that succeeded and gave one."""
    found = (metric.value(sample) for sample in samples if sample.error is None)
    return [float(value) for value in found if value is not None and math.isfinite(value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricScale:
    """In which unit a chart shows a metric."""

    unit: str
    factor: float = 1.0
    title: str = field(default="")

    def of(self, value: float | None) -> float | None:
        """Return a value in this unit."""
        return None if value is None else value * self.factor


def scale_of(metric: RequestMetric, largest: float) -> MetricScale:
    """Return the unit in which values up to `largest` are read best."""
    unit, factor = metric.unit, 1.0
    if unit == "ms" and largest >= 3_000:
        unit, factor = "s", 1e-3
    elif unit == "bytes" and largest >= 10_000:
        unit, factor = "kB", 1e-3
    return MetricScale(unit=unit, factor=factor, title=f"{metric.title} ({unit})")


def metrics_of(source: ChartSource) -> list[RequestMetric]:
    """Return the metrics that the run compares its arms by."""
    return [metric_named(name) for name in source.recorded.header.metrics]
