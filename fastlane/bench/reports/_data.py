"""A report as plain data: sentences and tables, before anyone decides how they look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..checks import CheckResult

Kind = Literal["ab", "sweep"]
"""What a report shows: arms beside each other, or how figures change by users and by lengths."""
Tone = Literal["plain", "good", "bad", "warning", "muted"]
"""How something is meant: for colours and weights, never the only carrier of a meaning."""


class Entry(NamedTuple):
    """One place in a table."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Line:
    """Some sentences of plain text, without mark-up."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Figures in rows and columns. All rows are as long as `columns`."""

    title: str
    """With the unit, where all figures have the same one."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    names: int = 1
    """Columns at the left that say what a row is of; the others hold figures."""
    notes: tuple[str, ...] = ()
    """Sentences below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What stands below one heading."""

    title: str
    parts: tuple[Line | Table, ...] = ()
    checks: tuple[CheckResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One report of one run, or of two."""

    kind: Kind | Literal["compare"]
    title: str
    question: str
    """What the report answers, in one sentence."""
    verdicts: tuple[Line, ...]
    """The answer, one sentence each."""
    facts: tuple[tuple[str, str], ...]
    """What was run, where, when, and how it ended: labels and texts."""
    sections: tuple[Section, ...]

    def tables(self) -> Iterator[Table]:
        """Return the tables in the order in which they stand."""
        return (part for section in self.sections for part in section.parts if isinstance(part, Table))
