"""`fastlane bench self-test`: the bench's own figures on this machine against the embedded provider's log."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from ._experiment import Benchmark, Embedded
from .load import Closed, RunBudget
from .recorded import RecordedRun
from .workloads import preset

MOST_P50_MS: Final = 1.0
MOST_P99_MS: Final = 3.0
MOST_PACE_ERROR: Final = 0.02
_ARMS: Final = ("fastlane", "fastlane-async", "baseline-async")
_RIGHT: Final = (
    f"Right: a first token at most {MOST_P50_MS:g} ms (p50) and {MOST_P99_MS:g} ms (p99) after the provider sent it, "
    f"time per token within {MOST_PACE_ERROR:.0%}, no wrong count. If an arm's figures are not right, close other "
    "programs and repeat it."
)


def self_test(*, quick: bool = False) -> dict[str, Any]:
    """Compare the bench with the embedded provider's log, in a minute, or a quarter of one if `quick`.

    Returns plain data: "bars", the largest errors that are right, and "rows", the errors of each arm.
    """
    recorded = Benchmark(
        arms=_ARMS,
        workload=preset("chat"),
        load=Closed(users=(6,), think_s=0.02),
        provider=Embedded(round_trip_time_s=0.0),
        budget=RunBudget(seconds=10 if quick else 50),
        again=False,
        max_output_tokens=96,
    ).run()
    bars = {"late_p50_ms": MOST_P50_MS, "late_p99_ms": MOST_P99_MS, "pace_error_p50": MOST_PACE_ERROR}
    rows = [_errors(recorded, arm) for arm in _ARMS]
    for row in rows:
        row["right"] = not row["wrong_counts"] and all(row[name] <= most for name, most in bars.items())
    return {"bars": bars, "rows": rows}


def _errors(recorded: RecordedRun, arm: str) -> dict[str, Any]:
    """Return how late an arm's first tokens are (ms), how wrong its paces (a share), and how many counts are wrong.

    All by the provider's log. A failed request, and one that is not in the log, has a wrong count.
    """
    logged = {entry.tag: entry.token_ns for entry in recorded.log or ()}
    samples = recorded.measured(arm=arm)
    pairs = [(sample.token_ns, logged.get(sample.tag, ())) for sample in samples if sample.error is None]
    pairs = [(own, sent) for own, sent in pairs if len(sent) == len(own) > 1]
    late_ms = [(own[0] - sent[0]) / 1e6 for own, sent in pairs] or [np.inf]
    paces = [abs((own[-1] - own[0]) / (sent[-1] - sent[0]) - 1) for own, sent in pairs] or [np.inf]
    return {
        "arm": arm,
        "requests": len(samples),
        "late_p50_ms": float(np.quantile(late_ms, 0.5)),
        "late_p99_ms": float(np.quantile(late_ms, 0.99)),
        "pace_error_p50": float(np.quantile(paces, 0.5)),
        "wrong_counts": len(samples) - len(pairs),
    }


def print_self_test(found: dict[str, Any], console: Console) -> None:
    table = Table("arm", title="Self-test: recorded times against the provider's log", title_justify="left")
    for name in ("requests", "first token late p50 / p99, ms", "time per token off p50, %", "wrong counts", "right"):
        table.add_column(name, justify="right")
    for row in found["rows"]:
        late = f"{row['late_p50_ms']:.2f} / {row['late_p99_ms']:.2f}"
        off, wrong = f"{100 * row['pace_error_p50']:.2f}", str(row["wrong_counts"])
        table.add_row(row["arm"], str(row["requests"]), late, off, wrong, "yes" if row["right"] else "NO")
    console.print(table)
    console.print(_RIGHT, style="dim", markup=False, highlight=False)
