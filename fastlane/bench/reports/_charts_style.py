"""How charts look: one colour per arm everywhere, told apart without colour vision, on light and on dark ground."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fastlane.errors import MissingExtraError

from ..recorded import RecordedRun

if TYPE_CHECKING:
    from types import ModuleType

# Chosen for 4.5:1 on their ground (WCAG 2.2, 1.4.3, for names are written in them), neighbours apart in hue.
_REFERENCE, _AGAIN = ("#3f4a56", "#c3ccd6"), ("#68737e", "#8e9aa8")
_ARMS = (
    ("#0b62b8", "#6cb0ff"), ("#c9500a", "#ff9b62"), ("#0a8060", "#4fd1a5"), ("#a83e83", "#f08cc9"),
    ("#8f6400", "#e8bd4a"), ("#117f9f", "#5cd0ee"), ("#6b4fc0", "#b39dff"), ("#b3261e", "#ff8a80"),
    ("#4c6b1f", "#a9cf6b"), ("#7a4a2b", "#d2a07c"),
)  # fmt: skip
_SCENARIOS = (
    ("#0f8284", "#45c4c6"), ("#3c6cae", "#7fa8ea"), ("#6a4fa4", "#a78be1"), ("#a0387e", "#e07dbf"),
    ("#c8433e", "#ff8a84"), ("#a86414", "#ffb96b"),
)  # fmt: skip
# The same as on the page of traces.
PHASES: Final[Mapping[str, tuple[str, str]]] = {
    "dispatch": ("#b9a06b", "#c9b27c"),
    "prepare": ("#8b7fb8", "#a79bd6"),
    "retries": ("#d2603a", "#e8794f"),
    "queue": ("#98a2ae", "#7f8b98"),
    "dns": ("#0e958c", "#2bb8ad"),
    "connect": ("#4b9a3f", "#66b85a"),
    "tls": ("#9450b5", "#b574d6"),
    "opening": ("#6d8c68", "#8fb188"),
    "send": ("#dd8a0a", "#f0a530"),
    "head": ("#5f8f9e", "#82b3c2"),
    "unsplit": ("#8fa9c4", "#7f98b2"),
    "server": ("#79aee3", "#6b9fd6"),
    "back": ("#a9c3a0", "#86a27d"),
    "wait": ("#9db7d9", "#7d99bd"),
    "decode": ("#1f5fa8", "#3f7fd0"),
}
INK: Final = ("#16202c", "#e6ebf1")
SOFT: Final = ("#56616e", "#a7b3c0")
LINE: Final = ("#c3cad2", "#3a4754")
GRID: Final = ("#e8ebef", "#232d38")
BAND: Final = ("#d3d9e0", "#33404d")
REFUSED: Final = ("#6a7581", "#8d99a7")
PAPER: Final = ("#fffffe", "#151c24")
ON_DARK: Final = ("#fffffd", "#fffffd")
ON_LIGHT: Final = ("#0c1a28", "#0c1a28")
"""On a filled bar, whatever the ground of the page."""
GOOD: Final = ("#1d6b3b", "#7fd49d")
FAIR: Final = ("#7a4d01", "#f2c46e")
BAD: Final = ("#b3261f", "#ff8a81")
THEME: Final[Mapping[str, str]] = dict(
    (_REFERENCE, _AGAIN, *_ARMS, *_SCENARIOS, *PHASES.values(), INK, SOFT, LINE, GRID, BAND, REFUSED, PAPER, ON_DARK,
     ON_LIGHT, GOOD,
     FAIR, BAD)
)  # fmt: skip
"""Each colour of a chart on light ground, with the one that stands for it on dark ground."""
FONT: Final = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, DejaVu Sans, sans-serif"
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_DASHES: Final = ((1, 0), (9, 2), (2, 2), (8, 3, 2, 3))
LABEL_PX: Final = 14.0
"""Between two labels of 11 px that must not touch."""
LONGEST_NAME: Final = 26
_NO_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stroke:
    """How one arm or scenario is drawn, in every chart."""

    name: str
    colour: str
    dash: tuple[int, ...] = (1, 0)
    shape: str = "circle"

    @property
    def label(self) -> str:
        """The name, shortened where it is long."""
        return short(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """For which width a chart is drawn."""

    narrow: bool = False

    @property
    def width(self) -> int:
        """Of the whole drawing, in pixels: for a page on a desk, or for a telephone."""
        return 330 if self.narrow else 880

    def columns(self, panels: int) -> int:
        """How many panels stand beside each other."""
        return 1 if self.narrow else min(3 if panels > 4 or panels == 3 else 2, panels)

    def panel(self, panels: int, *, axis: int = 58, labels: int = 0) -> int:
        """Width of one panel's own area, `axis` pixels for its axis and `labels` for what stands to its right."""
        columns = self.columns(panels)
        return int((self.width - 24 * (columns - 1)) / columns) - axis - labels


