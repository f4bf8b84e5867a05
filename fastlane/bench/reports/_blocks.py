"""A report as data: what is said, in which order, before anyone decides how it looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..checks import CheckResult

Kind = Literal["ab", "load", "lengths", "scaling"]
"""What a report shows: arms beside each other, users, lengths of input and output, or one user's pace among many."""
Tone = Literal["plain", "good", "bad", "warning", "muted"]
"""How something is meant: for colours and weights, never the only carrier of a meaning."""
Alignment = Literal["left", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A section begins."""

    text: str
    level: int = 2
    """2 for a section, 3 for a part of it; the report's own title is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Some sentences of plain text, without mark-up."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    title: str
    unit: str = ""
    """Of every figure in it; empty where there is none."""
    alignment: Alignment = "right"

    @property
    def heading(self) -> str:
        """The title with its unit, such as "p50 (ms)"."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """One place in a table: the figure itself, and how it is written."""

    text: str
    value: float | str | None = None
    """The unrounded figure in the column's unit, or the word itself; None where there is none."""
    low: float | None = None
    high: float | None = None
    """Bounds of the figure's 95 % confidence interval, where `text` has them."""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One line of a table.

    A refused row has the entries that name it and none with a figure: whoever shows it writes `refused` in the place of
    all columns that are left.
    """

    entries: tuple[TableCell, ...]
    refused: str | None = None
    """Such as "invalid: client saturated"; None for a row whose figures may be used."""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Figures in rows and columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    """Sentences that stand below it."""
    name: str = ""
    """Of the table in documents and as an anchor, such as "time_to_first_token"; unique in a report."""

    @property
    def common_unit(self) -> str:
        """The unit of all columns that have one, where they are several and it is the same; else empty."""
        units = [column.unit for column in self.columns if column.unit]
        return units[0] if len(units) > 1 and len(set(units)) == 1 else ""

    @property
    def heading(self) -> str:
        """The title, with the unit that all columns share: "Time to first token (ms)"."""
        return f"{self.title} ({self.common_unit})" if self.common_unit else self.title

    @property
    def column_headings(self) -> tuple[str, ...]:
        """What stands above each column: its title, with its unit where the table's heading has none."""
        return tuple(column.title if self.common_unit else column.heading for column in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A place for a chart. Markdown and terminals show its caption instead."""

    name: str
    """By which the drawing is found, such as "ttft_by_users" or "ecdf_time_to_first_token"."""
    title: str
    caption: str = ""
    """What one sees in it, in sentences with figures; empty where a table or the verdicts say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What the run's checks found."""

    results: tuple[CheckResult, ...]

    @property
    def worth_reading(self) -> tuple[CheckResult, ...]:
        """Refusals, then flags: what a reader has to know."""
        return tuple(result for level in ("refused", "flagged") for result in self.results if result.level == level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """The terms that a report uses, each with what it means."""

    entries: tuple[tuple[str, str], ...]


Block = Heading | Paragraph | ReportTable | Chart | Checks | Definitions


def block_kind(block: Block) -> str:
    """Return what JSON calls a block, such as "table"."""
    return "table" if isinstance(block, ReportTable) else type(block).__name__.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFact:
    """One thing about the run that a reader may look up, such as its seed."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One report of one run."""

    kind: Kind | Literal["compare"]
    title: str
    question: str
    """What the report answers, in one sentence."""
    verdicts: tuple[Paragraph, ...]
    """The answer, one sentence each."""
    facts: tuple[RunFact, ...] = ()
    """What was run, where, when, and how it ended."""
    blocks: tuple[Block, ...] = field(default=())

    def tables(self) -> Iterator[ReportTable]:
        """Return the tables in the order in which they stand."""
        return (block for block in self.blocks if isinstance(block, ReportTable))

    def charts(self) -> Iterator[Chart]:
        """Return the places for charts in the order in which they stand."""
        return (block for block in self.blocks if isinstance(block, Chart))
