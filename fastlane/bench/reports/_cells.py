"""Figures as cells of tables."""

from __future__ import annotations

from typing import Final

from .._formatting import change_with_interval, figure, interval, percent
from ..findings import Interval, Quantile
from ._blocks import TableCell

NOTHING: Final = TableCell(text="-", tone="muted")
"""A place for which there is no figure: it was not measured, or does not apply."""
WANTS_N: Final = '"wants n …": not available at this n, for below it no 95 % interval of the percentile exists.'
"""The note under a table in which a percentile is left out."""


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
    if quantile.interval is None:
        if quantile.n >= quantile.wanted:
            # Enough requests, of which so many failed that the percentile is one of them.
            return TableCell(text="failed", tone="bad")
        return TableCell(text=f"wants n {quantile.wanted}", tone="muted")
    return interval_entry(quantile.interval if bounds else Interval(value=quantile.interval.value), unit)


def label(text: str) -> TableCell:
    """Return the name of a row."""
    return TableCell(text=text, value=text)
