"""`make faults`: everything that can go wrong with a call, in every way of making it, beside the stock client."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fastlane._clock import now_ns
from tests.faults.covering import covering
from tests.faults.judging import Verdict
from tests.faults.page import PAGE, is_whole, write
from tests.faults.running import LARGE_BYTES, PROCESSES, run
from tests.faults.table import FAULTS, Cell, all_cells, applicable

_TELL = Console(stderr=True)


def _tell(verdicts: dict[Cell, Verdict]) -> None:
    """A line for each fault, and what failed."""
    table = Table("fault", "stock client", "same", "better", "failed", "not applicable", "longest")
    for name in FAULTS:
        of_it = [verdict for cell, verdict in verdicts.items() if cell.fault == name]
        if not of_it:
            continue
        counts = Counter(verdict.verdict for verdict in of_it)
        nothing = sum(cell.fault == name for cell in all_cells()) - sum(cell.fault == name for cell in applicable())
        stock = ", ".join(sorted({verdict.stock for verdict in of_it}))
        failed = f"[red]{counts['failed']}[/]" if counts["failed"] else "0"
        longest = f"{max(verdict.seconds for verdict in of_it):.1f} s"
        table.add_row(escape(name), stock, str(counts["same"]), str(counts["better"]), failed, str(nothing), longest)
    _TELL.print(table)


def _earlier(path: Path) -> tuple[dict[Cell, Verdict], float]:
    """The verdicts of an earlier run, by what its `--json` ended with, and the seconds that it took."""
    told = json.loads(path.read_text().splitlines()[-1])
    verdicts = [Verdict.from_json(each) for each in told["cells"]]
    return {each.cell: each for each in verdicts}, told["seconds"]


def main() -> int:
    """Run the matrix from the command line; 1 where a cell fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="cells whose name has this text; may be repeated, and all must hold: --only HTTP/2 --only RST",
    )
    parser.add_argument(
        "--covering", action="store_true", help="the part that stands for all: every pair of dimensions"
    )
    parser.add_argument("--list", action="store_true", help="list the cells and run nothing")
    parser.add_argument(
        "--processes", type=int, default=PROCESSES, help="cells that run beside one another (%(default)s)"
    )
    parser.add_argument(
        "--large-mb", type=int, default=LARGE_BYTES // 1_000_000, help="size of the large answers in MB (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--write", action="store_true", help=f"write the results into {PAGE}; of a whole run alone")
    parser.add_argument(
        "--over", metavar="FILE", type=Path, help="the --json of an earlier run, in which these cells replace their own"
    )
    options = parser.parse_args()
    if options.processes < 1 or options.large_mb < 1:
        parser.error("--processes and --large-mb take whole numbers from 1")
    cells = [
        cell
        for cell in (covering() if options.covering else applicable())
        if all(text in str(cell) for text in options.only)
    ]
    if not cells:
        parser.error(f"no cell has {' and '.join(options.only)} in its name: --list names them")
    if options.list:
        with contextlib.suppress(BrokenPipeError):
            for cell in cells:
                sys.stdout.write(f"{cell}\n")
            sys.stdout.flush()
        return 0
    earlier, earlier_s = ({}, 0.0) if options.over is None else _earlier(options.over)
    if options.write and (not is_whole({*earlier, *cells}) or options.large_mb * 1_000_000 != LARGE_BYTES):
        parser.error("--write needs the whole matrix, now or in --over: leave out --only, --covering and --large-mb")
    began = now_ns()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_TELL) as progress:
        task = progress.add_task("cells", total=len(cells))

        def told(verdict: Verdict) -> None:
            progress.update(task, advance=1, description=escape(verdict.cell.fault[:30]))
            for problem in verdict.problems:
                progress.print(f"[red]failed[/] {escape(str(verdict.cell))}: {escape(problem)}", highlight=False)

        verdicts = run(cells, told=told, large_bytes=options.large_mb * 1_000_000, processes=options.processes)
    seconds = (now_ns() - began) / 1e9
    _tell(verdicts)
    counts = Counter(verdict.verdict for verdict in verdicts.values())
    _TELL.print(f"{counts['same']} same, {counts['better']} better, {counts['failed']} failed, in {seconds:.0f} s")
    if options.write:
        write({**earlier, **verdicts}, earlier_s + seconds)
    if options.json:
        told_all = [verdict.to_json() for _, verdict in sorted(verdicts.items())]
        sys.stdout.write(
            json.dumps({"name": "faults", "seconds": round(seconds, 1), "counts": counts, "cells": told_all}) + "\n"
        )
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
