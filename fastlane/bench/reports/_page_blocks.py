"""The blocks of a report as HTML; everything that comes from records or settings is text, never mark-up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from ..checks import CheckResult
from ._blocks import Block, Chart, Checks, Definitions, Heading, Paragraph, ReportTable, RunReport, TableCell, TableRow

SIGNS: Final = {
    "good": "\N{CHECK MARK}",
    "bad": "\N{MULTIPLICATION X}",
    "warning": "!",
    "muted": "\N{MIDDLE DOT}",
    "plain": "\N{EN DASH}",
}
_LEVELS: Final = {
    "refused": ("refused", "\N{MULTIPLICATION X}"),
    "flagged": ("flagged", "!"),
    "not checked": ("unchecked", "?"),
    "passed": ("passed", "\N{CHECK MARK}"),
}
_MOST_FLAGS: Final = 12
_LONG: Final = 6
"""Rows from which a table can be sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawings:
    """The charts of a page by name: each for a wide page and for a narrow one, and what its own notes say."""

    wide: Mapping[str, str]
    narrow: Mapping[str, str]
    notes: Mapping[str, Sequence[str]]
    arms: Mapping[str, int] = field(default_factory=dict)
    """The colour of each arm, by its number."""


def sections(report: RunReport, drawings: Drawings) -> tuple[str, list[tuple[str, str]]]:
    """Return a report's blocks as sections, and each section's anchor with its title."""
    contents: list[tuple[str, str]] = []
    written: list[str] = []
    taken: set[str] = set()
    opened = False
    for block in report.blocks:
        if isinstance(block, Heading) and block.level <= 2:
            anchor = anchor_of(block.text, taken)
            contents.append((anchor, block.text))
            written.append("</section>" if opened else "")
            written.append(
                f'<section class="part" aria-labelledby="{anchor}"><h2 id="{anchor}">{escape(block.text)}</h2>'
            )
            opened = True
        else:
            if not opened:
                written.append('<section class="part">')
                opened = True
            written.extend(_block(block, drawings))
    return "\n".join([*written, "</section>" if opened else ""]), contents


def anchor_of(text: str, taken: set[str]) -> str:
    """Return a name for a place on the page that no other has, and add it to those that are taken."""
    base = "part-" + (re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "x")
    found, number = base, 2
    while found in taken:
        found, number = f"{base}-{number}", number + 1
    taken.add(found)
    return found


def _block(block: Block, drawings: Drawings) -> Iterator[str]:
    match block:
        case Heading():
            yield f"<h3>{escape(block.text)}</h3>"
        case Paragraph():
            yield f'<p class="{block.tone}">{escape(block.text)}</p>'
        case ReportTable():
            yield from _table(block, drawings)
        case Chart():
            yield from _chart(block, drawings)
        case Checks():
            yield from _checks(block)
        case Definitions():
            yield '<dl class="definitions card">'
            yield from (f"<dt>{escape(each.term)}</dt><dd>{escape(each.text)}</dd>" for each in block.entries)
            yield "</dl>"


def _chart(block: Chart, drawings: Drawings) -> Iterator[str]:
    yield f'<figure class="card chart" data-chart="{escape(block.name)}"><h4>{escape(block.title)}</h4>'
    if block.refused is not None:
        yield f'<div class="invalid">{escape(block.refused)}</div>'
    else:
        yield drawings.wide.get(block.name, "")
        yield drawings.narrow.get(block.name, "")
        caption = " ".join((block.caption, *drawings.notes.get(block.name, ())))
        yield f"<figcaption>{escape(caption)}</figcaption>"
    yield "</figure>"


def _table(block: ReportTable, drawings: Drawings) -> Iterator[str]:
    sortable = " data-sortable" if len(block.rows) >= _LONG else ""
    title = escape(block.title)
    yield f'<div class="card"><h4>{title}</h4><div class="scroll" role="region" aria-label="{title}" tabindex="0">'
    yield f"<table{sortable}><thead><tr>"
    for column in block.columns:
        yield f'<th scope="col"{_left(column.alignment)}>{escape(column.heading)}</th>'
    yield "</tr></thead><tbody>"
    yield from (_row(row, block, drawings) for row in block.rows)
    yield "</tbody></table></div>"
    yield from (f'<p class="note">{escape(note)}</p>' for note in block.notes)
    yield "</div>"


def _left(alignment: str) -> str:
    return ' class="left"' if alignment == "left" else ""


def _row(row: TableRow, table: ReportTable, drawings: Drawings) -> str:
    cells = [_cell(entry, table.columns[at].alignment, drawings, first=at == 0) for at, entry in enumerate(row.entries)]
    missing = len(table.columns) - len(row.entries)
    if missing > 0:
        cells.append(f'<td class="refused" colspan="{missing}">{escape(row.refused or "")}</td>')
    tone = f' class="{row.tone}"' if row.tone != "plain" else ""
    return f"<tr{tone}>{''.join(cells)}</tr>"


def _cell(entry: TableCell, alignment: str, drawings: Drawings, *, first: bool) -> str:
    classes = [alignment] if alignment == "left" else []
    named = alignment == "left" and entry.text in drawings.arms
    if alignment == "left":
        classes.append("name" if first or named else "words")
    if entry.tone != "plain":
        classes.append(entry.tone)
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if entry.value is not None:
        attributes += f' data-value="{escape(str(entry.value))}"'
    text = escape(entry.text)
    # An interval stands back behind its figure.
    figure, bracket, bounds = text.partition(" [")
    if bracket and entry.low is not None:
        text = f'{figure}<span class="bounds"> [{bounds}</span>'
    dot = f'<span class="dot a{drawings.arms[entry.text]}" aria-hidden="true"></span>' if named else ""
    return f"<td{attributes}>{dot}{text}</td>"


def _checks(block: Checks) -> Iterator[str]:
    by_level = {level: [each for each in block.results if each.level == level] for level in _LEVELS}
    yield '<div class="card checks"><p class="tally">'
    for level, found in by_level.items():
        if found:
            yield f'<span class="{_LEVELS[level][0]}">{len(found):,} {level}</span>'
    yield "</p>"
    for level, found in by_level.items():
        if not found:
            continue
        # What is sound is there for whoever looks, and in nobody's way.
        open_ones = 0 if level in ("passed", "not checked") else len(found) if level == "refused" else _MOST_FLAGS
        yield from _listed(level, found[:open_ones])
        if rest := found[open_ones:]:
            yield f"<details><summary>{len(rest):,} {'more ' if open_ones else ''}{level}</summary>"
            yield from _listed(level, rest)
            yield "</details>"
    yield "</div>"


def _listed(level: str, found: Sequence[CheckResult]) -> Iterator[str]:
    style, sign = _LEVELS[level]
    yield "<ul>"
    for each in found:
        where = " \N{MIDDLE DOT} ".join(part for part in (each.cell, each.arm) if part)
        small = f"<small>{escape(where)}</small>" if where else ""
        yield (
            f'<li class="{style}"><span class="sign" role="img" aria-label="{level}">{sign}</span>'
            f"<div><b>{escape(each.check)}</b>{small}<p>{escape(each.sentence)}</p></div></li>"
        )
    yield "</ul>"
