"""Ranges side by side: one row per arm, a panel per cell, from the least to the most with p25, p50 and p75."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..recorded import Cell, RequestMetric
from ._charts_data import MOST_PANELS, ChartSource, MetricScale, scale_of, spread
from ._charts_panels import configured, layered, rows, stacked
from ._charts_style import Size, Stroke, altair, figure, label_width, short, strokes


def ranges(source: ChartSource, metric: RequestMetric, size: Size) -> dict[str, Any] | None:
    """Return a metric's range by arm, a panel per cell one below the other on one axis; None without a figure."""
    drawn = strokes(source.recorded)
    listed = [
        cell
        for cell in source.cells()
        if any(spread(source.found(cell.name).of(arm, metric.name)) is not None for arm in drawn)
    ]
    shown = listed[:MOST_PANELS]
    if not shown:
        return None
    scale = scale_of(metric, _largest(source, shown, drawn.keys(), metric))
    top = _largest(source, shown, drawn.keys(), metric) * scale.factor
    charts = [
        _panel(source, cell, metric, scale, drawn, size, top=top, last=cell is shown[-1], named=len(shown) > 1)
        for cell in shown
    ]
    title = f"{metric.title} by arm"
    notes = ["Box: from p25 to p75; bar: p50; thin line: from the least to the most."]
    if len(listed) > len(shown):
        notes.append(f"The first {len(shown)} of {len(listed)} cells.")
    chart = stacked(charts, 10)
    return configured(chart, title=title, description=title, notes=notes)


def _largest(source: ChartSource, cells: Sequence[Cell], arms: Any, metric: RequestMetric) -> float:
    found = [
        max(value.maximum or 0.0, value.high or 0.0, value.middle)
        for cell in cells
        for arm in arms
        if (value := spread(source.found(cell.name).of(arm, metric.name)))
    ]
    return max(found, default=0.0)


def _panel(
    source: ChartSource,
    cell: Cell,
    metric: RequestMetric,
    scale: MetricScale,
    drawn: dict[str, Stroke],
    size: Size,
    *,
    top: float,
    last: bool,
    named: bool,
) -> Any:
    alt = altair()
    table, names = [], []
    for arm, stroke in drawn.items():
        value = spread(source.found(cell.name).of(arm, metric.name))
        if value is None:
            continue
        names.append(stroke.label)
        words = (
            f"{arm}, {cell.name}: {'mean' if value.mean else 'p50'} {figure(value.middle * scale.factor, scale.unit)}"
        )
        if value.low is not None and value.high is not None:
            words += f" (p25 {figure(value.low * scale.factor)}, p75 {figure(value.high * scale.factor)})"
        if value.minimum is not None and value.maximum is not None:
            words += f", {figure(value.minimum * scale.factor)} to {figure(value.maximum * scale.factor)}"
        words += f", {value.n:,} requests"
        table.append(
            {
                "series": stroke.label,
                "middle": value.middle * scale.factor,
                "low": scale.of(value.low),
                "high": scale.of(value.high),
                "minimum": scale.of(value.minimum),
                "maximum": scale.of(value.maximum),
                "text": figure(value.middle * scale.factor),
                "words": words,
            }
        )
    label_px = label_width((stroke.label for stroke in drawn.values()), most=110 if size.narrow else 230)
    width = size.width - label_px - 30
    axis = alt.Axis(
        title=scale.title if last else None, labels=last, tickCount=5, format=",~r", domain=False, ticks=False
    )
    at = alt.Scale(domain=[0, top * 1.04 or 1.0], nice=False)
    y = alt.Y(
        "series:N",
        title=None,
        sort=names,
        scale=alt.Scale(paddingInner=0.1, paddingOuter=0.1),
        axis=alt.Axis(minExtent=label_px, maxExtent=label_px, labelLimit=label_px - 8, grid=False),
    )
    hue = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=[each.colour for each in drawn.values() if each.label in names]),
        legend=None,
    )
    base = alt.Chart(rows(table))
    x = {
        name: alt.X(f"{name}:Q", scale=at, axis=axis, title=scale.title if last else None)
        for name in ("minimum", "low", "middle")
    }
    layers = [
        base.mark_rule(strokeWidth=1.5, opacity=0.75).encode(y=y, x=x["minimum"], x2="maximum:Q", color=hue),
        base.mark_bar(height=13, opacity=0.35, cornerRadius=2).encode(
            y=y, x=x["low"], x2="high:Q", color=hue, description="words:N", tooltip="words:N"
        ),
        base.mark_tick(thickness=3, height=17, opacity=1).encode(
            y=y, x=x["middle"], color=hue, description="words:N", tooltip="words:N"
        ),
        base.mark_text(dy=-13, fontSize=10.5, fontWeight=600).encode(y=y, x=x["middle"], text="text:N", color=hue),
    ]
    title = short(cell.name, 60) if named else ""
    return layered(layers, width, max(1, len(names)) * 36, title)
