"""Charts over a sweep of users or rates: a line per arm or per scenario, with what lies between p25 and p75."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ..recorded import Cell, RequestMetric, metric_named
from ._charts_data import ChartSource, MetricScale, group_name, groups, load_of, load_title, scale_of, spread, swept
from ._charts_lines import SLUGGISH_MS, Axes, ChartLine, LinePoint, Panel, draw_lines
from ._charts_ranges import ranges
from ._charts_style import Size, Stroke, figure, scenario_strokes, short, strokes


def by_arm(source: ChartSource, metric: RequestMetric, size: Size) -> dict[str, Any] | None:
    """Return a metric by users and arm, a panel per workload; as ranges where nothing was swept."""
    cells = source.cells()
    if not swept(cells):
        return ranges(source, metric, size)
    drawn = strokes(source.recorded)
    scale = _scale(source, metric, cells)
    found = [
        Panel(
            title=short(name, 48),
            lines=_lines(drawn.values(), partial(_points, source, listed, metric=metric, scale=scale)),
        )
        for name, listed in groups(cells).items()
    ]
    axes = Axes(x=load_title(source, cells), y=scale.title)
    return draw_lines(found, axes, size, title=f"{metric.title} by {axes.x.lower()}", band=True)


def by_scenario(
    source: ChartSource, metric: RequestMetric, size: Size, *, tolerance: bool = False
) -> dict[str, Any] | None:
    """Return a metric by users and scenario, a panel per arm; by arm where there is one scenario, or one load."""
    if not swept(source.cells()):
        return ranges(source, metric, size)
    return _by_scenario(
        source,
        size,
        lambda listed, arm: _points(
            source, listed, arm, metric, _scale(source, metric, source.cells(), plain=tolerance)
        ),
        axes=Axes(
            x=load_title(source, source.cells()),
            y=_scale(source, metric, source.cells(), plain=tolerance).title,
            tolerance=tolerance,
            least_top=SLUGGISH_MS * 1.2 if tolerance else 0.0,
        ),
        title=f"{metric.title} by {load_title(source, source.cells()).lower()}",
    )


def efficiency(source: ChartSource, size: Size) -> dict[str, Any] | None:
    """Return each user's speed as a share of what the fewest users had; None where nothing was swept."""
    if not swept(source.cells()):
        return None
    least = min((load_of(cell) or 0.0 for cell in source.cells()), default=1.0)
    unit = "rate" if any(cell.load == "open" for cell in source.cells()) else "user" if least == 1 else "users"
    return _by_scenario(
        source,
        size,
        lambda listed, arm: _shares(
            _points(source, listed, arm, metric_named("decode_speed"), MetricScale(unit="tokens/s"))
        ),
        axes=Axes(
            x=load_title(source, source.cells()),
            y="Scaling efficiency (%)",
            ideal=(100.0, f"as fast as with {figure(least).removesuffix('.00')} {unit}"),
            least_top=112.0,
        ),
        title="Scaling efficiency",
    )


def scenario_range(source: ChartSource, metric: RequestMetric, size: Size) -> dict[str, Any] | None:
    """Return a metric's band from the best to the worst scenario, per arm; None where there is one scenario."""
    cells = source.valid_cells()
    if len(groups(cells)) < 2 or not swept(cells):
        return None
    scale = _scale(source, metric, cells)
    drawn = _shown_arms(source)
    loads = sorted({load for cell in cells if (load := load_of(cell)) is not None})

    def points(arm: str) -> tuple[LinePoint, ...]:
        found = []
        for load in loads:
            here = [
                (value.middle * scale.factor, group_name(cell))
                for cell in cells
                if load_of(cell) == load
                and (value := spread(source.found(cell.name).of(arm, metric.name)))
                and not value.mean
            ]
            if here:
                (low, of_low), (high, of_high) = min(here), max(here)
                words = (
                    f"{arm}, {figure(load)} at a time: from {figure(low, scale.unit)} ({of_low}) "
                    f"to {figure(high, scale.unit)} ({of_high})"
                )
                found.append(LinePoint(x=load, value=(low + high) / 2, low=low, high=high, words=words))
        return tuple(found)

    found = [
        Panel(title=stroke.label if len(drawn) > 1 else "", lines=(ChartLine(stroke=stroke, points=points(name)),))
        for name, stroke in drawn.items()
        if points(name)
    ]
    axes = Axes(x=load_title(source, cells), y=scale.title)
    title = f"{metric.title}: range over {len(groups(cells))} scenarios"
    return draw_lines(found, axes, size, title=title, band=True, edges=True)


