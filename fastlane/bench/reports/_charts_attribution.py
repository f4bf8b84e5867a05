"""What each play contributes to a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ..findings import Interval
from ..recorded import metric_named
from ._charts_data import MOST_PANELS, ChartSource
from ._charts_panels import configured, layered, rows, stacked
from ._charts_style import INK, REFUSED, SOFT, Size, altair, figure, label_width, short


def attribution(source: ChartSource, size: Size) -> dict[str, Any] | None:
    """Return what each play contributes, in the metric's unit with its interval, a panel per metric and cell."""
    found = [each for each in source.findings.attributions if each.shares][:MOST_PANELS]
    if not found:
        return None
    alt = altair()
    many = len({each.cell for each in found}) > 1
    names = [short(share.play) for each in found for share in each.shares]
    label_px = label_width((*names, "all together"), most=120 if size.narrow else 230)
    charts = []
    for each in found:
        metric = metric_named(each.metric)
        table = list(_bars(each.shares, each.interaction, each.total, metric.unit))
        y = alt.Y(
            "name:N",
            title=None,
            sort=[row["name"] for row in table],
            axis=alt.Axis(minExtent=label_px, maxExtent=label_px, labelLimit=label_px - 8, grid=False),
        )
        axis = alt.Axis(format="+,~r", tickCount=5 if size.narrow else 8)
        title = f"Change of {metric.title[:1].lower()}{metric.title[1:]} ({metric.unit})"
        # Bars begin at 0: that is what they are read against.
        scale = alt.Scale(zero=True, padding=26)
        base = alt.Chart(rows(table))
        x = alt.X("value:Q", axis=axis, title=title, scale=scale)
        layers = [
            base.mark_bar(height=16, cornerRadiusEnd=2, opacity=0.9).encode(
                y=y, x=x, color=alt.Color("colour:N", scale=None), description="words:N", tooltip="words:N"
            ),
            base.mark_rule(color=INK[0], strokeWidth=1.4).encode(
                y=y, x=alt.X("low:Q", title=title, axis=axis, scale=scale), x2="high:Q"
            ),
            alt.Chart(rows([{"value": 0.0}])).mark_rule(color=SOFT[0], strokeWidth=1.2).encode(x=x),
        ]
        name = metric.title + (f" \N{EM DASH} {short(each.cell, 40)}" if many else "")
        charts.append(layered(layers, size.width - label_px - 34, len(table) * 28, name))
    chart = stacked(charts, 16)
    notes = [
        "Bar: what is attributed to the play; thin line: its 95 % interval. The plays' bars add up to the whole change."
    ]
    return configured(chart, title="What each play contributes", description="What each play contributes", notes=notes)


def _bars(shares: Any, interaction: Interval, total: Interval, unit: str) -> Iterator[dict[str, Any]]:
    listed = [(short(each.play), each.share, _PLAY) for each in sorted(shares, key=lambda each: each.share.value)]
    listed += [("interaction", interaction, REFUSED[0]), ("all together", total, INK[0])]
    for name, interval, tint in listed:
        words = f"{name}: {figure(interval.value, unit)}"
        if interval.low is not None and interval.high is not None:
            words += f" [{figure(interval.low)}, {figure(interval.high)}]"
        yield {
            "name": name,
            "value": interval.value,
            "low": interval.low,
            "high": interval.high,
            "colour": tint,
            "words": words,
        }


_PLAY: Final = "#0b62b8"
