"""A report in GitHub's Markdown, and on a terminal, which renders the same text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, TableElement
from rich.table import Table

from .._formatting import listed
from ..checks import CheckResult
from ._blocks import Block, Chart, Checks, Definitions, Heading, Paragraph, ReportTable, RunReport, TableRow

_SPECIAL: Final = re.compile(r"([\\`*|<>]|~~)")
_FIGURES: Final = re.compile(r"\d[\d.,]*(e[+-]?\d+)?")


class _WholeTable(TableElement):
    """A table in which long words are folded, not cut off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class _Report(Markdown):
    elements: ClassVar = {**Markdown.elements, "table_open": _WholeTable}


def print_terminal(report: RunReport, console: Console) -> None:
    """Print a report on a terminal."""
    console.print(_Report(markdown(report), hyperlinks=False))


def markdown(report: RunReport) -> str:
    """Return a report as GitHub-flavoured Markdown, with each chart as its caption."""
    lines = [f"# {escaped(report.title)}", "", escaped(report.question), ""]
    lines += [
        f"- **{escaped(each.text)}**" if each.tone == "bad" else f"- {escaped(each.text)}" for each in report.verdicts
    ]
    lines += ["", "| | |", "|:---|:---|"] if report.facts else []
    lines += [f"| {escaped(fact.label)} | {escaped(fact.text)} |" for fact in report.facts]
    for block in report.blocks:
        lines += ["", *_lines(block)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def escaped(text: str) -> str:
    """Return plain text so that Markdown shows it as it is, in a table too."""
    return _SPECIAL.sub(r"\\\1", text).replace("\n", " ")


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield f"{'#' * block.level} {escaped(block.text)}"
        case Paragraph():
            yield escaped(block.text)
        case ReportTable():
            yield from _table(block)
        case Chart():
            if block.caption:
                yield f"*{escaped(block.title)}*. {escaped(block.caption)}"
        case Checks():
            yield from _checks(block)
        case Definitions():
            yield from (f"- **{escaped(term)}**: {escaped(text)}" for term, text in block.entries)


def _table(block: ReportTable) -> Iterator[str]:
    yield f"**{escaped(block.heading)}**"
    yield ""
    yield _row(escaped(heading) for heading in block.column_headings)
    yield _row("---:" if column.alignment == "right" else ":---" for column in block.columns)
    for row in block.rows:
        yield _row(_cells(row, len(block.columns)))
    for note in block.notes:
        yield ""
        yield f"{escaped(note)}"


def _checks(block: Checks) -> Iterator[str]:
    """Return what was refused and flagged, then the names of the other checks.

    Results of one check whose sentences differ only in names and figures share a row with the first one's sentence.
    """
    grouped: dict[tuple[str, str, str], list[CheckResult]] = {}
    for result in block.worth_reading:
        pattern = result.sentence
        # The client's process of an arm is called by its name, the run's own "the coordinator".
        for name in filter(None, (result.arm, result.cell, "the coordinator")):
            pattern = pattern.replace(name, "@")
        grouped.setdefault((result.level, result.check, _FIGURES.sub("#", pattern)), []).append(result)
    if grouped:
        yield _row(("result", "check", "what was seen"))
        yield _row((":---",) * 3)
    for (level, check, _), (first, *others) in grouped.items():
        text = f"{first.where}: {first.sentence}"
        if others:
            names = [each.arm if each.arm and each.cell == first.cell else each.where for each in others]
            text += f". Likewise {listed(names)}"
        yield _row((f"**{level}**" if level == "refused" else level, escaped(check), escaped(text)))
    levels: dict[str, set[str]] = {}
    for result in block.results:
        levels.setdefault(result.check, set()).add(result.level)
    unchecked = [check for check, seen in levels.items() if seen == {"not checked"}]
    passed = [check for check, seen in levels.items() if "passed" in seen <= {"passed", "not checked"}]
    for level, names in (("Not checked", unchecked), ("Passed", passed)):
        if names:
            yield ""
            yield f"{level}: {escaped(', '.join(names))}."


def _cells(row: TableRow, columns: int) -> Iterator[str]:
    for entry in row.entries:
        yield f"**{escaped(entry.text)}**" if entry.tone == "bad" else escaped(entry.text)
    free = columns - len(row.entries)
    if row.refused is not None:
        yield f"**{escaped(row.refused)}**"
        free -= 1
    yield from ("",) * free


def _row(cells: Iterator[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
