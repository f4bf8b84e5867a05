"""Print a self-test."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ._self_test import MOST_P50_MS, MOST_P99_MS, MOST_TPOT_ERROR, OURS, SelfTest, SelfTestRow


def print_self_test(self_test: SelfTest, console: Console | None = None) -> None:
    """Print the table, what it was measured with, and what spoils it."""
    console = console or Console()
    table = Table(title="Self-test: error of what is recorded, against what the server did", title_justify="left")
    table.add_column("client")
    for name in (
        "streams x tokens/s",
        "processes",
        "TTFT error p50 / p99, ms",
        "had bytes been stamped",
        "TPOT error p50 / p99, %",
        "wrong counts",
        "cores",
        "server late p99, ms",
        "reach",
    ):
        table.add_column(name, justify="right")
    for row in self_test.rows:
        table.add_row(*_cells(row))
    console.print(table)
    console.print(
        f"Reach, for {OURS}: TTFT error {MOST_P50_MS:g} / {MOST_P99_MS:g} ms, TPOT error {MOST_TPOT_ERROR:.0%} (p50). "
        f"Truth: a server compiled from C that stamps just before each send, on this machine ({self_test.cores} "
        "cores); starts staggered, warm-up cut.",
        style="dim",
        markup=False,
    )
    for note in self_test.notes:
        console.print(note, style="dim", markup=False)
    if self_test.too_busy:
        console.print(
            "The server itself was late in some rows: this machine was too busy, and the figures say as much about "
            "that as about the clients. Repeat it when nothing else runs.",
            style="bold yellow",
        )
    console.print(f"Within reach: {'yes' if self_test.reached else 'NO'}", style="bold", markup=False)


def _cells(row: SelfTestRow) -> tuple[str, ...]:
    score = row.score
    arrived = (
        "unknown"
        if score.arrived_error_p50_ms is None
        else f"{score.arrived_error_p50_ms:.2f} / {score.arrived_error_p99_ms:.2f}"
    )
    return (
        row.arm,
        f"{row.streams} x {row.tokens_per_s:,}",
        str(row.shards),
        f"{score.ttft_error_p50_ms:.2f} / {score.ttft_error_p99_ms:.2f}",
        arrived,
        f"{100 * score.tpot_error_p50:.2f} / {100 * score.tpot_error_p99:.2f}",
        str(score.wrong_counts + score.unmatched),
        f"{row.cpu_share:.2f}",
        f"{score.server_late_p99_ms:.2f}",
        ("yes" if row.reached else "NO") if row.arm == OURS else "",
    )
