"""Charts of distributions: how the requests of each arm spread, and how the pairs do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..recorded import Cell, RequestMetric
from ._charts_data import MOST_PANELS, ChartSource, MetricScale, pairs, scale_of, values
from ._charts_panels import configured, layered, panels, ratio_axis, rows, stacked
from ._charts_style import LINE, PAPER, Size, Stroke, altair, change, colour, figure, references_of, short, strokes

_STEPS: Final = 220
_MARKED: Final = (0.5, 0.95, 0.99)
_BINS: Final = 48


def ecdf(source: ChartSource, metric: RequestMetric, size: Size) -> dict[str, Any] | None:
    """Return the share of each arm's requests that had at most a value, a panel per cell; None without a value."""
    recorded = source.recorded
    drawn = strokes(recorded)
    by_cell: list[tuple[Cell, dict[str, tuple[list[float], int]]]] = []
    for cell in source.valid_cells():
        arms = {}
        for arm in drawn:
            samples = recorded.measured(cell.name, arm)
            if found := values(samples, metric):
                arms[arm] = (sorted(found), sum(sample.error is not None for sample in samples))
        if arms:
            by_cell.append((cell, arms))
    shown = by_cell[:MOST_PANELS]
    if not shown:
        return None
    everything = [value for _, arms in shown for found, _ in arms.values() for value in (found[0], found[-1])]
    scale = scale_of(
        metric, float(np.median([value for _, arms in shown for found, _ in arms.values() for value in found]))
    )
    limits = (min(everything) * scale.factor, max(everything) * scale.factor)
    charts = [_ecdf_panel(source, cell, arms, metric, scale, drawn, size, len(shown), limits) for cell, arms in shown]
    title = f"Distribution of {_lower(metric.title)}"
    notes = []
    if any(failed for _, arms in shown for _, failed in arms.values()):
        notes.append("Failed requests count as worse than every other: their curve does not reach the edge.")
    if any(len(found) > _STEPS for _, arms in shown for found, _ in arms.values()):
        notes.append(f"Curves are drawn with {_STEPS} steps, from all requests.")
    if len(by_cell) > len(shown):
        notes.append(f"The first {len(shown)} of {len(by_cell)} cells.")
    return configured(panels(charts, size.columns(len(shown))), title=title, description=title, notes=notes)


def steps(
    found: Sequence[float], failed: int, *, lower_is_better: bool, most: int = _STEPS
) -> list[tuple[float, float]]:
    """Return the corners (value, share of requests with at most this value) of a distribution of sorted values.

    Failed requests count as worse than every value: as beyond the largest, or below the smallest.
    """
    n = len(found)
    whole = n + failed
    before = 0 if lower_is_better else failed
    # Evenly in rank, and every one of the few in each tail.
    ranks = {0, n - 1, *range(min(8, n)), *range(max(0, n - 12), n)} | {
        round(at * (n - 1) / max(1, min(most, n) - 1)) for at in range(min(most, n))
    }
    return [(found[rank], (before + rank + 1) / whole) for rank in sorted(ranks)]


