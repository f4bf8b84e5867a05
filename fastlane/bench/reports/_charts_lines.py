"""Lines over a sweep as they are drawn: bands round them, labels at their ends, and gaps where a cell is invalid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ._charts_panels import configured, layered, panels, rows
from ._charts_style import BAD, FAIR, GOOD, LABEL_PX, LINE, PAPER, REFUSED, SOFT, Size, Stroke, altair, apart, colour

FLUENT_MS: Final = 20.0
SLUGGISH_MS: Final = 70.0
"""Gaps between tokens below the first feel instant, beyond the second sluggish: the bands by which capacity reports of
hosted models are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePoint:
    """One figure of a line."""

    x: float
    value: float | None
    """None of a cell that a check refuses: its line breaks there."""
    low: float | None = None
    high: float | None = None
    words: str
    """What it is, for whoever points at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """One arm or scenario over the sweep."""

    stroke: Stroke
    points: tuple[LinePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Lines on common axes."""

    title: str
    lines: tuple[ChartLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What is written beside the panels."""

    x: str
    y: str
    ideal: tuple[float, str] | None = None
    """A level to compare with, and its words."""
    tolerance: bool = False
    """Whether to draw the bands of what feels instant, acceptable and sluggish, in milliseconds."""
    least_top: float = 0.0


def draw_lines(
    found: Sequence[Panel], axes: Axes, size: Size, *, title: str, band: bool, edges: bool = False
) -> dict[str, Any] | None:
    found = [panel for panel in found if panel.lines]
    if not found:
        return None
    listed = {line.stroke.name: line.stroke for panel in found for line in panel.lines}
    # Where each panel has one line, its title names it.
    legend = max(len(panel.lines) for panel in found) > 1 and (size.narrow or len(found) > 1)
    labels = 150 if not legend and not size.narrow and len(listed) > 1 else 8
    frame = _Frame(
        axes=axes,
        width=size.panel(len(found), labels=labels),
        height=(200 if len(found) > 1 else 220) if size.narrow else (210 if len(found) > 2 else 290),
        top=max(max(_tops(panel)) for panel in found),
        strokes=tuple(listed.values()),
        legend=legend,
        labels=labels > 8,
        columns=2 if size.narrow else 4,
    )
    charts = [_panel(panel, frame, band=band, edges=edges) for panel in found]
    return configured(
        panels(charts, size.columns(len(found))),
        title=title,
        description=title,
        notes=(),
    )


def _tops(panel: Panel) -> list[float]:
    return [
        max(point.value, point.high or 0.0) for line in panel.lines for point in line.points if point.value is not None
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    axes: Axes
    width: int
    height: int
    top: float
    strokes: tuple[Stroke, ...]
    legend: bool
    labels: bool
    columns: int


def _panel(panel: Panel, frame: _Frame, *, band: bool, edges: bool) -> Any:
    alt = altair()
    top = max(frame.top * 1.08, frame.axes.least_top) or 1.0
    loads = sorted({point.x for line in panel.lines for point in line.points})
    doubling = len(loads) > 2 and loads[0] > 0 and all(after / before >= 1.5 for before, after in pairwise(loads))
    pad = 0.0 if doubling else (loads[-1] - loads[0]) * 0.03 or 1.0
    x = alt.X(
        "x:Q",
        title=frame.axes.x,
        scale=alt.Scale(type="log", base=2, domain=[loads[0] / 1.1, loads[-1] * 1.1], nice=False)
        if doubling
        else alt.Scale(domain=[loads[0] - pad, loads[-1] + pad], nice=False, zero=False),
        axis=alt.Axis(values=loads, format=",~r", grid=False),
    )
    y_scale = alt.Scale(domain=[0, top], nice=False, clamp=True)
    y = alt.Y(
        "value:Q",
        title=frame.axes.y,
        scale=y_scale,
        axis=alt.Axis(tickCount=5, format="~s" if top >= 10_000 else ",~r"),
    )
    table = rows(_rows(panel))
    hue = colour(frame.strokes, legend=frame.legend, columns=frame.columns)
    # A legend of its own for the shapes would say the same again.
    marks = alt.Shape(
        "series:N",
        scale=alt.Scale(domain=[each.label for each in frame.strokes], range=[each.shape for each in frame.strokes]),
        legend=None,
    )
    dashes = alt.StrokeDash(
        "series:N",
        scale=alt.Scale(
            domain=[each.label for each in frame.strokes], range=[list(each.dash) for each in frame.strokes]
        ),
        legend=None,
    )
    base = alt.Chart(table)
    layers = [*_ground(frame, top, y_scale)]
    if band:
        layers.append(
            base.mark_area(opacity=0.16, interpolate="monotone" if edges else "linear").encode(
                x=x, y=alt.Y("low:Q", scale=y_scale, title=frame.axes.y), y2="high:Q", color=hue, detail="segment:N"
            )
        )
    if edges:
        for name in ("low", "high"):
            edge = alt.Y(f"{name}:Q", scale=y_scale, title=frame.axes.y)
            layers += [
                base.mark_line(strokeWidth=2, interpolate="monotone").encode(
                    x=x, y=edge, color=hue, detail="segment:N"
                ),
                base.mark_point(size=36, filled=True, opacity=1).encode(
                    x=x, y=edge, color=hue, description="words:N", tooltip="words:N"
                ),
            ]
    else:
        layers += [
            base.mark_line(strokeWidth=2.2).encode(x=x, y=y, color=hue, strokeDash=dashes, detail="segment:N"),
            base.mark_point(size=48, filled=True, opacity=1, stroke=PAPER[0], strokeWidth=1).encode(
                x=x, y=y, color=hue, shape=marks, description="words:N", tooltip="words:N"
            ),
        ]
    invalid = {point.x for line in panel.lines for point in line.points if point.value is None}
    if invalid:
        layers.append(
            alt.Chart(rows({"x": load} for load in sorted(invalid)))
            .mark_text(text="invalid", baseline="bottom", color=REFUSED[0], fontStyle="italic")
            .encode(x=x, y=alt.value(frame.height - 4))
        )
    if frame.labels and not edges:
        layers.append(_labels(panel, frame, top, y_scale, hue))
    return layered(layers, frame.width, frame.height, panel.title)


def _rows(panel: Panel) -> Iterable[dict[str, Any]]:
    for line in panel.lines:
        segment = 0
        for point in line.points:
            if point.value is None:
                # Nothing is drawn through a cell that a check refuses.
                segment += 1
                continue
            yield {
                "series": line.stroke.label,
                "segment": f"{line.stroke.name} {segment}",
                "x": point.x,
                "value": point.value,
                "low": point.low,
                "high": point.high,
                "words": point.words,
            }


def _ground(frame: _Frame, top: float, y_scale: Any) -> Iterable[Any]:
    alt = altair()
    right = alt.value(frame.width - 4)
    if frame.axes.tolerance:
        stripes = [
            (0.0, FLUENT_MS, GOOD[0], "feels instant"),
            (FLUENT_MS, SLUGGISH_MS, FAIR[0], "acceptable"),
            (SLUGGISH_MS, top, BAD[0], "sluggish"),
        ]
        for low, high, tint, text in stripes:
            table = rows([{"low": low, "high": min(high, top)}])
            yield (
                alt.Chart(table)
                .mark_rect(color=tint, opacity=0.09)
                .encode(y=alt.Y("low:Q", scale=y_scale, title=frame.axes.y), y2="high:Q")
            )
            yield (
                alt.Chart(table)
                .mark_text(text=text, align="left", baseline="top", dy=4, color=tint, fontWeight=600)
                .encode(x=alt.value(6), y=alt.Y("high:Q", scale=y_scale))
            )
    if frame.axes.ideal is not None:
        level, text = frame.axes.ideal
        table = rows([{"value": level}])
        where = alt.Y("value:Q", scale=y_scale, title=frame.axes.y)
        yield alt.Chart(table).mark_rule(color=LINE[0], strokeDash=[4, 4], strokeWidth=1.5).encode(y=where)
        yield (
            alt.Chart(table)
            .mark_text(text=text, align="right", baseline="bottom", dy=-4, color=SOFT[0])
            .encode(x=right, y=where)
        )


def _labels(panel: Panel, frame: _Frame, top: float, y_scale: Any, hue: Any) -> Any:
    alt = altair()
    ends = [
        (line.stroke.label, [point.value for point in line.points if point.value is not None]) for line in panel.lines
    ]
    ends = [(label, values) for label, values in ends if values]
    places = apart([values[-1] for _, values in ends], LABEL_PX * top / frame.height, 0.0, top)
    table = rows({"series": label, "value": place} for (label, _), place in zip(ends, places, strict=True))
    return (
        alt.Chart(table)
        .mark_text(align="left", baseline="middle", fontWeight=600)
        .encode(x=alt.value(frame.width + 8), y=alt.Y("value:Q", scale=y_scale), text="series:N", color=hue)
    )
