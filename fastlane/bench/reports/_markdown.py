"""A report in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ._blocks import Block, Chart, Checks, Definitions, Heading, Paragraph, ReportTable, RunReport, TableRow
from ._checks_told import names_by_level, told

_SPECIAL: Final = re.compile(r"([\\`*|<>]|~~)")


def markdown(report: RunReport) -> str:
    """Return a report as GitHub-flavoured Markdown. A chart is told by its caption."""
    lines = [f"# {escaped(report.title)}", "", escaped(report.question), ""]
    lines += [
        f"- **{escaped(each.text)}**" if each.tone == "bad" else f"- {escaped(each.text)}" for each in report.verdicts
    ]
    facts = [fact for fact in report.facts if not fact.detail]
    lines += ["", "| | |", "|:---|:---|"] if facts else []
    lines += [f"| {escaped(fact.label)} | {escaped(fact.text)} |" for fact in facts]
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
            yield from _chart(block)
        case Checks():
            yield from _checks(block)
        case Definitions():
            yield from (f"- **{escaped(entry.term)}**: {escaped(entry.text)}" for entry in block.entries)


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


def _chart(block: Chart) -> Iterator[str]:
    if block.refused is not None:
        yield f"*{escaped(block.title)}*: **{escaped(block.refused)}**"
    elif not block.retells:
        yield f"*{escaped(block.title)}*. {escaped(block.caption)}"


def _checks(block: Checks) -> Iterator[str]:
    if found := told(block.worth_reading):
        yield _row(("result", "check", "what was seen"))
        yield _row((":---",) * 3)
    for each in found:
        level = f"**{each.level}**" if each.level == "refused" else each.level
        yield _row((level, escaped(each.check), escaped(each.text)))
    for level, names in names_by_level(block.results).items():
        if names:
            yield ""
            yield f"{level.capitalize()}: {escaped(', '.join(names))}."


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