def label_width(labels: Iterable[str], least: int = 48, most: int = 230) -> int:
    """Return the pixels that names beside an axis need."""
    return min(most, max([least, *(int(len(label) * 6.6) + 18 for label in labels)]))


def altair() -> ModuleType:
    """Return altair. Raises MissingExtraError."""
    try:
        import altair as alt
    except ModuleNotFoundError as error:
        raise MissingExtraError("charts", "altair") from error
    return alt


def strokes(recorded: RecordedRun) -> dict[str, Stroke]:
    """Return how each arm is drawn: a reference grey, its copy a lighter grey and dashed, each other one a colour."""
    header = recorded.header
    others = [arm for arm in header.arms if arm not in header.references and arm.role != "again"]
    found = {
        arm.name: Stroke(name=arm.name, colour=_REFERENCE[0], dash=_DASHES[at % len(_DASHES)])
        for at, arm in enumerate(header.references)
    }
    for at, arm in enumerate(others):
        found[arm.name] = Stroke(
            name=arm.name,
            colour=_ARMS[at % len(_ARMS)][0],
            dash=_DASHES[(at // 5) % len(_DASHES)],
            shape=SHAPES[(at + 1) % len(SHAPES)],
        )
    for arm in header.copies:
        found[arm.name] = Stroke(name=arm.name, colour=_AGAIN[0], dash=(3, 3), shape=SHAPES[-1])
    return found


def references_of(recorded: RecordedRun, limit: int = LONGEST_NAME) -> str:
    """Return what the arms are compared with, for a title."""
    names = [short(arm.name, limit) for arm in recorded.header.references]
    return names[0] if len(names) == 1 else "each arm's reference"


def scenario_strokes(names: Sequence[str]) -> dict[str, Stroke]:
    """Return how each scenario is drawn where the lines are scenarios."""
    return {
        name: Stroke(
            name=name,
            colour=_SCENARIOS[at % len(_SCENARIOS)][0],
            dash=_DASHES[(at // len(_SCENARIOS)) % len(_DASHES)],
            shape=SHAPES[at % len(SHAPES)],
        )
        for at, name in enumerate(names)
    }


def plain(text: str) -> str:
    """Return text with whatever XML 1.0 cannot hold replaced: control characters and lone surrogates."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def colour(found: Iterable[Stroke], *, legend: bool = False, field: str = "series", columns: int = 4) -> Any:
    """Return the encoding of a field by its strokes' colours."""
    alt = altair()
    listed = list(found)
    return alt.Color(
        f"{field}:N",
        scale=alt.Scale(domain=[each.label for each in listed], range=[each.colour for each in listed]),
        legend=alt.Legend(title=None, orient="top", columns=columns, symbolType="stroke", symbolOpacity=1)
        if legend
        else None,
    )


def short(name: str, limit: int = LONGEST_NAME) -> str:
    """Return a name on one line and of at most `limit` characters."""
    flat = " ".join(plain(name).split()) or "(no name)"
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def figure(value: float | None, unit: str = "") -> str:
    """Return a figure as it is read: three or four digits that mean something, and its unit."""
    if value is None or not math.isfinite(value):
        return "not available"
    size = abs(value)
    if size and size < 0.001:
        text = f"{value:.2g}"
    else:
        text = f"{value:,.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"
    return f"{text} {unit}".strip()


def change(ratio: float) -> str:
    """Return a ratio as a change: 0.69 is "-31 %", with a true minus; beyond threefold as a factor."""
    if ratio >= 3:
        return f"\N{MULTIPLICATION SIGN}{ratio:.1f}"
    share = (ratio - 1) * 100
    digits = 0 if abs(share) >= 10 else 1
    text = f"{abs(share):.{digits}f}"
    sign = "" if float(text) == 0 else "+" if share > 0 else "\N{MINUS SIGN}"
    return f"{sign}{text} %"


def apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places for labels, in the order given: at least `gap` apart, as near to theirs as can be, within bounds.

    Where the bounds hold less than that, the labels are spread evenly over them.
    """
    if not places:
        return []
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    order = sorted(range(len(places)), key=places.__getitem__)
    # Neighbours that touch become a block, which stands in the middle of what its members want.
    blocks: list[tuple[float, int]] = []
    for at in order:
        wanted, size = min(max(places[at], low), high), 1
        while blocks and wanted - (size - 1) * gap / 2 < blocks[-1][0] + (blocks[-1][1] - 1) * gap / 2 + gap:
            middle, before = blocks.pop()
            # The members' wishes are their places less their offsets in the block.
            wanted = (middle * before + wanted * size) / (before + size)
            size += before
            half = (size - 1) * gap / 2
            wanted = min(max(wanted, low + half), high - half)
        blocks.append((wanted, size))
    placed = [middle + (at - (size - 1) / 2) * gap for middle, size in blocks for at in range(size)]
    found = [0.0] * len(places)
    for at, place in zip(order, placed, strict=True):
        found[at] = place
    return found
