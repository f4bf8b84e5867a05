"""What a run shows while it runs: how far it is, and ratios that may be watched without harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress as Bar, TaskProgressColumn, TextColumn

from .._formatting import change_with_interval, counted, figure, lowered
from ..recorded import metric_named
from ..statistics import Interval

if TYPE_CHECKING:
    from ..progress import Progress, RunningRatio


class LiveProgress:
    """A display that follows a run on a terminal: `Benchmark.run(on_progress=display)` inside its `with` block."""

    def __init__(self, console: Console) -> None:
        columns = BarColumn(), TaskProgressColumn(), TextColumn("{task.description}")
        self._bar = Bar(*columns, console=console, transient=True)
        self._task = self._bar.add_task("the arms' processes start", total=1.0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        place = f" ({progress.cells_done + 1}/{progress.cells})" if progress.cells > 1 else ""
        said = [f"{progress.cell}{place}", counted(progress.blocks, "block"), counted(progress.requests, "request")]
        said += [f"{progress.failed:,} failed"] if progress.failed else []
        said.append(f"{figure(progress.elapsed_s)} s")
        description = "\n".join([escape(", ".join(said)), *map(_line, progress.ratios)])
        self._bar.update(self._task, completed=min(1.0, progress.share), description=description)


def _line(ratio: RunningRatio) -> str:
    metric = metric_named(ratio.metric)
    better = (ratio.ratio < 1) == metric.lower_is_better
    style = ("green" if better else "red") if ratio.high < 1 or ratio.low > 1 else "dim"
    change = change_with_interval(Interval(value=ratio.ratio, low=ratio.low, high=ratio.high))
    said = f"{ratio.arm}: {lowered(metric.title)} {change}, {counted(ratio.pairs, 'pair')}"
    return f"[{style}]{escape(said)}[/]"
