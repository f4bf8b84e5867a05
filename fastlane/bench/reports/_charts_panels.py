"""What panels are put together from: rows, layers, axes for ratios, and the look that all charts share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ._charts_style import FONT, GRID, INK, LINE, SOFT, altair, plain


def configured(spec: dict[str, Any], *, title: str, description: str, notes: Iterable[str] = ()) -> dict[str, Any]:
    """Return panels as a whole specification, in the look that all share.

    Title and notes are kept apart, because the page has its own: `images` draws them in.
    """
    spec = {"$schema": altair().SCHEMA_URL, **spec, "description": description, "datasets": _named(spec)}
    spec["usermeta"] = {"title": title, "notes": list(notes)}
    spec["background"] = None
    spec["padding"] = 4
    spec["config"] = {
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": SOFT[0], "titleColor": SOFT[0], "labelFontSize": 11, "titleFontSize": 11.5,
            "titleFontWeight": 500,
            "gridColor": GRID[0], "domainColor": LINE[0], "tickColor": LINE[0], "labelLimit": 220, "titlePadding": 8,
            "titleLimit": 600,
        },
        "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
        "legend": {
            "labelColor": INK[0], "titleColor": SOFT[0], "labelFontSize": 11.5, "orient": "top", "labelLimit": 190,
            "symbolStrokeWidth": 2.5, "columnPadding": 16,
        },
        "title": {
            "color": INK[0], "subtitleColor": SOFT[0], "fontSize": 12.5, "fontWeight": 600, "anchor": "start",
            "frame": "group", "subtitleFontSize": 11, "offset": 8,
        },
        "text": {"color": INK[0], "fontSize": 11},
        "concat": {"spacing": 24},
    }  # fmt: skip
    return spec


def rows(values: Iterable[Mapping[str, Any]]) -> Any:
    """Return rows as a chart's own data; what is no finite number is left out, and what no XML can hold replaced."""
    listed = _Rows("rows")
    listed.rows = [{key: _clean(value) for key, value in row.items()} for row in values]
    return altair().NamedData(name=listed)


class _Rows(str):  # noqa: SLOT000
    """A data set's name with its rows: altair copies and examines rows again and again, and a name never."""

    rows: list[dict[str, Any]]


def _named(spec: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Give each data set of a chart a name of its own, and return them by it; layers share theirs."""
    found: dict[int, tuple[str, list[dict[str, Any]]]] = {}
    for panel in spec.get("concat") or spec.get("vconcat") or (spec,):
        for layer in panel["layer"]:
            listed = layer["data"]["name"].rows
            name, _ = found.setdefault(id(listed), (f"data-{len(found)}", listed))
            layer["data"] = {"name": name}
    return dict(found.values())


def _clean(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return plain(value) if isinstance(value, str) else value


def layered(layers: Iterable[Any], width: int, height: int, title: Any = "") -> dict[str, Any]:
    """Return layers as one panel of this size.

    They are put together here and not by altair, which copies and examines all of them at every step.
    """
    spec: dict[str, Any] = {"layer": [_of_layer(layer) for layer in layers], "width": width, "height": height}
    if title:
        spec["title"] = title if isinstance(title, str) else title.to_dict()
    return spec


def _of_layer(layer: Any) -> dict[str, Any]:
    spec: dict[str, Any] = layer.to_dict()
    return {key: each for key, each in spec.items() if key not in _WHOLE} | {"data": {"name": layer.data.name}}


_WHOLE: Final = frozenset({"$schema", "config", "datasets"})


def panels(charts: Sequence[dict[str, Any]], columns: int) -> dict[str, Any]:
    """Return panels in rows of `columns`, with one legend; a single one as it is."""
    if len(charts) == 1:
        return charts[0]
    shared = dict.fromkeys(("color", "shape", "strokeDash"), "shared")
    return {"concat": list(charts), "columns": columns, "resolve": {"scale": shared}}


def stacked(charts: Sequence[dict[str, Any]], spacing: int) -> dict[str, Any]:
    """Return panels one below the other; a single one as it is."""
    return charts[0] if len(charts) == 1 else {"vconcat": list(charts), "spacing": spacing}


def ratio_axis(low: float, high: float, *, most: int = 7) -> tuple[Any, dict[str, Any]]:
    """Return a logarithmic scale for ratios, halving as far from 1 as doubling, and its axis in changes."""
    alt = altair()
    # A factor beyond threefold is read more easily than its percentage.
    words = (
        "datum.value >= 3 ? '\N{MULTIPLICATION SIGN}' + format(datum.value, '.3~g') : "
        "abs(datum.value - 1) < 1e-9 ? '0 %' : format((datum.value - 1) * 100, '+.3~g') + ' %'"
    )
    return (
        alt.Scale(type="log", domain=[low, high], nice=False, clamp=True),
        {"values": ratio_ticks(low, high, most), "labelExpr": words, "grid": True},
    )


def ratio_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return ratios between two whose changes are round, on a logarithmic axis not too close together."""
    room = math.log(high / low) / most
    for step in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5):
        if step / max(1.0, high) >= room * 0.8 and low > 0.5 - 1e-9 and high < 2:
            first, last = math.ceil((low - 1) / step - 1e-9), math.floor((high - 1) / step + 1e-9)
            return [round(1 + at * step, 6) for at in range(first, last + 1)]
    for base in (_COARSE, (1.0,)):
        found = sorted(place * 10.0**power for power in range(-12, 13) for place in base)
        found = [float(f"{place:.6g}") for place in found if low <= place <= high]
        kept = [place for place in found if place == 1] or found[:1]
        for place in sorted(found, key=lambda place: abs(math.log(place))):
            if all(abs(math.log(place / each)) >= room * 0.8 for each in kept):
                kept.append(place)
        if len(kept) <= most + 1:
            return sorted(kept)
    return [1.0]


_COARSE: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5)
