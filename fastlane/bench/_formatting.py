"""Figures with their units, changes and intervals as they are written in verdicts, checks, tables, charts and pages."""

from __future__ import annotations

from ..records.formatting import counted as counted, figure as figure, listed as listed, percent as percent, percentage
from .statistics import Interval


def with_unit(value: float, unit: str) -> str:
    """Return a figure with its unit: "323 ms"."""
    if unit == "US$":
        return f"US$ {figure(value, unit)}"
    return f"{figure(value, unit)} {unit}".rstrip()


def change(ratio: float) -> str:
    """Return a ratio as the change that it means, with its sign: 0.69 is "-31 %"."""
    return f"{percentage((ratio - 1) * 100, signed=True)} %"


def change_with_interval(ratio: Interval, *, signed: bool = True) -> str:
    """Return a ratio and its interval as changes: "-31 % [-35, -27]", or without signs "31 % [27, 35]"."""
    turned = -100 if not signed and ratio.value < 1 else 100
    text = f"{percentage(turned * (ratio.value - 1), signed=signed)} %"
    if ratio.low is None or ratio.high is None:
        return text
    low, high = sorted(turned * (bound - 1) for bound in (ratio.low, ratio.high))
    return f"{text} [{percentage(low, signed=signed, exact=True)}, {percentage(high, signed=signed, exact=True)}]"


def interval(found: Interval, unit: str = "", *, signed: bool = False) -> str:
    """Return an estimate with its bounds: "323 [318, 330]"."""
    write = signed_figure if signed else figure
    if found.low is None or found.high is None:
        return write(found.value, unit)
    return f"{write(found.value, unit)} [{write(found.low, unit)}, {write(found.high, unit)}]"


def signed_figure(value: float, unit: str = "") -> str:
    """Return a figure with its sign, 0 without: "+12.3"."""
    text = figure(value, unit)
    return f"+{text}" if value > 0 and text.strip("0.") else text.replace("-0.00", "0.00")


def lowered(title: str) -> str:
    """Return a title as it stands within a sentence: "time to first token", but "API end-to-end"."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def percentile_name(share: float) -> str:
    """Return how a percentile is called: 0.95 is "p95"."""
    return f"p{share * 100:g}"
