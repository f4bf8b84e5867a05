"""A report on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from ._blocks import Block, Chart, Checks, Column, Definitions, Heading, Paragraph, ReportTable, RunReport, TableRow
from ._checks_told import names_by_level, told

STYLES: Final = {"plain": "", "good": "green", "bad": "bold red", "warning": "yellow", "muted": "dim"}
_LEVELS: Final = {"passed": "green", "flagged": "yellow", "refused": "bold red", "not checked": "dim"}
_GAP: Final = 2


def print_terminal(report: RunReport, console: Console) -> None:
    """Print a report: checks that passed are named, the others told in full."""
    console.print(Text(report.title, style="bold"))
    console.print(Text(report.question))
    console.print()
    for line in report.verdicts:
        console.print(Text(line.text, style=STYLES[line.tone]))
    console.print()
    facts = _grid(2)
    for fact in report.facts:
        if fact.detail:
            continue
        facts.add_row(Text(fact.label, style="dim"), Text(fact.text))
    console.print(facts)
    notes: set[str] = set()
    for at, block in enumerate(report.blocks):
        following = next(iter(report.blocks[at + 1 :]), None)
        # A table that stands below its own name has it in its heading.
        named = (
            isinstance(block, Heading) and isinstance(following, ReportTable) and following.title.startswith(block.text)
        )
        if not named:
            _show(block, console, notes)


def _show(block: Block, console: Console, notes: set[str]) -> None:
    match block:
        case Heading():
            console.print()
            console.print(Text(block.text, style="bold underline" if block.level <= 2 else "bold"))
        case Paragraph():
            console.print(Text(block.text, style=STYLES[block.tone]))
        case ReportTable():
            _show_table(block, console, notes)
        case Chart():
            _show_chart(block, console)
        case Checks():
            _show_checks(block, console)
        case Definitions():
            for entry in block.entries:
                console.print(Text.assemble((f"{entry.term}: ", "bold"), (entry.text, "dim")))


def _show_table(block: ReportTable, console: Console, notes: set[str]) -> None:
    console.print()
    console.print(Text(block.heading, style="bold"))
    for line in table_lines(block, console.width):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    for note in block.notes:
        # Once is enough for a reader who goes from top to bottom.
        if note not in notes:
            console.print(Text(note, style="dim"))
            notes.add(note)


def _show_chart(block: Chart, console: Console) -> None:
    if block.retells and block.refused is None:
        return
    console.print()
    if block.refused is not None:
        console.print(Text.assemble(f"{block.title}: ", (block.refused, STYLES["bad"])))
    else:
        console.print(Text(block.caption, style="italic"))


def _show_checks(block: Checks, console: Console) -> None:
    check = ""
    for each in told(block.worth_reading):
        if each.check != check:
            console.print(Text.assemble((each.level, _LEVELS[each.level]), f"  {each.check}"))
            check = each.check
        console.print(Padding(Text(each.text), (0, 0, 0, 2)))
    for level, names in names_by_level(block.results).items():
        if names:
            console.print(Text.assemble((f"{level.capitalize()}: ", _LEVELS[level]), ", ".join(names)))


def table_lines(table: ReportTable, width: int) -> list[Text]:
    """Return a table's lines, none wider than `width` where that can be.

    What does not fit beside each other follows below, with the columns that name the rows once more. A refusal is
    written over the place of all figures.
    """
    widths = _widths(table)
    names = next((at for at, column in enumerate(table.columns) if column.alignment == "right"), len(table.columns))
    lines: list[Text] = []
    for shown in _parts(widths, names, width):
        if lines:
            lines.append(Text())
        heading = Text()
        for at in shown:
            _append(heading, table.column_headings[at], "dim", widths[at], table.columns[at])
        lines.append(heading)
        lines += [_line(row, table.columns, shown, widths) for row in table.rows]
    for line in lines:
        line.rstrip()
    return lines


def _line(row: TableRow, columns: Sequence[Column], shown: Sequence[int], widths: Sequence[int]) -> Text:
    line = Text(style=STYLES[row.tone])
    for at in shown:
        if at < len(row.entries):
            entry = row.entries[at]
            _append(line, entry.text, STYLES[entry.tone], widths[at], columns[at])
        elif row.refused is not None:
            line.append(row.refused, style=STYLES["bad"])
            break
    return line


def _append(line: Text, text: str, style: str, width: int, column: Column) -> None:
    padded = text.rjust(width) if column.alignment == "right" else text.ljust(width)
    line.append(padded, style=style)
    line.append(" " * _GAP)


def _widths(table: ReportTable) -> list[int]:
    widths = [len(heading) for heading in table.column_headings]
    for row in table.rows:
        for at, entry in enumerate(row.entries):
            widths[at] = max(widths[at], len(entry.text))
    return widths


def _parts(widths: Sequence[int], names: int, width: int) -> list[list[int]]:
    """Return which columns stand beside each other, so that each part has those that name the rows."""
    leading = list(range(names))
    room = width - sum(widths[at] + _GAP for at in leading)
    parts, used = [list(leading)], 0
    for at in range(names, len(widths)):
        taken = widths[at] + _GAP
        if used and used + taken - _GAP > room:
            parts.append(list(leading))
            used = 0
        parts[-1].append(at)
        used += taken
    return parts


def _grid(columns: int) -> Grid:
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    for at in range(columns):
        grid.add_column(no_wrap=at < columns - 1, overflow="fold")
    return grid
