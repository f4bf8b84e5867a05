"""What a run shows while it runs: how far it is, and ratios that may be watched without harm."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
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

    The ratios come with confidence sequences. All of a cell hold together at every look with a probability of 95 %, so
    that to stop a run because any of them has excluded "no change" errs in one run of twenty at most.
    """

    def __init__(self, console: Console) -> None:
        columns = BarColumn(), TaskProgressColumn(), TextColumn("{task.description}")
        self._bar = Bar(*columns, console=console, transient=True)
        self._task = self._bar.add_task("the arms' processes start", total=1.0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Show how far the run is."""
        said = escape(", ".join(_said(progress)))
        self._bar.update(
            self._task, completed=min(1.0, progress.share), description="\n".join([said, *_ratios(progress)])
        )


def _said(progress: Progress) -> Iterator[str]:
    yield progress.cell if progress.cells == 1 else f"{progress.cell} ({progress.cells_done + 1}/{progress.cells})"
    yield counted(progress.blocks, "block")
    yield counted(progress.requests, "request")
    if progress.failed:
        yield f"{progress.failed:,} failed"
    yield f"{figure(progress.elapsed_s)} s"


def _ratios(progress: Progress) -> Iterator[str]:
    for each in progress.ratios:
        metric = metric_named(each.metric)
        better = (each.ratio < 1) == metric.lower_is_better
        style = ("green" if better else "red") if each.high < 1 or each.low > 1 else "dim"
        said = change_with_interval(Interval(value=each.ratio, low=each.low, high=each.high))
        line = f"{each.arm}: {lowered(metric.title)} {said}, {counted(each.pairs, 'pair')}"
        yield f"[{style}]{escape(line)}[/]"
