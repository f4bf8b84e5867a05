"""`make fuzz`: feed every reader with what nobody would send, and hold what it makes of it against an oracle."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from scripts.distribution import UnavailableError
from tests.fuzz.failures import ROOT, tried
from tests.fuzz.guard import MOST_RATIO, Grown, growth
from tests.fuzz.running import Fuzzed, atheris_path, fuzz
from tests.fuzz.targets import TARGETS, Target

_TELL = Console(stderr=True)


def _atheris(engine: str) -> Path | None:
    if engine == "chance":
        return None
    try:
        return atheris_path()
    except UnavailableError as error:
        if engine == "atheris":
            raise SystemExit(f"atheris cannot be had here: {error}") from None
        _TELL.print(f"atheris cannot be had here, so inputs are made by chance alone: {error}", markup=False)
        return None


def _one(target: Target, file: Path) -> int:
    found = tried(target, file.read_bytes())
    _TELL.print("nothing is wrong with it" if found is None else found.told, markup=False, highlight=False)
    return int(found is not None)


def _grown(target: Target) -> dict[str, Grown]:
    return {name: growth(work) for name, work in target.grown.items()}


def _too_fast(grown: dict[str, Grown]) -> dict[str, Grown]:
    return {name: one for name, one in grown.items() if one.ratio > MOST_RATIO}


def _show(fuzzed: dict[str, Fuzzed], grown: dict[str, dict[str, Grown]], *, guided: bool) -> None:
    table = Table("target", "inputs", "seconds", "corpus" if guided else "", "slowest input", "worst growth", "defects")
    for name, one in fuzzed.items():
        worst = max((found.ratio for found in grown[name].values()), default=None)
        defects = len(one.failures) + len(_too_fast(grown[name]))
        table.add_row(
            name, f"{one.inputs:,}", f"{one.seconds:.0f}", str(one.corpus) if guided else "",
            f"{one.slowest_s * 1e3:,.0f} ms", "" if worst is None else f"{worst:.1f}", str(defects),
        )  # fmt: skip
    _TELL.print(table)
    for name, one in fuzzed.items():
        for place, file in one.failures.items():
            _TELL.print(f"{name}: {place}", markup=False, highlight=False)
            shown = Path(file).relative_to(ROOT) if file else "(not made smaller in time)"
            _TELL.print(f'    make fuzz ARGS="--target {name} --input {shown}"', markup=False, highlight=False)
        for what, found in _too_fast(grown[name]).items():
            _TELL.print(f"{name}: {what}: {found.ratio:.1f} times the time for 4 times the size", markup=False)


def main() -> int:
    """Fuzz from the command line; 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target (default: %(default)s)")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="only this one; may be repeated")
    parser.add_argument(
        "--engine",
        choices=("auto", "atheris", "chance"),
        default="auto",
        help="what makes the inputs (default: atheris where it can be installed)",
    )
    parser.add_argument("--seed", type=int, default=None, help="by chance alone, the same seed makes the same inputs")
    parser.add_argument("--input", type=Path, default=None, help="try this file with one target, and nothing else")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()  # fmt: skip
    if not options.minutes > 0:
        parser.error(f"--minutes takes a number above 0, got {options.minutes:g}")
    names = options.target or list(TARGETS)
    if options.input is not None:
        if len(names) != 1 or not options.input.is_file():
            parser.error("--input takes a file, and one --target")
        return _one(TARGETS[names[0]], options.input)
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    atheris = _atheris(options.engine)
    engine = "chance" if atheris is None else "atheris"
    _TELL.print(f"seed {seed}, inputs made by {engine}")
    fuzzed: dict[str, Fuzzed] = {}
    grown: dict[str, dict[str, Grown]] = {}
    columns = (TextColumn("{task.description:10}"), BarColumn(), TextColumn("{task.fields[inputs]:>12,} inputs"))
    with Progress(*columns, TimeElapsedColumn(), console=_TELL) as progress:
        for name in names:
            task = progress.add_task(name, total=None, inputs=0)
            grown[name] = _grown(TARGETS[name])
            fuzzed[name] = fuzz(
                name, seconds=options.minutes * 60, seed=seed, atheris=atheris,
                tell=lambda count, task=task: progress.update(task, inputs=count),  # type: ignore[misc]
            )  # fmt: skip
            progress.update(task, total=1, completed=1, inputs=fuzzed[name].inputs)
    _show(fuzzed, grown, guided=atheris is not None)
    if options.json:
        told: dict[str, Any] = {name: one.told for name, one in fuzzed.items()}
        for name, all_grown in grown.items():
            told[name]["growth"] = {what: round(found.ratio, 2) for what, found in all_grown.items()}
        sys.stdout.write(json.dumps({"name": "fuzz", "seed": seed, "engine": engine, "targets": told}) + "\n")
    return int(any(one.failures or _too_fast(grown[name]) for name, one in fuzzed.items()))


if __name__ == "__main__":
    sys.exit(main())
