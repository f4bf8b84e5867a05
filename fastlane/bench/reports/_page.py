"""Write the page: one HTML file that loads nothing, sends nothing, and takes what it shows for text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from typing import Final

from ..._version import __version__
from ..checks import Checked, without_refused_tails
from ..findings import Findings
from ..recorded import RecordedRun
from ._blocks import RunReport
from ._charts import charts, svg
from ._charts_style import strokes
from ._page_blocks import SIGNS, Drawings, sections
from ._page_drawing import COLOURS, drawing, style, variables

_KINDS: Final = {
    "ab": "A/B: arms side by side",
    "load": "Load: by users or rate",
    "lengths": "Lengths: by input and output",
    "scaling": "Scaling: one user's pace among many",
}
_FEW: Final = 7
_DARK: Final = (
    "--ground: #0f141a; --paper: #151c24; --raised: #1b242e; --ink: #e6ebf1; --soft: #a7b3c0; --line: #2d3946; "
    "--grid: #212b36; --accent: #7db5f0; --chosen: #1d3450; --hover: #1a2430; --bad: #ff8a80; --bad-ground: #331c1d; "
    "--good: #7fd49c; --good-ground: #16341f; --warn: #f2c46d; --warn-ground: #32280f; "
    "--hatch: rgb(230 235 241 / .07); "
    "--one: #6cb0ff; --two: #ff9b62; --three: #4fd1a5;"
)


def page(report: RunReport, recorded: RecordedRun, findings: Findings, checked: Checked) -> str:
    """Return a report of a run as one HTML file, its charts drawn in. Raises MissingExtraError."""
    findings = without_refused_tails(findings, checked)
    arms = {name: COLOURS[stroke.colour] for name, stroke in strokes(recorded).items()}
    drawings = _drawings(report, recorded, findings, checked, arms)
    blocks, contents = sections(report, drawings)
    sheet, script = _style(arms), _part("page.js")
    # https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Content-Security-Policy
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(sheet)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    when = f", run on {recorded.header.started_at}" if recorded.header.started_at else ""
    return _filled(
        _part("page.html"),
        {
            "policy": escape(policy),
            "title": escape(f"{report.title} - fastlane bench"),
            "style": sheet,
            "script": script,
            "kind": escape(_KINDS[report.kind]),
            "heading": escape(report.title),
            "question": escape(report.question),
            "verdicts": "\n".join(_verdicts(report)),
            "facts": "\n".join(_facts(report)),
            "contents": "\n".join(_contents(contents)),
            "legend": "\n".join(_legend(arms)),
            "blocks": blocks,
            "footer": escape(f"Written by fastlane {__version__} from the run's raw records{when}."),
        },
    )


def _drawings(
    report: RunReport, recorded: RecordedRun, findings: Findings, checked: Checked, arms: dict[str, int]
) -> Drawings:
    wanted = [chart.name for chart in report.charts() if chart.refused is None]
    wide = charts(recorded, findings, checked, names=wanted)
    narrow = charts(recorded, findings, checked, narrow=True, names=wanted)
    return Drawings(
        wide={name: drawing(svg(spec), spec, name=f"{name}-wide", kind="wide") for name, spec in wide.items()},
        narrow={name: drawing(svg(spec), spec, name=f"{name}-narrow", kind="narrow") for name, spec in narrow.items()},
        notes={name: spec["usermeta"]["notes"] for name, spec in wide.items()},
        arms=arms,
    )


def _verdicts(report: RunReport) -> Iterator[str]:
    if report.verdicts:
        # Many sentences are read as a list, few as answers.
        yield f'<ul class="verdicts{" many" if len(report.verdicts) > _FEW else ""}">'
        for line in report.verdicts:
            yield (
                f'<li class="{line.tone}"><span class="sign" aria-hidden="true">{SIGNS[line.tone]}</span>'
                f"<span>{escape(line.text)}</span></li>"
            )
        yield "</ul>"


def _facts(report: RunReport) -> Iterator[str]:
    if report.facts:
        first = " \N{MIDDLE DOT} ".join(fact.text for fact in report.facts[:2])
        yield f'<details class="facts"><summary>What was run: {escape(first)}</summary><dl>'
        yield from (f"<dt>{escape(fact.label)}</dt><dd>{escape(fact.text)}</dd>" for fact in report.facts)
        yield "</dl></details>"


def _contents(contents: list[tuple[str, str]]) -> Iterator[str]:
    if len(contents) > 1:
        yield '<nav aria-label="Contents"><ul>'
        yield from (f'<li><a href="#{anchor}">{escape(title)}</a></li>' for anchor, title in contents)
        yield "</ul></nav>"


def _legend(arms: dict[str, int]) -> Iterator[str]:
    """The arms with their colours; the script lets one of them stand before the others."""
    if len(arms) > 1:
        yield '<div class="arms" role="group" aria-label="Arms"><span>Arms</span>'
        for name, colour in arms.items():
            yield (
                f'<button type="button" class="a{colour}" data-colour="{colour}" aria-pressed="false">'
                f'<i class="dot" aria-hidden="true"></i><span>{escape(name)}</span></button>'
            )
        yield "</div>"


def _style(arms: dict[str, int]) -> str:
    own = "\n".join(f".a{colour} {{ --arm: var(--c{colour}); }}" for colour in sorted(set(arms.values())))
    return _filled(
        _part("page.css"),
        {"light": variables(dark=False), "dark": _DARK + " " + variables(dark=True), "colours": f"{style()}\n{own}"},
    )


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _filled(text: str, parts: dict[str, str]) -> str:
    # Split first: what is put in may hold the mark of another place.
    pieces = text.split("@@")
    return "".join(parts[piece] if at % 2 else piece for at, piece in enumerate(pieces))


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
