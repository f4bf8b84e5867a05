"""`make soak`: a mixed life of calls, faults, cancellations and forks, and nothing lost, doubled, crossed or leaked."""

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

from tests.soak.running import Outcome, run

_TELL = Console(stderr=True)
_SHOWN = 10


def _above_zero(text: str) -> float:
    if float(text) <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return float(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=_above_zero, default=30.0, help="how long (default 30)")
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same plan of calls")
    parser.add_argument(
        "--cores", type=_above_zero, default=0.5, help="CPU to take in the mean, of all processes (0.5)"
    )
    parser.add_argument("--report", type=Path, default=None, help="write every failure in full, as JSON lines")
    parser.add_argument("--forget-every", type=int, default=0, help="rounds after which plays begin anew (never)")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser.parse_args()


def _figures(outcome: Outcome) -> dict[str, Any]:
    judge = outcome.judge
    kinds = [failure.kind for failure in outcome.failures]
    bare = [sample for sample in outcome.samples if sample["bare"]]
    return {
        "seed": outcome.seed,
        "minutes": round(outcome.seconds / 60, 2),
        "cpu_s": round(outcome.cpu_s, 1),
        "rounds": len(outcome.samples),
        "clients": outcome.samples[-1]["opened"] if outcome.samples else 0,
        **judge.counts,
        "ends": dict(judge.ends.most_common()),
        "attempts": dict(judge.attempts.most_common()),
        "faults": dict(judge.struck.most_common()),
        "longest_call_s": [round(judge.longest[0], 2), judge.longest[1]],
        # Of a third of the run on, the medians of the last quarter above those of the first; None: too few samples.
        "resident_bytes": [sample["resident"] for sample in bare[:1] + bare[-1:]],
        "memory_growth": outcome.growth("resident"),
        "blocks_growth": outcome.growth("blocks"),
        **{name: sorted({sample[name] for sample in bare}) for name in ("descriptors", "threads")},
        "failures": {kind: kinds.count(kind) for kind in sorted({*kinds})},
    }


def _show(figures: dict[str, Any], outcome: Outcome) -> None:
    table = Table("what", "figure", show_header=False)
    for name, figure in figures.items():
        items = figure.items() if isinstance(figure, dict) else ()
        table.add_row(name, ", ".join(f"{what} {count:,}" for what, count in items) or str(figure or "none"))
    _TELL.print(table)
    # Reports first: they hold the stacks of what hung.
    for failure in sorted(outcome.failures, key=lambda failure: failure.kind != "reports")[:_SHOWN]:
        _TELL.print(f"[bold red]{failure.kind}[/] in round {failure.round} of seed {outcome.seed}:")
        details = failure.details if isinstance(failure.details, str) else json.dumps(failure.details, default=str)
        for text in (failure.what, details):
            _TELL.print(text[:3_000], markup=False, highlight=False)
    if len(outcome.failures) > _SHOWN:
        _TELL.print(f"and {len(outcome.failures) - _SHOWN} more: --report FILE has all of them")


def main() -> int:
    """Soak from the command line; 1 where anything failed."""
    arguments = _arguments()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_TELL) as progress:
        task = progress.add_task(f"seed {seed}", total=arguments.minutes * 60)

        def begun(outcome: Outcome) -> None:
            sample = outcome.samples[-1]
            progress.update(
                task,
                completed=outcome.seconds,
                description=f"seed {seed}: round {len(outcome.samples)}, {outcome.judge.counts['calls']:,} calls, "
                f"{sample['resident'] / 2**20:.0f} MiB, {sample['descriptors']} descriptors, "
                f"{len(outcome.failures)} failures",
            )

        outcome = run(
            seed=seed,
            minutes=arguments.minutes,
            cores=arguments.cores,
            begun=begun,
            forget_every=arguments.forget_every,
        )
    if arguments.report is not None:
        lines = (json.dumps(failure._asdict(), default=str) for failure in outcome.failures)
        arguments.report.write_text("".join(f"{line}\n" for line in lines))
    figures = _figures(outcome)
    _show(figures, outcome)
    if arguments.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
