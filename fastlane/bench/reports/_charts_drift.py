"""Changes over the run's time, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..recorded import RequestMetric
from ._charts_data import MOST_MARKS, MOST_PANELS, ChartSource, Pair, pairs, thinned
from ._charts_panels import configured, layered, ratio_axis, rows, stacked
from ._charts_style import LINE, Size, altair, change, figure, strokes

_WINDOW: Final = 21
_MEDIANS: Final = 240


def drift(source: ChartSource, metric: RequestMetric, size: Size) -> dict[str, Any] | None:
    """Return every pair's change over the run's time with a running median, a panel per arm; None without a pair."""
    drawn = strokes(source.recorded)
    cells = source.valid_cells()
    references = {arm.name for arm in source.recorded.header.references}
    found = {arm: listed for arm in drawn if arm not in references and (listed := pairs(source, arm, metric, cells))}
    if not found:
        return None
    shown = dict(list(found.items())[:MOST_PANELS])
    logs = np.log([pair.ratio for listed in shown.values() for pair in listed])
    # "No change" is always in the picture, and nothing that has no pairs beyond it.
    least, greatest = (float(edge) for edge in np.percentile(logs, [1, 99]))
    least, greatest = min(least, -0.03), max(greatest, 0.03)
    room = 0.06 * (greatest - least)
    low, high = math.exp(least - room), math.exp(greatest + room)
    longest = max(listed[-1].at_s for listed in shown.values())
    minutes = longest > 300
    most = max(100, MOST_MARKS // (2 if size.narrow else 1) // len(shown))
    alt = altair()
    scale, ticks = ratio_axis(low, high, most=5)
    charts = []
    for at, (arm, listed) in enumerate(shown.items()):
        x = alt.X(
            "at:Q",
            title=("Minutes" if minutes else "Seconds") + " since the first request" if at == len(shown) - 1 else None,
            scale=alt.Scale(domain=[0, (longest / (60 if minutes else 1)) or 1.0], nice=False),
            axis=alt.Axis(grid=False, labels=at == len(shown) - 1, tickCount=6),
        )
        y = alt.Y("value:Q", scale=scale, axis=alt.Axis(**ticks), title="Change")
        marks = [
            {
                "at": pair.at_s / (60 if minutes else 1),
                "value": min(max(pair.ratio, low), high),
                "words": f"{arm}: {change(pair.ratio)} at {figure(pair.at_s, 's')}",
            }
            for pair in thinned(listed, most)
        ]
        medians = [
            {"at": when / (60 if minutes else 1), "value": value}
            for when, value in thinned(running_median(listed), _MEDIANS)
        ]
        tint = drawn[arm].colour
        layers = [
            alt.Chart(rows([{"value": 1.0}])).mark_rule(color=LINE[0], strokeWidth=1.5).encode(y=y),
            alt.Chart(rows(marks))
            .mark_point(size=10, filled=True, color=tint, opacity=0.4, shape="circle")
            .encode(x=x, y=y, description="words:N", tooltip="words:N"),
            alt.Chart(rows(medians)).mark_line(color=tint, strokeWidth=2.4).encode(x=x, y=y),
        ]
        charts.append(layered(layers, size.width - 82, 92, alt.TitleParams(drawn[arm].label)))
    title = f"Change of {metric.title[:1].lower()}{metric.title[1:]} over time"
    notes = [f"Line: running median of {_WINDOW} pairs."]
    largest = max(len(listed) for listed in shown.values())
    if largest > most:
        notes.append(f"Up to {most:,} of {largest:,} pairs are drawn for an arm; the median is over all.")
    if beyond := int(np.sum((logs < math.log(low)) | (logs > math.log(high)))):
        notes.append(f"Beyond the axis, and drawn at its edge: {beyond:,} of all pairs.")
    chart = stacked(charts, 12)
    return configured(chart, title=title, description=title, notes=notes)


def running_median(listed: Sequence[Pair], window: int = _WINDOW) -> list[tuple[float, float]]:
    """Return the median ratio of `window` pairs round each one, narrower at the ends, with the pair's time."""
    ratios = np.array([pair.ratio for pair in listed])
    half = window // 2
    return [(pair.at_s, float(np.median(ratios[max(0, at - half) : at + half + 1]))) for at, pair in enumerate(listed)]
