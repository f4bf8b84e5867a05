"""The forest: every arm's change against the reference with its interval, above the instrument's own band."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from ..findings import ArmComparison, Interval
from ..recorded import RequestMetric, metric_named
from ._charts_data import ChartSource
from ._charts_panels import configured, layered, ratio_axis, rows, stacked
from ._charts_style import (
    BAND,
    INK,
    PAPER,
    SOFT,
    Size,
    Stroke,
    altair,
    change,
    label_width,
    references_of,
    short,
    strokes,
)

_MOST_ROWS: Final = 40
_SEPARATOR: Final = "\N{INVISIBLE SEPARATOR}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One row of the forest: an arm's change by one metric in one cell."""

    comparison: ArmComparison
    typical: Interval
    band: Interval | None
    """That of the reference's copy: what the instrument takes for a change where there is none."""


def estimates(source: ChartSource, metric: RequestMetric) -> list[Estimate]:
    """Return the rows of one metric: by arm, then by cell."""
    copies = {arm.name for arm in source.recorded.header.copies}
    found = []
    for arm in strokes(source.recorded):
        if arm in copies:
            continue
        again = source.recorded.header.again_of(arm)
        for cell in source.cells():
            comparison = source.found(cell.name).comparison(arm, metric.name)
            if comparison is None or comparison.typical is None or not comparison.typical.value > 0:
                continue
            copy = source.found(cell.name).comparison(again.name, metric.name) if again is not None else None
            found.append(
                Estimate(
                    comparison=comparison,
                    typical=comparison.typical,
                    band=copy.typical if copy is not None else None,
                )
            )
    return found


def forest(source: ChartSource, size: Size) -> dict[str, Any] | None:
    """Return every arm's change against the reference with its interval, a panel per metric; None without one."""
    found = {
        metric: listed[:_MOST_ROWS]
        for metric in map(metric_named, source.recorded.header.metrics)
        if (listed := estimates(source, metric))
    }
    if not found:
        return None
    edges = [
        edge
        for listed in found.values()
        for each in listed
        for interval in (each.typical, each.band)
        if interval is not None
        for edge in (interval.value, interval.low, interval.high)
        if edge is not None and 0 < edge < math.inf
    ]
    # Round 0, and never so close that noise fills the picture.
    low, high = min(0.97, *edges), max(1.03, *edges)
    low, high = low * (low / high) ** 0.06, high * (high / low) ** 0.06
    many = len(source.cells()) > 1
    charts = [
        _forest_panel(source, metric, listed, size, low, high, many=many, last=metric is list(found)[-1])
        for metric, listed in found.items()
    ]
    title = f"Change against {references_of(source.recorded)}"
    notes = ["Dot: the typical change of a pair; line: its 95 % interval. A hollow dot: no difference shown."]
    if any(each.band is not None for listed in found.values() for each in listed):
        notes.append("Grey: what the instrument shows for two arms that are the same (A/A).")
    chart = stacked(charts, 16)
    return configured(chart, title=title, description=title, notes=notes)


def _forest_panel(
    source: ChartSource,
    metric: RequestMetric,
    listed: list[Estimate],
    size: Size,
    low: float,
    high: float,
    *,
    many: bool,
    last: bool,
) -> Any:
    alt = altair()
    drawn = strokes(source.recorded)
    scale, ticks = ratio_axis(low, high, most=4 if size.narrow else 9)
    table = [_row(each, drawn, many=many, unique=at) for at, each in enumerate(listed)]
    names = [row["key"].partition(_SEPARATOR)[0] for row in table]
    label_px, text_px = (label_width(names, most=110), 0) if size.narrow else (label_width(names), 170)
    axis = alt.Axis(**ticks, labels=last)
    x = alt.X("value:Q", scale=scale, axis=axis, title=_scale_words(source) if last else None)
    y = alt.Y(
        "key:N",
        title=None,
        sort=[row["key"] for row in table],
        axis=alt.Axis(
            labelExpr="split(datum.label, '\\u2063')[0]",
            grid=False,
            minExtent=label_px,
            maxExtent=label_px,
            labelLimit=label_px - 8,
        ),
    )
    hue = alt.Color("colour:N", scale=None)
    base = alt.Chart(rows(table))
    band = {
        "x": alt.X("band_low:Q", scale=scale, axis=axis, title=_scale_words(source) if last else None),
        "x2": "band_high:Q",
    }
    layers = [
        base.mark_bar(color=BAND[0], opacity=0.75, height={"band": 1}).encode(
            y=y, description="band:N", tooltip="band:N", **band
        ),
        alt.Chart(rows([{"value": 1.0}])).mark_rule(color=SOFT[0], strokeWidth=1.2).encode(x=x),
        base.mark_rule(strokeWidth=3, strokeCap="round").encode(
            y=y,
            x=alt.X("low:Q", scale=scale, axis=axis, title=_scale_words(source) if last else None),
            x2="high:Q",
            color=hue,
        ),
        base.transform_filter("datum.shown")
        .mark_point(size=95, filled=True, opacity=1, shape="circle")
        .encode(y=y, x=x, color=hue, description="words:N", tooltip="words:N"),
        base.transform_filter("!datum.shown")
        .mark_point(size=80, filled=True, opacity=1, shape="circle", fill=PAPER[0], strokeWidth=2.2)
        .encode(y=y, x=x, stroke=hue, description="words:N", tooltip="words:N"),
    ]
    width = size.width - label_px - text_px - 24
    if size.narrow:
        layers.append(base.mark_text(dy=-11, fontSize=10.5).encode(y=y, x=x, text="text:N"))
    else:
        layers.append(
            base.mark_text(align="left", baseline="middle", fontSize=11.5, color=INK[0]).encode(
                y=y, x=alt.value(width + 12), text="text:N"
            )
        )
    better, worse = metric.words
    left, right = (better, worse) if metric.lower_is_better else (worse, better)
    sides = f"{left} \N{LEFTWARDS ARROW}  \N{RIGHTWARDS ARROW} {right}"
    return layered(
        layers,
        width,
        len(table) * (36 if size.narrow else 28 if len(table) < 9 else 21),
        alt.TitleParams(metric.title, subtitle=sides),
    )


def _scale_words(source: ChartSource) -> str:
    return f"Change against {references_of(source.recorded, 20)}"


def _row(each: Estimate, drawn: dict[str, Stroke], *, many: bool, unique: int) -> dict[str, Any]:
    comparison, typical = each.comparison, each.typical
    stroke = drawn[comparison.arm]
    text = change(typical.value)
    if typical.low is not None and typical.high is not None:
        text += f"  [{change(typical.low)}, {change(typical.high)}]"
    label = f"{stroke.label} \N{MIDDLE DOT} {short(comparison.cell, 22)}" if many else stroke.label
    band = each.band
    return {
        # Two cells may have names that are short for the same.
        "key": f"{label}{_SEPARATOR}{unique}",
        "value": typical.value,
        "low": typical.low if typical.low and typical.low > 0 else None,
        "high": typical.high if typical.high and typical.high > 0 else None,
        "band_low": band.low if band is not None and band.low and band.low > 0 else None,
        "band_high": band.high if band is not None and band.high and band.high > 0 else None,
        "band": ""
        if band is None or band.low is None or band.high is None
        else f"two arms that are the same: {change(band.value)} [{change(band.low)}, {change(band.high)}]",
        "colour": stroke.colour,
        "shown": comparison.verdict.kind in ("better", "worse", "equivalent"),
        "text": text,
        "words": f"{comparison.arm}, {comparison.cell}: {comparison.verdict.sentence} ({comparison.pairs:,} pairs)",
    }
