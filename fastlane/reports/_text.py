"""Sections of a report as plain text, and as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of a report; without rows, its notes alone."""

    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    words: frozenset[int] = frozenset({0})
    """Columns that hold words and stand to the left; numbers stand to the right."""
    notes: tuple[str, ...] = ()


def text_of(sections: Iterable[Section]) -> str:
    """Sections as aligned text."""
    return "\n\n".join("\n".join(_lines(section)) for section in sections)


def _lines(section: Section) -> list[str]:
    lines = [section.title]
    if section.rows:
        table = (section.header, *section.rows)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["  " + "  ".join(_cells(row, widths, section.words)).rstrip() for row in table]
    return [*lines, *(f"  {note}" for note in section.notes)]


def _cells(row: Sequence[str], widths: Sequence[int], words: frozenset[int]) -> list[str]:
    return [
        cell.ljust(width) if index in words else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def html_of(sections: Iterable[Section]) -> str:
    """Sections as HTML tables, without a style of their own."""
    return "\n".join(_html(section) for section in sections)


def _html(section: Section) -> str:
    parts = [f"<p><strong>{html.escape(section.title)}</strong></p>"]
    if section.rows:
        parts.append("<table><thead>")
        parts.append(_html_row(section.header, section.words, "th"))
        parts.append("</thead><tbody>")
        parts += [_html_row(row, section.words, "td") for row in section.rows]
        parts.append("</tbody></table>")
    parts += [f"<p><small>{html.escape(note)}</small></p>" for note in section.notes]
    return "".join(parts)


def _html_row(row: Sequence[str], words: frozenset[int], tag: str) -> str:
    cells = [
        f'<{tag} style="text-align:{"left" if index in words else "right"}">{html.escape(cell)}</{tag}>'
        for index, cell in enumerate(row)
    ]
    return f"<tr>{''.join(cells)}</tr>"
