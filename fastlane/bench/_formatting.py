"""Numbers as they are written: the same digits, units and signs in verdicts, checks, tables, charts and pages."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .statistics import Interval


def figure(value: float, unit: str = "") -> str:
    """Return a figure with about three significant digits, without its unit: "0.52", "12.3", "1,720"."""
    if not math.isfinite(value):
        return "none"
    size = abs(value)
    if unit == "US$":
        return f"{value:.3g}" if size >= 1e-4 or not value else f"{value:.2e}"
    if unit in {"bytes", "tokens", ""} and float(value).is_integer():
        return f"{value:,.0f}"
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def with_unit(value: float, unit: str) -> str:
    """Return a figure with its unit: "323 ms"."""
    if unit == "US$":
        return f"US$ {figure(value, unit)}"
    return f"{figure(value, unit)} {unit}".rstrip()


def percent(share: float) -> str:
    """Return a share in per cent: 0.31 is "31 %", 0.045 is "4.5 %"."""
    return f"{_percentage(share * 100)} %"


def change(ratio: float) -> str:
    """Return a ratio as the change that it means, with its sign: 0.69 is "-31 %"."""
    return f"{_percentage((ratio - 1) * 100, signed=True)} %"


def change_with_interval(ratio: Interval, *, signed: bool = True) -> str:
    """Return a ratio and its interval as changes: "-31 % [-35, -27]", or without signs "31 % [27, 35]"."""
    turned = -100 if not signed and ratio.value < 1 else 100
    text = f"{_percentage(turned * (ratio.value - 1), signed=signed)} %"
    if ratio.low is None or ratio.high is None:
        return text
    low, high = sorted(turned * (bound - 1) for bound in (ratio.low, ratio.high))
    return f"{text} [{_percentage(low, signed=signed, exact=True)}, {_percentage(high, signed=signed, exact=True)}]"


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


def listed(words: Iterable[str], last: str = "and") -> str:
    """Return words as a sentence lists them: "a, b and c"."""
    found = list(words)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}" if found else ""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: "1 pair", "240 pairs"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _percentage(value: float, *, signed: bool = False, exact: bool = False) -> str:
    """Return a number of per cents; with `exact` a small one is not written as 0."""
    text = f"{value:,.0f}" if abs(value) >= 9.95 else f"{value:.1f}".removesuffix(".0")
    if text in {"0", "-0"}:
        # A bound that is written as 0 would seem to allow for no change.
        text = f"{value:.1g}" if exact and abs(value) >= 0.0005 else "0"
    return f"+{text}" if signed and value > 0 and text != "0" else text
