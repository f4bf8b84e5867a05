"""A chart's drawing as part of a page: no colours of its own, no identifiers that clash, and words for every mark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from xml.etree import ElementTree

from ._charts_style import THEME

_NUMBERS: Final = re.compile(r"-?\d*\.\d{3,}(?:e-?\d+)?")
_GEOMETRY: Final = frozenset({"d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "stroke-width"})
_KEPT: Final = frozenset(
    {
        "font-size", "font-weight", "font-style", "text-anchor", "opacity", "fill-opacity",
        "stroke-opacity",
        "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "clip-path",
        "id", "href", "display",
    }
)  # fmt: skip
COLOURS: Final[Mapping[str, int]] = {light: at for at, light in enumerate(THEME)}
"""The number by which a page's style sheet knows each colour of a chart."""


def drawing(svg: str, spec: Mapping[str, Any], *, name: str, kind: str) -> str:
    """Return a chart's SVG as an element of a page.

    Colours become classes, so that the page's style sheet decides on them; marks keep the words that the chart gave
    them, as `data-tip`; identifiers get `name` before them; and what only a reader of Vega's own needs is left out.
    """
    # It was made by the renderer a moment ago, from a specification of our own.
    root = ElementTree.fromstring(svg)  # noqa: S314
    words = _words(spec)
    _tidy(root, words, name)
    _prune(root)
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    root.attrib.update(
        {
            "class": kind,
            "width": f"{width:g}",
            "height": f"{height:g}",
            "role": "img",
            "aria-label": str(spec.get("description", "")),
        }
    )
    text = ElementTree.tostring(root, encoding="unicode")
    # Inside HTML an element <svg> says enough.
    return re.sub(r"<(/?)(?:ns\d+:)?(?=[a-zA-Z])", r"<\1", re.sub(r' xmlns(?::\w+)?="[^"]*"', "", text, count=2))


def style() -> str:
    """Return the rules by which a page gives charts their colours."""
    return "\n".join(
        f".chart .f{at} {{ fill: var(--c{at}); }} .chart .s{at} {{ stroke: var(--c{at}); }}" for at in COLOURS.values()
    )


def variables(*, dark: bool) -> str:
    """Return the colours of charts on light or on dark ground, as the style sheet's variables."""
    return " ".join(f"--c{COLOURS[light]}: {other if dark else light};" for light, other in THEME.items())


def _words(spec: Any) -> frozenset[str]:
    """Everything that the chart's data says of its marks: other labels are the renderer's own, made of field names."""
    found: set[str] = set()
    waiting: list[Any] = [spec]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            found.update(text for key in ("words", "band") if isinstance(text := each.get(key), str))
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return frozenset(found)


def _tidy(root: ElementTree.Element, words: frozenset[str], name: str) -> None:
    for element in root.iter():
        attributes = element.attrib
        kept = {key: value for key, value in attributes.items() if key in _KEPT or key == "viewBox"}
        kept |= {key: _NUMBERS.sub(_rounded, attributes[key]) for key in _GEOMETRY & attributes.keys()}
        label = attributes.get("aria-label", "")
        if label and label in words:
            kept["data-tip"] = label
        classes = []
        for paint, prefix in (("fill", "f"), ("stroke", "s")):
            colour = attributes.get(paint)
            if colour is not None and colour in COLOURS:
                classes.append(f"{prefix}{COLOURS[colour]}")
            elif colour is not None and colour != "transparent":
                kept[paint] = colour
            elif colour == "transparent":
                kept[paint] = "none"
        if classes:
            kept["class"] = " ".join(classes)
        if "id" in kept:
            kept["id"] = f"{name}-{kept['id']}"
        if "clip-path" in kept:
            kept["clip-path"] = kept["clip-path"].replace("url(#", f"url(#{name}-")
        if kept.get("opacity") == "1":
            del kept["opacity"]
        element.attrib.clear()
        element.attrib.update(kept)


def _rounded(found: re.Match[str]) -> str:
    text = f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _prune(parent: ElementTree.Element) -> None:
    """Take out what draws nothing."""
    for child in list(parent):
        _prune(child)
        tag = child.tag.rpartition("}")[2]
        painted = {"fill", "stroke", "class", "data-tip"} & child.attrib.keys()
        empty = (tag == "path" and (not painted or not child.get("d"))) or child.get("display") == "none"
        if empty or (tag == "g" and not len(child)) or (tag == "rect" and not painted and parent.tag.endswith("svg")):
            parent.remove(child)
        elif child.tail:
            child.tail = None
