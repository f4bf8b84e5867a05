"""`make soak`: a mixed life of calls, faults, cancellations and forks, and nothing lost, doubled, crossed or leaked."""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.soak.judging import WARM_UP, Failure, Flat
from tests.soak.running import Outcome, run

_TELL = Console(stderr=True)
_SHOWN = 10


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default 30)")
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same plan of calls")
    parser.add_argument("--cores", type=float, default=0.5, help="CPU to take in the mean, of all processes (0.5)")
    parser.add_argument("--report", type=Path, default=None, help="write every failure in full, as JSON lines")
    parser.add_argument("--forget-every", type=int, default=0, help="rounds after which plays begin anew (never)")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser.parse_args()


def _told(outcome: Outcome) -> dict[str, Any]:
    judge = outcome.judge
    kinds = [failure.kind for failure in outcome.failures]
    bare = [sample for sample in outcome.samples if sample["bare"]] or [{"descriptors": 0, "threads": 0}]
    return {
        "seed": outcome.seed,
        "minutes": round(outcome.seconds / 60, 2),
        "cpu_s": round(outcome.cpu_s, 1),
        "rounds": outcome.rounds,
        "clients": outcome.clients,
        "calls": judge.calls,
        "requests": judge.requests,
        "billed": judge.billed,
        "ends": dict(judge.ends.most_common()),
        "attempts": dict(judge.attempts.most_common()),
        "faults": dict(judge.struck.most_common()),
        "failures": {kind: kinds.count(kind) for kind in sorted({*kinds})},
        "memory": _growth(outcome.flat),
        "blocks": _growth(outcome.blocks),
        "longest_call_s": round(judge.longest[0], 2),
        "models_said_to_be_unreachable": judge.unreachable,
        "models_said_to_refuse": judge.said_to_refuse,
        "struck_and_late_elsewhere": judge.late,
        "descriptors": [min(each["descriptors"] for each in bare), max(each["descriptors"] for each in bare)],
        "threads": [min(each["threads"] for each in bare), max(each["threads"] for each in bare)],
    }


def _growth(flat: Flat | None) -> dict[str, float] | None:
    return None if flat is None else dataclasses.asdict(flat) | {"growth": flat.growth}


def _show(told: dict[str, Any], outcome: Outcome) -> None:
    table = Table("what", "figure", show_header=False)
    table.add_row("seed", str(told["seed"]))
    table.add_row("time", f"{told['minutes']} minutes, {told['cpu_s']} s of CPU, {told['rounds']} rounds")
    table.add_row("calls", f"{told['calls']:,} by {told['clients']:,} clients")
    table.add_row("longest call", f"{told['longest_call_s']} s ({outcome.judge.longest[1]})")
    table.add_row("requests", f"{told['requests']:,}, of which {told['billed']:,} were generated for")
    for name in ("ends", "attempts", "faults"):
        table.add_row(name, ", ".join(f"{what} {count:,}" for what, count in told[name].items()))
    if outcome.flat is None or outcome.blocks is None:
        table.add_row("memory", "too few samples to judge")
    else:
        flat, blocks = outcome.flat, outcome.blocks
        table.add_row(
            "memory",
            f"{flat.before / 2**20:.1f} MiB, {flat.after / 2**20:.1f} MiB at the end: {flat.growth:+.1%} "
            f"(medians of quarters behind a warm-up of {WARM_UP:.0%})",
        )
        table.add_row(
            "in use of it",
            f"Python's blocks {blocks.before:,.0f}, {blocks.after:,.0f}: {blocks.growth:+.1%}",
        )
    table.add_row("with every client closed", f"descriptors {told['descriptors']}, threads {told['threads']}")
    table.add_row("failures", str(told["failures"] or "none"))
    _TELL.print(table)


def _failed(failures: list[Failure], seed: int) -> None:
    for failure in failures[:_SHOWN]:
        _TELL.print(f"[bold red]{failure.kind}[/] in round {failure.round} of seed {seed}:")
        _TELL.print(failure.what[:3_000], markup=False, highlight=False)
        if failure.details is not None:
            details = failure.details if isinstance(failure.details, str) else json.dumps(failure.details, default=str)
            _TELL.print(details[:3_000], markup=False, highlight=False)
    if len(failures) > _SHOWN:
        _TELL.print(f"and {len(failures) - _SHOWN} more: --report FILE has all of them")


def main() -> int:
    """Soak from the command line; 1 where anything failed."""
    arguments = _arguments()
    if arguments.minutes <= 0 or arguments.cores <= 0:
        came = f"--minutes {arguments.minutes:g} --cores {arguments.cores:g}"
        _TELL.print(f"--minutes and --cores take numbers above 0, got {came}")
        return 2
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_TELL) as progress:
        task = progress.add_task(f"seed {seed}", total=arguments.minutes * 60)

        def begun(outcome: Outcome) -> None:
            sample = outcome.samples[-1]
            progress.update(
                task,
                completed=outcome.seconds,
                description=f"seed {seed}: round {outcome.rounds}, {outcome.judge.calls:,} calls, "
                f"{sample['resident'] / 2**20:.0f} MiB, {sample['descriptors']} descriptors, "
                f"{len(outcome.failures)} failures",
            )

        outcome = run(
            seed=seed, minutes=arguments.minutes, cores=arguments.cores, begun=begun,
            forget_every=arguments.forget_every,
        )  # fmt: skip
    if arguments.report is not None:
        lines = (json.dumps(dataclasses.asdict(failure), default=str) for failure in outcome.failures)
        arguments.report.write_text("".join(f"{line}\n" for line in lines))
    told = _told(outcome)
    _show(told, outcome)
    _failed(outcome.failures, seed)
    if arguments.json:
        sys.stdout.write(json.dumps(told) + "\n")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
