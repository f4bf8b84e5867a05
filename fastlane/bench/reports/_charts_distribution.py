"""Charts of distributions: how the requests of each arm spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..recorded import Cell, RequestMetric
from ._charts_data import MOST_PANELS, ChartSource, MetricScale, scale_of, values
from ._charts_panels import configured, layered, panels, rows
from ._charts_style import PAPER, Size, Stroke, altair, colour, figure, short, strokes

_STEPS: Final = 220
_MARKED: Final = (0.5, 0.95, 0.99)


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


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:] if not title[:3].isupper() else title
