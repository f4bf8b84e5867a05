"""The tables that a run prints."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ._arms import compared_with
from ._check import BUSY_LAG_MS, Disagreement
from ._run import Run
from ._statistics import ENOUGH_FOR_P95, ENOUGH_FOR_P99, Percentile, Ratio
from ._summary import METRICS, SHARES, ArmSummary, Comparison, Summary

_STYLES = {"faster": "green", "slower": "red"}
_UNKNOWN = "not known"
_FEW = "~"


def print_report(run: Run, summary: Summary, console: Console) -> None:
    """Print the whole report."""
    for line in _heading(run):
        console.print(Text(line))
    for metric in METRICS:
        console.print()
        console.print(_durations(metric, run, summary))
    if any(each.few_samples for arm in summary.arms for _, each in _percentiles(arm)):
        few = f"{_FEW} few samples: a p95 wants {ENOUGH_FOR_P95} requests, a p99 {ENOUGH_FOR_P99}"
        console.print(Text(few, style="dim"))
    console.print()
    console.print(_work(summary))
    console.print()
    for line in _check_lines(run):
        console.print(Text(line))
    for arm in summary.arms:
        for error, count in arm.errors.items():
            console.print(Text(f"{arm.arm}: {count} of {arm.requests} requests failed with {error}", style="red"))
    for problem in summary.problems:
        console.print(Text(f"NOT USABLE: {problem}", style="bold red"))


def _heading(run: Run) -> Iterator[str]:
    settings = run.settings
    yield f"Workload {settings.workload.name}: {len(settings.workload.conversations)} conversations"
    for note in settings.workload.notes:
        yield f"  {note}"
    yield f"Provider: {settings.provider.describe()}"
    if run.interrupted:
        yield "INTERRUPTED: these are the requests that were finished by then."
    why = "were begun before the interruption" if run.interrupted else "the time budget allowed"
    cut = "" if run.blocks_run == run.blocks_planned else f" of {run.blocks_planned}, as many as {why}"
    yield f"Lanes: {settings.lanes}, pause {settings.think_s:g} s, seed {settings.seed}"
    yield f"Blocks: {run.blocks_run}{cut}, with {len(settings.arms)} arms each, in {run.duration_s:.1f} s"
    if run.cpu_share > 0.7:
        yield f"An arm took {run.cpu_share:.0%} of a core: above 70 % its lanes delay each other. Use fewer --lanes."


def _durations(metric: str, run: Run, summary: Summary) -> Table:
    reference = compared_with([arm.name for arm in run.settings.arms])
    table = _table(f"{METRICS[metric]} (ms)")
    table.add_column("arm")
    table.add_column("n", justify="right")
    for name in SHARES:
        table.add_column(name, justify="right")
    table.add_column(f"ratio to {reference} [95 % CI]", justify="right")
    table.add_column("")
    compared = {each.arm: each for each in summary.comparisons if each.metric == metric}
    for arm in summary.arms:
        durations = arm.durations[metric]
        shown = [_milliseconds(durations.percentiles.get(name)) for name in SHARES]
        table.add_row(arm.arm, str(durations.requests), *shown, *_ratio_cells(compared.get(arm.arm)))
    return table


def _ratio_cells(comparison: Comparison | None) -> tuple[str, Text]:
    if comparison is None or comparison.typical is None:
        return "", Text("")
    ratio: Ratio = comparison.typical
    interval = f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.low is not None and ratio.high is not None else ""
    return f"{ratio.value:.3f}{interval}", Text(ratio.verdict, style=_STYLES.get(ratio.verdict, ""))


def _work(summary: Summary) -> Table:
    table = _table("What it took")
    table.add_column("arm")
    for column in ("failed", "connections", "body bytes sent", "cached tokens", "first request (ms)"):
        table.add_column(column, justify="right")
    for arm in summary.arms:
        cached = _UNKNOWN
        if arm.cached_tokens is not None and arm.input_tokens:
            cached = f"{arm.cached_tokens / arm.input_tokens:.0%} of input"
        table.add_row(
            arm.arm,
            str(arm.failed),
            _count(arm.connections_opened),
            _count(arm.bytes_sent),
            cached,
            _UNKNOWN if arm.first_request_ms is None else f"{arm.first_request_ms:.0f}",
        )
    return table


def _check_lines(run: Run) -> Iterator[str]:
    check = run.check
    if check is None:
        yield "No check against the provider's log: a real provider keeps its log to itself."
        return
    yield "Check against the provider's own log of this run (client minus provider)"
    retries = check.tries_by_server - check.requests_by_server
    again = f", and {retries} {'retry' if retries == 1 else 'retries'}" if retries else ""
    yield f"  requests: {check.requests_by_client} by the clients, {check.requests_by_server} by the provider{again}"
    for what, difference, unit in (
        ("time to first token", check.time_to_first_token_ms, "ms"),
        ("API end-to-end", check.api_end_to_end_ms, "ms"),
        ("output tokens", check.output_tokens, ""),
        ("chunks with output", check.chunks, ""),
        ("body bytes by the clients' own records", check.request_bytes, ""),
        ("time to first token by the clients' own records", check.own_time_to_first_token_ms, "ms"),
    ):
        yield f"  {what}: {_largest(difference, unit)}"
    for arm, counts in check.connections.items():
        yield f"  connections, {arm}: {_count(counts.by_client)} by the client, {counts.by_server} by the provider"
    for arm, lag in check.lags.items():
        yield f"  from a first token's arrival to the caller, {arm}: p50 {lag.p50_ms:.2f} ms, p95 {lag.p95_ms:.2f} ms"
    if any(lag.p95_ms > BUSY_LAG_MS for lag in check.lags.values()):
        yield (
            f"The machine was busy: a p95 above {BUSY_LAG_MS:g} ms from arrival to caller is in every figure above. "
            "Repeat the run on a quieter machine, or with fewer --lanes."
        )


def _largest(difference: Disagreement | None, unit: str) -> str:
    if difference is None:
        return _UNKNOWN
    if not difference.value:
        return "equal for every request"
    figure = f"{difference.value:+.2f} {unit}" if unit else f"{difference.value:+.0f}"
    return f"at most {figure} (request {difference.tag})"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _percentiles(arm: ArmSummary) -> Iterator[tuple[str, Percentile]]:
    for durations in arm.durations.values():
        yield from durations.percentiles.items()


def _milliseconds(value: Percentile | None) -> str:
    return "" if value is None else f"{value.value:.0f}{_FEW if value.few_samples else ''}"


def _count(count: int | None) -> str:
    return _UNKNOWN if count is None else f"{count:,}"
