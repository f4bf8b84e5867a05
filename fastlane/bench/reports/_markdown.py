"""A report in GitHub's Markdown, and on a terminal, which renders the same text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement
from rich.table import Table as RichTable

from .._formatting import counted
from ..checks import CheckResult
from ._tables import Entry, Line, RunReport, Table

_SPECIAL: Final = re.compile(r"([\\`*|<>]|~~)")


class _WholeTable(TableElement):
    """A table in which long words are folded, not cut off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            for column in table.columns if isinstance(table, RichTable) else ():
                column.overflow = "fold"
            yield table


class _Report(Markdown):
    elements: ClassVar = {**Markdown.elements, "table_open": _WholeTable}


def print_terminal(report: RunReport, console: Console) -> None:
    """Print a report on a terminal."""
    console.print(_Report(markdown(report), hyperlinks=False))


def markdown(report: RunReport) -> str:
    """Return a report as GitHub-flavoured Markdown, without its charts."""
    lines = [f"# {escaped(report.title)}", "", escaped(report.question), ""]
    lines += [f"- {_marked(line)}" for line in report.verdicts]
    lines += ["", *_rows(("", ""), 2, report.facts)]
    for section in report.sections:
        lines += ["", f"## {escaped(section.title)}"]
        for part in section.parts:
            lines += ["", *(_table(part) if isinstance(part, Table) else [_marked(part)])]
        if section.checks:
            lines += ["", *_checks(section.checks)]
    return "\n".join(lines).strip() + "\n"


def escaped(text: str) -> str:
    """Return plain text so that Markdown shows it as it is, in a table too."""
    return _SPECIAL.sub(r"\\\1", text).replace("\n", " ")


def _marked(what: Line | Entry) -> str:
    return f"**{escaped(what.text)}**" if what.tone == "bad" else escaped(what.text)


def _table(table: Table) -> Iterator[str]:
    yield from (f"**{escaped(table.title)}**", "")
    yield from _rows(map(escaped, table.columns), table.names, (map(_marked, row) for row in table.rows))
    for note in table.notes:
        yield from ("", escaped(note))


def _rows(columns: Iterable[str], names: int, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(columns)
    aligned = [":---" if at < names else "---:" for at in range(len(columns))]
    for row in (columns, aligned, *rows):
        yield f"| {' | '.join(row)} |"


def _checks(results: Iterable[CheckResult]) -> Iterator[str]:
    """Return what was refused and flagged, one row for each check, then the names of the other checks."""
    grouped: dict[tuple[str, str], list[CheckResult]] = {}
    for result in results:
        grouped.setdefault((result.level, result.check), []).append(result)
    rows = []
    for level, marked in (("refused", "**refused**"), ("flagged", "flagged")):
        for (at, check), (first, *more) in grouped.items():
            if at == level:
                others = f" ({counted(len(more), 'more such result')})" if more else ""
                rows.append((marked, escaped(check), escaped(f"{first.where}: {first.sentence}{others}")))
    if rows:
        yield from _rows(("result", "check", "what was seen"), 3, rows)
    for level in ("not checked", "passed"):
        if names := [check for at, check in grouped if at == level]:
            yield from ("", f"{level.capitalize()}: {escaped(', '.join(names))}.")
