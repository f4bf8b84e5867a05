"""Write the page: one HTML file that loads nothing, sends nothing, and takes what it shows for text."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any

from .._version import __version__
from ._compare import ExperimentComparison
from ._document import details, overview
from ._model import PHASES, TraceEntry
from ._otlp import SpanFile


def page(file: SpanFile, entries: Sequence[TraceEntry], comparisons: Sequence[ExperimentComparison] = ()) -> str:
    """The page that shows these entries of a file and their comparisons."""
    style, script = _part("page.css"), _part("page.js")
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
    # https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Content-Security-Policy
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    parts = {
        "policy": escape(policy),
        "title": escape(f"{file.source} - fastlane trace"),
        "style": style,
        "script": script,
        "data": _json(data),
        "details": lines,
    }
    # Split first: what is put in may hold the mark of another place.
    pieces = _part("page.html").split("@@")
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: Any) -> str:
    """JSON that can stand in an element of HTML: it holds no sign that HTML knows."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _tight(comparison: ExperimentComparison) -> dict[str, Any]:
    plain = asdict(comparison)
    plain["groups"] = [[group.unit, dict(group.members)] for group in comparison.groups]
    return plain
