"""What a run shows while it runs: how far it is, and ratios that may be watched without harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress as Bar, TaskProgressColumn, TextColumn

from .._formatting import change_with_interval, counted, figure, lowered
from ..recorded import metric_named
from ..statistics import Interval

if TYPE_CHECKING:
    from ..progress import Progress


class LiveProgress:
    """A display that follows a run on a terminal: `Benchmark.run(on_progress=display)` inside its `with` block.

    The ratios come with confidence sequences: all of a cell hold together at every look with a probability of 95 %.
    """

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
        """Show how far the run is."""
        place = f" ({progress.cells_done + 1}/{progress.cells})" if progress.cells > 1 else ""
        words = [f"{progress.cell}{place}", counted(progress.blocks, "block"), counted(progress.requests, "request")]
        words += [f"{progress.failed:,} failed"] if progress.failed else []
        words.append(f"{figure(progress.elapsed_s)} s")
        description = "\n".join([escape(", ".join(words)), *_ratios(progress)])
        self._bar.update(self._task, completed=min(1.0, progress.share), description=description)


def _ratios(progress: Progress) -> Iterator[str]:
    for each in progress.ratios:
        metric = metric_named(each.metric)
        better = (each.ratio < 1) == metric.lower_is_better
        style = ("green" if better else "red") if each.high < 1 or each.low > 1 else "dim"
        change = change_with_interval(Interval(value=each.ratio, low=each.low, high=each.high))
        line = f"{each.arm}: {lowered(metric.title)} {change}, {counted(each.pairs, 'pair')}"
        yield f"[{style}]{escape(line)}[/]"
