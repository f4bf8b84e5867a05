"""Print an examination as a table, or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ._examination import Examination
from ._findings import GROUPS, ProviderFinding

_STATES = {"seen": ("", ""), "notable": ("!", "yellow"), "failed": ("x", "red"), "left out": ("-", "dim")}
_LEGEND = "! costs something or needs a change   x could not be checked   - not checked"


def print_report(examination: Examination, console: Console) -> None:
    with console.capture() as capture:
        console.print(Text(_heading(examination), style="bold"))
        for group in GROUPS:
            if findings := [finding for finding in examination.findings if finding.group == group]:
                console.print()
                console.print(_table(group, findings))
        if any(finding.state != "seen" for finding in examination.findings):
            console.print()
            console.print(Text(_LEGEND, style="dim"))
        if examination.interrupted:
            console.print(Text("INTERRUPTED: only the checks up to then are shown.", style="bold red"))
    # Tables pad their lines with spaces, which a file or a diff does not need.
    console.file.write("\n".join(line.rstrip() for line in capture.get().split("\n")))


def document(examination: Examination, facts_toml: str | None) -> dict[str, Any]:
    target = examination.settings.target
    return {
        "url": target.base_url,
        "origin": target.origin,
        "model": examination.model,
        "reached": examination.is_reached,
        "interrupted": examination.interrupted,
        "findings": [{"group": one.group, "state": one.state, **asdict(one)} for one in examination.findings],
        "facts_toml": facts_toml,
    }


def _heading(examination: Examination) -> str:
    settings = examination.settings
    if not examination.is_reached:
        return f"{settings.target.base_url} could not be reached"
    model = f", model {examination.model}" if examination.model else ""
    # The owner of the key should see which key this server was sent.
    key = f", key from {settings.key_source}" if settings.key else ", no key"
    return settings.target.base_url + model + key


def _table(group: str, findings: list[ProviderFinding]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.title, table.title_justify, table.title_style = group.capitalize(), "left", "bold"
    table.add_column(width=1)
    # One width for all groups, so that their columns stand below each other.
    table.add_column(width=31)
    table.add_column(ratio=1)
    for finding in findings:
        mark, style = _STATES[finding.state]
        advice = (f"\n{finding.advice}" if finding.advice else "", "italic dim")
        table.add_row(Text(mark, style=style), Text(finding.looked_at), Text.assemble((finding.seen, style), advice))
    return table
