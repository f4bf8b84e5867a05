"""`make fuzz`: decode mutated documents of every type in every way, and compare each result with the stock client's."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.fuzz.differential import TYPES, Differential

_TELL = Console(stderr=True)


def _run(name: str, cases: int, seed: int, progress: Progress) -> dict[str, Any]:
    differential = Differential(name, seed)
    task = progress.add_task(name, total=cases)
    wrong: list[tuple[bytes, str]] = []
    for data in differential.payloads(cases):
        found = differential.check(data)
        if found is not None:
            wrong.append((data, found))
        progress.advance(task)
    smallest = min(wrong, key=lambda one: len(one[0]), default=None)
    return {
        "cases": cases,
        "differences": len(wrong),
        "accepted": {way: differential.accepted[way] for way in ("stock", "strict", "built", "decoder")},
        "smallest": None if smallest is None else [smallest[0].decode(errors="replace"), smallest[1]],
    }


def _tell(outcomes: dict[str, dict[str, Any]]) -> None:
    table = Table("type", "cases", "stock gives an object", "strict", "built", "decoder", "differences")
    for name, outcome in outcomes.items():
        accepted = outcome["accepted"]
        of_all = accepted["stock"] or 1
        shares = (f"{accepted[way]:,} ({accepted[way] / of_all:.1%})" for way in ("strict", "built", "decoder"))
        table.add_row(name, f"{outcome['cases']:,}", f"{accepted['stock']:,}", *shares, str(outcome["differences"]))
    _TELL.print(table)
    for name, outcome in outcomes.items():
        if outcome["smallest"]:
            document, found = outcome["smallest"]
            _TELL.print(f"[bold]{name}[/]: the smallest document that differs:")
            _TELL.print(document, markup=False, highlight=False)
            _TELL.print(found, markup=False, highlight=False)


def main() -> int:
    """Run the fuzz from the command line; 1 where anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=40_000, help="documents per type")
    parser.add_argument("--seed", type=int, default=None, help="the same seed makes the same documents")
    parser.add_argument("--type", action="append", choices=list(TYPES), help="only this type; may be repeated")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    _TELL.print(f"seed {seed}")
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_TELL) as progress:
        outcomes = {name: _run(name, options.cases, seed, progress) for name in options.type or TYPES}
    _tell(outcomes)
    if options.json:
        sys.stdout.write(json.dumps({"name": "fuzz", "seed": seed, "types": outcomes}) + "\n")
    return int(any(outcome["differences"] for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
