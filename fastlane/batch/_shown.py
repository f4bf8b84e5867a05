"""A queue as it is shown: one JSON object, or a few lines with a bar."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ._jobs import JOB_STATES, Status

_BAR_LETTERS = 40


def document(status: Status) -> dict[str, Any]:
    """Return a status as plain JSON values."""
    return {
        "total": status.total,
        "over": status.over,
        "jobs": dict(status.jobs),
        "failures": dict(status.failures),
        "batches": [_batch(asdict(batch)) for batch in status.batches],
        "batches_settled": status.batches_settled,
        "oldest_waiting_s": status.oldest_waiting_s,
        "finished_per_s": status.finished_per_s,
        "expected_end_s": status.expected_end_s,
        "input_tokens": status.input_tokens,
        "output_tokens": status.output_tokens,
        "cached_tokens": status.cached_tokens,
    }


def _batch(batch: dict[str, Any]) -> dict[str, Any]:
    shown = (
        "name", "state", "provider_state", "endpoint", "model", "requests", "unwanted", "bytes", "batch_id",
        "provider_done", "provider_failed", "planned_at", "changed_at", "error",
    )  # fmt: skip
    return {name: batch[name] for name in shown}


def shown(status: Status) -> Group:
    """Return a status as a terminal shows it."""
    parts: list[Any] = [_line(status)]
    counts = [f"{status.jobs[state]:,} {state}" for state in JOB_STATES if status.jobs.get(state)]
    parts.append(Text("  ".join(counts) or "the queue is empty"))
    if status.failures:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in status.failures.items())
        # A provider's word for what went wrong is no markup.
        parts.append(Text(f"failed: {reasons}", style="red"))
    tokens = (
        f"{status.input_tokens:,} tokens in ({status.cached_tokens:,} of them cached), {status.output_tokens:,} out"
    )
    parts.append(Text(tokens, style="dim"))
    if status.batches:
        parts.append(_batches(status))
    return Group(*parts)


def _line(status: Status) -> Table:
    line = Table.grid(padding=(0, 1))
    done = f"{status.over:,} of {status.total:,}"
    share = f"{100 * status.over / status.total:.0f} %" if status.total else ""
    bar = ProgressBar(total=max(1, status.total), completed=status.over, width=_BAR_LETTERS)
    line.add_row(bar, share, done, _pace(status))
    return line


def _pace(status: Status) -> str:
    if status.over == status.total:
        return "all are over" if status.total else ""
    if status.finished_per_s is None or status.expected_end_s is None:
        return ""
    return f"{status.finished_per_s:.3g} a second, about {in_words(status.expected_end_s)} to go"


def _batches(status: Status) -> Table:
    table = Table("batch", "state", "at the provider", "model", "requests", "done", "failed", title_justify="left")
    for batch in status.batches:
        table.add_row(
            batch.name,
            batch.state,
            # What others have named is no markup.
            Text(batch.provider_state or ""),
            Text(batch.model),
            f"{batch.requests:,}",
            f"{batch.provider_done:,}",
            f"{batch.provider_failed:,}",
        )
    return table


def in_words(seconds: float) -> str:
    """Return a time as one reads it: "40 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"
