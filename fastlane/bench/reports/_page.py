"""The page of a report: the answer and its charts first, every table behind a heading that opens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from ...pages import html_page
from .._formatting import change, counted, figure, with_unit
from ..checks import Checked
from ..findings import Findings
from ..recorded import Cell, RecordedRun, RequestMetric, metric_named
from ._material import TITLES, Material
from ._screen import changes_of, groups_of
from ._sections import INSTANT_MS, SLUGGISH_MS
from ._tables import ReportTable, RunReport

ARM_COLOURS: Final = 8
_KINDS: Final = {"ab": "A/B: arms side by side", "sweep": "Sweep: by users, rate and length"}
_BY_LOAD: Final = (
    "time_to_first_token", "inter_token_latency", "api_end_to_end", "output_throughput", "decode_speed",
)  # fmt: skip
_MOST_VIEWS: Final = 6
_MOST_STEPS: Final = 220
_LEAST_SHARE: Final = 0.07
"""Of the longest bar: a phase that is shorter has no figure in its bar."""
_LEAST_SHOWN: Final = 0.004
"""A phase that is shorter in every bar is not in the legend."""
_DEEP: Final = frozenset({"retries", "dns", "connect", "proxy", "tls"})
"""Phases whose colour is dark on a light page."""
_CONFIG: Final = {
    "background": None,
    "font": "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, DejaVu Sans, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)", "titleColor": "var(--soft)", "titleFontWeight": 500, "gridColor": "var(--grid)",
        "domainColor": "var(--line)", "tickColor": "var(--line)", "labelLimit": 150, "titlePadding": 8,
    },
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "labelColor": "var(--ink)", "orient": "top", "title": None, "labelLimit": 190, "columns": 3,
    },
    "text": {"color": "var(--ink)", "fontSize": 11},
}  # fmt: skip
_Views = Iterator[tuple[str, Any]]


class View(NamedTuple):
    title: str
    spec: Mapping[str, Any]


class Chart(NamedTuple):
    name: str
    """Such as "waterfall" or "time_to_first_token_by_load"."""
    title: str
    views: tuple[View, ...]


def page(report: RunReport, recorded: RecordedRun, findings: Findings, checked: Checked) -> str:
    """Return a report of a run as one HTML file, with its charts; it needs the extra `charts`."""
    material = Material(recorded=recorded, findings=findings, checked=checked)
    valid = material.refused_all() is None
    groups = (groups_of(material) or ()) if report.kind == "ab" and valid else ()
    charts = charts_of(report.kind, material) if valid else ()
    tiles = [
        (group, changes_of(material, group))
        for group in groups
        if not any(material.refused(material.cells[0].name, arm.name) for arm in group)
    ]
    return html_page(
        "fastlane.bench.reports",
        title=f"{report.title} - fastlane bench",
        extra="charts",
        scripts=(_vega(),) if charts else (),
        report=report,
        kind=_KINDS[report.kind],
        tiles=tiles,
        verdicts=[line for line in report.verdicts if not groups or line.tone in ("bad", "warning")],
        words=report.verdicts if groups else (),
        charts=charts,
        is_table=lambda part: isinstance(part, ReportTable),
        colours=arm_colours(recorded),
        started_at=recorded.header.started_at,
    )


def charts_of(kind: str, material: Material) -> list[Chart]:
    """Return the charts of a kind of report that the run has something for."""
    titles = {f"{name}_by_load": "{0.title} ({0.unit}) by load, p25 to p75" for name in _BY_LOAD}
    metrics = [metric_named("time_to_first_token")]
    if kind == "ab":
        # Where the time goes first: it is the picture that says why.
        titles, metrics = {"waterfall": "Where a mean request spends its time"}, list(material.metrics)
    for metric in metrics:
        most = "that took at most this long" if metric.unit == "ms" else "with at most this"
        titles[f"{metric.name}_distribution"] = f"{{0.title}}: the share of requests {most}"
    found = (Chart(name, title.format(_metric(name)), draw(name, material)) for name, title in titles.items())
    return [chart for chart in found if chart.views]


def _metric(chart: str) -> RequestMetric:
    name = chart.removesuffix("_distribution").removesuffix("_by_load")
    return metric_named("time_to_first_token" if name == "waterfall" else name)


def draw(name: str, material: Material) -> tuple[View, ...]:
    """Return the views of one chart: none if the run has nothing for it."""
    if name == "waterfall":
        views = _waterfall(material)
    else:
        views = (_by_load if name.endswith("_by_load") else _distribution)(material, _metric(name))
    drawn = [(title, chart.to_dict()) for title, chart in views]
    return tuple(
        View(title if len(drawn) > 1 else "", _plain({**spec, "width": "container", "config": _CONFIG}))
        for title, spec in drawn[:_MOST_VIEWS]
    )


def arm_colours(recorded: RecordedRun) -> dict[str, str]:
    """Return each arm's colour as CSS: references and their copies grey, and the others in their order."""
    header = recorded.header
    found = {arm.name: "var(--reference)" for arm in header.references}
    found |= {arm.name: "var(--again)" for arm in header.copies}
    others = [arm.name for arm in header.arms if arm.name not in found]
    return found | {name: f"var(--arm-{at % ARM_COLOURS})" for at, name in enumerate(others)}


