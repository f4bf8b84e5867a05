"""The charts of a run by name: what a report's places for charts are filled with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from fastlane.errors import ConfigurationError, MissingExtraError

from ..checks import Checked
from ..findings import Findings
from ..recorded import RecordedRun, RequestMetric, metric_named
from ._charts_attribution import attribution
from ._charts_data import ChartSource, metrics_of, usable
from ._charts_distribution import ecdf
from ._charts_forest import forest
from ._charts_ranges import ranges
from ._charts_style import PAPER, Size, altair
from ._charts_sweep import by_arm, by_scenario, efficiency, scenario_range
from ._charts_waterfall import waterfall

Draw = Callable[[ChartSource, Size], dict[str, Any] | None]

_SWEEPS: Final[Mapping[str, Draw]] = {
    "ttft_by_users": lambda source, size: by_arm(source, metric_named("time_to_first_token"), size),
    "itl_by_users": lambda source, size: by_arm(source, metric_named("inter_token_latency"), size),
    "e2e_by_users": lambda source, size: by_arm(source, metric_named("api_end_to_end"), size),
    "throughput_by_users": lambda source, size: by_arm(source, metric_named("output_throughput"), size),
    "decode_speed_by_users": lambda source, size: by_scenario(source, metric_named("decode_speed"), size),
    "itl_bands": lambda source, size: by_scenario(source, metric_named("inter_token_latency"), size, tolerance=True),
    "scaling_efficiency": efficiency,
    "decode_speed_range": lambda source, size: scenario_range(source, metric_named("decode_speed"), size),
    "ttft_range": lambda source, size: scenario_range(source, metric_named("time_to_first_token"), size),
    "forest": forest,
    "waterfall": waterfall,
    "attribution": attribution,
}
_IMAGE_SCALE: Final = 2.0
_MOST_NAMED: Final = 4


def charts(
    recorded: RecordedRun,
    findings: Findings,
    checked: Checked | None = None,
    *,
    narrow: bool = False,
    names: Sequence[str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the charts that a run has figures for, as Vega-Lite specifications by name.

    `checked` says which cells are invalid, `narrow` draws for a telephone's width, and `names` keeps to those that are
    wanted. A chart that the run has nothing for is left out. `usermeta` has each one's title and notes. Raises
    MissingExtraError.
    """
    altair()
    source = usable(recorded, findings, checked)
    refused = [
        name
        for cell in source.cells()
        for name in (
            [cell.name]
            if source.refused(cell.name)
            else [f"{cell.name}, {arm.name}" for arm in recorded.header.arms if source.refused(cell.name, arm.name)]
        )
    ]
    size = Size(narrow=narrow)
    found = {}
    for name, draw in _drawings(source).items():
        if (names is None or name in names) and (spec := draw(source, size)) is not None:
            if refused:
                spec["usermeta"]["notes"].append(_left_out(refused))
            found[name] = spec
    return found


def _left_out(refused: Sequence[str]) -> str:
    more = f" and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
    return f"Invalid, and not drawn, for a check refuses the figures: {', '.join(refused[:_MOST_NAMED])}{more}."


def _drawings(source: ChartSource) -> dict[str, Draw]:
    found = dict(_SWEEPS)
    listed = metrics_of(source)
    for metric in listed:
        found[f"ecdf_{metric.name}"] = partial(_of_metric, ecdf, metric)
        found[f"lengths_{metric.name}"] = partial(_of_metric, ranges, metric)
    return found


def _of_metric(
    draw: Callable[[ChartSource, RequestMetric, Size], dict[str, Any] | None],
    metric: RequestMetric,
    source: ChartSource,
    size: Size,
) -> dict[str, Any] | None:
    return draw(source, metric, size)


def svg(spec: Mapping[str, Any]) -> str:
    """Return a chart as SVG, drawn without a browser and without a network. Raises MissingExtraError."""
    drawn: str = _converter().vegalite_to_svg(dict(spec), allowed_base_urls=[])
    return drawn


def images(
    drawn: Mapping[str, Mapping[str, Any]], folder: Path, formats: Sequence[str] = ("png", "svg")
) -> tuple[Path, ...]:
    """Write each chart into `folder`, with its title and on a light ground; return the files.

    Raises ConfigurationError for a format that is neither "png" nor "svg", MissingExtraError and OSError.
    """
    if unknown := sorted(set(formats) - {"png", "svg"}):
        raise ConfigurationError(f'expected formats "png" and "svg" for images of charts, got {", ".join(unknown)}')
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, spec in drawn.items():
        whole = _alone(spec)
        for form in formats:
            path = folder / f"{name}.{form}"
            if form == "png":
                path.write_bytes(_converter().vegalite_to_png(whole, scale=_IMAGE_SCALE, allowed_base_urls=[]))
            else:
                path.write_text(svg(whole), encoding="utf-8")
            written.append(path)
    return tuple(written)


def _alone(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A chart with what a page would say beside it."""
    whole: dict[str, Any] = json.loads(json.dumps(spec))
    title = {
        "text": whole["usermeta"]["title"],
        "subtitle": whole["usermeta"]["notes"],
        "fontSize": 15,
        "anchor": "start",
        "offset": 14,
    }
    whole["background"], whole["padding"] = PAPER[0], 14
    if "title" in whole:
        # A single panel with a title of its own keeps it, below the chart's.
        own = whole.pop("title")
        title["subtitle"] = [own if isinstance(own, str) else own["text"], *title["subtitle"]]
    whole["title"] = title
    return whole


def _converter() -> Any:
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise MissingExtraError("charts", "vl-convert-python") from error
    return vl_convert
