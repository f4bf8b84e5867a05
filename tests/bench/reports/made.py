"""Reports of recorded runs, as `fastlane bench report` makes them."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner, Result

from fastlane.bench import RecordedRun, Sample
from fastlane.bench.recorded import Cell, RunWriter
from fastlane.cli import command_line
from tests.bench.recorded_runs import a_run

SATURATED = "invalid: client saturated: CPU"


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(command_line("bench"), ["bench", *map(str, arguments)])


def save(recorded: RecordedRun, folder: Path) -> Path:
    """Write a run's folder, as `fastlane bench run` does, and return it."""
    with RunWriter(folder) as writer:
        writer.begin(recorded.header)
        for sample in recorded.samples:
            writer.sample(sample)
        for vitals in recorded.vitals:
            writer.vitals(vitals)
        writer.log(recorded.log or ())
        # A folder of the embedded provider has a log; without one the run is like a real provider's.
        has_log = recorded.log is not None
        writer.end(recorded.header if has_log else replace(recorded.header, embedded=False), recorded.ended)
    return folder


def shown(recorded: RecordedRun, *options: object) -> Result:
    """Report on a run."""
    with tempfile.TemporaryDirectory() as folder:
        return bench("report", save(recorded, Path(folder) / "results"), *options)


def written(recorded: RecordedRun, suffix: str, *options: object) -> str:
    """Report on a run, and return the file of this kind."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"report{suffix}"
        result = bench("report", save(recorded, Path(folder) / "results"), "-q", "-o", path, *options)
        assert result.exit_code in (0, 1), result.output
        return path.read_text(encoding="utf-8")


def forms(recorded: RecordedRun, *options: object) -> dict[str, str]:
    """Report on a run in every form: by the suffix of its file, and "full" as a terminal shows it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {suffix: folder / f"report{suffix}" for suffix in (".md", ".csv", ".json", ".html")}
        files = (word for path in paths.values() for word in ("-o", path))
        result = bench("report", save(recorded, folder / "results"), "--full", *files, *options)
        assert result.exit_code in (0, 1), result.output
        return {suffix: path.read_text(encoding="utf-8") for suffix, path in paths.items()} | {"full": result.stdout}


def document(recorded: RecordedRun, *options: object) -> dict[str, Any]:
    """Report on a run as JSON."""
    found: dict[str, Any] = json.loads(shown(recorded, "--json", *options).stdout)
    return found


class Table(NamedTuple):
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]

    def by_column(self, *names: str) -> list[list[str]]:
        """The texts of some columns, "-" for one that was left out."""
        at = [self.columns.index(name) if name in self.columns else None for name in names]
        return [[row[each] if each is not None else "-" for each in at] for row in self.rows]


class Report(NamedTuple):
    """A report in Markdown, taken apart."""

    verdicts: list[str]
    facts: list[tuple[str, str]]
    sections: list[str]
    tables: dict[str, Table]

    def table(self, title: str) -> Table:
        """Return the first table whose title begins so."""
        return next(table for name, table in self.tables.items() if name.startswith(title))


def parsed(markdown: str) -> Report:
    """Take a report apart. Every row of a table must have as many cells."""
    report = Report([], [], re.findall(r"^## (.*)$", markdown, re.MULTILINE), {})
    title, table = "", None
    for block in markdown.split("\n\n"):
        lines = block.strip().splitlines()
        if block.lstrip().startswith("|"):
            columns, _, *rows = [[plain(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
            assert {len(row) for row in rows} <= {len(columns)}, block
            if columns == ["", ""]:
                report.facts.extend((label, text) for label, text in rows)
            # Two sections of a sweep have tables with the same titles.
            table = report.tables.setdefault(title, Table(columns, rows, []))
        elif block.lstrip().startswith("- "):
            report.verdicts.extend(plain(line[2:]) for line in lines)
        elif block.startswith("**") and len(lines) == 1:
            title, table = plain(block), None
        elif table is not None and not block.startswith("#"):
            table.notes.append(plain(block))
        else:
            table = None
    return report


def plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", re.sub(r"(?<!\\)\*\*", "", text)).strip()


def reported(recorded: RecordedRun, *options: object) -> Report:
    """Report on a run, and return what its Markdown holds."""
    return parsed(written(recorded, ".md", *options))


def a_sweep(
    scenarios: Sequence[str] = ("chat", "agent"),
    users: Sequence[int] = (1, 4, 16),
    slower: str | None = None,
    **run: Any,
) -> RecordedRun:
    """Return a run over scenarios and users: more users are slower, later scenarios too, and cell `slower` much."""
    cells = tuple(
        Cell(name=f"{scenario}, {count}", workload=scenario, users=count) for scenario in scenarios for count in users
    )
    by_name = {cell.name: cell for cell in cells}

    def change(sample: Sample) -> Sample:
        cell = by_name[sample.cell]
        factor = (1 + (cell.users or 0) / 10) * (1 + scenarios.index(cell.workload))
        return stretched(sample, factor * (60 if sample.cell == slower else 1))

    return a_run(**{"cells": cells, "arms": ("baseline",), "pairs": 20, "input_tokens": 50, "change": change, **run})


def stretched(sample: Sample, factor: float) -> Sample:
    """Return the sample as if everything had taken `factor` times as long."""

    def at(stamp: int | None) -> int | None:
        return None if stamp is None else sample.issued_ns + round((stamp - sample.issued_ns) * factor)

    return replace(
        sample,
        token_ns=tuple(at(stamp) or 0 for stamp in sample.token_ns),
        ended_ns=at(sample.ended_ns) or 0,
        response_ns=at(sample.response_ns),
        first_content_ns=at(sample.first_content_ns),
        first_event_ns=at(sample.first_event_ns),
    )
