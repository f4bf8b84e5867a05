"""Print an examination as a table, as JSON, or as a file of facts that plays can load."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any

import tomli_w
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._clock import wall_ns
from ..providers import ProviderFacts
from ._examination import Examination
from ._findings import GROUPS, ProviderFinding

_STATES = {"seen": ("", ""), "notable": ("!", "yellow"), "failed": ("x", "red"), "left out": ("-", "dim")}
_LEGEND = "! costs something or needs a change   x could not be checked   - not checked"

# Rows without a place in a facts file that its reader may want to know.
_REMARKED = ("idle life", "round trip", "HTTP/2 limits", "what it is")

# Facts of the other groups are the server's, whichever model is asked.
_OF_THE_MODEL = ("streaming", "prompt cache", "structured outputs")


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


def facts_file(examination: Examination, *, today: date | None = None) -> str | None:
    """Return the text of a facts file with the measured facts, and nothing else; None if there are none."""
    facts = [(finding, fact) for finding in examination.findings for fact in finding.facts]
    if not facts:
        return None
    today = today or datetime.fromtimestamp(wall_ns() / 1e9, tz=UTC).date()
    target = examination.settings.target
    host = target.host if target.port in (443, 80) else f"{target.host} {target.port}"
    document: dict[str, Any] = {
        "slug": "doctor_" + (re.sub(r"[^a-z0-9]+", "_", host.lower()).strip("_") or "here"),
        "name": f"{target.host}, as measured",
        "base_url": target.base_url,
        "origins": [target.origin],
    }
    for finding, fact in facts:  # the last one of a place counts
        *tables, last = fact.path
        table = document
        for name in tables:
            table = table.setdefault(name, {})
        by = "fastlane doctor" + (f", model {examination.model}" if finding.group in _OF_THE_MODEL else "")
        note = f"{fact.note}; {by}" if fact.note else by
        written = {"value": fact.value, "source": target.base_url, "checked": today, "evidence": "measured"}
        table[last] = {**written, "note": note}
    ProviderFacts.model_validate(document)
    remarks = [f"Measured by fastlane doctor on {today.isoformat()}, from one machine at one moment."]
    remarks += [f"{each.looked_at}: {each.seen}" for each in examination.findings if each.looked_at in _REMARKED]
    comments = "".join(f"# {remark.replace(chr(10), ' ')}\n" for remark in remarks)
    return f"{comments}\n{tomli_w.dumps(document)}"


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
