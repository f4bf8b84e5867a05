"""Numbers as they are written: the same digits, units and signs in reports, traces, the doctor and the bench.

pages/frame.js writes them alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


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


def duration(seconds: float) -> str:
    """Return seconds with the unit that suits them: "3.30 ms", "131 ms", "1.23 s"."""
    if not seconds:
        return "0 ms"
    return f"{figure(seconds * 1e3, 'ms')} ms" if abs(seconds) < 0.9995 else f"{figure(seconds, 's')} s"


def percent(share: float) -> str:
    """Return a share in per cent: 0.31 is "31 %", 0.045 is "4.5 %"."""
    return f"{percentage(share * 100)} %"


def percentage(value: float, *, signed: bool = False, exact: bool = False) -> str:
    """Return a number of per cents; with `exact` a small one is not written as 0."""
    text = f"{value:,.0f}" if abs(value) >= 9.95 else f"{value:.1f}".removesuffix(".0")
    if text in {"0", "-0"}:
        # A bound that is written as 0 would seem to allow for no change.
        text = f"{value:.1g}" if exact and abs(value) >= 0.0005 else "0"
    return f"+{text}" if signed and value > 0 and text != "0" else text


def listed(words: Iterable[str], last: str = "and") -> str:
    """Return words as a sentence lists them: "a, b and c"."""
    found = list(words)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}" if found else ""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: "1 pair", "240 pairs"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