def _altair() -> Any:
    # Reports without charts do without it.
    import altair as alt

    return alt


@cache
def _vega() -> str:
    """Return the scripts that draw charts: Vega, Vega-Lite and Vega-Embed, under their licences (BSD-3-Clause)."""
    import vl_convert

    return vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub requires a snippet


def _waterfall(material: Material) -> _Views:
    """Return each arm's mean request as a bar of its phases, by cell."""
    alt = _altair()
    own = {arm.name for arm in material.own_arms}
    found = {cell: [each for each in material.phases(cell.name) if each.arm in own] for cell in material.valid_cells}
    found = {cell: arms for cell, arms in found.items() if arms}
    every = [each for arms in found.values() for each in arms]
    longest = max((each.total_ms for each in every), default=0.0)
    phases = [key for key in TITLES if any(each.milliseconds.get(key, 0.0) > longest * _LEAST_SHOWN for each in every)]
    colours = alt.Scale(domain=[TITLES[key] for key in phases], range=[f"var(--{key})" for key in phases])
    # Beyond the longest bar, room for its total.
    scale = alt.Scale(domain=[0, longest * 1.25], nice=False)
    for cell, arms in found.items():
        totals = {each.arm: each.total_ms for each in arms}
        rows, ends = [], []
        for each in arms:
            at = 0.0
            for key, spent_ms in each.milliseconds.items():
                rows.append({
                    "arm": each.arm, "phase": TITLES[key], "start": at, "end": at + spent_ms,
                    "middle": at + spent_ms / 2,
                    "ink": "#fff" if key == "decode" else f"var(--on-{'deep' if key in _DEEP else 'pale'})",
                    "text": figure(spent_ms, "ms") if spent_ms > longest * _LEAST_SHARE else "",
                    "said": f"{each.arm}: {TITLES[key]} {with_unit(spent_ms, 'ms')} "
                    f"of {with_unit(each.total_ms, 'ms')}, mean of {counted(each.n, 'request')}",
                })  # fmt: skip
                at += spent_ms
            reference = material.reference_of(each.arm)
            against = totals.get(reference) if reference != each.arm else None
            more = f"  {change(at / against)}" if against else ""
            ends.append({"arm": each.arm, "end": at, "text": f"{with_unit(at, 'ms')}{more}"})
        y = alt.Y("arm:N", sort=list(totals), title=None, axis=alt.Axis(grid=False, labelFontWeight=600))
        x = alt.X("start:Q", scale=scale, title="Since the start (ms)", axis=alt.Axis(tickCount=5))
        colour = alt.Color("phase:N", scale=colours)
        bars, totals_at = alt.Chart(_data(rows)).encode(y=y), alt.Chart(_data(ends)).encode(y=y)
        ink = alt.Color("ink:N", scale=None)
        layers = (
            bars.mark_bar(height=24).encode(x=x, x2="end:Q", color=colour, tooltip="said:N"),
            bars.mark_text(fontWeight=600).encode(x="middle:Q", text="text:N", color=ink),
            totals_at.mark_text(align="left", dx=6, fontWeight=600).encode(x="end:Q", text="text:N"),
        )
        yield cell.name, alt.layer(*layers, height=40 * len(arms))


