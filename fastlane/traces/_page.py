"""Write the page: one HTML file that loads nothing, sends nothing, and takes what it shows for text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .._version import __version__
from ..pages import html_page
from ._compare import ExperimentComparison
from ._document import details, overview
from ._model import PHASES, TraceEntry
from ._otlp import SpanFile


def page(file: SpanFile, entries: Sequence[TraceEntry], comparisons: Sequence[ExperimentComparison] = ()) -> str:
    """The page that shows these entries of a file and their comparisons."""
    data = {
        "source": file.source,
        "notes": file.notes,
        "spans": len(file.spans),
        "version": __version__,
        "phases": PHASES,
        "entries": [overview(entry) for entry in entries],
        "comparisons": [_tight(comparison) for comparison in comparisons],
    }
    # A line for each entry, so that the script need not read those which nobody opens.
    lines = "\n".join(_json(details(entry)) for entry in entries)
    return html_page(
        "fastlane.traces", title=f"{file.source} - fastlane trace", extra="cli", data=_json(data), lines=lines
    )


def _json(value: Any) -> str:
    """JSON that can stand in an element of HTML: it holds no sign that HTML knows."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _tight(comparison: ExperimentComparison) -> dict[str, Any]:
    plain = asdict(comparison)
    plain["groups"] = [[group.unit, dict(group.members)] for group in comparison.groups]
    return plain
