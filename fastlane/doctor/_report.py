"""Print an examination as a table, or as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ._examination import Examination
from ._findings import GROUPS, ProviderFinding

_STYLES = {"seen": "", "notable": "yellow", "failed": "red", "left out": "dim"}
_MARKS = {"seen": "", "notable": "!", "failed": "x", "left out": "-"}
_LEGEND = "! costs something or needs a change   x could not be checked   - not checked"


def print_report(examination: Examination, console: Console) -> None:
    """Print the findings in groups."""
    if console.is_terminal:
        _print(examination, console)
        return
    with console.capture() as capture:
        _print(examination, console)
    # Tables pad their lines with spaces, which a file or a diff does not need.
    console.file.write("\n".join(line.rstrip() for line in capture.get().split("\n")))


def _print(examination: Examination, console: Console) -> None:
    console.print(Text(_heading(examination), style="bold"))
    for group in GROUPS:
        findings = [finding for finding in examination.findings if finding.group == group]
        if findings:
            console.print()
            console.print(_table(group, findings))
    marks = {_MARKS[finding.state] for finding in examination.findings} - {""}
    if marks:
        console.print()
        console.print(Text(_LEGEND, style="dim"))
    if examination.interrupted:
        console.print(Text("INTERRUPTED: only the checks up to then are shown.", style="bold red"))


def document(examination: Examination, facts_toml: str | None) -> dict[str, Any]:
    """Return the examination as plain JSON values."""
    target = examination.settings.target
    return {
        "url": target.base_url,
        "origin": target.origin,
        "model": examination.model,
        "reached": examination.is_reached,
        "interrupted": examination.interrupted,
        "findings": [finding.to_json() for finding in examination.findings],
        "facts_toml": facts_toml,
    }


def _heading(examination: Examination) -> str:
    target = examination.settings.target
    if not examination.is_reached:
        return f"{target.base_url} could not be reached"
    heading = target.base_url
    if examination.model:
        heading += f", model {examination.model}"
    # The owner of the key should see which key this server was sent.
    return heading + (f", key from {examination.settings.key_source}" if examination.settings.key else ", no key")


def _table(group: str, findings: list[ProviderFinding]) -> Table:
    table = Table(
        title=group.capitalize(),
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=False,
    )
    table.add_column(width=1)
    # One width for all groups, so that their columns stand below each other.
    table.add_column(width=31)
    table.add_column(ratio=1)
    for finding in findings:
        style = _STYLES[finding.state]
        said = Text(finding.seen, style=style)
        if finding.advice:
            said.append(f"\n{finding.advice}", style="italic dim")
        table.add_row(Text(_MARKS[finding.state], style=style), Text(finding.looked_at), said)
    return table