def _ecdf_panel(
    source: ChartSource,
    cell: Cell,
    arms: dict[str, tuple[list[float], int]],
    metric: RequestMetric,
    scale: MetricScale,
    drawn: dict[str, Stroke],
    size: Size,
    count: int,
    limits: tuple[float, float],
) -> Any:
    alt = altair()
    listed = [drawn[arm] for arm in drawn if arm in arms]
    curve, marks = [], []
    for arm, (found, failed) in arms.items():
        corners = steps(found, failed, lower_is_better=metric.lower_is_better)
        curve += [{"series": drawn[arm].label, "x": value * scale.factor, "share": share} for value, share in corners]
        figures = source.found(cell.name).of(arm, metric.name)
        for share in _MARKED if figures is not None else ():
            quantile = figures.quantiles.get(share) if figures is not None else None
            if quantile is None or quantile.value is None or not math.isfinite(quantile.value):
                continue
            words = f"{arm}: p{share * 100:g} {figure(quantile.value * scale.factor, scale.unit)}"
            if quantile.low is not None and quantile.high is not None:
                words += f" [{figure(quantile.low * scale.factor)}, {figure(quantile.high * scale.factor)}]"
            marks.append(
                {
                    "series": drawn[arm].label,
                    "x": quantile.value * scale.factor,
                    "share": share,
                    "words": f"{words}, {quantile.n:,} requests, {cell.name}",
                }
            )
    legend = len(listed) > 1
    hue = colour(drawn.values(), legend=legend, columns=2 if size.narrow else 5)
    dashes = alt.StrokeDash(
        "series:N",
        scale=alt.Scale(
            domain=[each.label for each in drawn.values()], range=[list(each.dash) for each in drawn.values()]
        ),
        legend=None,
    )
    low, high = limits
    logarithmic = low > 0
    reach = (low / 1.05, high * 1.05) if logarithmic else (low, high or 1.0)
    x = alt.X(
        "x:Q",
        title=scale.title + (", log" if logarithmic else ""),
        scale=alt.Scale(type="log" if logarithmic else "linear", domain=list(reach), nice=False, clamp=True),
        axis=alt.Axis(values=ticks(*reach), format=",~r") if logarithmic else alt.Axis(format=",~r", tickCount=5),
    )
    y = alt.Y(
        "share:Q",
        title="Share of requests" if not size.narrow or count == 1 else "Share",
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=alt.Axis(values=[0, 0.25, 0.5, 0.75, 0.95], format=".0%"),
    )
    layers = [
        alt.Chart(rows(curve))
        .mark_line(interpolate="step-after", strokeWidth=2, clip=True)
        .encode(x=x, y=y, color=hue, strokeDash=dashes, detail="series:N")
    ]
    if marks:
        layers.append(
            alt.Chart(rows(marks))
            .mark_point(size=44, filled=True, opacity=1, stroke=PAPER[0], strokeWidth=1.2)
            .encode(x=x, y=y, color=hue, description="words:N", tooltip="words:N")
        )
    title = short(cell.name, 44) if count > 1 else ""
    return layered(layers, size.panel(count, labels=10), 190 if count > 1 else 240 if size.narrow else 290, title)


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return round values between two on a logarithmic axis: 1, 2, 5, 10 …, or finer where these are too few."""
    for digits in (
        (1.0,),
        (1.0, 3.0),
        (1.0, 2.0, 5.0),
        (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
        tuple(1 + at / 10 for at in range(90)),
    ):
        start, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
        found = [digit * 10.0**power for power in range(start, end + 1) for digit in digits]
        found = [float(f"{value:.3g}") for value in found if low <= value <= high]
        if len(found) >= 4:
            return found[:: -(-len(found) // most)]
    # Closer together than a tenth: evenly.
    return [float(f"{low + (high - low) * at / 4:.4g}") for at in range(5)]


def pair_differences(source: ChartSource, metric: RequestMetric, size: Size) -> dict[str, Any] | None:
    """Return how often a pair changed by how much, a panel per arm; None without a pair."""
    drawn = strokes(source.recorded)
    references = {arm.name for arm in source.recorded.header.references}
    cells = source.valid_cells()
    found = {
        arm: np.log([pair.ratio for pair in listed])
        for arm in drawn
        if arm not in references and (listed := pairs(source, arm, metric, cells))
    }
    if not found:
        return None
    shown = dict(list(found.items())[:MOST_PANELS])
    pooled = np.concatenate(list(shown.values()))
    # "No change" is always in the picture, and nothing that has no pairs beyond it.
    low, high = (float(edge) for edge in np.percentile(pooled, [1, 99]))
    low, high = min(low, -0.02), max(high, 0.02)
    low, high = low - 0.06 * (high - low), high + 0.06 * (high - low)
    edges = np.linspace(low, high, _BINS + 1)
    alt = altair()
    scale, ticks_of = ratio_axis(math.exp(low), math.exp(high), most=5 if size.narrow else 9)
    charts = []
    beyond = 0
    for at, (arm, logs) in enumerate(shown.items()):
        inside = np.clip(logs, low, high)
        beyond += int(np.sum((logs < low) | (logs > high)))
        counts, _ = np.histogram(inside, bins=edges)
        table = [
            {
                "low": math.exp(edges[place]),
                "high": math.exp(edges[place + 1]),
                "pairs": int(number),
                "words": f"{arm}: {int(number):,} of {len(logs):,} pairs changed by {change(math.exp(edges[place]))} "
                f"to {change(math.exp(edges[place + 1]))}",
            }
            for place, number in enumerate(counts)
            if number
        ]
        lowest = at == len(shown) - 1
        x = alt.X(
            "low:Q",
            scale=scale,
            axis=alt.Axis(**ticks_of, labels=lowest),
            title=_axis_title(source, metric) if lowest else None,
        )
        middle = math.exp(float(np.median(logs)))
        layers = [
            alt.Chart(rows(table))
            .mark_bar(opacity=0.8, color=drawn[arm].colour, stroke=PAPER[0], strokeWidth=0.5)
            .encode(
                x=x,
                x2="high:Q",
                y=alt.Y("pairs:Q", title="Pairs", axis=alt.Axis(tickCount=3, format="~s")),
                y2=alt.datum(0),
                description="words:N",
                tooltip="words:N",
            ),
            alt.Chart(rows([{"low": 1.0}])).mark_rule(color=LINE[0], strokeWidth=1.5).encode(x=x),
            alt.Chart(rows([{"low": middle, "words": f"{arm}: median {change(middle)}"}]))
            .mark_rule(color=drawn[arm].colour, strokeWidth=2)
            .encode(x=x, description="words:N"),
        ]
        charts.append(
            layered(
                layers,
                size.width - 66,
                84,
                alt.TitleParams(f"{drawn[arm].label}: {len(logs):,} pairs, median {change(middle)}"),
            )
        )
    title = f"Change of {_lower(metric.title)} in each pair"
    notes = ["Strong line: the median pair."]
    if beyond:
        notes.append(f"Beyond the axis, and counted at its ends: {beyond:,} of all pairs.")
    if len(found) > len(shown):
        notes.append(f"The first {len(shown)} of {len(found)} arms.")
    chart = stacked(charts, 14)
    return configured(chart, title=title, description=title, notes=notes)


def _axis_title(source: ChartSource, metric: RequestMetric) -> str:
    return f"{metric.title} against {references_of(source.recorded, 20)}"


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:] if not title[:3].isupper() else title
