"""The waterfall: where each arm's mean request spends its time, one bar per arm on one scale."""

from __future__ import annotations

from typing import Any, Final

from ..recorded import Cell
from ._charts_data import ChartSource
from ._charts_panels import configured, layered, rows, stacked
from ._charts_style import (
    INK,
    ON_DARK,
    ON_LIGHT,
    PAPER,
    PHASES,
    Size,
    altair,
    change,
    figure,
    label_width,
    short,
    strokes,
)
from ._phases import TITLES, phases

_LIGHT: Final = frozenset({"dispatch", "queue", "send", "unsplit", "server", "back", "wait"})
_MOST_CELLS: Final = 6
_LEAST_SHARE: Final = 0.004
"""Of the longest bar: a phase that takes less in every arm gets no entry in the legend."""


def waterfall(source: ChartSource, size: Size) -> dict[str, Any] | None:
    """Return each arm's mean phases in the order in which they pass, a panel per valid cell; None without output."""
    recorded = source.recorded
    copies = {arm.name for arm in recorded.header.copies}
    arms = [arm for arm in strokes(recorded) if arm not in copies]
    found: list[tuple[Cell, dict[str, tuple[dict[str, float], int]]]] = []
    cells = source.valid_cells()
    every = phases(recorded)
    for cell in cells[:_MOST_CELLS]:
        by_arm = {each.arm: each for each in every[cell.name]}
        here = {
            arm: ({phase.key: phase.milliseconds / 1e3 for phase in by_arm[arm].phases}, by_arm[arm].n)
            for arm in arms
            if arm in by_arm
        }
        if here:
            found.append((cell, here))
    if not found:
        return None
    longest = max(sum(spent.values()) for _, here in found for spent, _ in here.values())
    factor, unit = (1.0, "s") if longest >= 3 else (1e3, "ms")
    named = [
        name
        for name in TITLES
        if any(spent.get(name, 0.0) >= longest * _LEAST_SHARE for _, here in found for spent, _ in here.values())
    ]
    charts = [
        _panel(
            source,
            cell,
            here,
            size,
            named,
            longest=longest,
            factor=factor,
            unit=unit,
            last=cell is found[-1][0],
            many=len(found) > 1,
        )
        for cell, here in found
    ]
    chart = stacked(charts, 18)
    title = "Where a mean request spends its time"
    notes = []
    if any({"unsplit", "head"} & spent.keys() for _, here in found for spent, _ in here.values()):
        notes.append("Divided by what every caller sees: not every client keeps a record of its calls.")
    if len(cells) > _MOST_CELLS:
        notes.append(f"The first {_MOST_CELLS} of {len(cells)} cells.")
    return configured(chart, title=title, description=title, notes=notes)


def _panel(
    source: ChartSource,
    cell: Cell,
    here: dict[str, tuple[dict[str, float], int]],
    size: Size,
    named: list[str],
    *,
    longest: float,
    factor: float,
    unit: str,
    last: bool,
    many: bool,
) -> Any:
    alt = altair()
    drawn = strokes(source.recorded)
    label_px, text_px = (0, 0) if size.narrow else (label_width(drawn[arm].label for arm in here), 130)
    width = size.width - label_px - text_px - (20 if size.narrow else 24)
    bars, ends = [], []
    for arm, (spent, count) in here.items():
        reference = source.recorded.header.reference_of(arm).name
        base_s = sum(here[reference][0].values()) if reference in here else None
        at = 0.0
        for name, duration in spent.items():
            share = duration / longest
            bars.append(
                {
                    "series": drawn[arm].label,
                    "phase": TITLES[name],
                    "start": at * factor,
                    "end": (at + duration) * factor,
                    "middle": (at + duration / 2) * factor,
                    "ink": (ON_LIGHT if name in _LIGHT else ON_DARK)[0],
                    "text": figure(duration * factor) if share * width > 40 else "",
                    "words": f"{arm}: {TITLES[name]} {figure(duration * factor, unit)} "
                    f"({duration / sum(spent.values()):.0%} of {figure(sum(spent.values()) * factor, unit)}, "
                    f"mean of {count:,} requests)",
                }
            )
            at += duration
        compared = base_s is not None and arm != reference and base_s > 0
        text = figure(at * factor, unit) + (f"  {change(at / base_s)}" if compared and base_s else "")
        ends.append(
            {"series": drawn[arm].label, "end": at * factor, "text": text, "name": f"{drawn[arm].label}: {text}"}
        )
    names = [drawn[arm].label for arm in here]
    x_scale = alt.Scale(domain=[0, longest * factor * 1.01], nice=False)
    axis = alt.Axis(labels=last, tickCount=5 if size.narrow else 9, format=",~r")
    x = alt.X("start:Q", scale=x_scale, axis=axis, title=f"Since the start ({unit})" if last else None)
    y = alt.Y(
        "series:N",
        title=None,
        sort=names,
        scale=alt.Scale(paddingInner=0.1),
        axis=None
        if size.narrow
        else alt.Axis(minExtent=label_px, maxExtent=label_px, labelLimit=label_px - 8, labelFontWeight=600, grid=False),
    )
    step = 50 if size.narrow else 40
    hue = alt.Color(
        "phase:N",
        scale=alt.Scale(domain=[TITLES[name] for name in named], range=[PHASES[name][0] for name in named]),
        legend=alt.Legend(
            title=None, orient="top", columns=1 if size.narrow else 4, symbolType="square", labelLimit=280
        ),
    )
    shown = rows(bar for bar in bars if bar["phase"] in {TITLES[name] for name in named})
    dy = 9 if size.narrow else 0
    layers = [
        alt.Chart(shown)
        .mark_bar(height=24, yOffset=dy, y2Offset=dy, stroke=PAPER[0], strokeWidth=1)
        .encode(y=y, x=x, x2="end:Q", color=hue, description="words:N", tooltip="words:N"),
        alt.Chart(shown)
        .mark_text(fontSize=10.5, fontWeight=600, dy=dy)
        .encode(y=y, x=alt.X("middle:Q", scale=x_scale), text="text:N", color=alt.Color("ink:N", scale=None)),
    ]
    if size.narrow:
        layers.append(
            alt.Chart(rows(ends))
            .mark_text(align="left", baseline="middle", dy=-13, fontWeight=600, color=INK[0])
            .encode(y=y, x=alt.value(0), text="name:N")
        )
    else:
        layers.append(
            alt.Chart(rows(ends))
            .mark_text(align="left", dx=7, fontWeight=600, fontSize=12, color=INK[0])
            .encode(y=y, x=alt.X("end:Q", scale=x_scale), text="text:N")
        )
    title = alt.TitleParams(short(cell.name, 60)) if many else ""
    return layered(layers, width, len(names) * step, title)