def _by_scenario(
    source: ChartSource,
    size: Size,
    points: Callable[[Sequence[Cell], str], tuple[LinePoint, ...]],
    *,
    axes: Axes,
    title: str,
) -> dict[str, Any] | None:
    listed = groups(source.cells())
    arms = _shown_arms(source)
    if len(listed) < 2:
        found = [Panel(title="", lines=_lines(arms.values(), partial(points, cells))) for cells in listed.values()]
    else:
        drawn = scenario_strokes(list(listed))
        found = [
            Panel(
                title=stroke.label if len(arms) > 1 else "",
                lines=_lines(drawn.values(), partial(_of_scenario, points, listed, name)),
            )
            for name, stroke in arms.items()
        ]
    return draw_lines(found, axes, size, title=title, band=False)


def _of_scenario(
    points: Callable[[Sequence[Cell], str], tuple[LinePoint, ...]],
    listed: dict[str, list[Cell]],
    arm: str,
    scenario: str,
) -> tuple[LinePoint, ...]:
    return points(listed[scenario], arm)


def _shown_arms(source: ChartSource) -> dict[str, Stroke]:
    """Every arm but the references' copies, which say nothing of users."""
    copies = {arm.name for arm in source.recorded.header.copies}
    return {name: stroke for name, stroke in strokes(source.recorded).items() if name not in copies}


def _lines(drawn: Iterable[Stroke], points: Callable[[str], tuple[LinePoint, ...]]) -> tuple[ChartLine, ...]:
    found = ((stroke, points(stroke.name)) for stroke in drawn)
    return tuple(
        ChartLine(stroke=stroke, points=listed)
        for stroke, listed in found
        if any(point.value is not None for point in listed)
    )


def _scale(source: ChartSource, metric: RequestMetric, cells: Iterable[Cell], *, plain: bool = False) -> MetricScale:
    found = [
        value.high or value.middle
        for cell in cells
        for figures in source.found(cell.name).figures
        if figures.metric == metric.name and (value := spread(figures))
    ]
    return scale_of(metric, 0.0 if plain else max(found, default=0.0))


def _points(
    source: ChartSource, cells: Iterable[Cell], arm: str, metric: RequestMetric, scale: MetricScale
) -> tuple[LinePoint, ...]:
    found = []
    for cell in cells:
        value, load = spread(source.found(cell.name).of(arm, metric.name)), load_of(cell)
        if load is not None and source.refused(cell.name, arm):
            found.append(LinePoint(x=load, value=None, words=""))
        # Of too few requests for a p50 a table gives none, and a line that mixed means with medians would mislead.
        if value is None or value.mean or load is None:
            continue
        words = f"{arm}, {cell.name}: p50 {figure(value.middle * scale.factor, scale.unit)}"
        if value.low is not None and value.high is not None:
            words += f" (p25 {figure(value.low * scale.factor)}, p75 {figure(value.high * scale.factor)})"
        words += f", {value.n:,} requests"
        found.append(
            LinePoint(
                x=load,
                value=value.middle * scale.factor,
                low=scale.of(value.low),
                high=scale.of(value.high),
                words=words,
            )
        )
    return tuple(found)


def _shares(points: tuple[LinePoint, ...]) -> tuple[LinePoint, ...]:
    base = next((point.value for point in points if point.value), None)
    if base is None:
        return ()
    return tuple(
        point
        if point.value is None
        else LinePoint(
            x=point.x,
            value=point.value / base * 100,
            words=f"{figure(point.value / base * 100)} %: {point.words}",
        )
        for point in points
    )
