"""Figures as they are written: the same digits, units and signs in every report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from ..findings import Interval, Quantile
from ._blocks import TableCell

NOTHING: Final = TableCell(text="-", tone="muted")
"""A place for which there is no figure: it was not measured, or does not apply."""
WANTS_N: Final = '"wants n …": not available at this n, for below it no 95 % interval of the percentile exists.'
"""The note under a table in which a percentile is left out."""


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
    return f"{_percent_figure(share * 100)} %"


def change(ratio: float) -> str:
    """Return a ratio as the change that it means, with its sign: 0.69 is "-31 %"."""
    return f"{_signed((ratio - 1) * 100)} %"


def change_with_interval(ratio: Interval) -> str:
    """Return a ratio and its interval as changes: "-31 % [-35, -27]"."""
    if ratio.low is None or ratio.high is None:
        return change(ratio.value)
    return f"{change(ratio.value)} {interval_of_change(ratio.low, ratio.high)}"


def interval_of_change(low: float, high: float) -> str:
    """Return the bounds of a ratio as bounds of a change: "[-35, -27]", in per cent."""
    return f"[{_bound((low - 1) * 100)}, {_bound((high - 1) * 100)}]"


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


def ratio_entry(ratio: Interval | None) -> TableCell:
    """Return a ratio of two arms as a place in a table, written as a change."""
    if ratio is None:
        return NOTHING
    return TableCell(text=change_with_interval(ratio), value=ratio.value, low=ratio.low, high=ratio.high)


def number_entry(value: float | None, unit: str = "") -> TableCell:
    """Return a figure as a place in a table; none where there is none."""
    return NOTHING if value is None else TableCell(text=figure(value, unit), value=value)


def counted_entry(failed: int) -> TableCell:
    """Return how many requests failed as a place in a table."""
    return TableCell(text=f"{failed:,}", value=failed, tone="bad" if failed else "plain")


def share_entry(value: float | None) -> TableCell:
    """Return a share as a place in a table, written in per cent."""
    return NOTHING if value is None else TableCell(text=percent(value), value=value)


def interval_entry(found: Interval | None, unit: str = "", *, signed: bool = False) -> TableCell:
    """Return an estimate with its interval as a place in a table."""
    if found is None:
        return NOTHING
    return TableCell(text=interval(found, unit, signed=signed), value=found.value, low=found.low, high=found.high)


def quantile_entry(quantile: Quantile | None, unit: str = "", *, bounds: bool = True) -> TableCell:
    """Return a percentile as a place in a table: with its interval, or the n that it would want."""
    if quantile is None:
        return NOTHING
    if quantile.withheld is not None:
        return TableCell(text=f"invalid: {quantile.withheld.removeprefix('client saturated: ')}", tone="bad")
    if quantile.value is None:
        if quantile.n >= quantile.wanted:
            # Enough requests, of which so many failed that the percentile is one of them.
            return TableCell(text="failed", tone="bad")
        return TableCell(text=f"wants n {quantile.wanted}", tone="muted")
    low, high = (quantile.low, quantile.high) if bounds else (None, None)
    found = Interval(value=quantile.value, low=low, high=high)
    return TableCell(text=interval(found, unit), value=quantile.value, low=low, high=high)


def label(text: str) -> TableCell:
    """Return the name of a row."""
    return TableCell(text=text, value=text)


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


def _percent_figure(value: float) -> str:
    size = abs(value)
    text = f"{value:,.0f}" if size >= 9.95 else f"{value:.1f}"
    return text.removesuffix(".0")


def _bound(value: float) -> str:
    # A bound that is written as 0 would seem to allow for no change.
    text = _signed(value)
    return f"{value:+.1g}" if text == "0" and abs(value) >= 0.0005 else text


def _signed(value: float) -> str:
    text = _percent_figure(value)
    return "0" if text in {"0", "-0"} else f"+{text}" if value > 0 else text