def _distribution(material: Material, metric: RequestMetric) -> _Views:
    """Return the share of each arm's requests that had at most a value, by cell."""
    alt = _altair()
    colours = arm_colours(material.recorded)
    for cell in material.valid_cells:
        rows: list[dict[str, Any]] = []
        for arm in material.arms:
            samples = material.sent(cell.name, arm.name)
            found = (metric.value(sample) for sample in samples if sample.error is None)
            values = sorted(value for value in found if value is not None and math.isfinite(value))
            failed = sum(sample.error is not None for sample in samples)
            corners = steps(values, failed, lower_is_better=metric.lower_is_better)
            rows += [{"arm": arm.name, "value": value, "share": share} for value, share in corners]
        if not rows:
            continue
        is_log = min(row["value"] for row in rows) > 0
        names = list(dict.fromkeys(row["arm"] for row in rows))
        dashes = [[4, 3] if colours[name] == "var(--again)" else [1, 0] for name in names]
        x = alt.X(
            "value:Q",
            title=f"{metric.title} ({metric.unit}{', log' if is_log else ''})",
            scale=alt.Scale(type="log" if is_log else "linear", nice=False),
            axis=alt.Axis(tickCount=6, format=",~r"),
        )
        y = alt.Y("share:Q", title="Share of requests", axis=alt.Axis(format=".0%", tickCount=5))
        dash = alt.StrokeDash("arm:N", scale=alt.Scale(domain=names, range=dashes))
        line = alt.Chart(_data(rows)).mark_line(interpolate="step-after", strokeWidth=2, clip=True)
        chart = line.encode(x=x, y=y, color=_by_arm(names, colours), strokeDash=dash).properties(height=220)
        yield cell.name, chart


def steps(values: Sequence[float], failed: int, *, lower_is_better: bool) -> list[tuple[float, float]]:
    """Return corners (value, share with at most it) of sorted values' distribution; failed requests are the worst."""
    before = 0 if lower_is_better else failed
    ranks = np.unique(np.linspace(0, len(values) - 1, min(_MOST_STEPS, len(values))).round().astype(int))
    return [(values[rank], float(before + rank + 1) / (len(values) + failed)) for rank in ranks]


def _by_load(material: Material, metric: RequestMetric) -> _Views:
    """Return a metric's p50 by users or rate, with p25 to p75 around it: a line for each arm, by scenario."""
    alt = _altair()
    title, arms = "Users at a time", len(material.recorded.header.arms)
    if any(cell.load == "open" for cell in material.cells):
        title = "Requests sent per arm (per second)"
    elif arms > 1:
        title = f"Users at a time, shared by {arms} arms"
    x = alt.X("load:Q", title=title, axis=alt.Axis(tickCount=6, format=",~r"))
    colour = _by_arm([arm.name for arm in material.own_arms], arm_colours(material.recorded))
    for scenario in material.scenarios:
        cells = [cell for cell in material.cells if cell.workload == scenario]
        rows = [_spread(material, cell, arm.name, metric) for arm in material.own_arms for cell in cells]
        if len(cells) < 2 or all(row["middle"] is None for row in rows):
            continue
        base = alt.Chart(_data(rows)).encode(x=x, color=colour)
        y_title = f"{metric.title} ({metric.unit})"
        line = base.mark_line(point=True, strokeWidth=2)
        layers = [line.encode(y=alt.Y("middle:Q", title=y_title), tooltip="said:N")]
        if any(row["low"] is not None for row in rows):
            layers.insert(0, base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=y_title), y2="high:Q"))
        if metric.name == "inter_token_latency":
            feels = [{"at": INSTANT_MS, "name": "instant below"}, {"at": SLUGGISH_MS, "name": "sluggish above"}]
            lines = alt.Chart(_data(feels))
            layers.append(lines.mark_rule(color="var(--soft)", strokeDash=[3, 3]).encode(y="at:Q", tooltip="name:N"))
        yield scenario, alt.layer(*layers, height=230)


def _spread(material: Material, cell: Cell, arm: str, metric: RequestMetric) -> dict[str, Any]:
    """Return one arm's p25, p50 and p75 in a cell, None for what is not known: lines break there."""
    found = material.figures(cell.name, arm, metric.name)
    low, middle, high = (found.quantiles[share].value if found else None for share in (0.25, 0.5, 0.75))
    words = "" if middle is None else f"{arm}, {cell.name}: p50 {with_unit(middle, metric.unit)}"
    if low is not None and high is not None:
        words += f", half of the requests between {figure(low, metric.unit)} and {figure(high, metric.unit)}"
    load = cell.rate if cell.users is None else float(cell.users)
    return {"arm": arm, "load": load, "low": low, "middle": middle, "high": high, "said": words}


def _by_arm(names: Sequence[str], colours: Mapping[str, str]) -> Any:
    alt = _altair()
    legend = alt.Legend(symbolOpacity=1, symbolType="stroke", symbolStrokeWidth=2.5) if len(names) > 1 else None
    scale = alt.Scale(domain=list(names), range=[colours[name] for name in names])
    return alt.Color("arm:N", scale=scale, legend=legend)


def _data(rows: Iterable[Mapping[str, Any]]) -> Any:
    return _altair().Data(values=[dict(row) for row in rows])


def _plain(value: Any) -> Any:
    """Return what JSON and Vega's expressions can hold: no infinite numbers, and no text that cannot be printed."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return "".join(sign if sign.isprintable() else " " for sign in value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
